"""Figures 11 to 13 of the normalized paper: focal loss, label smoothing and supervised contrastive loss on spheres."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from ...losses import LabelSmoothing
from ...ufm import Trace, critical_temperature
from .._pictures import GREEN, figure, loss_name
from .._results import Planned, Result, Results
from .._study import Profile, Study, Verdict, studies
from ._sweeps import CONTRASTIVE, SWEEPS, collapse_value, draw_sweeps, excess, mark_temperature, sweep_cells, sweep_rows

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
        groups = {loss: results.where(loss=loss) for loss in LOSSES}
        distances = {loss: excess(group) for loss, group in groups.items()}
        smoothed, limit = groups[SMOOTHED], REACHED[SMOOTHED]
        above = [entry for entry in smoothed if entry.labels["tau"] > critical_of(entry)]
        below = [entry for entry in smoothed if entry.labels["tau"] <= critical_of(entry)]
        parted = all(departure(entry) > limit for entry in above) and all(departure(e) <= limit for e in below)
        away = max((abs(measured_temperature(entry) / critical_of(entry) - 1) for entry in above), default=np.nan)
        collapsed = [entry.labels["tau"] for entry in smoothed.where(K=3) if departure(entry) <= limit]
        lower = [entry.labels["tau"] for entry in smoothed.where(K=3) if departure(entry) > limit]
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
                mark_temperature(row[1], critical, rf"$\tau^*$ = {critical:.3f}")
            row[1].legend(fontsize=6)
        return picture


def departure(entry: Result[Trace]) -> float:
    """How far below the value at collapse a solve ended."""
    labels = entry.labels
    return collapse_value(labels["loss"], labels["K"], labels["tau"]) - entry.value.value


def critical_of(entry: Result[Trace]) -> float:
    """The closed-form critical temperature at a solve's K."""
    return critical_temperature(SMOOTHING, entry.value.problem.num_classes)


def measured_temperature(entry: Result[Trace]) -> float:
    """The temperature at which a collapsed point would have the mean margin that was reached."""
    point, problem = entry.value.point, entry.value.problem
    logits = float(entry.labels["tau"]) * (point.H @ point.classifier.T)
    count = problem.num_classes
    true = logits.gather(1, problem.labels[:, None]).squeeze(1)
    margin = (true - (logits.sum(1) - true) / (count - 1)).mean()
    return float(margin) * (count - 1) / count
