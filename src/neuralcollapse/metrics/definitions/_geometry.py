"""What the metrics read: class means and their spectrum, variances, classifier, and the second look.

K classes, d dimensions; M (K, d) holds the class means minus the global mean h_G in its rows, W (K, d) the
classifier.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from ..._support.checks import describe
from ..._support.numerics import eigh, svd
from ..accumulators.scatter import add_gram, symmetric
from ..accumulators.statistics import ClassStatistics
from ..precision import rounding_of
from ._pairs import PairSum, Rows, add_pairs

__all__ = [
    "Geometry",
    "Need",
    "NotApplicableError",
    "SampleResults",
    "Spectrum",
    "distance_from_simplex",
    "geometry_of",
]

Need = Literal["within", "projection", "scatter", "weight", "decisions", "margins", "ranks", "out_of_distribution"]

WHY = {
    "within": "the variances within classes were not collected",
    "projection": "needs the samples again, on the span of the means (second_pass), or passes=1",
    "scatter": "needs the d x d within-class scatter, which statistics of passes=2 do not keep",
    "weight": "no classifier weight was given",
    "decisions": "needs the samples again, once the class means are known (second_pass)",
    "margins": "needs the samples again, once the class means are known (second_pass)",
    "ranks": "needs the samples again, class by class (second_pass)",
    "out_of_distribution": "no out-of-distribution features were given",
}


Sum = TypeVar("Sum", bound=PairSum)

NOISE = 0.5
"""Of eps x rms x (sqrt K + sqrt d): rounding errors of real networks reach .04, or .2 with one sample a class."""


class NotApplicableError(ValueError):
    """A metric has no value here; the message is the reason that the report gives."""


@dataclass(frozen=True, eq=False)
class SampleResults:
    """What a second look at the samples gave; ``None`` where it was not asked for."""

    along: Float[Tensor, " r"] | None = None
    """For each direction v_i of the full spectrum, (1/N) sum over samples of (v_i'(h - m_y))^2."""
    decided: Int[Tensor, " K"] | None = None
    """Samples of each class that were decided: all, unless a number of them was asked for."""
    mismatches: int | None = None
    margins: Float[Tensor, " N"] | None = None
    at_global_mean: int = 0
    """Samples left out of the margins because they coincide with the global mean."""
    ranks: Float[Tensor, " K"] | None = None
    right: Int[Tensor, " K"] | None = None
    """Samples of each class that the classifier gets right."""
    nearest_right: Int[Tensor, " K"] | None = None
    """Samples of each class whose own class mean is the nearest."""
    scatter: Float[Tensor, "d d"] | None = None
    """(1/N) sum over samples of (h - m_y)(h - m_y)', where the first look did not keep it."""


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Nonzero singular values of M, largest first, and the directions (as columns) they belong to."""

    values: Float[Tensor, " r"]
    directions: Float[Tensor, "d r"]


@dataclass(frozen=True, eq=False)
class Geometry:
    """Class means and variances, classifier and sample results; ``require_*`` say why a part is missing."""

    counts: Int[Tensor, " K"]
    centred: Float[Tensor, "K d"]
    global_mean: Float[Tensor, " d"]
    class_variances: Float[Tensor, " K"]
    scatter: Float[Tensor, "d d"] | None
    weight: Float[Tensor, "K d"] | None
    bias: Float[Tensor, " K"] | None
    samples: SampleResults
    out_of_distribution_mean: Float[Tensor, " d"] | None = None
    missing: dict[str, str] = field(default_factory=dict)
    """Reasons for parts that could have been collected and were not, by need."""
    class_shares: Float[Tensor, " K"] | None = None
    """The weights a_k of the class means in the global mean; ``None`` for n_k/N."""
    precision: torch.dtype = torch.float64
    """The coarsest dtype that the features had."""
    classes: Int[Tensor, " K"] | None = None
    """Numbers of these classes among all, where some were left out."""
    notes: tuple[str, ...] = ()
    """What a reader of the metrics should know."""

    @property
    def num_classes(self) -> int:
        """K."""
        return self.centred.shape[0]

    @property
    def dim(self) -> int:
        """d."""
        return self.centred.shape[1]

    @property
    def total(self) -> int:
        """N."""
        return int(self.counts.sum())

    def number_of(self, place: int) -> int:
        """The number among all classes of the class in this row."""
        return place if self.classes is None else int(self.classes[place])

    @property
    def mean_shares(self) -> Float[Tensor, " K"]:
        """Weights a_k with h_G = sum_k a_k m_k."""
        return self.counts.to(torch.float64) / self.total if self.class_shares is None else self.class_shares

    @cached_property
    def full_spectrum(self) -> Spectrum:
        """The thin SVD of M, cut at the rounding of float64 only."""
        centred = self.centred
        if self.precision != torch.float64 and 3 * centred.shape[0] >= 4 * centred.shape[1]:
            spectrum = self._spectrum_of_gram()
            if spectrum is not None:
                return spectrum
        if centred.shape[0] > centred.shape[1]:
            centred = torch.linalg.qr(centred, mode="r").R
        # Of the transpose, because LAPACK is twice as fast on tall matrices.
        directions, values, _ = svd(centred.T.contiguous(), full_matrices=False)
        size = max(self.largest, float(self.global_mean.abs().max()))
        floor = max(self.centred.shape) * torch.finfo(torch.float64).eps * max(float(values[0]), size)
        rank = int((values > floor).sum())
        return Spectrum(values[:rank], directions[:, :rank])

    def _spectrum_of_gram(self) -> Spectrum | None:
        """The same from the d x d Gram matrix, in a quarter of the time for many classes.

        It holds squares, so it is taken where no singular value is below 1e-4 of the largest: these are then right
        to 1e-8, which is beyond the precision of the features.
        """
        gram = torch.zeros(self.dim, self.dim, dtype=torch.float64)
        for rows in self.centred.split(4096):
            add_gram(gram, rows / self.largest if self.largest else rows)
        squares, vectors = eigh(symmetric(gram))
        if float(squares[0]) <= 1e-8 * float(squares[-1]):
            return None
        return Spectrum(self.largest * squares.flip(0).sqrt(), vectors.flip(1))

    @cached_property
    def largest(self) -> float:
        """The largest entry of M, by magnitude."""
        lowest, highest = torch.aminmax(self.centred)
        return max(-float(lowest), float(highest))

    @cached_property
    def rounding(self) -> float:
        """The rounding error of an entry of the features: eps of their coarsest dtype times their rms.

        The rms is that of the features as they are, offset included: they were rounded with it.
        """
        largest = max(self.largest, float(self.global_mean.abs().max()))
        if largest == 0.0:
            return rounding_of(self.precision, float(self.class_variances.max()) ** 0.5)
        share = self.counts.to(torch.float64) / self.total
        origin = self.global_mean / largest
        norms = [torch.linalg.vector_norm(rows / largest + origin, dim=1) for rows in self.centred.split(4096)]
        square = share @ (torch.cat(norms).square() + self.class_variances / largest**2)
        return rounding_of(self.precision, largest * float(square / self.dim) ** 0.5)

    @cached_property
    def mean_errors(self) -> Float[Tensor, " K"]:
        """How long a difference of class means can be that is rounding alone, by class.

        An entry of the mean of n_k samples is off by the rounding of the features over sqrt n_k; float64 sums over
        classes are off by their own rounding.
        """
        own = NOISE * self.rounding * (self.dim / self.counts.clamp(min=1).to(torch.float64)).sqrt()
        return own.clamp(min=max(self.centred.shape) * torch.finfo(torch.float64).eps * self.largest)

    @cached_property
    def at_global_mean(self) -> Bool[Tensor, " K"]:
        """Classes whose mean is the global mean up to rounding: what is left of it has no direction."""
        if self.largest == 0.0:
            return torch.ones_like(self.counts, dtype=torch.bool)
        lengths = [torch.linalg.vector_norm(rows / self.largest, dim=1) for rows in self.centred.split(4096)]
        return torch.cat(lengths) <= self.mean_errors / self.largest

    @cached_property
    def spectrum(self) -> Spectrum:
        """The singular values of M that the features' precision can tell from zero, with their directions.

        In a direction in which the features are constant, M holds rounding errors. A K x d matrix of such
        errors of size e has singular values up to e (sqrt K + sqrt d): directions below half of that are noise
        over noise, and do not count.
        """
        full = self.full_spectrum
        floor = NOISE * self.rounding * (self.num_classes**0.5 + self.dim**0.5)
        rank = int((full.values > floor).sum())
        return Spectrum(full.values[:rank], full.directions[:, :rank])

    @property
    def rank(self) -> int:
        """How many directions the centred class means span, as far as the features' precision can tell."""
        return self.spectrum.values.shape[0]

    def with_samples(
        self,
        samples: SampleResults,
        class_variances: Float[Tensor, " K"],
        out_of_distribution_mean: Float[Tensor, " d"] | None,
        missing: dict[str, str],
    ) -> "Geometry":
        """The same means with what a second look at the samples gave; a spectrum that is known is kept."""
        result = replace(
            self,
            samples=samples,
            scatter=self.scatter if samples.scatter is None else samples.scatter,
            class_variances=class_variances,
            out_of_distribution_mean=out_of_distribution_mean,
            missing=missing,
        )
        for name in ("full_spectrum", "has_means", "largest"):
            if name in self.__dict__:
                result.__dict__[name] = self.__dict__[name]
        return result

    @cached_property
    def _pair_sums(self) -> dict[type[PairSum], PairSum | NotApplicableError | None]:
        """What is collected over pairs of classes: ``None`` where it was announced and not yet asked for."""
        return {}

    def announce(self, kinds: Iterable[type[PairSum]]) -> None:
        """Say what will be asked of :meth:`pair_sum`, so that one pass over the pairs gives all of it."""
        for kind in kinds:
            self._pair_sums.setdefault(kind, None)

    def pair_sum(self, kind: type[Sum]) -> Sum:
        """A sum over pairs of classes, taken with all others that were announced for the same vectors."""
        self.announce([kind])
        if self._pair_sums[kind] is None:
            rows = self.centred if kind.of == "means" else self.weight
            if rows is None:
                raise self.lacking("weight")
            vectors, ready = Rows(rows), []
            for other in [k for k, found in self._pair_sums.items() if found is None and k.of == kind.of]:
                try:
                    ready.append(other(self, vectors))
                    self._pair_sums[other] = ready[-1]
                except NotApplicableError as error:
                    self._pair_sums[other] = error
            add_pairs(vectors, ready)
        found = self._pair_sums[kind]
        if isinstance(found, NotApplicableError):
            raise found
        assert isinstance(found, kind)
        return found

    def lacking(self, need: str) -> NotApplicableError:
        """The error for a part that is not there."""
        return NotApplicableError(self.missing.get(need, WHY[need]))

    @cached_property
    def has_means(self) -> bool:
        """Whether the class means do not all coincide up to the rounding of float64."""
        largest = self.largest
        if largest == 0.0:
            return False
        size = max(largest, float(self.global_mean.abs().max()))
        norms = [torch.linalg.vector_norm(rows / largest) for rows in self.centred.split(4096)]
        length = largest * float(torch.linalg.vector_norm(torch.stack(norms)))
        return length > max(self.centred.shape) * torch.finfo(torch.float64).eps * size

    def require_means(self) -> Float[Tensor, "K d"]:
        """M, if every class has samples and the class means do not all coincide."""
        absent = (self.counts == 0).nonzero().squeeze(1).tolist()
        if absent:
            which = f"class {absent[0]} has" if len(absent) == 1 else f"{len(absent)} classes ({absent[0]}, ...) have"
            raise NotApplicableError(
                f"{which} no samples, of {self.num_classes} classes (present_only=True skips them)"
            )
        if not self.has_means:
            raise NotApplicableError("all class means coincide")
        return self.centred

    def require_directions(self) -> Float[Tensor, "K d"]:
        """M, if every class mean is farther from the global mean than rounding explains."""
        means = self.require_means()
        lost = self.at_global_mean.nonzero()
        if lost.shape[0]:
            raise NotApplicableError(
                f"the mean of class {self.number_of(int(lost[0]))} is the global mean within the rounding of "
                f"{str(self.precision).removeprefix('torch.')} features, so it has no direction from there"
            )
        return means

    def require_spectrum(self) -> Spectrum:
        """The singular values and directions of M that count, if there are any."""
        self.require_means()
        if self.rank == 0:
            raise NotApplicableError(
                f"all class means coincide within the rounding of {str(self.precision).removeprefix('torch.')} features"
            )
        return self.spectrum

    def require_spread(self) -> None:
        """Check that there is a variance within classes to speak of."""
        self.require_means()
        if int(self.counts.max()) < 2:
            raise NotApplicableError("every class has a single sample, so there is no variance within classes")

    def require_weight(self) -> Float[Tensor, "K d"]:
        """W, if it was given and is not zero."""
        if self.weight is None:
            raise self.lacking("weight")
        if not bool(self.weight.any()):
            raise NotApplicableError("the classifier weight is zero")
        return self.weight

    def require_etf(self) -> None:
        """Check that a simplex ETF of K vectors exists in R^d."""
        if self.dim < self.num_classes - 1:
            raise NotApplicableError(
                f"no simplex ETF of {self.num_classes} classes exists in {self.dim} dimensions (d < K-1): "
                "see the measure of the same name that ends in _projected"
            )

    def require_no_etf(self) -> None:
        """Check that K - 1 > d, where only a projection of the simplex ETF fits."""
        if self.dim >= self.num_classes - 1:
            raise NotApplicableError(
                f"a simplex ETF of {self.num_classes} classes exists in {self.dim} dimensions (d >= K-1): "
                "see the measure of the same name without _projected"
            )


def geometry_of(
    statistics: ClassStatistics,
    weight: Float[Tensor, "K d"] | None,
    bias: Float[Tensor, " K"] | None,
    samples: SampleResults,
    *,
    global_mean: str = "samples",
    out_of_distribution_mean: Float[Tensor, " d"] | None = None,
    missing: dict[str, str] | None = None,
    classes: Int[Tensor, " K"] | None = None,
    notes: tuple[str, ...] = (),
) -> Geometry:
    """The geometry of statistics that hold samples, on the CPU."""
    if global_mean not in ("samples", "classes"):
        raise ValueError(f"global_mean must be 'samples' or 'classes', got {describe(global_mean)}")
    counts = statistics.counts.to("cpu")
    if int(counts.sum()) == 0:
        raise ValueError("the statistics hold no samples")
    present = counts > 0
    share = counts.to(torch.float64) if global_mean == "samples" else present.to(torch.float64)
    share = share / share.sum()
    # Shift by one mean first: sums of differences keep the digits that sums of offsets lose.
    centre, rest = (word.to("cpu") for word in statistics.split_means())
    origin = centre[int(present.nonzero()[0])].clone()
    centre -= origin
    centre += rest
    offset = share @ centre.masked_fill_(~present[:, None], 0.0)
    centre -= offset
    within = statistics.within_covariance
    return Geometry(
        counts,
        centre.masked_fill_(~present[:, None], 0.0),
        origin + offset,
        statistics.class_variances.to("cpu"),
        None if within is None else within.to("cpu"),
        weight,
        bias,
        samples,
        out_of_distribution_mean,
        missing or {},
        share,
        statistics.precision,
        classes,
        notes,
    )


def distance_from_simplex(left: Float[Tensor, "K d"], right: Float[Tensor, "K d"]) -> float:
    """| A/|A|_F - (I - 11'/K)/sqrt(K-1) |_F for A = left right'.

    The entries are subtracted one by one: the shorter sqrt(2 - 2 <A, .>) would stop at 1e-8.
    """
    count = left.shape[0]
    product = (left / left.abs().max()) @ (right / right.abs().max()).T
    size = product.square().sum().sqrt()
    if float(size) == 0.0:
        raise NotApplicableError("the product of the two matrices is zero")
    difference = product / size + 1.0 / (count * (count - 1) ** 0.5)
    difference.diagonal().sub_((count - 1) ** -0.5)
    return float(difference.square().sum().sqrt())
