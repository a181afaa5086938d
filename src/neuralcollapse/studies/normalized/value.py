"""Figure 3 of the normalized paper: the minimum that gradient descent finds is the closed form."""

from collections.abc import Iterator
from typing import Any

from .._pictures import figure, legend_below
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from ._sweeps import SWEEPS, draw_sweeps, largest_excess, solves, sweep_cells, sweep_rows

LOSS = "cross-entropy"
LARGEST = 1e-8


@studies.add("normalized/value")
class Value(Study):
    """log(1 + (K-1) exp(-K tau/(K-1))), from random starts."""

    figures = ("3",)
    question = "Does gradient descent from random starts reach log(1 + (K-1) exp(-K tau/(K-1))) for all K and tau?"
    claim = f"Every start, at every K and every temperature, ends within {LARGEST:g} of the closed form."
    costs = {"smoke": "2 s", "desk": "10 s of one core", "paper": "30 s of one core"}
    decides = ("smoke", "desk", "paper")
    setting = {
        "smoke": "d = 16, n = 3; three K at tau = 1 and three tau at K = 3, 2 starts each.",
        "desk": "As for the paper profile, with 3 starts each.",
        "paper": (
            "d = 16, n = 3; K = 2 to 17 at tau = 1, tau = 0.25 to 5 at K = 3. The paper does "
            "not list its K and tau, nor the number of its starts: 10 each."
        ),
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        return sweep_cells(LOSS, SWEEPS[profile])

    def check(self, results: Results) -> Verdict:
        worst = largest_excess(solves(results))
        return Verdict.of(
            worst <= LARGEST,
            worst,
            "largest distance of a value reached from the closed form",
            f"{len(results)} solves over K = {min(results.labels('K'))} to {max(results.labels('K'))} and tau = "
            f"{min(results.labels('tau')):g} to {max(results.labels('tau')):g} end within {worst:.1e} of the closed "
            "form.",
        )

    def table(self, results: Results) -> list[dict[str, Any]]:
        return sweep_rows(results)

    def draw(self, results: Results) -> Any:
        picture, axes = figure(1, 2, size=(2.4, 2.0))
        draw_sweeps(axes[0], results, LOSS)
        legend_below(picture, axes[0, 0])
        return picture
