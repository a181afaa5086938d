"""Figure 9 of the normalized paper: the temperature changes the way to collapse, not where it leads."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from ...ufm import NormalizedUFM, Trace
from .._cells import Solve
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import Above, AtMost, Between, Claim, Evidence, known
from ..pictures import COLOURS, MARKERS, Figure, band, figure, legend_below, property_name, shades

CLASSES, PER_CLASS, DIM = 10, 5, 32
TEMPERATURES = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 100.0)
GRIDS = {"smoke": (0.01, 1.0, 100.0), "desk": TEMPERATURES, "paper": TEMPERATURES}
COMMON = (0.1, 10.0)
"""Temperatures that any reading of "various settings" includes: those at which the paper's nets train."""
ITERATIONS = 200
METRICS = ("nc1", "nc2", "nc3", "accuracy")
SMALLEST = 1e-16
"""What is drawn of a metric: below is rounding."""
EXACT = 1e-12
"""Down to here values of NC2 and NC3 are compared: closer to rounding their order would be its."""
SIMILAR = 2.0
"""The factor between numbers of iterations that are called similar, or somewhat the same."""
COLLAPSED = 1e-3
"""The NC1 at which the rate is read off."""


@studies.add("normalized/temperature-ufm")
class TemperatureUFM(Study):
    """Speed and reached NC values over tau."""

    figures = ("9",)
    question = "Does the temperature change the speed and the NC values reached, but not the solution?"
    claims = (
        Claim(
            "accuracy",
            "For all tau, perfect classification takes a similar number of iterations: the slowest tau takes at most "
            "twice as many as the fastest.",
            "Figure 9, E.3",
            AtMost(SIMILAR),
            decides_at="the paper's list of tau, which it does not give: the interval spans tau = 0.1 to 10 and the "
            "whole list of its network figure",
        ),
        Claim(
            "nc1-rate",
            f"NC1 falls at somewhat the same rate for most tau: more than half of them need between half and twice "
            f"the median number of iterations to NC1 <= {COLLAPSED:g} (share of tau).",
            "Figure 9, E.3",
            Above(0.5),
        ),
        Claim(
            "nc1",
            f"Features essentially collapse for most tau: NC1 ends below {COLLAPSED:g} (share of tau).",
            "Figure 9, E.3",
            Above(0.5),
        ),
        Claim(
            "nc2",
            "NC2 gets smallest for tau close to 5, within a factor of two (the tau of the smallest NC2, at the last "
            "iteration at which all are above rounding).",
            "Figure 9, E.3",
            Between(2.5, 10),
        ),
        Claim(
            "nc3",
            "NC3 gets smallest for tau close to 5, within a factor of two (the tau of the smallest NC3, at the last "
            "iteration at which all are above rounding).",
            "Figure 9, E.3",
            Between(2.5, 10),
        ),
        Claim(
            "solution",
            "For tau from 0.1 to 10 the trials end at the closed form (largest share left of the way from log K).",
            "Theorem 1, E.3",
            AtMost(1e-3),
            kind="ours",
        ),
    )
    costs = {"smoke": "8 s", "desk": "90 s of one core", "paper": "90 s of one core"}
    setting = {
        "smoke": "K = 10, n = 5, d = 32, three tau, 2 trials, 200 iterations of plain Riemannian gradient descent.",
        "desk": "The paper's own size: see the paper profile, with other seeds.",
        "paper": (
            "K = 10, n = 5, d = 32, 20 trials of Riemannian gradient descent with Armijo's backtracking in the plain "
            "metric, 200 iterations. The paper lists neither its tau here nor the number of iterations: the tau are "
            "those of its network figure."
        ),
    }
    provenance = {
        "num_classes, per_class, dim": "text",
        "seeds (20)": "text",
        "method": "text",
        "temperature": "guess",
        "iterations (200)": "guess",
    }
    final_seeds = {"smoke": (0, 1), "desk": tuple(range(30, 50)), "paper": tuple(range(20))}

    def cells(self, profile: Profile) -> Iterator[Planned]:
        options = {"tol": 0.0, "max_iter": ITERATIONS, "record": ("value", *METRICS), "every": 1}
        for tau in GRIDS[profile]:
            problem = NormalizedUFM("cross-entropy", CLASSES, PER_CLASS, DIM, temperature=tau)
            for seed in self.seeds(profile):
                yield Planned(Solve(problem, "armijo", seed, options), {"tau": tau, "seed": seed})

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        rows = self.table(results)
        common = results.select(lambda entry: COMMON[0] <= entry.labels["tau"] <= COMMON[1])
        readings = [factor(found, _iterations_to_accuracy) for found in (common, results)]
        middle = math.sqrt(readings[0] * readings[1]) if all(map(math.isfinite, readings)) else math.nan
        low, high = sorted(readings)
        alike, ended, left = [], [], []
        for seed in results.labels("seed"):
            found = results.where(seed=seed)
            speeds = np.array([_iterations_to_collapse(entry.value) for entry in found])
            typical = float(np.median(speeds))
            alike.append(float(np.mean((speeds >= typical / SIMILAR) & (speeds <= SIMILAR * typical))))
            ended.append(float(np.mean(found.final("nc1") <= COLLAPSED)))
            left.append(max(share_left(entry.value) for entry in common.where(seed=seed)))
        last = {name: _last_above_rounding(results, name) for name in ("nc2", "nc3")}
        best = {
            name: [_best_temperature(results.where(seed=seed), name, last[name]) for seed in results.labels("seed")]
            for name in last
        }
        return {
            "accuracy": Evidence.interval(
                middle,
                low,
                high,
                why=f"The factor is {readings[0]:.2f} over tau = 0.1 to 10 and {readings[1]:.2f} over the whole list "
                "(means over the trials): "
                + ", ".join(f"{_count_in_words(row['iterations_to_accuracy'])} at {row['tau']:g}" for row in rows)
                + ".",
                table=rows,
            ),
            "nc1-rate": Evidence(
                alike,
                why=f"Iterations to NC1 <= {COLLAPSED:g}: "
                + ", ".join(f"{_count_in_words(row['iterations_to_collapse'])} at {row['tau']:g}" for row in rows)
                + ".",
            ),
            "nc1": Evidence(ended, why=_medians_in_words(rows, "nc1")),
            **{name: Evidence(best[name], why=_medians_at(results, name, last[name])) for name in last},
            "solution": Evidence(left, why=f"At most {max(left):.1e}."),
        }

    def table(self, results: Results) -> list[dict[str, Any]]:
        rows = []
        for (tau,), group in results.groups("tau"):
            middle = {name: float(np.median(group.final(name))) for name in METRICS}
            speed = {
                "iterations_to_accuracy": known(_mean_iterations(group, _iterations_to_accuracy)),
                "iterations_to_collapse": known(_mean_iterations(group, _iterations_to_collapse)),
            }
            left = max(share_left(entry.value) for entry in group)
            rows.append({"tau": tau, "trials": len(group), **speed, **middle, "share_left": left})
        return rows

    def draw(self, results: Results) -> Figure:
        temperatures = results.labels("tau")
        colours = shades(len(temperatures))
        picture, axes = figure(2, len(METRICS), size=(2.0, 1.75))
        for column, name in enumerate(METRICS):
            log = name != "accuracy"
            top, bottom = axes[:, column]
            for place, tau in enumerate(temperatures):
                steps, runs = results.where(tau=tau).curves(name)
                line = {"color": colours[place], "label": rf"$\tau$ = {tau:g}", "marker": MARKERS[place]}
                kept = slice(None, None, 4) if log else slice(11)  # enough for the eye, and for small files
                band(top, steps[kept], runs[:, kept], log=log, markevery=10, **line)
            finals = np.array([results.where(tau=tau).final(name) for tau in temperatures]).T
            shown = np.maximum(finals, SMALLEST) if log else finals
            band(bottom, np.array(temperatures), shown, log=log, color=COLOURS[0], marker="o")
            top.set_title(property_name(name))
            top.set_xlabel("iteration")
            bottom.set_xlabel(r"temperature $\tau$")
            bottom.set_xscale("log")
            for axis in (top, bottom):
                axis.set_yscale("log" if log else "linear")
            if name == "accuracy":
                top.set_xlim(0, 10)
                top.set_ylim(0, 1.05)
                bottom.set_ylim(0, 1.05)
            else:
                top.set_ylim(SMALLEST / 10, 10)
                bottom.set_ylim(SMALLEST / 10, 10)
        axes[0, 0].set_ylabel("over iterations")
        axes[1, 0].set_ylabel(f"after {ITERATIONS} iterations")
        legend_below(picture, axes[0, 0])
        return picture


