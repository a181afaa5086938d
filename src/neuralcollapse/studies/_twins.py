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
from ._plans import METRICS, desk_plan, paper_plan, smoke_plan
from ._results import Planned, Results
from ._study import Profile, Study, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "DATA",
    "MARGIN_METRICS",
    "MLP",
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

MARGIN_METRICS = (*METRICS, "cosine_margin")
CLASSES = 10

Settings = Mapping[str, Any]


MLP: Settings = {"model": "mlp:width=256,depth=4", "batch_size": 64, "test_per_class": 500}
"""A net with batch norm that collapses on 2,000 CIFAR10 images of 16 x 16 in half a minute of one core."""


def small_plan(profile: Profile, **changes: Any) -> Plan:
    """A plan of the smoke profile, or of the desk profile with :data:`MLP`."""
    return smoke_plan(**changes) if profile == "smoke" else desk_plan(**{**MLP, **changes})


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
    axis.set_title("accuracy (train dashed)")


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
        draw_accuracy(line[len(names)], mine, by)
        for axis in line[: len(names) + 1]:
            axis.set_xscale("log")
            axis.xaxis.set_major_formatter("{x:g}")
            axis.xaxis.set_minor_formatter("")
            axis.set_xlabel("epoch")
        if kept_features:
            draw_margins(line[-1], mine, by)
        line[0].set_ylabel(data)
    legend_below(picture, axes[0, 0])
    return picture


# studies --------------------------------------------------------------------------------------------------------


SPREAD = 0.01
"""Test accuracies of optimizers that differ by this much are different."""


class Optimizers(Study):
    """Collapse under SGD, Adam and L-BFGS."""

    loss: ClassVar[str]
    data: ClassVar[tuple[str, ...]]
    """Names in :data:`DATA`, at desk and paper size."""
    paper_lbfgs_rate: ClassVar[float]
    collapse: ClassVar[Mapping[str, float]]
    """Metrics that must end below these values."""
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
            "SGD": {},
            "Adam": adam,
            "L-BFGS": {**lbfgs, "learning_rate": 0.1, "batch_size": 2000, "epochs": 20},
        }

    def check(self, results: Results) -> Verdict:
        ends = {name: worst(results, name) for name in self.collapse}
        share = max(ends[name] / limit for name, limit in self.collapse.items())
        slowest = {name: results[int(results.final(name).argmax())].labels["optimizer"] for name in ends}
        hardest = results.where(data=results.labels("data")[-1])
        accuracy = hardest.final("accuracy", "test")
        spread = float(np.ptp(accuracy))
        listed = ", ".join(
            f"{name} {value:.2g} ({slowest[name]}; limit {self.collapse[name]:g})" for name, value in ends.items()
        )
        tests = ", ".join(
            f"{entry.labels['optimizer']} {value:.1%}" for entry, value in zip(hardest, accuracy, strict=True)
        )
        also, words = self.further(hardest)
        return Verdict.of(
            share <= 1 and spread >= SPREAD and also,
            share,
            "largest final collapse metric over all optimizers, as a share of its limit",
            f"At the end of training, at most {listed}. Test accuracy on {hardest[0].labels['data']}: {tests}.{words}",
        )

    def further(self, results: Results) -> tuple[bool, str]:
        """What else the claim says of the runs on the hardest data: whether it holds, and a sentence."""
        return True, ""

    def draw(self, results: Results) -> Any:
        return draw_rows(results, "optimizer", tuple(self.collapse), self.keep_features)


TEST_LOSS, TRAIN_LOSS, RATIO = 0.02, 0.01, 2.0
"""The most that a fixed head or d = K may lose in accuracy, and the most by which NC1 and NC3 may grow."""


class FixedHead(Study):
    """Learned against fixed heads, wide features against d = K."""

    claim = (
        "Against a learned head on wide features, a head fixed to a simplex ETF, d = K, and both together lose at most "
        "2 points of test and 1 point of training accuracy, with NC1 and NC3 at most twice as large."
    )
    collapse = ("nc1", "nc3")

    loss: ClassVar[str]
    settings: ClassVar[Mapping[Profile, Mapping[str, Settings]]]
    """Plans by profile and data set."""
    keep_features: ClassVar[bool]
    measured_metrics: ClassVar[tuple[str, ...]]

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for data, settings in self.settings[profile].items():
            for fixed in (False, True):
                for small in (False, True):
                    plan = self._plan(profile, settings, fixed, small)
                    variant = f"{'fixed ETF' if fixed else 'learned'}, {'d = K' if small else 'wide'}"
                    labels = {"data": data, "variant": variant, "d": _feature_dim(plan), "fixed": fixed, "small": small}
                    yield Planned(Train(plan, features=self.keep_features), labels)

    def _plan(self, profile: Profile, settings: Settings, fixed: bool, small: bool) -> Plan:
        make = {"smoke": smoke_plan, "desk": desk_plan, "paper": paper_plan}[profile]
        model = make(**settings).model + (f",feature_dim={CLASSES}" if small else "")
        own = {"model": model, "loss": self.loss, "metrics": self.measured_metrics}
        return make(**{**settings, **own, "head": "etf" if fixed else "linear"})

    def check(self, results: Results) -> Verdict:
        drops: dict[str, float] = {"train": 0.0, "test": 0.0}
        ratios = dict.fromkeys(self.collapse, 0.0)
        for data in results.labels("data"):
            mine = results.where(data=data)
            full = mine.where(fixed=False, small=False)
            for split in drops:
                lost = full.final("accuracy", split).mean() - mine.final("accuracy", split).min()
                drops[split] = max(drops[split], float(lost))
            for name in ratios:
                ratios[name] = max(ratios[name], worst(mine, name) / float(full.final(name).mean()))
        listed = " and ".join(f"{metric.upper()} {ratio:.2g}" for metric, ratio in ratios.items())
        saved = {size: 1 - economical / full for size, (full, economical) in _parameters(results).items()}
        return Verdict.of(
            drops["test"] <= TEST_LOSS and drops["train"] <= TRAIN_LOSS and max(ratios.values()) <= RATIO,
            100 * drops["test"],
            "most test accuracy lost against the learned head with wide features, in percentage points",
            f"Against the learned head on wide features the others lose at most {100 * drops['test']:.1f} points "
            f"of test and {100 * drops['train']:.1f} of training accuracy, and have at most {listed} times its values. "
            f"A fixed ETF with d = K has {saved['here']:.1%} fewer trainable parameters here and "
            f"{saved['resnet18']:.1%} fewer in ResNet18 with d = 512.",
        )

    def table(self, results: Results) -> list[dict[str, Any]]:
        rows = super().table(results)
        for row, entry in zip(rows, results, strict=True):
            row["trainable_parameters"] = parameter_count(entry.value.model()).trainable
            row["trainable_parameters_resnet18"] = _resnet18_parameters(entry.labels["fixed"], entry.labels["small"])
        return rows

    def draw(self, results: Results) -> Any:
        return draw_rows(results, "variant", self.collapse, self.keep_features)


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
