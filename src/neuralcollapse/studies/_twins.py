"""What the geometric and the mse paper share: three optimizers, heads fixed to a simplex ETF, and their pictures."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from safetensors.numpy import load_file

from ..metrics import measure
from ..models import create, parameter_count
from ..training import Plan, Run
from ._cells import Train
from ._pictures import MARKERS, colour, figure, legend_below, series
from ._plans import desk_plan, paper_plan, smoke_plan
from ._results import Planned, Results
from ._study import Profile, Study, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "DATA",
    "PAPER_NET",
    "FixedHead",
    "Optimizers",
    "draw_accuracy",
    "draw_margins",
    "draw_rows",
    "margins",
    "small_plan",
    "worst",
]

DATA: dict[Profile, dict[str, str]] = {
    "smoke": {"digits": "digits"},
    "desk": {"MNIST": "mnist:size=14", "CIFAR10": "cifar10:size=16"},
    "paper": {"MNIST": "mnist", "CIFAR10": "cifar10"},
}
PAPER_NET = "resnet18:width=64,stem=imagenet"
"""The released code's net for runs without augmentation; those with augmentation have the 3x3 stem."""

CLASSES = 10
Settings = Mapping[str, Any]


def small_plan(profile: Profile, **changes: Any) -> Plan:
    """A plan of the smoke profile, or of the desk profile with a narrow net on 1,000 images."""
    if profile == "smoke":
        return smoke_plan(**changes)
    return desk_plan(**{"per_class": 100, "model": "resnet8:width=8", **changes})


# numbers --------------------------------------------------------------------------------------------------------


def margins(run: Run, split: str = "train") -> np.ndarray:
    """The cosine margins of all samples in ascending order (mse, Section 4), from the features that the run kept."""
    kept = load_file(run.folder / f"features-{split}.safetensors")
    report = measure(**kept, metrics=("cosine_margin",))
    assert report.cosine_margins is not None
    return report.cosine_margins.numpy()


def worst(results: Results, name: str) -> float:
    """The largest final value of a metric over the runs."""
    return float(results.final(name).max())


# pictures -------------------------------------------------------------------------------------------------------


def draw_accuracy(axis: "Axes", results: Results, by: str, names: Mapping[Any, str] | None = None) -> None:
    """Test accuracy as lines, training accuracy dashed."""
    series(axis, results, "accuracy", by, split="test", log=False, labels=dict(names or {}))
    keys = results.labels(by)
    for key in keys:
        steps, runs = results.where(**{by: key}).curves("accuracy")
        axis.plot(steps, runs.mean(0), linestyle=(0, (3, 2)), linewidth=0.9, color=colour(key, keys))
    axis.set_title("accuracy: test (train dashed)")


