"""Figures 11 to 13 of the normalized paper: focal loss, label smoothing and supervised contrastive loss on spheres."""

from collections.abc import Iterator, Mapping
from typing import Any

from ...losses import LabelSmoothing
from ...ufm import Trace, critical_temperature
from .._results import Planned, Result, Results
from .._study import Profile, Study, studies
from ..claims import Above, AtMost, Claim, Evidence
from ..pictures import GREY, SKY, Figure, figure, legend_below
from ._sweeps import (
    CONTRASTIVE,
    DESCENT,
    PROVENANCE,
    SEEDS,
    SWEEPS,
    Reached,
    collapse_value,
    draw_sweeps,
    spread_of_values,
    sweep_cells,
    sweep_rows,
    worst_of_each_seed,
)

FOCAL = "focal:gamma=3.0"
SMOOTHING = LabelSmoothing(alpha=0.1)
SMOOTHED = SMOOTHING.spec
LOSSES = (FOCAL, SMOOTHED, CONTRASTIVE)
EQUAL, EQUAL_CONTRASTIVE = 1e-8, 1e-4
"""How near two values must be: descent on the contrastive loss is slow where its exponents, tau^2, are large."""
COLLAPSED = 1e-2
"""NC1 of a collapsed point, as far as a figure shows it."""


