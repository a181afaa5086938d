"""What the view "Collapse" asks of the server: the least value of its problem, and a certificate of its point."""

import torch

from ..._support.files import JSONObject
from ...ufm import Point, Problem
from ._fields import Fields, Limits, problem_of

__all__ = ["describe_certificate", "describe_least"]

LIMITS = Limits(classes=100, per_class=400, dim=100, samples=400)


def describe_least(fields: Fields) -> JSONObject:
    """The least value where a closed form or a certified program gives it, else null."""
    problem = problem_of(fields, LIMITS)
    fields.finish()
    try:
        best = problem.optimum()
    except NotImplementedError:
        return {"value": None, "regime": None}
    return {"value": best.value, "regime": best.regime}


def describe_certificate(fields: Fields) -> JSONObject:
    """How far the given point is from the least value, and which way is down from a saddle."""
    problem = problem_of(fields, LIMITS)
    point = _point_of(fields, problem)
    fields.finish()
    certificate = problem.certify(point)
    escape = certificate.escape
    return {
        **certificate.to_dict(),
        "escape": None
        if escape is None
        else {name: _listed_entries(getattr(escape, name)) for name in ("W", "H", "b")},
    }


def _listed_entries(block: torch.Tensor | None) -> list[float] | None:
    return None if block is None else block.flatten().tolist()


def _point_of(fields: Fields, problem: Problem) -> Point:
    shapes: dict[str, tuple[int, ...]] = {
        "W": (problem.num_classes, problem.dim),
        "H": (problem.num_samples, problem.dim),
    }
    if fields.has("b"):
        shapes["b"] = (problem.num_classes,)
    blocks = {name: fields.numbers(name, shape) for name, shape in shapes.items()}
    return Point(blocks["W"], blocks["H"], blocks.get("b"))
