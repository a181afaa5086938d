"""The result of a closed form: numbers at once, arrays when asked for."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from torch import Tensor

from .point import Point

__all__ = ["Optimum"]


@dataclass(frozen=True, eq=False)
class Optimum:
    """A global minimum in closed form.

    ``regime`` names which solution it is. ``proved`` says whether it is proved to be global; where it is ``False``
    (a few corners, named in ``note``) it is the lowest value known. ``logit_scale`` is z_true - z_other at the class
    means (the coefficient of I - 11'/K in the class logits), norms are of one row (root mean square where the rows
    differ), ``bias`` is the value of every entry (``None`` without a bias or where entries differ).
    """

    value: float
    regime: str
    logit_scale: float
    weight_norm: float | None
    feature_norm: float
    bias: float | None = None
    proved: bool = True
    note: str = ""
    build_point: Callable[[], Point] = field(repr=False, kw_only=True)
    build_grams: Callable[[], tuple[Tensor, Tensor]] = field(repr=False, kw_only=True)

    def __repr__(self) -> str:
        return (
            f"Optimum({self.regime}, value {self.value:.10g}, logit scale {self.logit_scale:.6g}, "
            f"{'proved' if self.proved else 'not proved'})"
        )

    @cached_property
    def point(self) -> Point:
        """A global minimiser, built when first asked for."""
        return self.build_point()

    @cached_property
    def _grams(self) -> tuple[Tensor, Tensor]:
        return self.build_grams()

    @property
    def weight_gram(self) -> Tensor:
        """W W' (K, K); in the contrastive model, which has no classifier, that of the class means."""
        return self._grams[0]

    @property
    def mean_gram(self) -> Tensor:
        """The Gram matrix (K, K) of the class means of H."""
        return self._grams[1]

    def to_dict(self) -> dict[str, Any]:
        """The numbers, for JSON."""
        names = ("value", "regime", "logit_scale", "weight_norm", "feature_norm", "bias", "proved", "note")
        return {name: getattr(self, name) for name in names}
