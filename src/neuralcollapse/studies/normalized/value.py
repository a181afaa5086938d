"""Figure 3 of the normalized paper: the minimum that gradient descent finds is the closed form."""

from collections.abc import Iterator, Mapping
from typing import Any

from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import AtMost, Claim, Evidence
from ..pictures import Figure, figure, legend_below
from ._sweeps import (
    PROVENANCE,
    SEEDS,
    SWEEPS,
    draw_sweeps,
    spread_of_values,
    sweep_cells,
    sweep_rows,
    worst_of_each_seed,
)

LOSS = "cross-entropy"
EQUAL = 1e-8
"""Two values that a figure cannot tell apart, with four digits to spare."""


@studies.add("normalized/value")
class Value(Study):
    """log(1 + (K-1) exp(-K tau/(K-1))), from random starts."""

    figures = ("3",)
    question = "Does gradient descent from random starts reach log(1 + (K-1) exp(-K tau/(K-1))) for all K and tau?"
    claims = (
        Claim(
            "value",
            "Gradient descent from random starts reaches log(1 + (K-1) exp(-K tau/(K-1))) at every K and every tau "
            "(largest distance of a start).",
            "Figure 3, Theorem 1",
            AtMost(EQUAL),
        ),
        Claim(
            "same-values",
            "All starts of one problem reach the same value (largest difference of two).",
            "Theorem 2; the captions of Figures 11 to 13 say it of their losses",
            AtMost(EQUAL),
        ),
        Claim(
            "collapse",
            "The minimisers that are found are collapsed (largest NC1).",
            "Theorem 1",
            AtMost(1e-6),
            kind="ours",
        ),
    )
    costs = {"smoke": "2 s", "desk": "15 s of one core", "paper": "30 s of one core"}
    setting = {
        "smoke": "d = 16, n = 3; three K at tau = 1 and three tau at K = 3, 2 starts each.",
        "desk": "As for the paper profile, with 5 starts each.",
        "paper": (
            "d = 16, n = 3; K = 2 to 17 at tau = 1, tau = 0.25 to 5 at K = 3. The paper does "
            "not list its K and tau, nor the number of its starts: 10 each."
        ),
    }
    provenance = PROVENANCE
    final_seeds = SEEDS

    def cells(self, profile: Profile) -> Iterator[Planned]:
        return sweep_cells(LOSS, SWEEPS[profile], self.seeds(profile))

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        classes, temperatures = results.labels("K"), results.labels("tau")
        excess = worst_of_each_seed(results, lambda one: abs(one.excess))
        spread = spread_of_values(results)
        return {
            "value": Evidence(
                excess,
                why=f"{len(results)} solves over K = {min(classes)} to {max(classes)} and tau = "
                f"{min(temperatures):g} to {max(temperatures):g} end within {max(excess):.1e} of it.",
            ),
            "same-values": Evidence.exact(spread, why=f"They differ by at most {spread:.1e}."),
            "collapse": Evidence(worst_of_each_seed(results, lambda one: one.trace.history["nc1"][-1] or 0.0)),
        }

    def table(self, results: Results) -> list[dict[str, Any]]:
        return sweep_rows(results)

    def draw(self, results: Results) -> Figure:
        picture, axes = figure(1, 2, size=(2.4, 2.0))
        draw_sweeps(axes[0], results, LOSS)
        legend_below(picture, axes[0, 0])
        return picture
