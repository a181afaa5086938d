"""How slowly the geometry of vanishing decay is approached: the distance to SELI falls like 1/log(1/decay)."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ... import frames
from ...ufm import RegularizedUFM, optimum_weight, solve
from .._cells import Calculation, calculations
from .._common.seeds import per_seed
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import AtLeast, AtMost, Claim, Evidence, Holds
from ..pictures import GREY, Figure, colour, figure, legend_below

COUNTS: dict[str, list[int]] = {
    "20 7 3 1": [20, 7, 3, 1],
    "50 50 5 5": [50, 50, 5, 5],
    "32 16 8 4 2": [32, 16, 8, 4, 2],
}
DECAYS: Mapping[Profile, tuple[float, ...]] = {
    "smoke": (1e-3, 1e-5, 1e-7),
    "desk": (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9),
    "paper": (1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9),
}
DESCENT_DECAY = 1e-3
THEORY = "docs/theory.md, vanishing decay"


def distance(first: Tensor, second: Tensor) -> float:
    """|| A/|A| - B/|B| ||_F of the two Gram matrices."""
    grams = [rows @ rows.T for rows in (first, second)]
    one, two = (gram / gram.norm() for gram in grams)
    return float(torch.linalg.norm(one - two))


def _model_at_decay(counts: list[int], decay: float, bias: bool) -> RegularizedUFM:
    return RegularizedUFM("ce", len(counts), counts, 2 * len(counts), decay, decay, 0.0 if bias else None)


@calculations.add("imbalance/seli-optimum")
def seli_at_optimum(counts: list[int], decay: float, bias: bool) -> dict[str, Any]:
    """The distance of the exact optimum's classifier from SELI at one decay."""
    problem = _model_at_decay(counts, decay, bias)
    optimum = problem.optimum()
    return {
        "distance": distance(optimum.point.classifier, frames.seli(counts)[0]),
        "proved": bool(optimum.proved),
        "regime": optimum.regime,
    }


@calculations.add("imbalance/seli-descent")
def seli_after_descent(counts: list[int], decay: float, seed: int) -> dict[str, Any]:
    """Where L-BFGS on all samples ends: how far from SELI, and from the optimum at its own decay."""
    trace = solve(_model_at_decay(counts, decay, bias=False), "lbfgs", seed=seed, tol=1e-10, max_iter=20_000)
    classifier = trace.point.classifier
    return {
        "to_seli": distance(classifier, frames.seli(counts)[0]),
        "to_optimum": optimum_weight(classifier, counts, decay, decay),
        "outcome": trace.outcome,
    }