def share_left(trace: Trace) -> float:
    """What is left of the way from log K to the closed form."""
    best = trace.problem.optimum().value
    return abs(trace.value - best) / (math.log(CLASSES) - best)


def factor(results: Results, iterations: Callable[[Trace], float]) -> float:
    """Of the slowest tau to the fastest, by their mean iterations."""
    means = [_mean_iterations(group, iterations) for _, group in results.groups("tau")]
    return max(means) / max(min(means), 1.0)


def _last_above_rounding(results: Results, name: str) -> int:
    """The place in the histories of the last iteration before any trial's value is as small as rounding; 0 at least."""
    histories = [np.array(entry.value.history[name], dtype=float) for entry in results]
    least = np.min([history[: min(map(len, histories))] for history in histories], axis=0)
    rounding = np.flatnonzero(~(least > EXACT))
    return max(0, (int(rounding[0]) if len(rounding) else len(least)) - 1)


def _best_temperature(results: Results, name: str, place: int) -> float:
    """The tau of the smallest value there."""
    values = [entry.value.history[name][place] for entry in results]
    return float(results.labels("tau")[int(np.argmin(values))])


def _first_iteration(trace: Trace, name: str, met: Callable[[np.ndarray], np.ndarray]) -> float:
    reached = np.flatnonzero(met(np.array(trace.history[name], dtype=float)))
    return float(trace.history["iteration"][reached[0]] or 0) if len(reached) else math.inf


def _iterations_to_collapse(trace: Trace) -> float:
    return _first_iteration(trace, "nc1", lambda nc1: nc1 <= COLLAPSED)


def _iterations_to_accuracy(trace: Trace) -> float:
    return _first_iteration(trace, "accuracy", lambda share: share >= 1)


def _mean_iterations(group: Results, iterations: Callable[[Trace], float]) -> float:
    return float(np.mean([iterations(entry.value) for entry in group]))


def _count_in_words(iterations: float | None) -> str:
    return f"more than {ITERATIONS}" if iterations is None else f"{iterations:.3g}"


def _medians_at(results: Results, name: str, place: int) -> str:
    iteration = results[0].value.history["iteration"][place]
    medians = {
        tau: float(np.median([entry.value.history[name][place] for entry in group]))
        for (tau,), group in results.groups("tau")
    }
    words = ", ".join(f"{value:.1e} at {tau:g}" for tau, value in medians.items())
    return f"Median {name.upper()} after {iteration:g} iterations: {words}."


def _medians_in_words(rows: list[dict[str, Any]], name: str) -> str:
    return f"Median final {name.upper()}: " + ", ".join(f"{row[name]:.1e} at {row['tau']:g}" for row in rows) + "."
