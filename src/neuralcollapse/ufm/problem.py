"""What all unconstrained feature models share: sizes, checks, and the verbs that solvers and certificates use."""

import json
import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch
from torch import Generator, Tensor

from .._support.checks import integer
from .._support.fields.models import LARGEST, MODEL_FIELDS
from .._support.files import JSONObject
from .._support.machine import check_room
from .._support.registry import Registry
from .._support.tensor_checks import finite_tensor
from ..losses import Loss
from .objectives.base import Objective
from .objectives.pointwise import PointwiseObjective
from .point import Point
from .spectrum import lowest_eigenvalues

if TYPE_CHECKING:
    from .results import Certificate, Optimum

__all__ = ["Counts", "Problem", "ProblemLinearization", "problems"]

Counts = int | Sequence[int] | np.ndarray | Tensor
"""Samples a class: one number for all, or a list, array or tensor of one each."""

problems: "Registry[type[Problem]]" = Registry("feature model")


class ProblemLinearization(ABC):
    """Value and derivatives of a model at one point, sharing whatever is costly (the softmax above all)."""

    value: float

    @property
    @abstractmethod
    def gradient(self) -> Point:
        """The (Riemannian) gradient."""

    @abstractmethod
    def hessian_vector(self, direction: Point) -> Point:
        """The (Riemannian) Hessian times a (tangent) direction."""


