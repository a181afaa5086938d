"""Table 2 of the normalized paper: test accuracy and test collapse of normalised and regularised nets."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ..._support.registry import Spec
from ...training import Plan
from .._cells import Train
from .._common.plans import desk_plan, paper_plan, smoke_plan
from .._common.seeds import rank_correlation
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import Above, Below, Claim, Evidence
from ..pictures import Figure, colour, figure, legend_below
from ._nets import MODELS, PROVENANCE, REGULARIZED, as_in_text, net_name, variants

NETS: Mapping[Profile, tuple[str, ...]] = {
    "smoke": ("mlp:width=16,depth=2", "mlp:width=32,depth=2"),
    "desk": ("resnet8:width=16", "resnet18:width=16"),
    "paper": ("resnet18:width=64", "resnet50:width=64"),
}
"""The smaller net and the larger one."""
PAPER = {
    ("resnet18", "regularized"): (0.553, 3.838),
    ("resnet18", "normalized"): (0.586, 3.143),
    ("resnet50", "regularized"): (0.489, 4.486),
    ("resnet50", "normalized"): (0.564, 3.127),
}
"""Test accuracy and test NC1 in Table 2."""
FITTED, WELL_ABOVE_CHANCE = 0.99, 0.3
FLOOR = "every net fits 99 % of its training set and reaches 30 % on the test set"
WHOLE = "the whole of CIFAR100 with the paper's nets"


@studies.add("normalized/generalization")
class Generalization(Study):
    """Test accuracy and test NC1 of two nets."""

    figures = ("table 2",)
    question = "Do normalised nets generalise better than regularised ones, and collapse more on the test set?"
    claims = (
        Claim(
            "accuracy",
            "The normalised net has the higher test accuracy, with both nets (difference, the least of the two).",
            "Table 2, E.2",
            Above(0.0),
            floor=FLOOR,
            decides_at=WHOLE,
            unit="points",
        ),
        Claim(
            "nc1",
            "The normalised net has the smaller test NC1, with both nets (ratio, the largest of the two).",
            "Table 2, E.2",
            Below(1.0),
            floor=FLOOR,
            decides_at=WHOLE,
        ),
        Claim(
            "drop",
            "From the smaller net to the larger one the regularised net loses more test accuracy than the normalised "
            "(difference of the two drops).",
            "Table 2, E.2",
            Above(0.0),
            floor=FLOOR,
            decides_at=WHOLE,
            unit="points",
        ),
        Claim(
            "coupled",
            "Test accuracy goes with test collapse: over the four nets the higher accuracy has the smaller NC1 (rank "
            "correlation of the two).",
            "Table 2, E.2",
            Below(0.0),
            floor=FLOOR,
            decides_at=WHOLE,
            empty_below_floor=True,
        ),
    )
    final_seeds = {"smoke": (0,), "desk": (40, 41, 42), "paper": (0, 1, 2)}
    costs = {"smoke": "2 s", "desk": "35 min on 1 core", "paper": "10 GPU hours with the variants"}
    setting = {
        "smoke": "Perceptrons on 120 digits, 3 epochs.",
        "desk": (
            "ResNet8 and ResNet18 of width 16 on 3,000 CIFAR10 images of 16 x 16, 5,000 for testing, no augmentation, "
            "50 epochs of the paper's batches of 128, a tenth of the rate every 20, three seeds: a stand-in, since on "
            "CIFAR100 nets of this size stay far below 30 %."
        ),
        "paper": (
            "ResNet18 and ResNet50 on the whole of CIFAR100, no augmentation, 100 epochs. Feature decay is on the "
            "features of a batch, as in the released code. The variant has that code's heads (unit rows for the "
            "regularised net too, biases) and its order of images, which is never shuffled."
        ),
    }
    provenance = {**PROVENANCE, **REGULARIZED}
    paper_values = {
        "accuracy": "58.6 against 55.3 % (ResNet18) and 56.4 against 48.9 % (ResNet50)",
        "nc1": "3.143 against 3.838 (ResNet18) and 3.127 against 4.486 (ResNet50)",
        "drop": "55.3 to 48.9 % against 58.6 to 56.4 %: 6.4 and 2.2 points",
        "coupled": "-.8",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for net in NETS[profile]:
            for model in MODELS:
                for settings, label in variants(profile, model, subset=False):
                    for seed in self.seeds(profile):
                        plan = _plan(profile, model=net, seed=seed, **settings)
                        yield Planned(Train(plan), {"net": net, "model": model, "seed": seed, **label})

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        text = as_in_text(results)
        nets = text.labels("net")
        met = bool((text.final("accuracy") >= FITTED).all())
        met &= bool((text.final("accuracy", "test") >= WELL_ABOVE_CHANCE).all())
        gains, ratios, drops, coupled = [], [], [], []
        for seed in text.labels("seed"):
            accuracy, nc1 = (
                np.array([[_test_value(text, net, model, seed, name) for model in MODELS] for net in nets])
                for name in ("accuracy", "nc1")
            )
            gains.append(100 * float((accuracy[:, 0] - accuracy[:, 1]).min()))
            ratios.append(float((nc1[:, 0] / nc1[:, 1]).max()))
            normalised, regularised = 100 * (accuracy[0] - accuracy[-1])
            drops.append(float(regularised - normalised))
            coupled.append(rank_correlation(accuracy.ravel(), nc1.ravel()))
        words = "; ".join(
            f"{net_name(net)}: "
            + " against ".join(
                f"{100 * runs.final('accuracy', 'test').mean():.1f} % and {runs.final('nc1', 'test').mean():.3g}"
                for runs in (text.where(net=net, model=model) for model in MODELS)
            )
            for net in nets
        )
        why = f"Test accuracy and NC1, normalised against regularised, {words}."
        return {
            "accuracy": Evidence(gains, met, why=why),
            "nc1": Evidence(ratios, met, why=why),
            "drop": Evidence(drops, met),
            "coupled": Evidence(coupled, met),
        }

    def draw(self, results: Results) -> Figure:
        text = as_in_text(results)
        nets = text.labels("net")
        picture, axes = figure(1, 2, size=(2.35, 2.0))
        for axis, name, title in ((axes[0, 0], "accuracy", "test accuracy"), (axes[0, 1], "nc1", "test NC1")):
            for place, model in enumerate(MODELS):
                runs = [text.where(net=net, model=model).final(name, "test") for net in nets]
                spots = [position + 0.36 * (place - 0.5) for position in range(len(nets))]
                heights, errors = [found.mean() for found in runs], [found.std() for found in runs]
                drawn = axis.bar(spots, heights, 0.34, yerr=errors, color=colour(model, MODELS), label=model)
                axis.bar_label(drawn, fmt="%.3g", fontsize=6.5, padding=1)
                known = [(spot, PAPER.get((Spec.name_of(net), model))) for spot, net in zip(spots, nets, strict=True)]
                marks = [(spot, pair[name == "nc1"]) for spot, pair in known if pair is not None]
                if results.profile == "paper":
                    label = "the paper's" if place == 0 else None
                    axis.plot([x for x, _ in marks], [y for _, y in marks], "_", color="black", ms=14, label=label)
            axis.set_xticks(range(len(nets)), [net_name(net, "\n") for net in nets])
            axis.grid(axis="x", visible=False)
            axis.margins(y=0.15)
            axis.set_title(title)
        legend_below(picture, axes[0, 0])
        return picture

    def table(self, results: Results) -> list[dict[str, Any]]:
        return [
            {
                **entry.labels,
                "test_accuracy": entry.value.final("test")["accuracy"],
                "test_nc1": entry.value.final("test")["nc1"],
                "train_accuracy": entry.value.final("train")["accuracy"],
                "train_nc1": entry.value.final("train")["nc1"],
            }
            for entry in results
        ]


def _test_value(results: Results, net: str, model: str, seed: int, name: str) -> float:
    return float(results.where(net=net, model=model, seed=seed).final(name, "test")[0])


def _plan(profile: Profile, **chosen: Any) -> Plan:
    if profile == "smoke":
        return smoke_plan(**chosen)
    if profile == "paper":
        return paper_plan(data="cifar100", epochs=100, **chosen)
    data = {"data": "cifar10:size=16", "per_class": 300, "test_per_class": 500}
    step = {"epochs": 50, "schedule": "step:every=20", "measure": (1, 5, 10, 20, 30, 40, 50)}
    return desk_plan(**data, **step, **chosen)
