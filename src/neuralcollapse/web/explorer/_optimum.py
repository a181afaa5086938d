"""The closed form of a model, with what helps to read it: curves, Gram matrices, a picture in three dimensions."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor

from ..._support.files import JSONObject
from ..._support.numerics import svd
from ...landscape import psi, xi
from ...losses import SquaredError
from ...metrics import class_means
from ...ufm import (
    ContrastiveUFM,
    NormalizedUFM,
    Optimum,
    Point,
    Problem,
    RegularizedUFM,
    critical_temperature,
)
from ._fields import Fields, Limits, problem_of
from ._sentences import command, dimension_sentence, formula_sentence, regime_sentence

__all__ = ["LIMITS", "describe_optimum", "flat_view"]

LIMITS = Limits(classes=100, per_class=1000, dim=1000)
POINTS = 121
LARGEST_RAY = 200_000
"""Entries of H up to which the objective is evaluated along a ray."""


def describe_optimum(fields: Fields) -> JSONObject:
    """All that the page shows of a model's global minimum."""
    problem = problem_of(fields, LIMITS)
    fields.finish()
    optimum, reason = _closed_form(problem)
    return {
        "known": optimum is not None,
        "reason": reason,
        "optimum": None if optimum is None else optimum.to_dict(),
        "meaning": "" if optimum is None else regime_sentence(problem, optimum.regime),
        "formula": formula_sentence(problem, optimum),
        "lower_bound": None if optimum is not None else _bound_from_more_dimensions(problem),
        "dimension": dimension_sentence(problem),
        "by_dimension": _by_dimension(problem),
        "grams": None if optimum is None else _grams(problem, optimum),
        "view": None if optimum is None else _view_of_optimum(problem, optimum),
        "curves": _curves_of(problem, optimum),
        "command": command("optimum", problem),
    }


def _closed_form(problem: Problem) -> tuple[Optimum | None, str]:
    try:
        return problem.optimum(), ""
    except NotImplementedError as error:
        return None, str(error)


def _bound_from_more_dimensions(problem: Problem) -> float | None:
    """The minimum for max(d, K) dimensions: points with fewer are among its points."""
    given = {**problem.parameters(), "dim": max(problem.dim, problem.num_classes)}
    wider, _ = _closed_form(type(problem)(**given))
    return wider.value if wider is not None and wider.proved else None


def _by_dimension(problem: Problem) -> JSONObject | None:
    """The closed-form value for d up to K + 2, where one is known below d = K-1: for the squared error."""
    if not isinstance(problem, RegularizedUFM) or not isinstance(problem.loss, SquaredError) or problem.nonnegative:
        return None
    top = problem.num_classes + 2
    dims = sorted({round(d) for d in np.linspace(1, top, min(top, 24))})
    given = problem.parameters()
    found = [_closed_form(RegularizedUFM(**{**given, "dim": d}))[0] for d in dims]
    return {"dims": dims, "values": [None if one is None else one.value for one in found]}


def _grams(problem: Problem, optimum: Optimum) -> JSONObject:
    blocks = {"means": optimum.mean_gram}
    if problem.has_classifier:
        blocks = {"weight": optimum.weight_gram, **blocks}
    return {name: _six_digits(gram) for name, gram in blocks.items()}


def _six_digits(array: Tensor) -> list[list[float]]:
    """Six digits of the largest entry, and as many places of the others: enough for a picture."""
    largest = float(array.abs().max())
    digits = 5 - math.floor(math.log10(largest)) if largest > 0 else 0
    return np.round(array.numpy(), digits).tolist()


# Three dimensions ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FlatView:
    """A projection on the three directions that carry most of some rows."""

    directions: Tensor
    share: float
    """Of the rows' squared length."""

    def rows(self, array: Tensor) -> list[list[float]]:
        """Three coordinates for each row."""
        return np.round((array @ self.directions).numpy(), 5).tolist()


def flat_view(*blocks: Tensor | None) -> FlatView:
    """The three leading right singular vectors of the blocks, each scaled to longest row one."""
    rows = torch.cat([unit_scale(block) for block in blocks if block is not None])
    _, values, directions = svd(rows, full_matrices=False)
    chosen = directions[:3].T
    if chosen.shape[1] < 3:
        chosen = torch.cat([chosen, chosen.new_zeros(chosen.shape[0], 3 - chosen.shape[1])], dim=1)
    total = float(values.square().sum())
    return FlatView(chosen, float(values[:3].square().sum()) / total if total > 0 else 1.0)


def unit_scale(rows: Tensor) -> Tensor:
    """``rows`` times one factor, such that the longest has norm one."""
    longest = float(rows.norm(dim=1).max())
    return rows / longest if longest > 0 else rows


def _view_of_optimum(problem: Problem, optimum: Optimum) -> JSONObject | None:
    """Classifier and class means where three dimensions can show them: K <= 4, or d <= 3."""
    if (problem.num_classes > 4 and problem.dim > 3) or optimum.regime == "zero":
        return None
    point = optimum.point
    means = class_means(point.H, problem.labels)
    view = flat_view(point.W, means)
    return {
        "weight": None if point.W is None else view.rows(unit_scale(point.W)),
        "features": view.rows(unit_scale(means)),
        "labels": list(range(problem.num_classes)),
        "share": view.share,
    }


# Curves -------------------------------------------------------------------------------------------------------------


def _curve_facts(name: str, title: str, x: ArrayLike, y: ArrayLike, labels: tuple[str, str], **more: Any) -> JSONObject:
    return {
        "name": name,
        "title": title,
        "x": np.asarray(x).tolist(),
        "y": np.asarray(y).tolist(),
        "x_label": labels[0],
        "y_label": labels[1],
        "minimum": None,
        "marks": [],
        **more,
    }


