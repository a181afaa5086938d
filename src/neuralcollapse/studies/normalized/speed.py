"""Figures 5, 7 and 8 of the normalized paper: the normalised model collapses in fewer iterations."""

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from ...ufm import NormalizedUFM, RegularizedUFM, Trace
from .._cells import Solve
from .._pictures import COLOURS, band, figure, legend_below
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies

METHODS = {"gradient-descent": 100, "conjugate-gradient": 100, "trust-region": 40}
"""The most iterations of each."""
PARAMETERS = {"gradient-descent": ":window=1"}
"""Backtracking as the paper has it: every step lowers the value."""
SIZES = {"smoke": (10, 5, 16, 2), "desk": (100, 30, 128, 3), "paper": (100, 30, 128, 10)}
"""K, n, d and trials."""
TARGETS = {"accuracy": 1.0, "nc1": 1e-3}
NORMALISED, REGULARISED, GAUSSIAN = "normalised", "regularised", "regularised, Gaussian start"


@studies.add("normalized/speed")
class Speed(Study):
    """Iterations to perfect accuracy and to collapse: unit norms against weight decay."""

    figures = ("5", "7", "8")
    question = (
        "Does the normalised model reach 100 % accuracy and a small NC1 in fewer iterations than the decayed one?"
    )
    claim = (
        "With gradient descent, conjugate gradients and trust regions, from the same directions and row norms, the "
        "normalised model needs fewer iterations than the regularised one to 100 % accuracy and to NC1 <= 0.001, for "
        "good (mean over the trials)."
    )
    costs = {"smoke": "6 s", "desk": "1 min of one core", "paper": "4 min of one core"}
    setting = {
        "smoke": "K = 10, n = 5, d = 16, decays 1e-4, 2 trials.",
        "desk": "The paper's K = 100, n = 30, decays 1e-4 and tau = 1, d = 128 as for the paper profile; 3 trials.",
        "paper": (
            "K = 100, n = 30, decays 1e-4, tau = 1, no bias, 10 trials. The paper does not name d; 128 is above K, as "
            "its theorem asks. A trial starts both models from the same Gaussian array, its rows scaled to norm 1 or, "
            "in the regularised model, its entries to variance 1/d (row norms near 1); the paper does not say how it "
            "started, so the regularised model is shown from entries of variance 1 as well. The methods are this "
            "package's, with Barzilai-Borwein trial steps, nearly exact line searches and a metric by blocks: in the "
            "normalised model it lengthens the features' steps n-fold, in the regularised one equal decays make it "
            "plain."
        ),
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        count, samples, dim, trials = SIZES[profile]
        normalised = NormalizedUFM("cross-entropy", count, samples, dim, temperature=1.0)
        regularised = RegularizedUFM("cross-entropy", count, samples, dim, 1e-4, 1e-4)
        models = {
            NORMALISED: (normalised, 1.0),
            REGULARISED: (regularised, 1.0),
            GAUSSIAN: (regularised, math.sqrt(dim)),
        }
        for method, most in METHODS.items():
            options = {"max_iter": most, "record": ("value", "accuracy", "nc1"), "every": 1}
            for name, (problem, scale) in models.items():
                for trial in range(trials):
                    cell = Solve(problem, method + PARAMETERS.get(method, ""), trial, options, scale)
                    yield Planned(cell, {"method": method, "model": name, "trial": trial})

    def check(self, results: Results) -> Verdict:
        gains, texts = [], []
        for method in results.labels("method"):
            parts = []
            for target in TARGETS:
                means = {model: _mean_iterations(results, method, model, target) for model in (*MODELS, GAUSSIAN)}
                gains.append(means[REGULARISED] / means[NORMALISED])
                parts.append(
                    f"{means[NORMALISED]:.4g} against {means[REGULARISED]:.4g} (Gaussian start {means[GAUSSIAN]:.4g}) "
                    + ("to full accuracy" if target == "accuracy" else f"to NC1 <= {TARGETS['nc1']:g}")
                )
            texts.append(f"{method} {', '.join(parts)}")
        least = min(gains)
        return Verdict.of(
            least > 1,
            least,
            "smallest ratio of iterations, regularised to normalised, over methods and targets",
            f"Mean iterations, normalised against regularised: {'; '.join(texts)}.",
        )

    def table(self, results: Results) -> list[dict[str, Any]]:
        rows = []
        for (method, model), group in results.groups("method", "model"):
            row: dict[str, Any] = {"method": method, "model": model, "trials": len(group)}
            for target in TARGETS:
                numbers = np.array([iterations_to(entry.value, target) for entry in group])
                row[f"iterations_to_{target}"] = float(numbers.mean())
                row[f"deviation_to_{target}"] = float(numbers.std())
            rows.append({**row, "iterations": float(np.mean([entry.value.iterations for entry in group]))})
        return rows

    def draw(self, results: Results) -> Any:
        methods = results.labels("method")
        picture, axes = figure(2, len(methods), size=(2.3, 1.75))
        for column, method in enumerate(methods):
            for place, model in enumerate((*MODELS, GAUSSIAN)):
                group = results.where(method=method, model=model)
                line = {"color": COLOURS[place], "label": model, "linestyle": "--" if model == GAUSSIAN else "-"}
                for row, target in enumerate(TARGETS):
                    band(axes[row, column], *group.curves(target), log=target == "nc1", **line)
            for row, target in enumerate(TARGETS):
                shown = max(min(iterations_to(e.value, target), METHODS[method]) for e in results.where(method=method))
                axes[row, column].set_xlim(0, 1.4 * shown)
            axes[0, column].set_title(method.replace("-", " "))
            axes[1, column].set_yscale("log")
            axes[1, column].set_ylim(TARGETS["nc1"] ** 3, None)
            axes[1, column].axhline(TARGETS["nc1"], color="#666666", linewidth=0.8, linestyle=":")
            axes[1, column].set_xlabel("iteration")
        axes[0, 0].set_ylabel("accuracy")
        axes[1, 0].set_ylabel("NC1")
        legend_below(picture, axes[0, 0])
        return picture


MODELS = (NORMALISED, REGULARISED)


def iterations_to(trace: Trace, target: str) -> float:
    """The first iteration from which a target is met to the end; infinite if the last does not meet it."""
    values = np.array(trace.history[target], dtype=float)
    met = values >= TARGETS[target] if target == "accuracy" else values <= TARGETS[target]
    if not met[-1]:
        return math.inf
    missed = np.flatnonzero(~met)
    return float(missed[-1] + 1) if len(missed) else 0.0


def _mean_iterations(results: Results, method: str, model: str, target: str) -> float:
    return float(np.mean([iterations_to(entry.value, target) for entry in results.where(method=method, model=model)]))
