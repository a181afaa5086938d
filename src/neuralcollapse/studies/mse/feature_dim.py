"""Figure 4 of the mse paper: how many dimensions the features need, under the squared error and cross-entropy."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...training import Plan, Run
from .._cells import Train
from .._common.geometric_and_mse import (
    CLASSES,
    CODE,
    COLLAPSED,
    DESK_RESNET,
    MARGIN_METRICS,
    MEAN_OVER_CLASSES,
    TEXT,
    as_in_text,
    draw_margins,
    epochs_on_log_axis,
    margins,
    net_plan,
)
from .._common.seeds import agreement, fits, known, per_seed, points
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import Above, Agrees, AtMost, Claim, Evidence
from ..pictures import Figure, figure, legend_below, loss_name, series

SQUARED, ENTROPY = LOSSES = ("squared-error", "cross-entropy")
WIDE = {"smoke": 32, "desk": 64, "paper": 512}
DIMENSIONS: dict[Profile, tuple[int, ...]] = {"smoke": (5, 8, 9), "desk": (5, 8, 9, 10), "paper": (5, 8, 9, 10)}
"""Besides the wide one: those of the released plots."""
NEAR = 0.1
"""Cosine margins in [-NEAR, NEAR] count as lying on the decision boundary."""
DIFFERENT, SIMILAR = 0.5, Agrees(2.0, resolution=1.0)
"""Points of accuracy: more than what would agree, and "a point or two"."""
FLOOR = "the nets with d >= K - 1 fit 99 % of their training set"
DESK_CLIP: Mapping[str, Any] = {"clip_gradient": 1.0}
"""With d = K - 1 a net of the squared error may miss a class for good after its first large steps."""


@studies.add("mse/feature-dim")
class FeatureDim(Study):
    """Feature dimensions below and above K - 1."""

    figures = ("4",)
    question = "Which feature dimension d does the squared error need, and does cross-entropy need it too?"
    claims = (
        Claim(
            "nc1",
            "Under the squared error features collapse at every d, below K - 1 too.",
            "Section 4, Figure 4",
            AtMost(COLLAPSED["nc1"]),
            floor=FLOOR,
        ),
        *(
            Claim(
                split,
                f"Under the squared error d >= K - 1 is crucial for {words}: each smaller d loses accuracy.",
                "Section 4, Figure 4",
                Above(DIFFERENT),
                floor=FLOOR,
                decides_at="more seeds",
                unit="points lost",
            )
            for split, words in (("train", "fitting the training data"), ("test", "generalisation"))
        ),
        Claim(
            "margins",
            "More training samples lie on the decision boundary as d decreases below K - 1: the share of margins near "
            "0 falls from d = 5 over 8 to 9.",
            "Section 4, Figure 4",
            Above(0.0),
            floor=FLOOR,
            unit="smaller fall of the share",
        ),
        Claim(
            "entropy-alike",
            "Cross-entropy performs similarly at every d: test accuracies within a point or two of the wide net's.",
            "Section 4, Figure 4(e)",
            SIMILAR,
            floor=FLOOR,
            empty_below_floor=True,
            unit="points",
        ),
        Claim(
            "contrast",
            "That is in sharp contrast: at the smallest d the squared error loses more training accuracy than "
            "cross-entropy.",
            "Section 4, Figure 4",
            Above(DIFFERENT),
            floor=FLOOR,
            unit="points",
        ),
    )
    final_seeds = {"smoke": (0,), "desk": tuple(range(60, 68)), "paper": (0, 1, 2)}
    costs = {"smoke": "5 s", "desk": "75 min of one core", "paper": "10 GPU days"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs, d = 5, 8, 9 and 32.",
        "desk": "ResNet8 of width 16, its last convolution of d = 5, 8, 9, 10 or 64 outputs, on 2,000 CIFAR10 images "
        "of 16 x 16 instead of ResNet18 on all of them, 8,000 test images; 80 epochs of cosine annealing, gradients "
        "clipped at norm 1, no augmentation; weight decay ten times the paper's for cross-entropy, that of the code "
        "for the squared error; eight seeds.",
        "paper": "ResNet18 (3 x 3 stem) on CIFAR10 with augmentation; d = 5, 8, 9, 10 (the last block's last "
        "convolution) and 512. The text's squared error is eq. (2); a variant has the code's mean over classes.",
    }
    provenance = {
        "rates, momentum, decay, schedule, 200 epochs, augmentation": "text",
        "d = 5, 8, 9, 10, 512": "code",
        "stem, initialisation, batch 128, mean over classes": "code",
        "margins within .1 as on the boundary": "guess",
        "three seeds": "guess",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for seed in self.seeds(profile):
            for loss in LOSSES:
                for dim in (*DIMENSIONS[profile], WIDE[profile]):
                    for variant, changes in loss_variants(profile, loss).items():
                        clip = DESK_CLIP if profile == "desk" else {}
                        plan = dimension_plan(profile, loss, dim, seed, **clip, **changes)
                        labels = {"loss": loss, "d": dim, "seed": seed}
                        if profile == "paper":
                            labels["variant"] = variant
                        yield Planned(Train(plan, features=True), labels)

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        text = as_in_text(results)
        squared, entropy = text.where(loss=SQUARED), text.where(loss=ENTROPY)
        met = fits(_with_room_for_a_simplex(squared))
        shares = {
            dim: [_share_near_boundary(entry.value) for entry in squared.where(d=dim)] for dim in squared.labels("d")
        }
        falls = np.minimum(*(np.subtract(shares[low], shares[high]) for low, high in ((5, 8), (8, 9))))
        lowest = min(text.labels("d"))
        apart = _points_lost(squared, "train", lowest) - _points_lost(entropy, "train", lowest)
        wide = max(entropy.labels("d"))
        change = {
            f"CE, d = {dim} less {wide}": points(entropy.where(d=dim)) - points(entropy.where(d=wide))
            for dim in entropy.labels("d")
            if dim != wide
        }
        nc1 = ", ".join(f"{squared.where(d=d).final('nc1').mean():.2g} at d = {d}" for d in squared.labels("d"))
        found = {
            "nc1": Evidence(
                per_seed(squared, lambda mine: mine.final("nc1").max()), floor_met=met, why=f"Means over seeds: {nc1}."
            ),
            "margins": Evidence(
                falls.tolist(),
                floor_met=met,
                why="Share of margins near 0: "
                + ", ".join(f"{np.mean(share):.1%} at d = {dim}" for dim, share in shares.items())
                + ".",
            ),
            "entropy-alike": agreement(change, SIMILAR, floor_met=met),
            "contrast": Evidence(apart.tolist(), floor_met=met),
        }
        for split in ("train", "test"):
            lost = {dim: _points_lost(squared, split, dim) for dim in squared.labels("d") if dim < CLASSES - 1}
            least = min(lost.values(), key=lambda values: values.mean())
            why = ", ".join(f"{values.mean():.2f} points at d = {dim}" for dim, values in lost.items())
            found[split] = Evidence(least.tolist(), floor_met=met, why=f"Lost against d >= {CLASSES - 1}: {why}.")
        return found

    def table(self, results: Results) -> list[dict[str, Any]]:
        rows = super().table(results)
        for row, entry in zip(rows, results, strict=True):
            row["margins_near_zero"] = known(_share_near_boundary(entry.value))
            row["numerical_rank"] = entry.value.final("train")["numerical_rank"]
        return rows

    def draw(self, results: Results) -> Figure:
        picture, axes = figure(len(LOSSES), 4, size=(1.85, 1.85))
        for line, loss in zip(axes, LOSSES, strict=True):
            mine = as_in_text(results).where(loss=loss)
            names = {dim: f"d = {dim}" for dim in mine.labels("d")}
            series(line[0], mine, "nc1", "d", labels=names)
            draw_margins(line[1], mine, "d")
            for axis, split in zip(line[2:], ("train", "test"), strict=True):
                series(axis, mine, "accuracy", "d", split=split, log=False)
                axis.set_title(f"{split} accuracy")
            for axis in (line[0], *line[2:]):
                epochs_on_log_axis(axis)
            line[0].set_ylabel(loss_name(loss))
        legend_below(picture, axes[0, 0], columns=6)
        return picture


def loss_variants(profile: Profile, loss: str) -> dict[str, Mapping[str, Any]]:
    """At paper size the squared error also as the released code has it."""
    return {TEXT: {}, CODE: MEAN_OVER_CLASSES} if profile == "paper" and loss == SQUARED else {TEXT: {}}


def dimension_plan(profile: Profile, loss: str, dim: int, seed: int, **changes: Any) -> Plan:
    """A net with features of dimension d, which the study in three dimensions shares."""
    nets: dict[Profile, Mapping[str, Any]] = {
        "smoke": {},
        "desk": DESK_RESNET,
        "paper": {"model": "resnet18:width=64", "augment": True},
    }
    data = "digits" if profile == "smoke" else "CIFAR10"
    plan = net_plan(profile, data, loss, **{**nets[profile], "metrics": MARGIN_METRICS, "seed": seed, **changes})
    return plan if dim == WIDE[profile] else plan.model_copy(update={"model": f"{plan.model},feature_dim={dim}"})


def _with_room_for_a_simplex(results: Results) -> Results:
    return results.select(lambda entry: entry.labels["d"] >= CLASSES - 1)


def _points_lost(results: Results, split: str, dim: int) -> np.ndarray:
    """Points of accuracy that dimension d loses against the mean of d >= K - 1, one a seed."""
    enough = np.array(per_seed(_with_room_for_a_simplex(results), lambda mine: points(mine, split).mean()))
    return enough - points(results.where(d=dim), split)


def _share_near_boundary(run: Run) -> float:
    """The share of margins near 0; NaN where there are none."""
    found = margins(run)
    return float((np.abs(found) <= NEAR).mean()) if np.isfinite(found).all() else np.nan
