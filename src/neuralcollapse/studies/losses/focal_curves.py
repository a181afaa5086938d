"""Figures 9 and 10 of the losses paper: psi(t) = phi(t) + c |t| of the focal loss, and its first-order jump."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...landscape import psi
from ...losses import Focal
from .._cells import Calculation, calculations
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import AtLeast, AtMost, Claim, Evidence
from ..pictures import COLOURS, GREY, Figure, figure

GAMMA = 3.0
CLASSES = {"smoke": (10, 100), "desk": (4, 10, 17, 18, 30, 100), "paper": (4, 10, 17, 18, 30, 100)}
POINTS = {"smoke": 20_001, "desk": 200_001, "paper": 200_001}
MARGIN = 30.0
"""The largest margin -t/(K-1) on the grid."""
SHOWN = 241
NEAR = 1e-3


@calculations.add("losses/focal-curves")
def focal_curves(num_classes: int, gamma: float, points: int) -> dict[str, Any]:
    """Psi on a grid of t <= 0, for c from below the transition to above it.

    For t > 0 psi only rises. What is read off the grid, without derivatives: the c above which zero is a local minimum
    (the last secant's slope), the c below which another is (the steepest secant), and the c at which the global minimum
    leaves zero, max over t of (phi(0) - phi(t))/|t|, with the place it leaves to. Beside it the closed forms.
    """
    loss = Focal(gamma)
    # Finer towards zero, where a transition of second order happens.
    t = -(num_classes - 1) * MARGIN * np.linspace(1, 0, points) ** 2
    phi = np.asarray(psi(t, loss, num_classes, 0.0))
    slopes = np.diff(phi) / np.diff(t)
    chords = (phi[-1] - phi[:-1]) / -t[:-1]
    exact = loss.transition(num_classes)
    levels = np.concatenate(
        [
            exact.zero_stable_above * np.linspace(0.5, 0.998, 10),
            _between(exact.zero_stable_above, exact.exchange),
            _between(exact.exchange, exact.collapse_exists_below),
            exact.collapse_exists_below * np.linspace(1.002, 1.5, 10),
        ]
    )
    curves = [np.asarray(psi(t, loss, num_classes, float(c))) for c in levels]
    return {
        "levels": levels.tolist(),
        "minima": [count_minima(curve) for curve in curves],
        "expected": [1 + int(exact.zero_stable_above < c < exact.collapse_exists_below) for c in levels],
        "minimisers": [float(t[curve.argmin()]) for curve in curves],
        "closed_form": [
            -(num_classes - 1) * loss.optimal_margin((num_classes - 1) * c, num_classes).margin for c in levels
        ],
        "first_order": exact.first_order,
        "zero_stable_above": float(slopes[-1]),
        "collapse_exists_below": float(slopes.max()),
        "exchange": float(chords.max()),
        "jumps_to": float(t[chords.argmax()]),
        "exact": [exact.zero_stable_above, exact.exchange, exact.collapse_exists_below],
    }


def _between(low: float, high: float) -> np.ndarray:
    """Eight levels strictly inside, none if the two coincide."""
    inside = low + (high - low) * np.linspace(0.05, 0.95, 8)
    return inside if high > low * (1 + 1e-9) else inside[:0]


def count_minima(curve: np.ndarray) -> int:
    """Local minima of a curve on t <= 0 that rises for t > 0."""
    falls = np.diff(curve) < 0
    return int((falls[:-1] & ~falls[1:]).sum() + falls[-1] + (not falls[0]))


@studies.add("losses/focal-curves")
class FocalCurves(Study):
    """One minimum or two, and where the global one jumps."""

    figures = ("9", "10")
    question = "Which shapes does psi(t) = phi_FL(t) + c |t| have, and where does its minimiser jump?"
    claims = (
        Claim(
            "one-kind",
            "Where the slope of psi only rises (small K) every curve has one minimum: at zero for large c, away from "
            "it for small c (share of the curves that do).",
            "Figure 9, B.2",
            AtLeast(1.0),
        ),
        Claim(
            "three-kinds",
            "Where the slope first rises and then falls (large K) there are three kinds of curve: the minimum at zero "
            "alone, away from zero alone, and both for c in between (share of the curves that do).",
            "Figure 10, B.2",
            AtLeast(1.0),
        ),
        Claim(
            "unique",
            "The global minimiser is unique at every c but the one at which the two are equal: it is the closed form's "
            "(largest distance in t, over the reach of the grid).",
            "B.2",
            AtMost(NEAR),
        ),
        Claim(
            "thresholds",
            "The c at which zero becomes stable, at which the minima are equal and at which collapse ceases to exist "
            "are the closed forms' (largest relative distance).",
            "B.2, with c as corrected",
            AtMost(NEAR),
            kind="ours",
            erratum=1,
        ),
    )
    costs = {"smoke": "3 s", "desk": "4 s", "paper": "4 s"}
    setting = {
        "smoke": "Gamma = 3, K = 10 and 100.",
        "desk": "Gamma = 3, K = 4, 10, 17, 18, 30 and 100, some 20 to 36 values of c each.",
        "paper": (
            "Gamma = 3, K = 4, 10, 17, 18, 30 and 100, some 20 to 36 values of c each, around the transition. The "
            "paper draws one K of each kind without naming it; c is s = sqrt(n lW lH) and t the sum over wrong "
            "classes, as corrected."
        ),
    }

    provenance = {"gamma": "text", "num_classes": "guess", "c": "guess"}

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for count in CLASSES[profile]:
            arguments = {"num_classes": count, "gamma": GAMMA, "points": POINTS[profile]}
            yield Planned(Calculation("losses/focal-curves", arguments), {"K": count})

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        values = {entry.labels["K"]: entry.value for entry in results}
        kinds = {first: {k: v for k, v in values.items() if v["first_order"] == first} for first in (False, True)}
        errors = [float(np.max(np.abs(np.array(thresholds(v)) / v["exact"] - 1))) for v in values.values()]
        jumps = "; ".join(
            f"K = {k} at c = {v['exchange']:.6f} to t = {v['jumps_to']:.3g}" for k, v in kinds[True].items()
        )
        away = max(
            abs(grid - exact) / ((k - 1) * MARGIN)
            for k, v in values.items()
            for grid, exact in zip(v["minimisers"], v["closed_form"], strict=True)
        )
        return {
            "one-kind": _share(kinds[False], f"K = {', '.join(map(str, kinds[False]))}."),
            "three-kinds": _share(kinds[True], f"The minimiser jumps for {jumps}."),
            "unique": Evidence.exact(away, why=f"They are {away:.1e} apart at most."),
            "thresholds": Evidence.exact(max(errors), why=f"They are {max(errors):.1e} apart at most."),
        }

    def table(self, results: Results) -> list[dict[str, Any]]:
        names = ("zero_stable_above", "exchange", "collapse_exists_below")
        return [
            {
                "K": entry.labels["K"],
                "first_order": entry.value["first_order"],
                **{name: entry.value[name] for name in names},
                **{f"{name}_closed_form": exact for name, exact in zip(names, entry.value["exact"], strict=True)},
                "jumps_to": entry.value["jumps_to"] if entry.value["first_order"] else 0.0,
            }
            for entry in results
        ]

    def draw(self, results: Results) -> Figure:
        picture, axes = figure(2, 2, size=(2.6, 2.0))
        for (left, right), count in zip(axes, (10, 100), strict=True):
            value = results.only(K=count)
            low, exchange, high = value["exact"]
            levels = {"collapse only": 0.8 * low, "zero only": 1.2 * high}
            if value["first_order"]:
                levels = {
                    "collapse only": 0.97 * low,
                    "collapse lower": (low + exchange) / 2,
                    "equal": exchange,
                    "zero lower": (exchange + high) / 2,
                    "zero only": 1.03 * high,
                }
            reach = 4.0 if value["first_order"] else 1.6
            t = np.linspace(-(count - 1) * reach, 0.1 * (count - 1), SHOWN)
            for place, (name, c) in enumerate(levels.items()):
                curve = np.asarray(psi(t, Focal(GAMMA), count, c))
                left.plot(
                    t, curve - psi(0.0, Focal(GAMMA), count, c), color=COLOURS[place], label=f"{name}, c = {c:.4f}"
                )
            left.axhline(0, color=GREY, linewidth=0.6)
            low_end, high_end = left.get_ylim()
            left.set_ylim(low_end, min(high_end, 0.7))
            left.locator_params(axis="x", nbins=5)
            left.set_title(f"K = {count}")
            left.set_xlabel("t")
            left.set_ylabel(r"$\psi(t) - \psi(0)$")
            left.legend(fontsize=5.8, loc="upper right")
            right.plot(value["levels"], value["closed_form"], color="black", linewidth=1.0, label="closed form")
            right.plot(value["levels"], value["minimisers"], "o", color=COLOURS[0], label="grid")
            if value["first_order"]:
                right.axvspan(low, high, color=COLOURS[3], alpha=0.2, linewidth=0, label="two local minima")
            right.axvline(exchange, color=GREY, linewidth=0.8, linestyle=":", label="exchange")
            right.set_title(f"K = {count}, exchange at c = {exchange:.5f}")
            right.set_xlabel("c")
            right.set_ylabel("global minimiser t")
            right.locator_params(axis="x", nbins=5)
            right.legend(fontsize=5.8, loc="center right")
        return picture


def thresholds(value: dict[str, Any]) -> list[float]:
    """Zero stable, exchange and collapse exists, as found on the grid."""
    return [value["zero_stable_above"], value["exchange"], value["collapse_exists_below"]]


def _share(values: Mapping[int, dict[str, Any]], why: str) -> Evidence:
    """The share of curves that have the predicted number of local minima."""
    counts = [m == e for v in values.values() for m, e in zip(v["minima"], v["expected"], strict=True)]
    return Evidence.exact(float(np.mean(counts)), why=f"{sum(counts)} of {len(counts)} curves do. {why}")
