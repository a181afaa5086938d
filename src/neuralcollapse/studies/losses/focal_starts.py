"""Section 3.2 of the losses paper: gradient descent from random starts on the model with focal loss."""

import math
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...losses import Focal
from ...ufm import RegularizedUFM, Trace
from .._cells import Solve
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import AtLeast, Claim, Evidence
from ..pictures import Figure, figure, heat_map

GAMMA = 3.0
CLASSES: Mapping[Profile, tuple[int, ...]] = {"smoke": (20,), "desk": (10, 30, 100), "paper": (10, 30, 100)}
PER_CLASS = 2
BELOW = (0.3, 0.6, 0.9)
"""s over s_lo, where zero is a saddle."""
ABOVE = (0.25, 0.5, 0.75)
"""How far s is on the way from s_lo to s_t, where collapse is the global minimum and zero a local one."""
SCALES = (0.1, 1.0, 10.0)
"""Standard deviation of a start's rows."""
OPTIONS = {"tol": 1e-9, "max_iter": 4000, "record": ("value", "nc1", "nc2", "nc3")}
REACHED = 1e-6


@studies.add("losses/focal-starts")
class FocalStarts(Study):
    """How often gradient descent on the focal loss ends at the global minimum."""

    figures = ("section 3.2",)
    question = "Does gradient descent from a random start always reach a global minimum of the model with focal loss?"
    claims = (
        Claim(
            "weak-decay",
            "Gradient descent from random starts always ends at a global minimum, where decay is weak: s = sqrt(n lW "
            "lH) < s_lo (share of the starts).",
            "Section 3.2, after Corollary 2",
            AtLeast(1.0),
        ),
        Claim(
            "strong-decay",
            "The same where decay is stronger and collapse still is the global minimum: s_lo < s < s_t (share of the "
            "starts).",
            "Section 3.2, after Corollary 2",
            AtLeast(1.0),
            erratum=9,
        ),
    )
    costs = {"smoke": "10 s", "desk": "6 min of one core", "paper": "12 min of one core"}
    setting = {
        "smoke": "K = 20, n = 2, one s on either side of s_lo, one start of each size.",
        "desk": (
            "Gamma = 3, K = 10, 30 and 100, n = 2, d = K + 2, with a bias (of the same decay) and without; s = .3, .6 "
            "and .9 of s_lo, and for K = 30 and 100, whose transition is of first order, three s between s_lo and s_t; "
            "rows of norm .1, 1 and 10 at the start, 5 starts each, plain gradient descent with Armijo's rule."
        ),
        "paper": "As at desk size with 20 starts each: the paper reports the experiment without its settings.",
    }
    provenance = {
        "gamma": "text",
        "num_classes, per_class, dim": "guess",
        "weight_decay, feature_decay, bias_decay": "guess",
        "start": "guess",
        "step rule": "guess",
    }
    final_seeds = {"smoke": (0,), "desk": tuple(range(20, 25)), "paper": tuple(range(20))}

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for count in CLASSES[profile]:
            for where, level, s in levels(count):
                if profile == "smoke" and level not in (BELOW[1], ABOVE[1]):
                    continue
                decay = s / math.sqrt(PER_CLASS)
                for bias in (False, True):
                    sizes = (count, PER_CLASS, count + 2, decay, decay, decay if bias else None)
                    problem = RegularizedUFM(Focal(GAMMA), *sizes)
                    for scale in SCALES:
                        for seed in self.seeds(profile):
                            cell = Solve(problem, "armijo", seed, OPTIONS, scale)
                            labels = {"K": count, "bias": bias, "where": where, "level": level, "scale": scale}
                            yield Planned(cell, {**labels, "seed": seed})

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        low, high = results.where(where="below"), results.where(where="above")
        stuck = {
            f"K = {count}, rows of {scale:g}{', with a bias' if bias else ''}": 1
            - share(high.where(K=count, scale=scale, bias=bias))
            for count in high.labels("K")
            for bias in high.labels("bias")
            for scale in SCALES
        }
        words = "; ".join(f"{name}: {value:.0%}" for name, value in stuck.items())
        return {
            "weak-decay": _always(low, f"{_reached(low)} of {len(low)} starts."),
            "strong-decay": _always(high, f"{_reached(high)} of {len(high)} starts. Elsewhere ended {words}."),
        }

    def table(self, results: Results) -> list[dict[str, Any]]:
        return [
            {
                **dict(zip(("K", "bias", "where", "level", "scale"), key, strict=True)),
                "starts": len(group),
                "share_at_the_minimum": share(group),
                "nc1": float(np.median(group.final("nc1"))),
                "iterations": float(np.mean([entry.value.iterations for entry in group])),
            }
            for key, group in results.groups("K", "bias", "where", "level", "scale")
        ]

    def draw(self, results: Results) -> Figure:
        counts = results.labels("K")
        picture, axes = figure(1, len(counts), size=(2.6, 2.0))
        for axis, count in zip(axes[0], counts, strict=True):
            found = results.where(K=count)
            places = [key for key, _ in found.groups("where", "level")]
            names = [f"{level:g}" if where == "below" else f"+{level:g}" for where, level in places]
            values = np.array(
                [[share(found.where(where=w, level=v, scale=scale)) for w, v in places] for scale in SCALES]
            )
            rows = [f"{scale:g}" for scale in SCALES]
            heat_map(axis, 100 * values, rows, names, title=f"K = {count}", shown="{:.0f}", limits=(0.0, 100.0))
            axis.set_xlabel(r"s/s$_{lo}$, or + part of the way to s$_t$")
        axes[0, 0].set_ylabel("norm of a start's rows")
        picture.suptitle("% of the starts that end at the global minimum", fontsize=8)
        return picture


def levels(num_classes: int) -> Iterator[tuple[str, float, float]]:
    """(below or above s_lo, its level, s): above only where the transition is of first order."""
    transition = Focal(GAMMA).transition(num_classes)
    low, exchange = transition.zero_stable_above, transition.exchange
    for level in BELOW:
        yield "below", level, level * low
    if transition.first_order:
        for level in ABOVE:
            yield "above", level, low + level * (exchange - low)


def at_minimum(trace: Trace) -> bool:
    """Whether a solve ended at the closed-form global minimum, to six digits."""
    best = trace.problem.optimum().value
    return trace.value - best <= REACHED * abs(best)


def share(results: Results) -> float:
    """Of the starts that end at the global minimum."""
    return _reached(results) / len(results) if len(results) else math.nan


def _reached(results: Results) -> int:
    return sum(at_minimum(entry.value) for entry in results)


def _always(results: Results, why: str) -> Evidence:
    """A statement on all starts: one that ends elsewhere refutes it."""
    return Evidence.exact(share(results), why=why)