def _curves_of(problem: Problem, optimum: Optimum | None) -> list[JSONObject]:
    if isinstance(problem, RegularizedUFM):
        symmetric = problem.balanced and not problem.nonnegative and problem.loss.depends_on_margins
        broken = optimum is not None and optimum.regime == "broken symmetry"
        return _decay_curves(problem) if symmetric and not broken else _ray_curves(problem, optimum)
    if not problem.balanced:
        return []
    if isinstance(problem, NormalizedUFM):
        code = optimum is not None and problem.dim < problem.num_classes - 1  # its pairs have margins of their own
        return [*([] if code else _margin_curve(problem)), *_by_temperature(problem)]
    assert isinstance(problem, ContrastiveUFM)
    return [_cosine_curve(problem), *_by_temperature(problem)]


def _decay_curves(problem: RegularizedUFM) -> list[JSONObject]:
    """The same objective over rho = |W|_F^2 (xi) and over t, the sum of z_j - z_y (psi); bounds for every d."""
    if problem.mu == 0:
        return []
    count, loss = problem.num_classes, problem.loss
    best = loss.optimal_margin((count - 1) * problem.s, count)
    margin = np.linspace(0, max(2.5 * best.margin, 6.0), POINTS)
    to_rho = (count - 1) * math.sqrt(problem.counts[0] * problem.feature_decay / problem.weight_decay)
    rho = margin * to_rho
    total = -(count - 1) * np.concatenate([-margin[: POINTS // 4][::-1], margin[1:]])
    bound = xi(rho, loss, count, problem.counts[0], problem.weight_decay, problem.feature_decay)
    return [
        _curve_facts(
            "xi",
            "ξ(ρ), the least objective at a squared classifier norm ρ",
            rho,
            bound,
            ("ρ = ‖W‖²", "ξ(ρ)"),
            minimum=[best.margin * to_rho, best.value],
        ),
        _curve_facts(
            "psi",
            "ψ(t) = φ(t) + s |t|, the objective at t, the sum of z_j − z_y over wrong classes j",
            total,
            psi(total, loss, count, problem.s),
            ("t", "ψ(t)"),
            minimum=[-(count - 1) * best.margin, best.value],
        ),
    ]


def _ray_curves(problem: RegularizedUFM, optimum: Optimum | None) -> list[JSONObject]:
    """The objective at c times the optimum's W and H, where no single margin says it all."""
    if optimum is None or optimum.logit_scale == 0 or problem.num_samples * problem.dim > LARGEST_RAY:
        return []
    point = optimum.point
    scale = np.linspace(0, 1.6, 33)
    values = [problem.value(Point(point.classifier * c, point.H * c, point.b)) for c in scale.tolist()]
    title = "The objective at c W, c H, from zero (c = 0) through the optimum (c = 1)"
    return [_curve_facts("ray", title, scale, values, ("c", "objective"), minimum=[1.0, optimum.value])]


def _margin_curve(problem: NormalizedUFM) -> list[JSONObject]:
    """ell(a), with the largest margin that unit rows allow."""
    loss, count = problem.loss, problem.num_classes
    if not loss.depends_on_margins:
        return []
    largest = count * problem.temperature / (count - 1)
    best = min(largest, critical_temperature(loss, count) * count / (count - 1))
    margin = np.linspace(0, 1.5 * largest, POINTS)
    return [
        _curve_facts(
            "margin",
            "ℓ(a), the loss when the true logit leads by a; unit rows reach a ≤ K τ/(K−1)",
            margin,
            loss.margin_value(margin, count),
            ("margin a", "ℓ(a)"),
            minimum=[best, float(loss.margin_value(best, count))],
            marks=[{"x": largest, "text": "largest margin"}],
        )
    ]


def _cosine_curve(problem: ContrastiveUFM) -> JSONObject:
    """The loss of collapsed features over the common cosine c of the classes: log(n-1 + n (K-1) exp(tau^2 (c-1)))."""
    count, per_class, square = problem.num_classes, problem.counts[0], problem.temperature**2

    def value(cosine: float | np.ndarray) -> float | np.ndarray:
        return np.log(per_class - 1 + per_class * (count - 1) * np.exp(square * (cosine - 1)))

    lowest = -1 / (count - 1)
    cosine = np.linspace(lowest, 1, POINTS)
    title = "The loss of collapsed features over the common cosine of the classes, from −1/(K−1)"
    labels = ("cosine between classes", "loss")
    return _curve_facts("cosine", title, cosine, value(cosine), labels, minimum=[lowest, float(value(lowest))])


def _by_temperature(problem: NormalizedUFM | ContrastiveUFM) -> list[JSONObject]:
    """The optimal value over the temperature."""
    given = problem.parameters()
    temperatures = np.linspace(0, 2.5 * problem.temperature, 61)[1:]
    found = [_closed_form(type(problem)(**{**given, "temperature": t}))[0] for t in temperatures.tolist()]
    if not any(found):
        return []
    values = [math.nan if one is None else one.value for one in found]
    marks = [{"x": problem.temperature, "text": "τ"}]
    if isinstance(problem, NormalizedUFM) and problem.loss.depends_on_margins:
        critical = critical_temperature(problem.loss, problem.num_classes)
        if critical <= temperatures[-1]:
            marks.append({"x": critical, "text": "critical τ"})
    title = "The optimal value over the temperature"
    return [_curve_facts("temperature", title, temperatures, values, ("temperature τ", "value"), marks=marks)]
