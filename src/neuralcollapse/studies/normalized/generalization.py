"""Table 2 of the normalized paper: test accuracy and test collapse of normalised and regularised nets."""

from collections.abc import Iterator, Mapping
from typing import Any

from .._cells import Train
from .._pictures import colour, figure, legend_below
from .._plans import desk_plan, paper_plan, smoke_plan
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from ._nets import MODELS, model_settings

NETS: Mapping[Profile, tuple[str, ...]] = {
    "smoke": ("mlp:width=16,depth=2", "mlp:width=32,depth=2"),
    "desk": ("resnet18:width=8,feature_dim=512", "resnet50:width=4,feature_dim=2048"),
    "paper": ("resnet18:width=64", "resnet50:width=64"),
}
PAPER = {
    ("resnet18", "regularized"): (0.553, 3.838),
    ("resnet18", "normalized"): (0.586, 3.143),
    ("resnet50", "regularized"): (0.489, 4.486),
    ("resnet50", "normalized"): (0.564, 3.127),
}
"""Test accuracy and test NC1 in Table 2."""


@studies.add("normalized/generalization")
class Generalization(Study):
    """Test accuracy and test NC1 of two nets."""

    figures = ("table 2",)
    question = "Do normalised nets generalise better than regularised ones, and collapse more on the test set?"
    claim = (
        "With ResNet18 and with ResNet50 the normalised net has the higher test accuracy and the smaller test NC1. "
        "(Paper: 58.6 against 55.3 % and 56.4 against 48.9 %.)"
    )
    costs = {"smoke": "2 s", "desk": "8 min on 1 core", "paper": "4 GPU hours"}
    setting = {
        "smoke": "Perceptrons on 120 digits, 3 epochs.",
        "desk": (
            "ResNet18 of width 8 and ResNet50 of width 4, with the paper's 512 and 2048 features, on CIFAR100 of 16 x "
            "16, 80 images a class for training and 20 for testing, 12 epochs, a tenth of the rate every 5, one seed."
        ),
        "paper": (
            "ResNet18 and ResNet50 on the whole of CIFAR100, no augmentation, 100 epochs. Feature decay is on the "
            "features of a batch, as in the released code."
        ),
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for net in NETS[profile]:
            for model in MODELS:
                yield Planned(Train(_plan(profile, net, model)), {"net": net, "model": model})

    def check(self, results: Results) -> Verdict:
        gains, collapsed, words = [], [], []
        for (net,), found in results.groups("net"):
            accuracy = {model: 100 * found.where(model=model).final("accuracy", "test")[0] for model in MODELS}
            nc1 = {model: found.where(model=model).final("nc1", "test")[0] for model in MODELS}
            gains.append(accuracy["normalized"] - accuracy["regularized"])
            collapsed.append(nc1["normalized"] < nc1["regularized"])
            words.append(
                f"{net.partition(':')[0]}: {accuracy['normalized']:.1f} against {accuracy['regularized']:.1f} %, "
                f"NC1 {nc1['normalized']:.3g} against {nc1['regularized']:.3g}"
            )
        return Verdict.of(
            min(gains) > 0 and all(collapsed),
            min(gains),
            "test accuracy of the normalised net minus that of the regularised one, in points, where it is least",
            "On the test set, normalised against regularised: " + "; ".join(words) + ".",
        )

    def draw(self, results: Results) -> Any:
        nets = results.labels("net")
        picture, axes = figure(1, 2, size=(2.35, 2.0))
        for axis, name, title in ((axes[0, 0], "accuracy", "test accuracy"), (axes[0, 1], "nc1", "test NC1")):
            for place, model in enumerate(MODELS):
                values = results.where(model=model).final(name, "test")
                spots = [position + 0.36 * (place - 0.5) for position in range(len(nets))]
                drawn = axis.bar(spots, values, 0.34, color=colour(model, MODELS), label=model)
                axis.bar_label(drawn, fmt="%.3g", fontsize=6.5, padding=1)
                known = [
                    (spot, PAPER.get((net.partition(":")[0], model))) for spot, net in zip(spots, nets, strict=True)
                ]
                marks = [(spot, pair[name == "nc1"]) for spot, pair in known if pair is not None]
                text = "paper, at its size" if place == 0 and marks else None
                axis.plot([x for x, _ in marks], [y for _, y in marks], "_", color="black", ms=14, label=text)
            axis.set_xticks(range(len(nets)), [net.partition(",")[0].replace(":", "\n") for net in nets])
            axis.grid(axis="x", visible=False)
            axis.margins(y=0.12)
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


def _plan(profile: Profile, net: str, model: str) -> Any:
    if profile == "smoke":
        return smoke_plan(model=net, **model_settings(model, samples=120, batch_size=32))
    if profile == "desk":
        data = {"data": "cifar100:size=16", "per_class": 80, "test_per_class": 20}
        settings = model_settings(model, samples=8000, batch_size=128)
        step = {"epochs": 12, "schedule": "step:every=5", "measure": (1, 3, 5, 7, 9, 12)}
        return desk_plan(model=net, **data, **settings, **step)
    return paper_plan(model=net, data="cifar100", epochs=100, **model_settings(model, samples=50_000, batch_size=128))
