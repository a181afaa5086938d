"""Figure 6 of the normalized paper: normalised nets train and collapse faster as ResNets grow."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ...training import Plan
from .._cells import Train
from .._common.plans import desk_plan, paper_plan, smoke_plan
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import Above, Below, Claim, Evidence
from ..pictures import GREY, Figure, figure, legend_below, metric_name, series
from ._nets import MODELS, REGULARIZED, as_in_text, epochs_to_fit, least_loss, least_loss_of_relu, net_name, variants

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FITTED = 0.99
NETS: Mapping[Profile, tuple[str, ...]] = {
    "smoke": ("mlp:width=16,depth=2", "mlp:width=32,depth=2"),
    "desk": ("resnet18:width=32,feature_dim=512",),
    "paper": ("resnet18:width=64", "resnet50:width=64"),
}
"""At desk size half of the paper's width: with a quarter of it the normalised nets do not fit their images."""
MEASURED = (1, 2, *range(4, 101, 2))
BIGGER = "wider nets and 100 epochs, as in the paper"


@studies.add("normalized/overparameterization")
class Overparameterization(Study):
    """Training accuracy, NC1 and loss over the epochs, by net."""

    figures = ("6",)
    question = "Do normalised nets fit and collapse in fewer epochs than regularised ones as nets grow?"
    claims = (
        Claim(
            "faster",
            "The normalised net fits its training set (99 %) in fewer epochs than the regularised one, with every net "
            "(ratio, the largest of the nets).",
            "Figure 6, E.2",
            Below(1.0),
            decides_at=BIGGER,
        ),
        Claim(
            "nc1",
            "The normalised net ends with the smaller NC1, with every net (ratio, the largest of the nets).",
            "Figure 6, E.2",
            Below(1.0),
            floor="every net fits 99 % of its training set",
            decides_at=BIGGER,
        ),
        Claim(
            "ahead",
            "The normalised net is ahead in training accuracy on the way (mean over the epochs of the difference, the "
            "least of the nets).",
            "this project's reading of faster training without a target",
            Above(0.0),
            kind="ours",
            unit="points",
        ),
    )
    costs = {"smoke": "3 s", "desk": "50 min on 1 core", "paper": "2 GPU hours with the variants"}
    setting = {
        "smoke": "Perceptrons on 120 digits, 3 epochs.",
        "desk": (
            "ResNet18 of width 32, half of the paper's, with its 512 features, on CIFAR100 of 16 x 16, 15 images a "
            "class (paper: 30), 100 epochs of the paper's batches of 128, three seeds."
        ),
        "paper": (
            "ResNet18 and ResNet50 on CIFAR100, 30 images a class, 100 epochs. Feature decay is on the features of a "
            "batch, as in the released code. The variant has that code's heads: the regularised net's rows are scaled "
            "to norm one as well, and there are biases."
        ),
    }
    provenance = {
        "model, data, no bias": "text",
        "learning_rate, momentum, schedule, batch_size": "text",
        "per_class (30), 100 epochs": "code",
        "init (PyTorch's default), stem without pooling": "code",
        **REGULARIZED,
        "variant: biases": "code",
        "seeds": "guess",
    }
    final_seeds = {"smoke": (0,), "desk": (40, 41, 42), "paper": (0, 1, 2)}

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for net in NETS[profile]:
            for model in MODELS:
                for settings, label in variants(profile, model, subset=True):
                    for seed in self.seeds(profile):
                        plan = _plan(profile, model=net, seed=seed, **settings)
                        yield Planned(Train(plan), {"net": net, "model": model, "seed": seed, **label})

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        text = as_in_text(results)
        ratios, nc1, ahead = [], [], []
        for seed in text.labels("seed"):
            mine = [text.where(seed=seed, net=net) for net in text.labels("net")]
            ratios.append(
                max(_epochs_ratio(*(epochs_to_fit(runs.only(model=m), FITTED) for m in MODELS)) for runs in mine)
            )
            nc1.append(
                max(_final_value(runs, "normalized", "nc1") / _final_value(runs, "regularized", "nc1") for runs in mine)
            )
            ahead.append(min(_mean_lead(runs) for runs in mine))
        words = "; ".join(
            f"{net_name(net)}: "
            + " against ".join(
                f"{_fitting_epoch_in_words(own)}, NC1 {own.final('nc1').mean():.2g}, training accuracy "
                f"{own.final('accuracy').mean():.1%}"
                for own in (runs.where(model=m) for m in MODELS)
            )
            for net, runs in ((net, text.where(net=net)) for net in text.labels("net"))
        )
        fitted = bool((text.final("accuracy") >= FITTED).all())
        return {
            "faster": Evidence(ratios, why=f"Normalised against regularised, {words}."),
            "nc1": Evidence(nc1, fitted, why=f"Normalised against regularised, {words}."),
            "ahead": Evidence(ahead),
        }

    def draw(self, results: Results) -> Figure:
        text = as_in_text(results)
        nets = text.labels("net")
        picture, axes = figure(len(nets), 3, size=(2.2, 1.7))
        for row, net in zip(axes, nets, strict=True):
            found = text.where(net=net)
            for axis, name in zip(row, ("accuracy", "nc1", "loss"), strict=True):
                series(axis, found, name, "model", log=name != "accuracy")
                axis.set_title("training accuracy" if name == "accuracy" else metric_name(name))
                axis.set_xlabel("epoch")
                axis.locator_params(axis="x", integer=True, nbins=5)
            row[0].set_ylabel(net_name(net))
            _draw_theory(row[2], found)
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


def _epochs_ratio(normalized: float, regularized: float) -> float:
    """Of two numbers of epochs; not a number if neither net came to fit, 0 if only the regularised one did not."""
    if np.isinf(regularized):
        return np.nan if np.isinf(normalized) else 0.0
    return normalized / regularized


def _fitting_epoch_in_words(results: Results) -> str:
    """The mean epoch at which nets fit, in words."""
    epochs = np.array([epochs_to_fit(entry.value, FITTED) for entry in results])
    return (
        f"epoch {epochs.mean():.3g}"
        if np.isfinite(epochs).all()
        else f"{np.isfinite(epochs).sum()} of {len(epochs)} fit"
    )


def _final_value(results: Results, model: str, name: str) -> float:
    return float(results.where(model=model).final(name)[0])


def _mean_lead(results: Results) -> float:
    """The mean over the measured epochs of the difference in training accuracy, in points."""
    curves = [np.array(results.only(model=model).curve("accuracy")[1], dtype=float) for model in MODELS]
    return float(100 * (curves[0] - curves[1]).mean())


def _draw_theory(axis: "Axes", results: Results) -> None:
    """The least losses of the normalised model at temperature 1."""
    count = results[0].value.model().num_classes
    for style, bound, text in (
        (":", least_loss, "least normalised loss"),
        ("--", least_loss_of_relu, "least after a ReLU"),
    ):
        axis.axhline(bound(count, 1.0), color=GREY, linestyle=style, linewidth=1.0, label=text, zorder=1)


def _plan(profile: Profile, **chosen: Any) -> Plan:
    if profile == "smoke":
        return smoke_plan(**chosen)
    small: dict[str, Any] = {"data": "cifar100", "per_class": 30, "epochs": 100, "measure": "every", "batch_size": 128}
    if profile == "paper":
        return paper_plan(**{**small, **chosen})
    small |= {"data": "cifar100:size=16", "per_class": 15, "test_per_class": 5, "measure": MEASURED}
    return desk_plan(**small, schedule="step:every=40", **chosen)