def draw_margins(axis: "Axes", results: Results, by: str) -> None:
    """Sorted cosine margins against the share of the training samples; of several seeds, the first."""
    keys = results.labels(by)
    for place, key in enumerate(keys):
        values = margins(results.where(**{by: key})[0].value)
        share = np.linspace(0, 1, len(values))
        mark = {"marker": MARKERS[place % len(MARKERS)], "markevery": max(1, len(values) // 5)}
        axis.plot(share, values, color=colour(key, keys), **mark)
    axis.set_title("cosine margins, sorted")
    axis.set_xlabel("share of samples")


def draw_rows(results: Results, by: str, names: tuple[str, ...], kept_features: bool) -> Any:
    """For each data set a row of panels: metrics over epochs, accuracy and, where features were kept, the margins."""
    rows = results.labels("data")
    count = len(names) + 1 + kept_features
    picture, axes = figure(len(rows), count, size=(1.85, 1.85))
    for line, data in zip(axes, rows, strict=True):
        mine = results.where(data=data)
        for axis, name in zip(line, names, strict=False):
            series(axis, mine, name, by)
            axis.set_xlabel("epoch")
        draw_accuracy(line[len(names)], mine, by)
        line[len(names)].set_xlabel("epoch")
        if kept_features:
            draw_margins(line[-1], mine, by)
        line[0].set_ylabel(data)
    legend_below(picture, axes[0, 0])
    return picture


# studies --------------------------------------------------------------------------------------------------------


class Optimizers(Study):
    """Collapse under SGD, Adam and L-BFGS."""

    loss: ClassVar[str]
    data: ClassVar[tuple[str, ...]]
    """Names in :data:`DATA`, at desk and paper size."""
    paper_lbfgs_rate: ClassVar[float]
    collapse: ClassVar[Mapping[str, float]]
    """Metrics that must end below these values."""
    spread: ClassVar[float]
    """Least difference of test accuracies."""
    keep_features: ClassVar[bool]
    measured_metrics: ClassVar[tuple[str, ...]]

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for data, source in DATA[profile].items():
            if profile != "smoke" and data not in self.data:
                continue
            for name, settings in self._settings(profile).items():
                common = {"data": source, "loss": self.loss, "metrics": self.measured_metrics}
                if profile == "paper":
                    plan = paper_plan(model=PAPER_NET, **common, **settings)
                else:
                    plan = small_plan(profile, **common, **settings)
                yield Planned(Train(plan, features=self.keep_features), {"data": data, "optimizer": name})

    def _settings(self, profile: Profile) -> dict[str, Settings]:
        adam = {"optimizer": "adam", "learning_rate": 1e-3, "batch_size": 64}
        lbfgs = {"optimizer": "lbfgs:history=10", "schedule": "constant"}
        if profile == "paper":
            return {
                "SGD": {},
                "Adam": adam,
                "L-BFGS": {**lbfgs, "learning_rate": self.paper_lbfgs_rate, "batch_size": 2048},
            }
        if profile == "smoke":
            return {
                "SGD": {},
                "Adam": {**adam, "batch_size": 32},
                "L-BFGS": {**lbfgs, "batch_size": 120, "epochs": 1, "learning_rate": 0.1},
            }
        return {
            "SGD": {"epochs": 100},
            "Adam": {**adam, "epochs": 100, "weight_decay": 5e-4},
            "L-BFGS": {**lbfgs, "learning_rate": 0.1, "batch_size": 1000, "epochs": 15},
        }

    def check(self, results: Results) -> Verdict:
        ends = {name: worst(results, name) for name in self.collapse}
        share = max(ends[name] / limit for name, limit in self.collapse.items())
        hardest = results.where(data=results.labels("data")[-1])
        accuracy = hardest.final("accuracy", "test")
        spread = float(np.ptp(accuracy))
        listed = ", ".join(f"{name} {value:.2g} (limit {self.collapse[name]:g})" for name, value in ends.items())
        tests = ", ".join(
            f"{entry.labels['optimizer']} {value:.1%}" for entry, value in zip(hardest, accuracy, strict=True)
        )
        return Verdict.of(
            share <= 1 and spread >= self.spread,
            share,
            "largest final collapse metric over all optimizers, as a share of its limit",
            f"At the end of training, at most: {listed}. Test accuracy on {hardest[0].labels['data']}: {tests}.",
        )

    def draw(self, results: Results) -> Any:
        return draw_rows(results, "optimizer", tuple(self.collapse), self.keep_features)


class FixedHead(Study):
    """Learned against fixed heads, wide features against d = K."""

    loss: ClassVar[str]
    settings: ClassVar[Mapping[Profile, Mapping[str, Settings]]]
    """Plans by profile and data set."""
    keep_features: ClassVar[bool]
    accuracy_loss: ClassVar[float] = 0.02
    """Most test accuracy that an economical variant may lose."""
    collapse: ClassVar[Mapping[str, float]]
    """Metrics that must end below these values in every variant."""
    measured_metrics: ClassVar[tuple[str, ...]]

    def cells(self, profile: Profile) -> Iterator[Planned]:
        make = paper_plan if profile == "paper" else lambda **changes: small_plan(profile, **changes)
        for data, settings in self.settings[profile].items():
            wide = make(**settings)
            for fixed in (False, True):
                for small in (False, True):
                    model = f"{wide.model},feature_dim={CLASSES}" if small else wide.model
                    head = "etf" if fixed else "linear"
                    plan = make(
                        **{**settings, "loss": self.loss, "metrics": self.measured_metrics},
                        model=model,
                        head=head,
                    )
                    variant = f"{'ETF' if fixed else 'learned'}, d = {_feature_dim(plan)}"
                    labels = {"data": data, "variant": variant, "fixed": fixed, "small": small}
                    yield Planned(Train(plan, features=self.keep_features), labels)

    def check(self, results: Results) -> Verdict:
        drops, ends = [], {name: worst(results, name) for name in self.collapse}
        for data in results.labels("data"):
            mine = results.where(data=data)
            full = mine.where(fixed=False, small=False).final("accuracy", "test")
            drops.append(full - mine.final("accuracy", "test").min())
        drop = float(np.max(drops))
        fits = float(results.final("accuracy").min())
        collapsed = all(ends[name] <= limit for name, limit in self.collapse.items())
        listed = ", ".join(f"{name} {value:.2g}" for name, value in ends.items())
        saved = {size: _saved(*counts) for size, counts in _parameters(results).items()}
        return Verdict.of(
            drop <= self.accuracy_loss and collapsed and fits >= 0.99,
            100 * drop,
            "most test accuracy lost against the learned head with wide features, in percentage points",
            f"The variants lose at most {100 * drop:.1f} points of test accuracy; training accuracy is at least "
            f"{fits:.1%}, and at most {listed}. A fixed ETF with d = K has {saved['here']:.1%} fewer trainable "
            f"parameters here and {saved['resnet18']:.1%} fewer in ResNet18 with d = 512.",
        )

    def table(self, results: Results) -> list[dict[str, Any]]:
        rows = super().table(results)
        for row, entry in zip(rows, results, strict=True):
            row["trainable_parameters"] = parameter_count(entry.value.model()).trainable
            row["trainable_parameters_resnet18"] = _resnet18_parameters(entry.labels["fixed"], entry.labels["small"])
        return rows

    def draw(self, results: Results) -> Any:
        return draw_rows(results, "variant", tuple(self.collapse), self.keep_features)


def _feature_dim(plan: Plan) -> int:
    return create(plan.model, (1, 8, 8), CLASSES).feature_dim


def _resnet18_parameters(fixed: Any, small: Any) -> int:
    spec = f"resnet18:width=64,feature_dim={CLASSES if small else 512}"
    return parameter_count(create(spec, (3, 32, 32), CLASSES, head="etf" if fixed else "linear")).trainable


def _parameters(results: Results) -> dict[str, tuple[int, int]]:
    """Trainable parameters of the fullest and the most economical variant, here and at the paper's size."""
    runs = [results.where(fixed=economy, small=economy)[0].value for economy in (False, True)]
    here = [parameter_count(run.model()).trainable for run in runs]
    paper = [_resnet18_parameters(economy, economy) for economy in (False, True)]
    return {"here": (here[0], here[1]), "resnet18": (paper[0], paper[1])}


def _saved(full: int, economical: int) -> float:
    return 1 - economical / full
