"""What descent finds in the regularised model: the closed form of the global minimum, whatever the start."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...ufm import RegularizedUFM, Trace
from .._cells import Solve
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import AtMost, Claim, Evidence
from ..pictures import GREY, Figure, colour, figure, legend_below, loss_name, marker

PER_CLASS = 5
DECAYS = ((5e-3, 5e-3), (5e-2, 1e-3))
"""(lambda_W, lambda_H)."""
BIAS_DECAY = 1e-2
LARGEST = 1e-8
LOSSES = {
    "cross-entropy": "cross-entropy",
    "label-smoothing": "label-smoothing:alpha=0.1",
    "focal": "focal:gamma=3",
    "squared-error": "squared-error",
}
CLASSES = {"smoke": (3,), "desk": (3, 5, 10), "paper": (3, 5, 10, 20)}
OPTIONS = {"tol": 1e-10, "max_iter": 20_000, "record": ("value", "nc1"), "every": 100}
WIDE, NARROW = "d >= K - 1", "d < K - 1"


def dimensions(loss: str, num_classes: int) -> tuple[int, ...]:
    """Feature dimensions with a closed form: from K - 1 on, and below it for the squared error."""
    below = tuple(dict.fromkeys((1, num_classes // 2))) if loss == "squared-error" else ()
    return (*(d for d in below if d < num_classes - 1), num_classes - 1, num_classes, 2 * num_classes)


@studies.add("geometric/value")
class RegularizedValue(Study):
    """Gradient descent on (W, H, b) from random starts, beside the global minimum in closed form."""

    figures = ("Theorem 3.2",)
    question = "Does gradient descent from random starts reach the global minimum of the regularised model?"
    claims = (
        Claim(
            "cross-entropy",
            "With cross-entropy every start ends at the global minimum, a collapsed one: all other critical points are "
            "strict saddles.",
            "geometric, Theorems 3.1 and 3.2",
            AtMost(LARGEST),
            unit="relative excess",
        ),
        Claim(
            "label-smoothing",
            "So it is with label smoothing.",
            "losses, Theorem 2 and Corollary 1",
            AtMost(LARGEST),
            unit="relative excess",
        ),
        Claim(
            "focal",
            "So it is with the focal loss, at decays that leave the minimum inside its convex part.",
            "losses, Theorem 2 and Corollary 2",
            AtMost(LARGEST),
            unit="relative excess",
        ),
        Claim(
            "squared-error",
            "So it is with the squared error, with a bias and d >= K - 1 and without one for every d.",
            "mse, Theorems 3.2 and 3.3",
            AtMost(LARGEST),
            unit="relative excess",
        ),
        Claim(
            "narrow-bias",
            "So it is with the squared error with a bias and d < K - 1, which the paper conjectures.",
            "mse, after Theorem 3.3",
            AtMost(LARGEST),
            kind="ours",
            unit="relative excess",
        ),
        Claim(
            "collapse",
            "At the end of every descent the features of a class are equal: NC1 vanishes.",
            "geometric, Theorem 3.1; mse, Theorem 3.1; losses, Theorem 1",
            AtMost(1e-6),
            unit="NC1",
        ),
    )
    costs = {"smoke": "3 s", "desk": "15 s of one core", "paper": "2 min of one core"}
    setting = {
        "smoke": "K = 3, n = 5, two pairs of decays, one start each.",
        "desk": "K = 3, 5 and 10, n = 5; d = K - 1, K and 2K (for the squared error also 1 and K/2); two pairs of "
        "decays; with and without bias; 3 starts each.",
        "paper": "As at desk size, with K = 20 and 10 starts each. The papers state theorems and run no such sweep: K, "
        "n, d and the decays are ours.",
    }
    provenance = {"model and closed forms": "text", "K, n, d, decays, starts": "guess"}
    final_seeds = {"smoke": (0,), "desk": (10, 11, 12), "paper": tuple(range(10))}

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for loss, spec in LOSSES.items():
            for count in CLASSES[profile]:
                for dim in dimensions(loss, count):
                    for pair in DECAYS:
                        for bias in (True, False):
                            decay = BIAS_DECAY if bias else None
                            problem = RegularizedUFM(spec, count, PER_CLASS, dim, pair[0], pair[1], decay)
                            labels = {"loss": loss, "K": count, "d": dim, "decays": DECAYS.index(pair), "bias": bias}
                            for seed in self.seeds(profile):
                                yield Planned(
                                    Solve(problem, "gradient-descent", seed, OPTIONS), {**labels, "seed": seed}
                                )

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        found: dict[str, list[float]] = {claim.name: [] for claim in self.claims}
        for entry in results:
            labels = entry.labels
            narrow = labels["bias"] and labels["d"] < labels["K"] - 1
            found["narrow-bias" if narrow else labels["loss"]].append(_distance_from_minimum(entry.value))
            found["collapse"].append(_last_nc1(entry.value))
        return {
            name: Evidence.exact(
                max(values, default=np.nan), why=f"Largest of {len(values)} descents; median {np.median(values):.1e}."
            )
            for name, values in found.items()
            if values
        }

    def table(self, results: Results) -> list[dict[str, Any]]:
        rows = []
        for (loss, count, dim, decays, bias), mine in results.groups("loss", "K", "d", "decays", "bias"):
            traces: list[Trace] = [entry.value for entry in mine]
            rows.append(
                {
                    "loss": loss_name(loss),
                    "K": count,
                    "d": dim,
                    "bias": bias,
                    "decays": list(DECAYS[decays]),
                    "minimum": traces[0].problem.optimum().value,
                    "largest_relative_excess": max(map(_distance_from_minimum, traces)),
                    "nc1": max(map(_last_nc1, traces)),
                    "iterations": float(np.mean([trace.iterations for trace in traces])),
                }
            )
        return rows

    def draw(self, results: Results) -> Figure:
        picture, axes = figure(1, 2, size=(2.9, 2.3))
        names = results.labels("loss")
        for place, loss in enumerate(names):
            mine = results.where(loss=loss)
            exact = np.array([entry.value.problem.optimum().value for entry in mine])
            reached = np.array([entry.value.value for entry in mine])
            excess = np.maximum([_distance_from_minimum(entry.value) for entry in mine], 1e-17)
            shift = 1.04 ** (place - 1.5)
            style = {"color": colour(loss), "marker": marker(loss), "linestyle": "none", "alpha": 0.6, "ms": 3}
            axes[0, 0].plot(exact, reached, label=loss_name(loss), **style)
            axes[0, 1].plot(np.array([entry.labels["d"] for entry in mine]) * shift, excess, **style)
        ends = axes[0, 0].get_xlim()
        axes[0, 0].plot(ends, ends, color="black", linewidth=0.8, zorder=0, label="equal")
        axes[0, 0].set_xlabel("global minimum, closed form")
        axes[0, 0].set_ylabel("value reached by descent")
        axes[0, 1].axhline(LARGEST, color=GREY, linestyle=(0, (4, 2)), linewidth=1.0)
        axes[0, 1].annotate("limit", (1, LARGEST), xycoords=("axes fraction", "data"), ha="right", va="bottom", size=7)
        axes[0, 1].set_xscale("log")
        ticks = sorted(set(results.labels("d")))
        # 9 and 10 lie too close together for both to be written.
        crowded = [place for place, tick in enumerate(ticks[1:]) if tick < 1.15 * ticks[place]]
        axes[0, 1].set_xticks(ticks, ["" if place in crowded else str(tick) for place, tick in enumerate(ticks)])
        axes[0, 1].xaxis.set_minor_formatter("")
        axes[0, 1].set_yscale("log")
        axes[0, 1].set_xlabel("feature dimension d")
        axes[0, 1].set_ylabel("relative excess")
        legend_below(picture, axes[0, 0], columns=5)
        return picture


def _distance_from_minimum(trace: Trace) -> float:
    """How far the value is from the global minimum, relative to it."""
    best = trace.problem.optimum().value
    return abs(trace.value - best) / abs(best)


def _last_nc1(trace: Trace) -> float:
    """NC1 at the end; features that vanish have none and are equal."""
    last = trace.history["nc1"][-1]
    return 0.0 if last is None else float(last)