@studies.add("normalized/losses")
class Losses(Study):
    """Which losses collapse on spheres, and up to which temperature."""

    figures = ("11", "12", "13")
    question = "Do other losses reach their value at neural collapse on spheres, for all K and tau?"
    claims = (
        Claim(
            "focal",
            "Descent on the focal loss reaches its value at neural collapse, at every K and tau (largest distance).",
            "Figure 11, E.4",
            AtMost(EQUAL),
        ),
        Claim(
            "contrastive",
            "Descent on the supervised contrastive loss reaches its value at neural collapse, at every K and tau "
            "(largest distance).",
            "Figure 13, E.4",
            AtMost(EQUAL_CONTRASTIVE),
        ),
        Claim(
            "smoothing-small-tau",
            "With label smoothing, descent reaches the value at neural collapse where tau is small enough: up to the "
            "critical temperature (largest distance).",
            "Figure 12, E.4",
            AtMost(EQUAL),
        ),
        Claim(
            "smoothing-large-tau",
            "With label smoothing, neural collapse is not the minimum where tau is large: descent ends lower (least "
            "distance below the value at collapse, beyond the critical temperature).",
            "Figure 12, E.4",
            Above(EQUAL),
        ),
        Claim(
            "collapse",
            "Wherever the value at collapse is reached, the point is collapsed (largest NC1; under the contrastive "
            "loss, on which gradient descent stays slow, of solves by trust regions).",
            "Figures 11 to 13, E.4",
            AtMost(COLLAPSED),
        ),
        Claim(
            "same-values",
            "The same values are found from all starts (largest difference of two).",
            "Captions of Figures 11 to 13",
            AtMost(EQUAL_CONTRASTIVE),
        ),
        Claim(
            "critical-temperature",
            "Beyond it, the margins that are reached give the critical temperature (K-1)/K log(K/alpha - K + 1) "
            "(largest relative distance).",
            "this project's theory",
            AtMost(1e-3),
            kind="ours",
        ),
        Claim(
            "smoothing-minimum",
            "Beyond it, descent ends at the closed-form minimum (largest distance).",
            "this project's theory",
            AtMost(EQUAL),
            kind="ours",
        ),
    )
    costs = {"smoke": "4 s", "desk": "90 s of one core", "paper": "4 min of one core"}
    setting = {
        "smoke": "Gamma = 3, alpha = 0.1, d = 16, n = 3; three K at tau = 1, three tau at K = 3, 2 starts each.",
        "desk": "As for the paper profile, with 5 starts each.",
        "paper": (
            "Gamma = 3, alpha = 0.1, d = 16, n = 3; K = 2 to 17 at tau = 1, tau = 0.25 to 5 at K = 3. The paper does "
            "not list its K and tau, nor the number of its starts: 10 each, of 1,000 iterations at most. The "
            "contrastive loss also by trust regions: at tau = 5 gradient descent does not come to rest."
        ),
    }
    provenance = {"gamma and alpha": "text", **PROVENANCE}
    final_seeds = {**SEEDS, "desk": tuple(range(20, 25))}

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for loss in LOSSES:
            yield from sweep_cells(loss, SWEEPS[profile], self.seeds(profile))
        yield from sweep_cells(CONTRASTIVE, SWEEPS[profile], self.seeds(profile), "trust-region")

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        everything, results = results, _by_gradient_descent(results)
        smoothed = results.where(loss=SMOOTHED)
        below, above = _on_one_side(smoothed, beyond=False), _on_one_side(smoothed, beyond=True)
        excess = {
            loss: worst_of_each_seed(results.where(loss=loss), lambda one: abs(one.departure))
            for loss in (FOCAL, CONTRASTIVE)
        }
        small = worst_of_each_seed(below, lambda one: abs(one.departure))
        large = [-value for value in worst_of_each_seed(above, lambda one: -one.departure)]
        to_the_end = everything.where(loss=CONTRASTIVE, method="trust-region")
        collapsing = Results(results.profile, (*results.where(loss=FOCAL), *to_the_end, *below))
        nc1 = worst_of_each_seed(collapsing, lambda one: one.trace.history["nc1"][-1] or 0.0)
        spread = spread_of_values(results)
        last, first = (max(below.labels("tau")), min(above.labels("tau")))
        return {
            "focal": Evidence(excess[FOCAL], why=f"At most {max(excess[FOCAL]):.1e}."),
            "contrastive": Evidence(excess[CONTRASTIVE], why=f"At most {max(excess[CONTRASTIVE]):.1e}."),
            "smoothing-small-tau": Evidence(
                small,
                why=f"At K = 3 the critical temperature is {critical_temperature(SMOOTHING, 3):.4f}; up to tau = "
                f"{last:g} the distance is at most {max(small):.1e}.",
            ),
            "smoothing-large-tau": Evidence(
                large, why=f"From tau = {first:g} on descent ends at least {min(large):.1e} lower."
            ),
            "collapse": Evidence(nc1, why=f"NC1 ends at {max(nc1):.1e} or less."),
            "same-values": Evidence.exact(spread, why=f"They differ by at most {spread:.1e}."),
            "critical-temperature": Evidence(
                worst_of_each_seed(above, lambda one: abs(measured_temperature(one) / critical_of(one) - 1))
            ),
            "smoothing-minimum": Evidence(worst_of_each_seed(above, lambda one: abs(one.excess))),
        }

    def table(self, results: Results) -> list[dict[str, Any]]:
        return sweep_rows(_by_gradient_descent(results))

    def draw(self, results: Results) -> Figure:
        results = _by_gradient_descent(results)
        picture, axes = figure(len(LOSSES), 2, size=(2.4, 1.75))
        for row, loss in zip(axes, LOSSES, strict=True):
            draw_sweeps(row, results, loss)
            if loss == SMOOTHED:
                critical = critical_temperature(SMOOTHING, 3)
                most = max(results.labels("tau"))
                flat = collapse_value(loss, 3, critical)
                row[1].plot(
                    [critical, most], [flat, flat], color=SKY, linewidth=2.0, zorder=1, label="minimum beyond it"
                )
                row[1].axvline(critical, color=GREY, linewidth=0.9, linestyle=":", label=rf"$\tau^*$ = {critical:.3f}")
        legend_below(picture, axes[1, 1], 2)
        return picture


def _by_gradient_descent(results: Results) -> Results:
    """The solves by gradient descent, which the paper's figures show."""
    return results.select(lambda entry: entry.labels.get("method", DESCENT) == DESCENT)


def _on_one_side(smoothed: Results, *, beyond: bool) -> Results:
    """The results up to the critical temperature, or beyond it."""

    def is_beyond(entry: Result[Trace]) -> bool:
        return entry.labels["tau"] > critical_temperature(SMOOTHING, entry.labels["K"])

    return smoothed.select(lambda entry: is_beyond(entry) == beyond)


def critical_of(one: Reached) -> float:
    """The closed-form critical temperature at a solve's K."""
    return critical_temperature(SMOOTHING, one.num_classes)


def measured_temperature(one: Reached) -> float:
    """The temperature at which a collapsed point would have the mean margin that was reached."""
    point, count = one.trace.point, one.num_classes
    logits = one.temperature * (point.H @ point.classifier.T)
    true = logits.gather(1, one.trace.problem.labels[:, None]).squeeze(1)
    margin = (true - (logits.sum(1) - true) / (count - 1)).mean()
    return float(margin) * (count - 1) / count
