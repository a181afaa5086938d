"""Figure 11 of the geometric paper: the lower bound as a function of the classifier's norm."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch

from ... import losses
from ...landscape import xi
from ...ufm import Point, RegularizedUFM, solve
from .._cells import Calculation, calculations
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import AtLeast, AtMost, Claim, Evidence, Holds
from ..pictures import GREY, Figure, colour, figure, legend_below, number

PER_CLASS = 100
DECAYS = ((5e-4, 5e-4), (5e-4, 5e-5), (5e-3, 5e-5))
CLASSES = {"smoke": (4,), "desk": (4, 10, 100), "paper": (4, 10, 100)}
POINTS = {"smoke": 200, "desk": 2000, "paper": 2000}
CRITICAL = {"smoke": (4,), "desk": (4, 10), "paper": (4, 10)}
"""K of the problems whose saddles are solved for."""


@calculations.add("geometric/bound")
def bound(num_classes: int, weight_decay: float, feature_decay: float, points: int) -> dict[str, Any]:
    """Xi on a grid of rho and at its two ends; its minima, and the closed form, which does not know of xi."""
    loss = losses.CrossEntropy()
    problem = RegularizedUFM(loss, num_classes, PER_CLASS, num_classes, weight_decay, feature_decay)
    optimum = problem.optimum()
    assert optimum.point.W is not None
    best = float(optimum.point.W.square().sum())

    def curve(rho: float | np.ndarray) -> np.ndarray:
        return np.asarray(xi(rho, loss, num_classes, PER_CLASS, weight_decay, feature_decay))

    rho = np.geomspace(best / 1000, 4 * best, points) if best else np.geomspace(0.01, 10, points)
    value = curve(rho)
    inner = (value[1:-1] < value[:-2]) & (value[1:-1] <= value[2:])
    far = 1e6 * rho[-1]
    slope = float(curve(2 * far) - curve(far)) / far
    return {
        "rho": rho.tolist(),
        "xi": value.tolist(),
        "grid_minimiser": float(rho[value.argmin()]),
        "grid_minimum": float(value.min()),
        "grid_step": float(rho[1] / rho[0]),
        "local_minima": int(inner.sum() + (value[0] <= value[1]) + (value[-1] < value[-2])),
        "closed_form_rho": best,
        "closed_form_value": optimum.value,
        "off_at_zero": abs(float(curve(1e-14 * best)) / float(np.log(num_classes)) - 1),
        "slope_off_at_infinity": abs(slope / weight_decay - 1),
    }


@calculations.add("geometric/bound-critical")
def bound_at_critical_points(num_classes: int, weight_decay: float, feature_decay: float, rank: int) -> dict[str, Any]:
    """The objective and the bound at a critical point of a given rank: a minimiser in R^rank, padded by zeros."""
    loss, samples = losses.CrossEntropy(), 10
    arguments = (weight_decay, PER_CLASS / samples * feature_decay)  # only n times the feature decay matters
    trace = solve(RegularizedUFM(loss, num_classes, samples, rank, *arguments), "lbfgs", tol=1e-11, max_iter=5000)
    assert trace.point.W is not None
    pad = torch.nn.functional.pad
    extra = (0, num_classes - rank)
    point = Point(pad(trace.point.W, extra), pad(trace.point.H, extra), None)
    problem = RegularizedUFM(loss, num_classes, samples, num_classes, *arguments)
    rho = float(point.W.square().sum())  # type: ignore[union-attr]
    least = float(xi(rho, loss, num_classes, samples, *arguments))
    value = float(problem.value(point))
    return {"value": value, "bound": least, "gradient_norm": float(problem.gradient(point).norm()), "rho": rho}


@studies.add("geometric/bound")
class Bound(Study):
    """xi(rho), of one finite minimiser."""

    figures = ("11",)
    question = "Does the lower bound xi(rho) have one finite minimiser, and is it the closed-form optimum?"
    claims = (
        Claim("one-minimum", "xi(rho) has one finite minimiser.", "Figure 11, D.1", Holds()),
        Claim(
            "minimiser",
            "The minimiser of xi is the squared classifier norm of the global minimum.",
            "Figure 11, Theorem 3.1",
            AtMost(1.0),
            unit="grid steps",
        ),
        Claim(
            "value",
            "No value of xi is below that of the global minimum, relative to it.",
            "D.1",
            AtMost(1e-12),
        ),
        Claim("at-zero", "xi(rho) tends to log K as rho goes to 0 (relative difference).", "D.1", AtMost(1e-9)),
        Claim(
            "at-infinity",
            "xi(rho) grows without bound as rho does: its slope tends to lambda_W (relative difference).",
            "D.1",
            AtMost(1e-9),
        ),
        Claim(
            "critical-points",
            "At every critical point the objective is at least xi(rho) (least relative excess, over all ranks).",
            "Lemma D.3",
            AtLeast(-1e-10),
        ),
    )
    costs = {"smoke": "1 s", "desk": "20 s", "paper": "20 s"}
    setting = {
        "smoke": "Cross-entropy, n = 100, K = 4, three pairs of decays; critical points of every rank at K = 4.",
        "desk": "Cross-entropy, n = 100 as in the paper; K = 4, 10 and 100 and three pairs of decays are ours. "
        "Critical points of every rank at K = 4 and 10.",
        "paper": "As at desk size: the paper gives n = 100 and neither K nor decays.",
    }
    provenance = {"per_class": "text", "num_classes": "guess", "weight_decay": "guess", "feature_decay": "guess"}

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for weight, feature in DECAYS:
            decays = {"weight_decay": weight, "feature_decay": feature}
            for count in CLASSES[profile]:
                cell = Calculation("geometric/bound", {"num_classes": count, **decays, "points": POINTS[profile]})
                yield Planned(cell, {"what": "curve", "K": count, **decays})
            for count in CRITICAL[profile]:
                for rank in range(1, count):
                    cell = Calculation("geometric/bound-critical", {"num_classes": count, **decays, "rank": rank})
                    yield Planned(cell, {"what": "critical point", "K": count, "rank": rank, **decays})

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        curves = [entry.value for entry in results.where(what="curve")]
        points = [entry.value for entry in results.where(what="critical point")]
        single = sum(v["local_minima"] == 1 for v in curves)
        away = max(abs(np.log(v["grid_minimiser"] / v["closed_form_rho"])) / np.log(v["grid_step"]) for v in curves)
        below = max((v["closed_form_value"] - v["grid_minimum"]) / v["closed_form_value"] for v in curves)
        start, slope = (max(v[name] for v in curves) for name in ("off_at_zero", "slope_off_at_infinity"))
        excess = min((v["value"] - v["bound"]) / v["value"] for v in points)
        residual = max(v["gradient_norm"] for v in points)
        return {
            "one-minimum": Evidence.exact(
                single == len(curves), why=f"{single} of {len(curves)} curves have one local minimum."
            ),
            "minimiser": Evidence.exact(away, why=f"It is at most {away:.2f} grid steps away."),
            "value": Evidence.exact(below, why=f"The largest shortfall on the grid is {below:.0e}."),
            "at-zero": Evidence.exact(start, why=f"It is {start:.0e} away at 1e-14 of the minimiser."),
            "at-infinity": Evidence.exact(slope, why=f"It is {slope:.0e} away at 4 million times the minimiser."),
            "critical-points": Evidence.exact(
                excess, why=f"{len(points)} points with gradients of norm {residual:.0e} or less."
            ),
        }

    def table(self, results: Results) -> list[dict[str, Any]]:
        hidden = ("rho", "xi")
        return [
            {**entry.labels, **{name: value for name, value in entry.value.items() if name not in hidden}}
            for entry in results.where(what="curve")
        ]

    def draw(self, results: Results) -> Figure:
        curves = results.where(what="curve")
        counts = curves.labels("K")
        picture, axes = figure(1, len(counts), size=(2.4, 2.1) if len(counts) > 1 else None)
        for axis, count in zip(axes[0], counts, strict=True):
            for entry in curves.where(K=count):
                value, pair = entry.value, (entry.labels["weight_decay"], entry.labels["feature_decay"])
                label = rf"$\lambda_W$ = {number(pair[0])}, $\lambda_H$ = {number(pair[1])}"
                (line,) = axis.plot(value["rho"], value["xi"], color=colour(pair, DECAYS), label=label)
                axis.plot(value["closed_form_rho"], value["closed_form_value"], "*", ms=8, color=line.get_color())
            axis.set_xscale("log")
            axis.set_title(f"K = {count}")
            axis.set_xlabel(r"$\rho = \|W\|_F^2$")
        axes[0, 0].set_ylabel(r"$\xi(\rho)$")
        axes[0, 0].plot([], [], "*", color=GREY, label="closed form")
        legend_below(picture, axes[0, 0])
        return picture
