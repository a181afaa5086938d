"""NC1 without the bias of finite samples: what the features' distribution has, not what the sample shows.

A class mean of n_k samples carries noise of trace tr Sigma_k / n_k, which the plug-in metrics count as distance
between classes: with 20 samples a class in 100 dimensions ``nc1_quotient`` can be less than half of the truth.
Here every piece is replaced by an unbiased estimate (any counts):

    s2_k = ss_k / (n_k - 1),    tr Sigma = sum_k n_k s2_k / N,
    E |m_k - h_G|^2 = |mu_k - mu_G|^2 + s2_k/n_k - 2 a_k s2_k/n_k + sum_j a_j^2 s2_j/n_j,
    E |m_k - m_j|^2 = |mu_k - mu_j|^2 + s2_k/n_k + s2_j/n_j,

with ss_k the sum of squares about the class mean, h_G = sum_j a_j m_j (a_j = n_j/N for the mean of all samples).
"""

import torch
from jaxtyping import Float
from torch import Tensor

from ._geometry import Geometry, NotApplicableError
from ._pairs import Rows
from ._registry import define
from .variability import ClassDistances

PAPER = "this package (unbiased pieces of {})"
AT_RANDOM = "no value, or a large one: without structure the true distance between classes is zero"


def _unbiased_variances(geometry: Geometry) -> Float[Tensor, " K"]:
    """s2_k = ss_k / (n_k - 1), the unbiased estimate of tr Sigma_k."""
    geometry.require_spread()
    few = (geometry.counts < 2).nonzero()
    if few.shape[0]:
        label = geometry.number_of(int(few[0]))
        raise NotApplicableError(
            f"class {label} has a single sample, which says nothing of its variance (min_samples=2 skips it)"
        )
    counts = geometry.counts.to(torch.float64)
    return geometry.class_variances * (counts / (counts - 1))


def _pooled(geometry: Geometry, variances: Float[Tensor, " K"]) -> Float[Tensor, ""]:
    return geometry.counts.to(torch.float64) @ variances / geometry.total


@define(
    "nc1_quotient_debiased",
    property="NC1 variability",
    definition="tr Sigma / tr B, unbiased estimates of both traces of nc1_quotient",
    paper=PAPER.format("Tirer, Huang and Niles-Weed 2023"),
    at_random=AT_RANDOM,
    needs=("within",),
)
def nc1_quotient_debiased(geometry: Geometry) -> float:
    """The noise leaves tr B = tr S_B - (1/K) sum_k [s2_k/n_k - 2 a_k s2_k/n_k + sum_j a_j^2 s2_j/n_j]."""
    variances = _unbiased_variances(geometry)
    size = geometry.centred.abs().max()
    noise = variances / size / size / geometry.counts
    shares = geometry.mean_shares
    spread = (noise * (1 - 2 * shares)).mean() + shares.square() @ noise
    between = (geometry.centred / size).square().sum() / geometry.num_classes - spread
    if float(between) <= 0.0:
        raise NotApplicableError("the class means differ by no more than the noise of these few samples explains")
    return float(_pooled(geometry, variances) / size / size / between)


class UnbiasedDistances(ClassDistances):
    """The sum over k != j of (s2_k + s2_j) / (2 (|m_k - m_j|^2 - s2_k/n_k - s2_j/n_j))."""

    touching = "are no farther apart than the noise of these few samples explains"

    def __init__(self, geometry: Geometry, vectors: Rows):
        super().__init__(geometry, vectors)
        self.variances = _unbiased_variances(geometry) / vectors.size / vectors.size
        self.noise = self.variances / geometry.counts


@define(
    "cdnv_debiased",
    property="NC1 variability",
    definition="mean over k != j of (s2_k + s2_j) / (2 (|m_k - m_j|^2 - s2_k/n_k - s2_j/n_j)), "
    "s2_k the unbiased variance",
    paper=PAPER.format("Galanti, Gyorgy and Hutter 2021"),
    at_random=AT_RANDOM,
    needs=("within",),
    pairs=(UnbiasedDistances,),
)
def cdnv_debiased(geometry: Geometry) -> float:
    """Like ``cdnv`` with unbiased variances and squared distances."""
    return geometry.pair_sum(UnbiasedDistances).mean(geometry)


@define(
    "nc1_debiased",
    property="NC1 variability",
    definition="tr(Sigma B^+)/K with the noise Q diag(s2/n) Q' taken off the Gram matrix of the centred means",
    paper=PAPER.format("Papyan, Han and Donoho 2020"),
    at_random=AT_RANDOM,
    needs=("within", "scatter"),
    core=False,
)
def nc1_debiased(geometry: Geometry) -> float:
    """tr(V' Sigma V E^-1), E = S^2 - U' Q diag(s2/n) Q' U, for the centred means M = Q m = U S V', Q = I - 1a'.

    Sigma is S_W scaled to the unbiased trace. The estimate exists while E is positive definite.
    """
    variances = _unbiased_variances(geometry)
    if geometry.scatter is None:
        raise geometry.lacking("scatter")
    spectrum = geometry.spectrum
    rank = spectrum.values.shape[0]
    if rank < geometry.num_classes - 1:
        raise NotApplicableError(
            f"the centred means have rank {rank} < K-1 = {geometry.num_classes - 1}: "
            "the noise of their missing directions cannot be told from the means"
        )
    within = geometry.class_variances @ geometry.counts.to(torch.float64) / geometry.total
    if float(within) == 0.0:
        return 0.0
    scale = spectrum.values[0]
    left = geometry.centred @ (spectrum.directions / spectrum.values)
    # Q'U = U - a (1'U)
    turned = left - geometry.mean_shares[:, None] * left.sum(0)
    noise = variances / scale / scale / geometry.counts
    gram = torch.diag((spectrum.values / scale).square()) - (turned.T * noise) @ turned
    factor, failed = torch.linalg.cholesky_ex((gram + gram.T) / 2)
    if int(failed):
        raise NotApplicableError("some direction of the class means is no larger than the noise of these few samples")
    projected = spectrum.directions.T @ (geometry.scatter / scale / scale) @ spectrum.directions
    solved = torch.cholesky_solve(projected * (_pooled(geometry, variances) / within), factor)
    return float(solved.diagonal().sum())
