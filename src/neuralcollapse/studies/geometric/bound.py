"""Figure 11 of the geometric paper: the lower bound as a function of the classifier's norm."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ... import losses
from ...landscape import xi
from ...ufm import RegularizedUFM
from .._cells import Calculation, calculations
from .._pictures import colour, figure, legend_below
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies

PER_CLASS = 100
DECAYS = ((5e-4, 5e-4), (5e-4, 5e-5), (5e-3, 5e-5))
CLASSES = {"smoke": (4,), "desk": (4, 10, 100), "paper": (4, 10, 100)}
POINTS = {"smoke": 200, "desk": 2000, "paper": 2000}


@calculations.add("geometric/bound")
def bound(num_classes: int, weight_decay: float, feature_decay: float, points: int) -> dict[str, Any]:
    """Xi on a grid of rho; its minima on the grid, and the closed form, which does not know of xi."""
    loss = losses.CrossEntropy()
    problem = RegularizedUFM(loss, num_classes, PER_CLASS, num_classes, weight_decay, feature_decay)
    optimum = problem.optimum()
    assert optimum.point.W is not None
    best = float(optimum.point.W.square().sum())
    rho = np.geomspace(best / 1000, 4 * best, points) if best else np.geomspace(0.01, 10, points)
    value = np.asarray(xi(rho, loss, num_classes, PER_CLASS, weight_decay, feature_decay))
    inner = (value[1:-1] < value[:-2]) & (value[1:-1] <= value[2:])
    return {
        "rho": rho.tolist(),
        "xi": value.tolist(),
        "grid_minimiser": float(rho[value.argmin()]),
        "grid_minimum": float(value.min()),
        "grid_step": float(rho[1] / rho[0]),
        "local_minima": int(inner.sum() + (value[0] <= value[1]) + (value[-1] < value[-2])),
        "closed_form_rho": best,
        "closed_form_value": optimum.value,
    }


@studies.add("geometric/bound")
class Bound(Study):
    """xi(rho), of one finite minimiser."""

    figures = ("11",)
    question = "Does the lower bound xi(rho) have one finite minimiser, and is it the closed-form optimum?"
    claim = (
        "On a fine grid xi has one local minimum, within one grid step of the closed form's squared classifier norm, "
        "and no value below the closed form's."
    )
    costs = {"smoke": "1 s", "desk": "2 s", "paper": "2 s"}
    decides = ("smoke", "desk", "paper")
    setting = {
        "smoke": "Cross-entropy, n = 100, K = 4, three pairs of decays.",
        "desk": "Cross-entropy, n = 100, K = 4, 10 and 100, three pairs of decays: the paper's size.",
        "paper": "Cross-entropy, n = 100, K = 4, 10 and 100, three pairs of decays.",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for count in CLASSES[profile]:
            for weight, feature in DECAYS:
                arguments = {"num_classes": count, "weight_decay": weight, "feature_decay": feature}
                cell = Calculation("geometric/bound", {**arguments, "points": POINTS[profile]})
                yield Planned(cell, {"K": count, "weight_decay": weight, "feature_decay": feature})

    def check(self, results: Results) -> Verdict:
        values = [entry.value for entry in results]
        away = max(abs(np.log(v["grid_minimiser"] / v["closed_form_rho"])) / np.log(v["grid_step"]) for v in values)
        below = max((v["closed_form_value"] - v["grid_minimum"]) / v["closed_form_value"] for v in values)
        single = all(v["local_minima"] == 1 for v in values)
        return Verdict.of(
            single and away <= 1 and below <= 1e-12,
            away,
            "largest distance of xi's minimiser from the closed form, in grid steps",
            f"{sum(v['local_minima'] == 1 for v in values)} of {len(values)} curves have one local minimum, at most "
            f"{away:.2f} grid steps from the closed form; none is lower than it (relative excess {below:.0e}).",
        )

    def draw(self, results: Results) -> Any:
        counts = results.labels("K")
        picture, axes = figure(1, len(counts), size=(2.4, 2.1) if len(counts) > 1 else None)
        for axis, count in zip(axes[0], counts, strict=True):
            for entry in results.where(K=count):
                value, pair = entry.value, (entry.labels["weight_decay"], entry.labels["feature_decay"])
                label = rf"$\lambda_W$={pair[0]:g}, $\lambda_H$={pair[1]:g}"
                (line,) = axis.plot(value["rho"], value["xi"], color=colour(pair, DECAYS), label=label)
                axis.plot(value["closed_form_rho"], value["closed_form_value"], "*", ms=8, color=line.get_color())
            axis.set_xscale("log")
            axis.set_title(f"K = {count}")
            axis.set_xlabel(r"$\rho = \|W\|_F^2$")
        axes[0, 0].set_ylabel(r"$\xi(\rho)$")
        axes[0, 0].plot([], [], "*", color="#666666", label="closed form")
        legend_below(picture, axes[0, 0])
        return picture
