"""Figure 6 of the normalized paper and its width runs: normalised nets train and collapse faster."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .._cells import Train
from .._pictures import colour, figure, legend_below, metric_name, series
from .._plans import desk_plan, paper_plan, smoke_plan
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from ._nets import MODELS, epochs_to_fit, least_loss, least_loss_of_relu, model_settings

FITTED = 0.99
NETS: Mapping[Profile, tuple[str, ...]] = {
    "smoke": ("mlp:width=16,depth=2", "mlp:width=32,depth=2"),
    "desk": ("resnet18:width=8,feature_dim=512", "resnet50:width=4,feature_dim=2048"),
    "paper": ("resnet18:width=64", "resnet50:width=64"),
}
"""Trained with true labels, to compare speeds."""
WIDTHS: Mapping[Profile, tuple[str, ...]] = {
    "smoke": ("mlp:width=4,depth=2", "mlp:width=32,depth=2"),
    "desk": ("resnet18:width=2", "resnet18:width=4", "resnet18:width=8"),
    "paper": tuple(f"resnet18:width={width}" for width in (4, 8, 16, 32, 64)),
}
"""Normalised nets trained with random labels, which only wide nets can fit."""

MEASURED = (1, 2, *range(3, 61, 3))


@studies.add("normalized/overparameterization")
class Overparameterization(Study):
    """Training accuracy, NC1 and loss over the epochs by net; final NC1 over the width with random labels."""

    figures = ("6",)
    question = "Do normalised nets fit and collapse in fewer epochs than regularised ones as nets grow?"
    claim = (
        "With every net trained on true labels, the normalised one reaches 99 % training accuracy in fewer epochs than "
        "the regularised one and ends with a smaller NC1."
    )
    costs = {"smoke": "3 s", "desk": "8 min on 1 core", "paper": "1 GPU hour"}
    setting = {
        "smoke": "Perceptrons on 120 digits, 3 epochs.",
        "desk": (
            "True labels: ResNet18 of width 8 and ResNet50 of width 4, with the paper's 512 and 2048 features, on "
            "CIFAR100 of 16 x 16, 15 images a class (paper: 30), 60 epochs, a tenth of the rate after 40. Random "
            "labels: normalised ResNet18 of width 2 to 8 on CIFAR10 of 16 x 16, 50 images a class (paper: 200), "
            "batches of 32."
        ),
        "paper": (
            "True labels: ResNet18 and ResNet50 on CIFAR100, 30 images a class, 100 epochs. Random labels: normalised "
            "ResNet18 of width 4 to 64 on CIFAR10, 200 images a class, 200 epochs (the released code's runs). Feature "
            "decay is on the features of a batch, as in the released code."
        ),
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for net in NETS[profile]:
            for model in MODELS:
                labels = {"labels": "true", "net": net, "model": model}
                yield Planned(Train(_plan(profile, "true", net, model)), labels)
        for net in WIDTHS[profile]:
            labels = {"labels": "random", "net": net, "model": "normalized"}
            yield Planned(Train(_plan(profile, "random", net, "normalized")), labels)

    def check(self, results: Results) -> Verdict:
        ratios, collapsed, words = [], [], []
        for (net,), found in results.where(labels="true").groups("net"):
            epochs = {model: epochs_to_fit(found.only(model=model), FITTED) for model in MODELS}
            nc1 = {model: found.where(model=model).final("nc1")[0] for model in MODELS}
            ratios.append(_ratio(epochs["normalized"], epochs["regularized"]))
            collapsed.append(nc1["normalized"] < nc1["regularized"])
            words.append(
                f"{_name(net)}: {_when(epochs['normalized'])} against {_when(epochs['regularized'])}, NC1 "
                f"{nc1['normalized']:.2g} against {nc1['regularized']:.2g}"
            )
        worst = max(ratios)
        return Verdict.of(
            worst < 1 and all(collapsed),
            worst,
            "epochs to 99 % training accuracy, normalised over regularised, of the net where it is largest",
            "99 % training accuracy and final NC1, normalised against regularised: " + "; ".join(words) + ".",
        )

    def draw(self, results: Results) -> Any:
        nets = results.where(labels="true").labels("net")
        picture, axes = figure(len(nets) + 1, 3, size=(2.2, 1.6))
        for row, net in zip(axes, nets, strict=False):
            found = results.where(labels="true", net=net)
            for axis, name in zip(row, ("accuracy", "nc1", "loss"), strict=True):
                series(axis, found, name, "model", log=name != "accuracy")
                axis.set_title("training accuracy" if name == "accuracy" else metric_name(name))
                axis.set_xlabel("epoch")
            row[0].set_ylabel(_name(net))
            _draw_theory(row[2], found)
        _draw_widths(axes[-1], results.where(labels="random"))
        legend_below(picture, axes[0, 2])
        return picture

    def table(self, results: Results) -> list[dict[str, Any]]:
        return [
            {
                **entry.labels,
                "epochs_to_99": value if np.isfinite(value := epochs_to_fit(entry.value, FITTED)) else None,
                **{name: entry.value.final()[name] for name in ("accuracy", "loss", "nc1", "nc2", "nc3")},
            }
            for entry in results
        ]


def _ratio(normalized: float, regularized: float) -> float:
    """Of two numbers of epochs; 1 if neither net came to fit, 0 if only the regularised one did not."""
    if np.isinf(regularized):
        return 1.0 if np.isinf(normalized) else 0.0
    return normalized / regularized


def _when(epoch: float) -> str:
    """An epoch in words."""
    return "never" if np.isinf(epoch) else f"epoch {epoch:g}"


def _name(net: str) -> str:
    """``resnet18:width=8`` as "ResNet18, width 8"."""
    kind, _, rest = net.partition(":")
    return f"{kind.replace('resnet', 'ResNet')}, {rest.partition(',')[0].replace('=', ' ')}"


def _draw_theory(axis: Any, results: Results) -> None:
    """The least losses of the normalised model at temperature 1."""
    count = results[0].value.model().num_classes
    for style, bound, text in (
        (":", least_loss, "least normalised loss"),
        ("--", least_loss_of_relu, "least after a ReLU"),
    ):
        axis.axhline(bound(count, 1.0), color="#666666", linestyle=style, linewidth=1.0, label=text, zorder=1)


def _draw_widths(axes: Any, results: Results) -> None:
    """Where the runs with random labels end, over the width."""
    widths = [float(net.partition("width=")[2].partition(",")[0]) for net in results.labels("net")]
    for axis, name in zip(axes, ("accuracy", "nc1", "loss"), strict=True):
        axis.plot(widths, results.final(name), "o-", color=colour("normalized", MODELS))
        axis.set_xscale("log", base=2)
        axis.set_xticks(widths, [f"{width:g}" for width in widths])
        axis.set_xlabel("width")
        if name != "accuracy":
            axis.set_yscale("log")
        axis.set_title(f"final {name.replace('nc1', 'NC1')}")
    axes[0].set_ylabel("random labels")


def _plan(profile: Profile, labels: str, net: str, model: str) -> Any:
    chosen = {"model": net, "random_labels": labels == "random"}
    if profile == "smoke":
        return smoke_plan(**chosen, **model_settings(model, samples=120, batch_size=32))
    if profile == "desk":
        data = {"data": "cifar100:size=16", "per_class": 15, "test_per_class": 5}
        samples = 1500
        if labels == "random":
            data = {"data": "cifar10:size=16", "per_class": 50, "test_per_class": 50}
            samples = 500
        settings = model_settings(model, samples, batch_size=128 if labels == "true" else 32)
        return desk_plan(**chosen, **data, **settings, epochs=60, schedule="step:every=40", measure=MEASURED)
    if labels == "random":
        return paper_plan(**chosen, **model_settings(model, samples=2000, batch_size=128), per_class=200)
    small = {"data": "cifar100", "per_class": 30, "epochs": 100, "measure": "every"}
    return paper_plan(**chosen, **small, **model_settings(model, samples=3000, batch_size=128))
