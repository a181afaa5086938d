"""More classes than a simplex has room for: which code is best depends on the temperature."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from ...ufm import NormalizedUFM, solve
from ...ufm.normalized.optimum import simplices_value
from .._cells import Calculation, calculations
from .._common.seeds import per_seed
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import Above, AtMost, Claim, Evidence, Holds
from ..pictures import GREY, Figure, colour, figure, legend_below

TEMPERATURES: Mapping[Profile, tuple[float, ...]] = {
    "smoke": (0.5, 2.0, 5.0),
    "desk": (0.5, 1.0, 2.0, 5.0, 10.0),
    "paper": (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 7.0, 10.0),
}
SIZES: Mapping[str, Mapping[Profile, tuple[tuple[int, int], ...]]] = {
    "cross-polytope": {"smoke": ((6, 3),), "desk": ((6, 3), (8, 4), (10, 5)), "paper": ((6, 3), (8, 4), (10, 5))},
    "polygon": {"smoke": ((5, 2),), "desk": ((5, 2), (7, 2), (9, 2)), "paper": ((5, 2), (7, 2), (9, 2), (12, 2))},
    "simplices": {
        "smoke": ((6, 4),),
        "desk": ((5, 3), (6, 4), (7, 4), (7, 5)),
        "paper": ((5, 3), (6, 4), (7, 4), (7, 5)),
    },
}
"""(K, d) of each family."""
MODERATE = 5.0
"""Orthogonal simplices are claimed up to here."""
STARTS: Mapping[Profile, int] = {"smoke": 3, "desk": 20, "paper": 50}
EQUAL = 1e-8
BEST_64 = {0.5: "3+3", 2.0: "4+2", 5.0: "4+2"}
THEORY = "docs/theory.md, more classes than dimensions"


@calculations.add("codes/temperature")
def best_code(num_classes: int, dim: int, temperature: float, starts: int, seed: int) -> dict[str, Any]:
    """The lowest value of L-BFGS over random starts, beside the closed form that is the best one known."""
    problem = NormalizedUFM("ce", num_classes, 1, dim, temperature)
    optimum = problem.optimum()
    values = [
        solve(problem, "lbfgs", seed=starts * seed + start, tol=1e-11, max_iter=5000).value for start in range(starts)
    ]
    return {
        "best": min(values),
        "closed_form": optimum.value,
        "regime": optimum.regime,
        "reached": sum(abs(value / optimum.value - 1) <= EQUAL for value in values) / starts,
    }


@studies.add("codes/temperature")
class CodeTemperature(Study):
    """Unit features and classifiers with K > d + 1, best of many starts at each temperature."""

    figures = ("codes",)
    question = "Which arrangement of K > d + 1 unit classifiers is best, and does it change with the temperature?"
    claims = (
        Claim(
            "cross-polytope",
            "For K = 2d the best of many starts is the cross-polytope at every temperature: log(1 + e^(-2t) + "
            "(2d-2) e^(-t)) (largest relative difference).",
            f"{THEORY} (found numerically, not proved)",
            AtMost(EQUAL),
        ),
        Claim(
            "polygon",
            "For d = 2 it is the regular polygon (largest relative difference).",
            f"{THEORY} (found numerically, not proved)",
            AtMost(EQUAL),
        ),
        Claim(
            "simplices",
            "For d + 2 <= K < 2d it is K - d orthogonal simplices at t <= 5 (largest relative difference).",
            f"{THEORY} (found numerically, not proved)",
            AtMost(EQUAL),
        ),
        Claim(
            "partition",
            "The best sizes change with the temperature: for (K, d) = (6, 4) they are 3+3 at t = 0.5 and 2+4 at t = 2 "
            "and 5.",
            THEORY,
            Holds(),
        ),
        Claim(
            "cold",
            "At t = 10 and (6, 4) a code better than all orthogonal simplices exists (relative excess of theirs).",
            THEORY,
            Above(1e-6),
        ),
    )
    costs = {"smoke": "2 s", "desk": "3 min of one core", "paper": "15 min of one core"}
    setting = {
        "smoke": "One (K, d) of each family, three temperatures, 3 starts.",
        "desk": "Cross-entropy, one sample a class; K = 2d to d = 5, d = 2 to K = 9 and four (K, d) between; five "
        "temperatures; best of 20 starts, 10 times.",
        "paper": "As at desk size with nine temperatures and 50 starts. There is no such figure in the four papers.",
    }
    provenance = {"sizes, temperatures, starts": "guess"}
    final_seeds = {"smoke": (0,), "desk": tuple(range(20, 30)), "paper": tuple(range(20, 30))}

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for family, sizes in SIZES.items():
            for count, dim in sizes[profile]:
                for temperature in TEMPERATURES[profile]:
                    for seed in self.seeds(profile):
                        where = {"num_classes": count, "dim": dim, "temperature": temperature}
                        cell = Calculation("codes/temperature", {**where, "starts": STARTS[profile], "seed": seed})
                        labels = {"family": family, "K": count, "d": dim, "tau": temperature, "seed": seed}
                        yield Planned(cell, labels)

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        found = {}
        for family in SIZES:
            mine = (
                _at_moderate_temperatures(results.where(family=family))
                if family == "simplices"
                else results.where(family=family)
            )
            off = per_seed(mine, lambda some: max(abs(_excess_over_closed_form(entry.value)) for entry in some))
            reached = np.mean([entry.value["reached"] for entry in mine])
            found[family] = Evidence(
                off,
                why=f"{len(mine)} searches, {reached:.0%} of starts reach it; the farthest is {max(off):.0e} away.",
            )
            beaten = [entry.labels for entry in mine if _excess_over_closed_form(entry.value) < -EQUAL]
            where = dict.fromkeys(f"({one['K']}, {one['d']}) at t = {one['tau']:g}" for one in beaten)
            if where:
                found[family] = replace(found[family], why=f"{found[family].why} It is beaten for {', '.join(where)}.")
        right, told = [], []
        for tau, sizes in BEST_64.items():
            mine = results.where(K=6, d=4, tau=tau)
            lowest = min(entry.value["best"] for entry in mine)
            values = {name: value_of_sizes(name, tau) for name in ("3+3", "4+2")}
            nearest = min(values, key=lambda name: abs(values[name] - lowest))
            right.append(nearest == sizes and abs(lowest / values[sizes] - 1) <= EQUAL)
            told.append(f"{nearest} at {tau:g}")
        found["partition"] = Evidence.exact(all(right), why=f"The search's lowest value is that of {', '.join(told)}.")
        cold = results.where(K=6, d=4, tau=10.0)
        if cold:
            found["cold"] = Evidence(
                per_seed(cold, lambda mine: max(-_excess_over_closed_form(entry.value) for entry in mine))
            )
        return found

    def table(self, results: Results) -> list[dict[str, Any]]:
        rows = []
        for (count, dim, tau), mine in results.groups("K", "d", "tau"):
            values = [entry.value for entry in mine]
            row = {"K": count, "d": dim, "tau": tau, "known": values[0]["regime"], "value": values[0]["closed_form"]}
            best = min(value["best"] for value in values)
            share = float(np.mean([value["reached"] for value in values]))
            rows.append({**row, "best_of_search": best, "starts_that_reach_it": share})
        return rows

    def draw(self, results: Results) -> Figure:
        picture, axes = figure(1, 2, size=(2.9, 2.3))
        sizes = list(dict.fromkeys((entry.labels["K"], entry.labels["d"]) for entry in results))
        families = list(SIZES)
        for place, (count, dim) in enumerate(sizes):
            mine = results.where(K=count, d=dim)
            taus = mine.labels("tau")
            below = [
                max(-min(_excess_over_closed_form(entry.value) for entry in mine.where(tau=tau)), 1e-16) for tau in taus
            ]
            style = {"color": colour(mine[0].labels["family"], families), "marker": "os^DvPX*<>"[place % 10]}
            axes[0, 0].plot(taus, below, linewidth=0.8, mfc="none", ms=4, label=f"K = {count}, d = {dim}", **style)
        axes[0, 0].axhline(EQUAL, color=GREY, linestyle=(0, (4, 2)), linewidth=1.0)
        axes[0, 0].set_xscale("log")
        axes[0, 0].set_yscale("log")
        axes[0, 0].set_title("how far the best of a search is\nbelow the code in closed form (relative)")
        fine = np.geomspace(0.25, 12, 200)
        gain = [1 - value_of_sizes("4+2", tau) / value_of_sizes("3+3", tau) for tau in fine]
        axes[0, 1].plot(fine, gain, color="black", label="2+4")
        mine = results.where(K=6, d=4)
        searched = [
            (tau, 1 - min(e.value["best"] for e in mine.where(tau=tau)) / value_of_sizes("3+3", tau))
            for tau in mine.labels("tau")
        ]
        axes[0, 1].plot(*zip(*searched, strict=True), "o", color=colour("simplices", families), mfc="none", ms=4)
        axes[0, 1].axhline(0, color=GREY, linestyle=(0, (4, 2)), linewidth=1.0)
        axes[0, 1].set_xscale("log")
        axes[0, 1].set_yscale("symlog", linthresh=1e-3)
        axes[0, 1].set_title("K = 6, d = 4: gain over 3+3\n(line: 2+4; circles: best of search)")
        for axis in axes[0]:
            axis.set_xlabel(r"temperature $\tau$")
        legend_below(picture, axes[0, 0], columns=4)
        return picture


def value_of_sizes(sizes: str, temperature: float) -> float:
    """The value of orthogonal simplices of these sizes, such as "4+2".

    >>> round(value_of_sizes("2", 1.0) - float(np.log1p(np.exp(-2.0))), 12)
    0.0
    """
    return simplices_value([int(size) for size in sizes.split("+")], temperature)


def _at_moderate_temperatures(results: Results) -> Results:
    return results.select(lambda entry: entry.labels["tau"] <= MODERATE)


def _excess_over_closed_form(value: Mapping[str, Any]) -> float:
    """How much higher the best of the search is than the closed form, relative to it."""
    return value["best"] / value["closed_form"] - 1
