"""Models whose rows all lie on unit spheres."""

import torch
from torch import Generator, Tensor

from .point import Point
from .problem import Problem

__all__ = ["SphereProblem"]

UNIT_TOLERANCE = 1e-8


class SphereProblem(Problem):
    """A model whose rows all lie on unit spheres (an oblique manifold)."""

    def project(self, point: Point, direction: Point) -> Point:
        """``direction`` less its radial part, row by row."""
        return direction.map(lambda rows, base: rows - base * _row_products(base, rows), point)

    def retract(self, point: Point, direction: Point) -> Point:
        """Rows of ``point + direction``, scaled back to unit norm (a retraction of second order)."""
        return (point + direction).map(_unit_rows)

    def _freedom(self, point: Point) -> int:
        """Each row loses its radial direction."""
        return sum(block.numel() - block.shape[0] for block in point.blocks)

    def random_point(self, seed: int | Generator) -> Point:
        """Rows uniform on the sphere."""
        generator = self._generator(seed)

        def rows(count: int) -> Tensor:
            return _unit_rows(torch.randn(count, self.dim, dtype=torch.float64, generator=generator))

        classifier = rows(self.num_classes) if self.has_classifier else None
        return Point(classifier, rows(self.num_samples))

    def check(self, point: Point) -> Point:
        """``point`` if its blocks have this model's shapes, are float64, finite and have unit rows."""
        super().check(point)
        for name in ("W", "H"):
            block = getattr(point, name)
            if block is not None:
                deviation = float((block.norm(dim=1) - 1).abs().max())
                if deviation > UNIT_TOLERANCE:
                    raise ValueError(f"point.{name} must have rows of unit norm, but one is off by {deviation:.1e}")
        return point


def _row_products(left: Tensor, right: Tensor) -> Tensor:
    """Row-wise inner products, as a column."""
    return torch.linalg.vecdot(left, right, dim=1)[:, None]


def _unit_rows(rows: Tensor) -> Tensor:
    return rows / torch.linalg.vector_norm(rows, dim=1, keepdim=True)
