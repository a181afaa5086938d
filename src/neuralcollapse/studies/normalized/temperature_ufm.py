"""Figure 9 of the normalized paper: the temperature changes the way to collapse, not where it leads."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...ufm import NormalizedUFM, Trace
from .._cells import Solve
from .._pictures import COLOURS, MARKERS, band, figure, legend_below, metric_name
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies

CLASSES, PER_CLASS, DIM = 10, 5, 32
TEMPERATURES = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 100.0)
GRIDS = {"smoke": ((0.01, 1.0, 100.0), 2), "desk": (TEMPERATURES, 10), "paper": (TEMPERATURES, 20)}
"""Temperatures and trials."""
ITERATIONS = 200
METRICS = ("nc1", "nc2", "nc3", "accuracy")
COLLAPSED = 1e-6
"""The NC1 at which speed is read off."""
SAME = 1e-3
"""The share of the way from log K, the value at zero logits, to the closed form that may be left."""
FACTORS = {"speed": 2.0, "nc2": 10.0}


@studies.add("normalized/temperature-ufm")
class TemperatureUFM(Study):
    """Speed and reached NC values over tau."""

    figures = ("9",)
    question = "Does the temperature change the speed and the NC values reached, but not the solution?"
    claim = (
        f"At every tau every trial ends with 100 % accuracy, above the closed form by at most {SAME:.1%} of its "
        f"distance from log K, while the mean iterations to NC1 <= {COLLAPSED:g} differ by more than a factor of "
        f"{FACTORS['speed']:g} between temperatures, and the median NC2 after {ITERATIONS} iterations "
        f"by more than {FACTORS['nc2']:g}."
    )
    costs = {"smoke": "8 s", "desk": "40 s of one core", "paper": "1 min of one core"}
    decides = ("smoke", "desk", "paper")
    setting = {
        "smoke": "K = 10, n = 5, d = 32, three tau, 2 trials, 200 iterations of Riemannian gradient descent.",
        "desk": "K = 10, n = 5, d = 32, eight tau from 0.001 to 100, 10 trials of the paper's 20, 200 iterations.",
        "paper": (
            "K = 10, n = 5, d = 32, 20 trials of Riemannian gradient descent with backtracking, 200 iterations. The "
            "paper does not list its tau here: those of its network figure are taken."
        ),
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        temperatures, trials = GRIDS[profile]
        options = {"tol": 0.0, "max_iter": ITERATIONS, "record": ("value", *METRICS), "every": 1}
        for tau in temperatures:
            problem = NormalizedUFM("cross-entropy", CLASSES, PER_CLASS, DIM, temperature=tau)
            for trial in range(trials):
                yield Planned(Solve(problem, "gradient-descent:window=1", trial, options), {"tau": tau, "trial": trial})

    def check(self, results: Results) -> Verdict:
        left = max(share_left(entry.value) for entry in results)
        accuracy = float(results.final("accuracy").min())
        speeds = {tau: _mean_iterations(results.where(tau=tau)) for tau in results.labels("tau")}
        nc2 = {tau: float(np.median(results.where(tau=tau).final("nc2"))) for tau in speeds}
        fast, slow = min(speeds, key=speeds.__getitem__), max(speeds, key=speeds.__getitem__)
        low, high = min(nc2, key=nc2.__getitem__), max(nc2, key=nc2.__getitem__)
        differ = speeds[slow] > FACTORS["speed"] * speeds[fast] and nc2[high] > FACTORS["nc2"] * nc2[low]
        return Verdict.of(
            left <= SAME and accuracy == 1 and differ,
            left,
            "largest share of the way from log K to the closed form that a trial left",
            f"All {len(results)} trials end with at least {accuracy:.1%} accuracy and leave at most {left:.1e} of the "
            f"way to the closed form. NC1 <= {COLLAPSED:g} takes {speeds[fast]:.0f} iterations at tau = {fast:g} and "
            f"{_count(speeds[slow])} at tau = {slow:g}; the median NC2 after {ITERATIONS} goes from {nc2[low]:.0e} "
            f"(tau = {low:g}) to {nc2[high]:.0e} (tau = {high:g}) and is below 0.001 at tau = "
            f"{', '.join(f'{tau:g}' for tau in nc2 if nc2[tau] < 1e-3)}.",
        )

    def table(self, results: Results) -> list[dict[str, Any]]:
        rows = []
        for (tau,), group in results.groups("tau"):
            middle = {name: float(np.median(group.final(name))) for name in METRICS}
            speed = {
                "iterations_to_collapse": _mean_iterations(group),
                "iterations_to_accuracy": _mean_to_accuracy(group),
            }
            rows.append(
                {"tau": tau, "trials": len(group), **{k: v if np.isfinite(v) else None for k, v in speed.items()}}
            )
            rows[-1].update(middle, share_left=max(share_left(entry.value) for entry in group))
        return rows

    def draw(self, results: Results) -> Any:
        temperatures = results.labels("tau")
        picture, axes = figure(2, len(METRICS), size=(2.0, 1.75))
        for column, name in enumerate(METRICS):
            log = name != "accuracy"
            top, bottom = axes[:, column]
            for place, tau in enumerate(temperatures):
                steps, runs = results.where(tau=tau).curves(name)
                line = {"color": COLOURS[place], "label": rf"$\tau$ = {tau:g}", "marker": MARKERS[place]}
                band(top, steps, runs, log=log, markevery=40, **line)
            finals = np.array([results.where(tau=tau).final(name) for tau in temperatures]).T
            band(bottom, np.array(temperatures), finals, log=log, color=COLOURS[0], marker="o")
            top.set_title(metric_name(name).partition(":")[0])
            top.set_xlabel("iteration")
            bottom.set_xlabel(r"temperature $\tau$")
            bottom.set_xscale("log")
            for axis in (top, bottom):
                axis.set_yscale("log" if log else "linear")
            if name == "accuracy":
                top.set_xlim(0, 10)
                top.set_ylim(0, 1.05)
                bottom.set_ylim(0, 1.05)
        axes[0, 0].set_ylabel("over iterations")
        axes[1, 0].set_ylabel(f"after {ITERATIONS} iterations")
        legend_below(picture, axes[0, 0])
        return picture


def share_left(trace: Trace) -> float:
    """What is left of the way from log K to the closed form."""
    best = trace.problem.optimum().value
    return abs(trace.value - best) / (math.log(CLASSES) - best)


def _first(trace: Trace, name: str, met: Any) -> float:
    reached = np.flatnonzero(met(np.array(trace.history[name], dtype=float)))
    return float(trace.history["iteration"][reached[0]] or 0) if len(reached) else math.inf


def _mean_iterations(group: Results) -> float:
    return float(np.mean([_first(entry.value, "nc1", lambda nc1: nc1 <= COLLAPSED) for entry in group]))


def _mean_to_accuracy(group: Results) -> float:
    return float(np.mean([_first(entry.value, "accuracy", lambda share: share >= 1) for entry in group]))


def _count(iterations: float) -> str:
    return f"{iterations:.0f}" if math.isfinite(iterations) else f"more than {ITERATIONS}"
