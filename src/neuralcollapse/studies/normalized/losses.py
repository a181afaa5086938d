"""Figures 11 to 13 of the normalized paper: focal loss, label smoothing and supervised contrastive loss on spheres."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...losses import LabelSmoothing
from ...ufm import critical_temperature
from .._pictures import GREEN, GREY, figure, loss_name
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from ._sweeps import (
    CONTRASTIVE,
    SWEEPS,
    Reached,
    collapse_value,
    draw_sweeps,
    largest_excess,
    solves,
    sweep_cells,
    sweep_rows,
)

SMOOTHING = LabelSmoothing(alpha=0.1)
SMOOTHED = SMOOTHING.spec
LOSSES = ("focal:gamma=3.0", SMOOTHED, CONTRASTIVE)
REACHED = {LOSSES[0]: 1e-8, SMOOTHED: 1e-8, CONTRASTIVE: 1e-4}
"""How near a value must be: descent on the contrastive loss is slow where its exponents, tau^2, are large."""
NEAR = 1e-3


@studies.add("normalized/losses")
class Losses(Study):
    """Which losses collapse on spheres, and up to which temperature."""

    figures = ("11", "12", "13")
    question = "Do other losses reach their value at neural collapse on spheres, for all K and tau?"
    claim = (
        f"Focal and supervised contrastive loss end within {REACHED[LOSSES[0]]:g} and {REACHED[CONTRASTIVE]:g} of "
        f"their value at collapse for all K and tau; label smoothing ends within {REACHED[SMOOTHED]:g} of it exactly "
        "below the critical temperature (K-1)/K log(K/alpha - K + 1), and lower above, at the closed-form minimum, "
        f"where its margins measure that temperature to {NEAR:g}."
    )
    costs = {"smoke": "4 s", "desk": "1 min of one core", "paper": "4 min of one core"}
    decides = ("smoke", "desk", "paper")
    setting = {
        "smoke": "Gamma = 3, alpha = 0.1, d = 16, n = 3; three K at tau = 1, three tau at K = 3, 2 starts each.",
        "desk": "As for the paper profile, with 3 starts each.",
        "paper": (
            "Gamma = 3, alpha = 0.1, d = 16, n = 3; K = 2 to 17 at tau = 1, tau = 0.25 to 5 at K = 3. The paper does "
            "not list its K and tau, nor the number of its starts: 10 each."
        ),
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for loss in LOSSES:
            yield from sweep_cells(loss, SWEEPS[profile])

    def check(self, results: Results) -> Verdict:
        reached = {loss: solves(results.where(loss=loss)) for loss in LOSSES}
        distances = {loss: largest_excess(found) for loss, found in reached.items()}
        smoothed, limit = reached[SMOOTHED], REACHED[SMOOTHED]
        above = [one for one in smoothed if one.temperature > critical_of(one)]
        parted = all((one.departure > limit) == (one.temperature > critical_of(one)) for one in smoothed)
        away = max((abs(measured_temperature(one) / critical_of(one) - 1) for one in above), default=np.nan)
        collapsed = [one.temperature for one in smoothed if one.num_classes == 3 and one.departure <= limit]
        lower = [one.temperature for one in smoothed if one.num_classes == 3 and one.departure > limit]
        return Verdict.of(
            all(distances[loss] <= REACHED[loss] for loss in LOSSES) and parted and away <= NEAR,
            away,
            "largest relative distance of the measured critical temperature of label smoothing from its closed form",
            f"From the closed-form minimum, {len(results)} solves end at most "
            f"{', '.join(f'{distances[loss]:.1e} ({loss_name(loss)})' for loss in LOSSES)} away. At K = 3 LS ends at "
            f"collapse up to tau = {max(collapsed, default=0):g}, lower from tau = {min(lower, default=np.inf):g} on "
            f"(closed form: {critical_temperature(SMOOTHING, 3):.4f}), where its margins give that temperature to "
            f"{away:.1e}.",
        )

    def table(self, results: Results) -> list[dict[str, Any]]:
        return sweep_rows(results)

    def draw(self, results: Results) -> Any:
        picture, axes = figure(len(LOSSES), 2, size=(2.4, 1.75))
        for row, loss in zip(axes, LOSSES, strict=True):
            draw_sweeps(row, results, loss)
            if loss == SMOOTHED:
                critical = critical_temperature(SMOOTHING, 3)
                most = max(results.labels("tau"))
                flat = collapse_value(loss, 3, critical)
                row[1].plot([critical, most], [flat, flat], color=GREEN, linewidth=1.2, label="minimum above it")
                row[1].axvline(critical, color=GREY, linewidth=0.9, linestyle=":", label=rf"$\tau^*$ = {critical:.3f}")
            row[0].legend(*row[1].get_legend_handles_labels(), fontsize=6, loc="lower right")
        return picture


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