@studies.add("imbalance/seli-rate")
class SeliRate(Study):
    """The exact optimum at decays from 1e-3 to 1e-9, beside its limit."""

    figures = ("the SELI limit",)
    question = "How fast does the optimum of imbalanced classes approach SELI as the decays vanish?"
    claims = (
        Claim(
            "approached",
            "The distance to SELI falls with every smaller decay, without a bias.",
            "Thrampoulidis et al. 2022: SELI is the limit of vanishing decay",
            Holds(),
        ),
        Claim(
            "logarithmic",
            "It falls like 1/log(1/decay): its inverse is a straight line in log(1/decay) (smallest R^2 of a fit).",
            THEORY,
            AtLeast(0.99),
        ),
        Claim(
            "slow",
            "No power of the decay: a thousandfold smaller one, 1e-6 to 1e-9, leaves at least half of the distance "
            "(smallest ratio).",
            THEORY,
            AtLeast(0.5),
        ),
        Claim(
            "numbers",
            "For counts 20, 7, 3, 1 it is .103, .061, .043, .033 at decays 1e-3, 1e-5, 1e-7, 1e-9 (largest "
            "difference).",
            THEORY,
            AtMost(5e-4),
        ),
        Claim(
            "own-optimum",
            "So a model must be compared with the optimum at its own decays: at 1e-3 descent ends at that optimum, at "
            "less than a thousandth of its distance to SELI (largest ratio).",
            THEORY,
            AtMost(1e-3),
            kind="ours",
        ),
    )
    costs = {"smoke": "2 s", "desk": "10 s of one core", "paper": "10 s of one core"}
    setting = {
        "smoke": "Cross-entropy, lW = lH, three sets of counts, three decays; one descent each.",
        "desk": "Cross-entropy, lW = lH from 1e-3 to 1e-9, three sets of counts, without a bias (and, shown only, with "
        "a free one, whose limit is another); 10 descents each at 1e-3.",
        "paper": "As at desk size. There is no such figure in the four papers.",
    }
    provenance = {"counts, decays": "guess"}
    paper_values = {"numbers": ".103, .061, .043, .033"}
    final_seeds = {"smoke": (0,), "desk": tuple(range(20, 30)), "paper": tuple(range(20, 30))}

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for name, counts in COUNTS.items():
            for bias in (False, True):
                for decay in DECAYS[profile]:
                    cell = Calculation("imbalance/seli-optimum", {"counts": counts, "decay": decay, "bias": bias})
                    yield Planned(cell, {"what": "optimum", "counts": name, "bias": bias, "decay": decay})
            for seed in self.seeds(profile):
                arguments = {"counts": counts, "decay": DESCENT_DECAY, "seed": seed}
                cell = Calculation("imbalance/seli-descent", arguments)
                yield Planned(cell, {"what": "descent", "counts": name, "decay": DESCENT_DECAY, "seed": seed})

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        curves = {name: _distances_by_decay(results, name) for name in COUNTS}
        falls = [bool((np.diff(away) < 0).all()) for _, away in curves.values()]
        straight = min(np.corrcoef(np.log(decay), 1 / away)[0, 1] ** 2 for decay, away in curves.values())
        descents = results.where(what="descent")
        ratios = per_seed(
            descents, lambda mine: max(entry.value["to_optimum"] / entry.value["to_seli"] for entry in mine)
        )
        found = {
            "approached": Evidence.exact(all(falls), why=f"So for {sum(falls)} of {len(falls)} sets of counts."),
            "logarithmic": Evidence.exact(straight),
            "own-optimum": Evidence(ratios, why=f"{len(descents)} descents."),
        }
        decays, away = curves["20 7 3 1"]
        said = {1e-3: 0.103, 1e-5: 0.061, 1e-7: 0.043, 1e-9: 0.033}
        shown = {decay: away[place] for place, decay in enumerate(decays) if decay in said}
        if len(shown) == len(said):
            found["numbers"] = Evidence.exact(
                max(abs(shown[decay] - value) for decay, value in said.items()),
                why=f"It is {', '.join(f'{value:.4f}' for value in shown.values())}.",
            )
            found["slow"] = Evidence.exact(
                min(away[decays == 1e-9].item() / away[decays == 1e-6].item() for decays, away in curves.values())
            )
        return found

    def draw(self, results: Results) -> Figure:
        picture, axes = figure(1, 2, size=(2.9, 2.2))
        names = results.labels("counts")
        for name in names:
            style = {"color": colour(name, names), "marker": "os^"[names.index(name)]}
            decay, away = _distances_by_decay(results, name)
            axes[0, 0].plot(decay, away, label=f"n = {name}", **style)
            axes[0, 0].plot(*_distances_by_decay(results, name, bias=True), linestyle=(0, (4, 2)), mfc="none", **style)
            axes[0, 1].plot(np.log10(1 / decay), 1 / away, **style)
        axes[0, 0].plot([], [], color=GREY, linestyle=(0, (4, 2)), label="free bias")
        axes[0, 0].set_xscale("log")
        axes[0, 0].invert_xaxis()
        axes[0, 0].set_ylim(bottom=0)
        axes[0, 0].set_xlabel(r"decay $\lambda_W=\lambda_H$")
        axes[0, 0].set_title("distance to SELI")
        axes[0, 1].set_xlabel(r"$\log_{10}(1/\lambda)$")
        axes[0, 1].set_title("1 / distance, no bias")
        legend_below(picture, axes[0, 0], columns=4)
        return picture


def _distances_by_decay(results: Results, counts: str, bias: bool = False) -> tuple[np.ndarray, np.ndarray]:
    """Decays and distances of one set of counts."""
    mine = results.where(what="optimum", counts=counts, bias=bias)
    return np.array([e.labels["decay"] for e in mine]), np.array([e.value["distance"] for e in mine])
