"""Sections 1, 4.1 and 5 of the losses paper: all losses give the same features, up to a rotation and a scale."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from ...training import Run
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import AtLeast, AtMost, Claim, Evidence
from ..pictures import Figure, figure, heat_map
from ._nets import FL, PROVENANCE_WITH_VARIANTS, SEEDS, SHORT, as_in_text, largest_nets, name_of
from .collapse import LIMITS

SAME = 0.1
"""Largely identical: the same but for a tenth."""
FLOOR = "every net has collapsed as losses/collapse asks: NC1 of .05 or less, NC2 and NC3 of .3 or less"
INSIDE = 0.21
MEASURES = {"gram": "distance of Gram matrices", "procrustes": "residual after rotation and scale"}


@studies.add("losses/features")
class Features(Study):
    """Class means of nets that were trained with different losses, beside nets of different seeds."""

    figures = ("sections 1, 4.1, 5",)
    question = "Are the features that four losses learn the same, up to a rotation and a scale?"
    claims = (
        Claim(
            "gram",
            "Centred class means of any two losses have the same Gram matrix up to scale (Frobenius distance of the "
            "matrices scaled to norm one, the largest of six pairs and all data sets).",
            "Sections 1, 4.1 and 5",
            AtMost(SAME),
            floor=FLOOR,
            decides_at="longer training",
        ),
        Claim(
            "procrustes",
            "Centred class means of any two losses differ by a rotation and a scale (relative residual after the best "
            "of both, the largest of six pairs and all data sets).",
            "Sections 1, 4.1 and 5",
            AtMost(SAME),
            floor=FLOOR,
            decides_at="longer training",
        ),
        Claim(
            "beside-seeds",
            "Two losses differ at most twice as much as two seeds of one loss do (mean distance of Gram matrices, "
            "ratio, worst data set).",
            "this project",
            AtMost(2.0),
            kind="ours",
            floor=FLOOR,
        ),
        Claim(
            "region",
            "Under FL the training samples end where the paper proves the landscape benign: p_y >= .21 (share of them, "
            "the least of the data sets).",
            "Corollary 2, on nets; this project",
            AtLeast(0.99),
            kind="ours",
        ),
    )
    costs = {
        "smoke": "2 s",
        "desk": "27 min on 1 core, the cells of losses/collapse",
        "paper": "those of losses/collapse",
    }
    setting = {
        "smoke": "The nets of losses/collapse.",
        "desk": (
            "The nets of losses/collapse on MNIST: class means of the training set, at the end. CIFAR100 is left out: "
            "at this size CE and FL have not collapsed there."
        ),
        "paper": "The nets of losses/collapse: class means of the training set, at the end.",
    }
    provenance = PROVENANCE_WITH_VARIANTS
    final_seeds = SEEDS

    def cells(self, profile: Profile) -> Iterator[Planned]:
        return largest_nets(profile, self.seeds(profile), sets=1 if profile == "desk" else 2)

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        text = as_in_text(results)
        collapsed = all(bool((text.final(name) <= limit).all()) for name, limit in LIMITS.items())
        pairs = {data: compare(text.where(data=data)) for data in text.labels("data")}
        seeds = min((text.where(data=data).labels("seed") for data in pairs), key=len)
        found: dict[str, Evidence] = {}
        for name in MEASURES:
            values = [
                max(pair.distances[name] for mine in pairs.values() for pair in _pairs_of_losses(mine, seed))
                for seed in seeds
            ]
            words = "; ".join(
                f"{name_of(data)}: "
                + ", ".join(f"{a}-{b} {value:.2g}" for (a, b), value in pair_means(mine, name).items())
                for data, mine in pairs.items()
            )
            found[name] = Evidence(values, collapsed, why=f"Means over the seeds, {words}.", table=self.table(results))
        ratios = []
        for seed in seeds:
            sides = [
                (
                    np.mean([pair.distances["gram"] for pair in _pairs_of_losses(mine, seed)]),
                    [pair.distances["gram"] for pair in mine if pair.other == pair.loss],
                )
                for mine in pairs.values()
            ]
            ratios.append(max(float(a / np.mean(b)) if b else np.nan for a, b in sides))
        focal = text.where(loss=FL)
        shares = [min(share_inside(entry.value) for entry in focal.where(seed=seed)) for seed in seeds]
        region = Evidence(shares, why=f"At least {min(shares):.2%}.")
        return {**found, "beside-seeds": Evidence(ratios, collapsed), "region": region}

    def table(self, results: Results) -> list[dict[str, Any]]:
        rows = []
        for data in results.labels("data"):
            found = compare(as_in_text(results).where(data=data))
            for (one, other), value in pair_means(found, "gram", seeds=True).items():
                rows.append(
                    {
                        "data": data,
                        "loss": one,
                        "other": other,
                        "gram": value,
                        "procrustes": pair_means(found, "procrustes", seeds=True)[one, other],
                    }
                )
        return rows

    def draw(self, results: Results) -> Figure:
        text = as_in_text(results)
        sets, names = text.labels("data"), [SHORT[loss] for loss in text.labels("loss")]
        picture, axes = figure(len(sets), 2, size=(2.6, 2.2))
        for row, data in zip(axes, sets, strict=True):
            found = compare(text.where(data=data))
            for axis, (name, title) in zip(row, MEASURES.items(), strict=True):
                means = pair_means(found, name, seeds=True)
                values = np.array([[means.get((a, b), means.get((b, a), np.nan)) for b in names] for a in names])
                heat_map(axis, values, names, names, title=title, shown="{:.2f}")
            row[0].set_ylabel(name_of(data))
        picture.suptitle("pairs of losses; on the diagonal, pairs of seeds", fontsize=8)
        return picture


def unit_class_means(run: Run) -> np.ndarray:
    """Centred class means of the training features (K, d), of Frobenius norm one."""
    kept = load_file(run.folder / "features-train.safetensors")
    labels = kept["labels"]
    means = np.stack([kept["features"][labels == k].mean(0, dtype=np.float64) for k in range(int(labels.max()) + 1)])
    means -= means.mean(0)
    return means / np.linalg.norm(means)


def share_inside(run: Run) -> float:
    """The share of training samples whose class has a probability of .21 or more (losses, Corollary 2)."""
    kept = load_file(run.folder / "features-train.safetensors")
    logits = kept["features"].astype(np.float64) @ kept["weight"].astype(np.float64).T + kept.get("bias", 0.0)
    logits -= logits.max(1, keepdims=True)
    own = logits[np.arange(len(logits)), kept["labels"]]
    return float((np.exp(own) / np.exp(logits).sum(1) >= INSIDE).mean())


def gram_distance(one: np.ndarray, other: np.ndarray) -> float:
    """|A A'/|A A'| - B B'/|B B'|| in the Frobenius norm: from 0 to sqrt 2, blind to rotation and scale."""
    first, second = one @ one.T, other @ other.T
    return float(np.linalg.norm(first / np.linalg.norm(first) - second / np.linalg.norm(second)))


def procrustes_residual(one: np.ndarray, other: np.ndarray) -> float:
    """min over rotations Q and scales c of |A - c B Q| for |A| = |B| = 1: sqrt(1 - |A'B|_*^2)."""
    nuclear = float(np.linalg.svd(one.T @ other, compute_uv=False).sum())
    return float(np.sqrt(max(0.0, 1 - nuclear**2)))


@dataclass(frozen=True)
class NetPair:
    """Two nets, of two losses or of two seeds of one loss, and how far apart their class means are."""

    loss: str
    other: str
    seed: int
    distances: Mapping[str, float]
    """By name in ``MEASURES``."""


def compare(results: Results) -> list[NetPair]:
    """All pairs of losses within a seed, and all pairs of seeds within a loss."""
    means = {(e.labels["loss"], e.labels["seed"]): unit_class_means(e.value) for e in results}
    pairs = []
    for (one, first), (other, second) in itertools.combinations(means, 2):
        if (one == other) == (first == second):
            continue
        both = means[one, first], means[other, second]
        distances = {"gram": gram_distance(*both), "procrustes": procrustes_residual(*both)}
        pairs.append(NetPair(SHORT[one], SHORT[other], first, distances))
    return pairs


def pair_means(pairs: Sequence[NetPair], name: str, seeds: bool = False) -> dict[tuple[str, str], float]:
    """The mean of a measure for each pair of losses, and if asked for each loss with itself (pairs of seeds)."""
    keys = dict.fromkeys((pair.loss, pair.other) for pair in pairs if seeds or pair.loss != pair.other)
    return {
        key: float(np.mean([pair.distances[name] for pair in pairs if (pair.loss, pair.other) == key])) for key in keys
    }


def _pairs_of_losses(pairs: Sequence[NetPair], seed: int) -> list[NetPair]:
    """Those of one seed."""
    return [pair for pair in pairs if pair.seed == seed and pair.loss != pair.other]