class Problem(ABC):
    """An unconstrained feature model over :class:`Point`; immutable.

    Rows of H are sorted by class: ``labels`` says which.
    """

    kind: ClassVar[str]
    """The name by which files and the command line know this model."""

    has_classifier: ClassVar[bool] = True
    has_classes: ClassVar[bool] = True
    """Whether samples belong to classes: measures of collapse need them."""

    def __init__(self, num_classes: int, per_class: Counts, dim: int):
        self.num_classes = integer("num_classes", num_classes, minimum=2, maximum=LARGEST)
        self.dim = integer("dim", dim, minimum=1, maximum=LARGEST)
        if isinstance(per_class, np.ndarray | Tensor):
            per_class = per_class.tolist()
        if isinstance(per_class, Sequence) and not isinstance(per_class, str):
            if len(per_class) != self.num_classes:
                raise ValueError(f"per_class must name {self.num_classes} counts, one a class, got {len(per_class)}")
            self.counts = tuple(integer(f"per_class[{k}]", n, minimum=1) for k, n in enumerate(per_class))
        else:
            self.counts = (integer("per_class", per_class, minimum=1),) * self.num_classes
        self.num_samples = sum(self.counts)
        self._labels: Tensor | None = None

    @property
    def labels(self) -> Tensor:
        """The class of each row of H: (N,) int64, ascending."""
        if self._labels is None:
            # Solves run in inference mode, whose tensors may not leave it; these are kept.
            with torch.inference_mode(False):
                self._labels = torch.repeat_interleave(torch.arange(self.num_classes), torch.tensor(self.counts))
        return self._labels

    @property
    def balanced(self) -> bool:
        """Whether all classes have the same number of samples."""
        return len(set(self.counts)) == 1

    @property
    def per_class(self) -> int | list[int]:
        """Samples a class, as given: one number if balanced."""
        return self.counts[0] if self.balanced else list(self.counts)

    @property
    def has_bias(self) -> bool:
        """Whether points carry a bias."""
        return False

    def value(self, point: Point) -> float:
        """The objective at ``point``."""
        return self.linearize(self.check(point)).value

    def gradient(self, point: Point) -> Point:
        """The gradient at ``point``; on spheres the Riemannian one."""
        return self.linearize(self.check(point)).gradient

    def hessian_vector(self, point: Point, direction: Point) -> Point:
        """The Hessian at ``point`` times ``direction``; on spheres the Riemannian one, of its tangent part."""
        self.check_direction(direction)
        return self.linearize(self.check(point)).hessian_vector(self.project(point, direction))

    def hessian_spectrum(self, point: Point, count: int = 6) -> Tensor:
        """The ``count`` lowest eigenvalues of the Hessian at ``point``, rising, repeated ones repeated: (count,).

        On spheres of the Riemannian Hessian on the tangent space. Beyond a thousand unknowns they are found by Lanczos
        from Hessian products, without the matrix.

        >>> from neuralcollapse.ufm import RegularizedUFM
        >>> model = RegularizedUFM("mse", 2, 1, 1, weight_decay=0.1, feature_decay=0.1)
        >>> zero = Point(torch.zeros(2, 1).double(), torch.zeros(2, 1).double())
        >>> model.hessian_spectrum(zero, count=4)  # 0.1 -+ 1/N for each of two pairs of a weight and its feature
        tensor([-0.4000, -0.4000,  0.6000,  0.6000], dtype=torch.float64)

        Args:
            point: where.
            count: how many, at most the dimension of the (tangent) space.

        """
        state = self.linearize(self.check(point))
        size = sum(block.numel() for block in point.blocks)
        count = integer("count", count, minimum=1, maximum=self._freedom(point))

        def project(vector: np.ndarray) -> np.ndarray:
            return self.project(point, point.like(torch.from_numpy(vector))).flatten().numpy()

        def product(vector: np.ndarray) -> np.ndarray:
            return state.hessian_vector(point.like(torch.from_numpy(vector))).flatten().numpy()

        return torch.from_numpy(lowest_eigenvalues(product, project, size, count))

    def _freedom(self, point: Point) -> int:
        """The dimension of the (tangent) space at ``point``."""
        return sum(block.numel() for block in point.blocks)

    @abstractmethod
    def linearize(self, point: Point) -> ProblemLinearization:
        """Value and derivatives at a point that is known to be valid."""

    def objective(self) -> Objective:
        """What solvers move: the same value and derivatives on one flat vector; by default through the verbs here."""
        return PointwiseObjective(self)

    def project(self, point: Point, direction: Point) -> Point:
        """The tangent part of ``direction`` (all of it where there is no constraint)."""
        return direction

    def retract(self, point: Point, direction: Point) -> Point:
        """A step from ``point`` along a tangent ``direction`` that stays feasible, exact to second order."""
        return point + direction

    @abstractmethod
    def random_point(self, seed: int | Generator) -> Point:
        """A feasible point drawn from the seed or generator."""

    @abstractmethod
    def optimum(self) -> "Optimum":
        """The global minimum in closed form; NotImplementedError where none is known."""

    def closed_form(self) -> "Optimum | None":
        """The optimum if a closed form gives it at once; None where it is unknown or takes a program."""
        try:
            return self.optimum()
        except NotImplementedError:
            return None

    @abstractmethod
    def certify(self, point: Point, tolerance: float = 1e-8) -> "Certificate":
        """How far ``point`` is from the global minimum, rigorously, and what kind of point it is.

        Args:
            point: where.
            tolerance: the gap, relative to the value, within which the point counts as a global minimum.

        """

    def parameters(self) -> JSONObject:
        """The keyword arguments that rebuild this model, as plain values (the loss by its string form).

        They are the fields that the model's kind declares (:mod:`neuralcollapse._support.fields.models`).
        """
        given = {field: getattr(self, field.name) for field in MODEL_FIELDS[self.kind]}
        return {
            field.name: _as_json(value)
            for field, value in given.items()
            if not (field.quiet and value == field.default)
        }

    def to_json(self) -> str:
        """The model as one line of JSON, to keep beside a point."""
        return json.dumps({"model": self.kind, **self.parameters()})

    @staticmethod
    def from_json(text: str) -> "Problem":
        """The model that :meth:`to_json` wrote."""
        try:
            given = json.loads(text)
            return problems[given.pop("model")](**given)
        except (json.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
            raise ValueError(f"not a description of a model: {text[:80]!r}") from error

    def __repr__(self) -> str:
        arguments = ", ".join(f"{key}={value!r}" for key, value in self.parameters().items())
        return f"{type(self).__name__}({arguments})"

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.parameters() == other.parameters()  # type: ignore[attr-defined]

    def __hash__(self) -> int:
        return hash(self.to_json())

    # Checks -----------------------------------------------------------------------------------------------------

    def check(self, point: Point) -> Point:
        """``point`` if its blocks have this model's shapes, are float64, finite and feasible; else ValueError."""
        return self._check_blocks(point, "point")

    def check_direction(self, direction: Point) -> Point:
        """``direction`` if its blocks have this model's shapes, are float64 and finite."""
        return self._check_blocks(direction, "direction")

    def _check_blocks(self, point: Point, what: str) -> Point:
        if not isinstance(point, Point):
            raise TypeError(f"{what} must be a Point(W, H, b), got {type(point).__name__}")
        shapes: dict[str, tuple[int, ...] | None] = {
            "W": (self.num_classes, self.dim) if self.has_classifier else None,
            "H": (self.num_samples, self.dim),
            "b": (self.num_classes,) if self.has_bias else None,
        }
        for name, shape in shapes.items():
            block = getattr(point, name)
            if shape is None and block is not None:
                raise ValueError(f"{what}.{name} must be None: this model has no {_NAMES[name]}")
            if shape is not None and block is None:
                raise ValueError(f"{what}.{name} is missing: this model has a {_NAMES[name]} of shape {shape}")
            if shape is not None:
                finite_tensor(f"{what}.{name}", block, shape, torch.float64)
        return point

    def _gaussian_point(self, seed: int | Generator) -> Point:
        """W, H and, where there is one, b with Gaussian entries of variance 1/d."""
        generator = self._generator(seed)

        def gaussian(*shape: int) -> Tensor:
            return torch.randn(*shape, dtype=torch.float64, generator=generator) / math.sqrt(self.dim)

        weight, features = gaussian(self.num_classes, self.dim), gaussian(self.num_samples, self.dim)
        return Point(weight, features, gaussian(self.num_classes) if self.has_bias else None)

    def _generator(self, seed: int | Generator) -> Generator:
        """Where a random point is drawn from, once there is room for it."""
        check_room("a point of this model", 8 * (self.num_samples + self.num_classes) * self.dim)
        return seed if isinstance(seed, Generator) else torch.Generator().manual_seed(integer("seed", seed))


def _as_json(value: object) -> object:
    """A field's value as JSON has it."""
    if isinstance(value, Loss):
        return value.spec
    return value.tolist() if isinstance(value, Tensor) else value


_NAMES = {"W": "classifier", "H": "feature array", "b": "bias"}
