"""Figures 1 and 2 of the normalized paper: more classes than dimensions, with and without unit norms."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from ...ufm import NormalizedUFM, Problem, RegularizedUFM, Trace
from .._cells import Solve
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import AtMost, Below, Claim, Evidence
from ..pictures import Figure, class_colour, figure, number

SIZES: Mapping[Profile, tuple[tuple[int, int], ...]] = {
    "smoke": ((2, 6), (3, 8)),
    "desk": ((2, 5), (2, 8), (2, 10), (3, 8), (3, 12)),
    "paper": ((2, 5), (2, 8), (2, 10), (3, 8), (3, 12)),
}
"""d and K."""
PER_CLASS, DECAY = 5, 1e-4
MODELS = ("normalised", "free", "decayed")
OPTIONS = {"tol": 1e-9, "max_iter": 1500, "record": ("value", "accuracy")}


@studies.add("normalized/low-dimension")
class LowDimension(Study):
    """Angles between neighbouring classes, and between features and classifiers."""

    figures = ("1", "2")
    question = "With more classes than dimensions, do unit norms spread the features evenly and align the classifier?"
    claims = (
        Claim(
            "spread",
            "Normalised class means spread more evenly than free ones: the variation coefficient of the angles "
            "between neighbours is smaller (difference, mean over d and K).",
            "Figures 1 and 2, of which only a description is at hand",
            Below(0.0),
            floor="descent on the normalised model has converged everywhere",
            decides_at="longer descent: at tau = 1 the loss is ever flatter the more classes share a circle",
        ),
        Claim(
            "alignment",
            "Normalised features are better aligned with their classifiers than free ones: 1 - cos is smaller "
            "(difference, mean over d and K).",
            "Figures 1 and 2, of which only a description is at hand",
            Below(0.0),
            floor="descent on the normalised model has converged everywhere",
            decides_at="longer descent",
        ),
        Claim(
            "polygon",
            "In the plane the normalised minimum is the regular polygon: log sum_j exp(tau (cos(2 pi j/K) - 1)) "
            "(largest distance of the best start).",
            "this project's theory; numerical",
            AtMost(1e-6),
            kind="ours",
        ),
        Claim(
            "decay-spreads",
            "Decay instead of unit norms spreads the class means as evenly: its variation coefficient exceeds the "
            "normalised one by less than .01 (mean over d and K).",
            "this project",
            AtMost(0.01),
            kind="ours",
        ),
    )
    costs = {"smoke": "3 s", "desk": "20 s of one core", "paper": "1 min of one core"}
    setting = {
        "smoke": "d = 2, K = 6 and d = 3, K = 8, n = 5, tau = 1, 2 starts.",
        "desk": (
            "d = 2 with K = 5, 8 and 10, d = 3 with K = 8 and 12, n = 5, tau = 1, 5 starts; free: neither norms nor "
            "decay, from Gaussian entries of variance 1, 1,500 iterations or a gradient of 1e-9; decayed: 1e-4 on W "
            "and H."
        ),
        "paper": "As at desk size with 20 starts. The text of these figures is not at hand: all sizes are ours.",
    }
    provenance = {
        "temperature": "text",
        "decays": "text",
        "dim (2)": "code",
        "num_classes, per_class": "guess",
        "start, iterations": "guess",
    }
    final_seeds = {"smoke": (0, 1), "desk": tuple(range(10, 15)), "paper": tuple(range(20))}

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for dim, count in SIZES[profile]:
            for model in MODELS:
                problem, scale = model_of(model, dim, count)
                for seed in self.seeds(profile):
                    cell = Solve(problem, "gradient-descent", seed, OPTIONS, scale)
                    yield Planned(cell, {"d": dim, "K": count, "model": model, "seed": seed})

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        rows = self.table(results)
        converged = all(entry.value.converged for entry in results.where(model="normalised"))
        spread = {model: by_seed(results.where(model=model), variation) for model in MODELS}
        apart = {model: by_seed(results.where(model=model), misalignment) for model in MODELS}
        gaps = []
        for (dim, count), group in results.where(model="normalised").groups("d", "K"):
            if dim == 2:
                gaps.append(abs(min(entry.value.value for entry in group) - polygon_value(count)))
        return {
            "spread": Evidence(
                list(spread["normalised"] - spread["free"]),
                converged,
                why=_means_by_model("Variation", spread),
                table=rows,
            ),
            "alignment": Evidence(
                list(apart["normalised"] - apart["free"]), converged, why=_means_by_model("1 - cos", apart), table=rows
            ),
            "polygon": Evidence.exact(max(gaps), why=f"At most {max(gaps):.1e} over {len(gaps)} K."),
            "decay-spreads": Evidence(
                list(spread["decayed"] - spread["normalised"]), why=_means_by_model("Variation", spread)
            ),
        }

    def table(self, results: Results) -> list[dict[str, Any]]:
        return [
            {
                **dict(zip(("d", "K", "model"), key, strict=True)),
                "variation_of_neighbouring_angles": float(np.mean([variation(entry.value) for entry in group])),
                "one_minus_cos": float(np.mean([misalignment(entry.value) for entry in group])),
                "iterations": float(np.mean([entry.value.iterations for entry in group])),
            }
            for key, group in results.groups("d", "K", "model")
        ]

    def draw(self, results: Results) -> Figure:
        count = max(k for d, k in SIZES[results.profile] if d == 2)  # pyright: ignore[reportArgumentType]
        picture, axes = figure(1, len(MODELS), size=(2.2, 2.35))
        for axis, model in zip(axes[0], MODELS, strict=True):
            trace = results.where(d=2, K=count, model=model)[0].value
            features, rows = trace.point.H.numpy(), trace.point.classifier.numpy()
            for k in range(count):
                own = features[trace.problem.labels.numpy() == k]
                axis.plot(own[:, 0], own[:, 1], "o", color=class_colour(k), alpha=0.7)
                # Only directions of classifiers matter here: drawn to the length of the longest feature.
                tip = rows[k] / np.linalg.norm(rows[k]) * np.linalg.norm(features, axis=1).max() * 0.93
                axis.plot([0, tip[0]], [0, tip[1]], color=class_colour(k), linewidth=0.9)
            axis.set_aspect("equal")
            axis.locator_params(nbins=5)
            group = results.where(d=2, K=count, model=model)
            values = np.mean([variation(entry.value) for entry in group])
            axis.set_title(f"{model}\nvariation of angles {number(float(values), 2)}")
        axes[0, 0].set_ylabel(f"d = 2, K = {count}")
        return picture


def model_of(model: str, dim: int, count: int) -> tuple[Problem, float]:
    """The problem, and the factor of its random start: Gaussian entries of variance 1 where norms are free."""
    if model == "normalised":
        return NormalizedUFM("cross-entropy", count, PER_CLASS, dim, temperature=1.0), 1.0
    decay = DECAY if model == "decayed" else 0.0
    return RegularizedUFM("cross-entropy", count, PER_CLASS, dim, decay, decay), math.sqrt(dim)


def class_directions(trace: Trace) -> torch.Tensor:
    """Class means, scaled to unit norm."""
    point, labels = trace.point, trace.problem.labels
    means = [point.H[labels == k].mean(0) for k in range(trace.problem.num_classes)]
    return torch.nn.functional.normalize(torch.stack(means))


def variation(trace: Trace) -> float:
    """Standard deviation over mean of the angles between neighbouring class means.

    In the plane all gaps between angles; in higher dimensions each class's angle to its nearest neighbour.
    """
    units = class_directions(trace)
    if units.shape[1] == 2:
        angles = torch.sort(torch.atan2(units[:, 1], units[:, 0])).values
        gaps = torch.diff(torch.cat([angles, angles[:1] + 2 * math.pi]))
    else:
        gaps = torch.acos((units @ units.T).fill_diagonal_(-1).amax(1).clamp(-1, 1))
    return float(gaps.std(correction=0) / gaps.mean())


def misalignment(trace: Trace) -> float:
    """The mean over the classes of 1 - cos(w_k, mean of the class)."""
    rows = torch.nn.functional.normalize(trace.point.classifier)
    return float(1 - (rows * class_directions(trace)).sum(1).mean())


def polygon_value(count: int, temperature: float = 1.0) -> float:
    """The loss of features and classifiers at the corners of a regular polygon."""
    return math.log(sum(math.exp(temperature * (math.cos(2 * math.pi * j / count) - 1)) for j in range(count)))


def by_seed(results: Results, measure: Callable[[Trace], float]) -> np.ndarray:
    """The mean of a measure over d and K, one a seed."""
    seeds = results.labels("seed")
    return np.array([np.mean([measure(entry.value) for entry in results.where(seed=seed)]) for seed in seeds])


def _means_by_model(name: str, values: Mapping[str, np.ndarray]) -> str:
    return f"{name}: " + ", ".join(f"{model} {found.mean():.2g}" for model, found in values.items()) + "."
