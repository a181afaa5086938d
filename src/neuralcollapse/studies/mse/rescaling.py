"""Figure 6 of the mse paper: what the two scales of the rescaled squared error do."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...training import Plan
from .._cells import Train
from .._common.geometric_and_mse import CODE, MARGIN_METRICS, TEXT, as_in_text, draw_margins
from .._common.plans import desk_plan, paper_plan, smoke_plan
from .._common.seeds import per_seed, rank_correlation
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import Above, AtLeast, Claim, Evidence
from ..pictures import Figure, figure, series

SWEEPS: dict[Profile, dict[str, tuple[int, ...]]] = {
    "smoke": {"alpha": (1, 5), "M": (1, 5)},
    "desk": {"alpha": (1, 5, 15, 20), "M": (1, 3, 5, 7, 10)},
    "paper": {"alpha": (1, 5, 15, 20), "M": (1, 3, 5, 7, 10)},
}
NAMES = {"alpha": r"$\alpha$", "M": "M"}
MEASURED = {
    "nc1": ("more collapse, a smaller NC1", "nc1", "train", -1),
    "train": ("better training accuracy", "accuracy", "train", 1),
    "test": ("better test accuracy", "accuracy", "test", 1),
}
"""What should rise with the scale: words, metric, split and sign."""
FURTHER = {"margin": ("cosine_margin", 1), "rank": ("numerical_rank", -1)}
CLEAR = 0.8
ABOVE_CHANCE = "at every scale above 1 the nets' training accuracy is ten times chance or more"
MINI_IMAGENET_CLASSES = 100


@studies.add("mse/rescaling")
class Rescaling(Study):
    """alpha weighs the true class, M is its target: (alpha, M) = (1, 1) is the vanilla loss."""

    figures = ("6",)
    question = "Do larger scales of the squared error bring more collapse and better accuracy with many classes?"
    claims = (
        *(
            Claim(
                f"{sweep}-{name}",
                f"With the other scale fixed, a larger {sweep} goes with {words}: a positive correlation.",
                "Section 4, Figure 6",
                Above(0.0),
                floor=ABOVE_CHANCE,
                decides_at="more seeds",
                unit="rank correlation",
            )
            for sweep in ("alpha", "M")
            for name, (words, *_) in MEASURED.items()
        ),
        Claim(
            "clear",
            f"All six rank correlations are {CLEAR:g} or more: nearly monotone.",
            "our second grade",
            AtLeast(CLEAR),
            kind="ours",
            floor=ABOVE_CHANCE,
            unit="least rank correlation",
        ),
        Claim(
            "margins",
            "Larger scales go with larger cosine margins.",
            "Figure 6 in the released code's plots",
            Above(0.0),
            kind="ours",
            floor=ABOVE_CHANCE,
            unit="least rank correlation",
        ),
        Claim(
            "numerical-rank",
            "Larger scales go with smaller numerical ranks.",
            "Figure 6 in the released code's plots",
            Above(0.0),
            kind="ours",
            floor=ABOVE_CHANCE,
            unit="least rank correlation",
        ),
    )
    final_seeds = {"smoke": (0,), "desk": (10, 11, 12, 13, 14), "paper": (0, 1, 2)}
    costs = {"smoke": "3 s", "desk": "27 min of one core", "paper": "40 GPU days"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs, two values in each sweep.",
        "desk": "A 4 x 256 MLP with batch norm on CIFAR-100 at 16 x 16 (100 training images a class, 30 epochs, 10,000 "
        "test images) instead of ResNet18 on miniImageNet, without augmentation; the text's rates and weight decay.",
        "paper": "ResNet18 (3 x 3 stem, no pooling) on miniImageNet (500 training images of 84 x 84 a class) with "
        "crops and flips, batch 128, 200 epochs; the other scale is 1. The text's loss is eq. (4); the variant has the "
        "released code's mean over classes, the steps of eq. (4) with rate 2e-4 and weight decay .05.",
    }
    provenance = {
        "rate .01, momentum, weight decay 1e-3, warm restarts after 200 epochs, least rate 1e-4": "text",
        "split of 50,000 and 10,000 images": "text",
        "values of alpha and M, the other scale 1": "code",
        "augmentation, 3 x 3 stem, initialisation, batch 128, mean over classes": "code",
        "200 epochs, three seeds": "guess",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        seeds = self.seeds(profile)
        for seed in seeds:
            for sweep, values in SWEEPS[profile].items():
                for value in values:
                    alpha, target = (value, 1) if sweep == "alpha" else (1, value)
                    for variant in (TEXT, CODE) if profile == "paper" else (TEXT,):
                        plan = _plan(profile, f"squared-error:alpha={alpha},target={target}", seed, variant)
                        labels = {"sweep": sweep, "value": value, "seed": seed}
                        if profile == "paper":
                            labels["variant"] = variant
                        # The features of one seed are enough to draw the margins.
                        yield Planned(Train(plan, features=seed == seeds[0]), labels)

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        mine = as_in_text(results)
        count = {"smoke": 10}.get(results.profile, MINI_IMAGENET_CLASSES)
        scaled = mine.select(lambda entry: entry.labels["value"] > 1)
        met = bool((scaled.final("accuracy") >= 10 / count).all())
        found, six = {}, []
        for sweep in mine.labels("sweep"):
            runs = mine.where(sweep=sweep)
            for name, (_, metric, split, sign) in MEASURED.items():
                six.append(_correlations_with_scale(runs, metric, split, sign))
                found[f"{sweep}-{name}"] = Evidence(
                    six[-1].tolist(), floor_met=met, why=_means_by_scale(runs, metric, split)
                )
        least = np.min(six, axis=0)
        found["clear"] = Evidence(
            least.tolist(), floor_met=met, why=f"Least of the six, by seed: {_numbers_in_words(least)}."
        )
        for claim, (metric, sign) in zip(("margins", "numerical-rank"), FURTHER.values(), strict=True):
            both = [
                _correlations_with_scale(mine.where(sweep=sweep), metric, "train", sign)
                for sweep in mine.labels("sweep")
            ]
            text = " ".join(_means_by_scale(mine.where(sweep=sweep), metric, "train") for sweep in mine.labels("sweep"))
            found[claim] = Evidence(np.min(both, axis=0).tolist(), floor_met=met, why=text)
        return found

    def table(self, results: Results) -> list[dict[str, Any]]:
        rows = super().table(results)
        for row, entry in zip(rows, results, strict=True):
            last = entry.value.final("train")
            row |= {name: last[name] for name in ("cosine_margin", "numerical_rank")}
        return rows

    def draw(self, results: Results) -> Figure:
        mine = as_in_text(results)
        sweeps = mine.labels("sweep")
        picture, axes = figure(len(sweeps), 4, size=(1.95, 1.85))
        for line, sweep in zip(axes, sweeps, strict=True):
            runs = mine.where(sweep=sweep)
            names = {value: f"{NAMES[sweep]} = {value}" for value in runs.labels("value")}
            series(line[0], runs, "nc1", "value", labels=names)
            for axis, split in zip(line[1:], ("train", "test"), strict=False):
                series(axis, runs, "accuracy", "value", split=split, log=False, labels=names)
                axis.set_title(f"{split} accuracy")
            for axis in line[:3]:
                axis.set_xlabel("epoch")
                axis.locator_params(axis="x", integer=True, nbins=4)
            draw_margins(line[3], runs, "value")
            lines, texts = line[0].get_legend_handles_labels()
            line[3].legend(lines, texts, loc="center left", bbox_to_anchor=(1.0, 0.5))
        return picture


def _plan(profile: Profile, loss: str, seed: int, variant: str) -> Plan:
    if profile == "smoke":
        return smoke_plan(loss=loss, metrics=MARGIN_METRICS, seed=seed)
    epochs = {"desk": 30, "paper": 200}[profile]
    common = {
        "loss": loss,
        "epochs": epochs,
        "learning_rate": 0.01,
        "schedule": f"cosine:period={epochs},minimum=0.0001",
        "weight_decay": 1e-3,
        "metrics": MARGIN_METRICS,
        "seed": seed,
    }
    if profile == "desk":
        data = {"data": "cifar100:size=16", "per_class": 100, "test_per_class": 100}
        return desk_plan(**{**data, "model": "mlp:width=256,depth=4", "batch_size": 64, **common})
    scale = {"loss_scale": 2 / MINI_IMAGENET_CLASSES} if variant == CODE else {}
    return paper_plan(**common, **scale, data="mini-imagenet", model="resnet18:width=64", augment=True)


def _correlations_with_scale(results: Results, metric: str, split: str, sign: int) -> np.ndarray:
    """Rank correlations of the scale with a metric (or, for sign -1, with its fall), one a seed."""
    return np.array(
        per_seed(results, lambda mine: rank_correlation(mine.labels("value"), sign * mine.final(metric, split)))
    )


def _means_by_scale(results: Results, metric: str, split: str) -> str:
    name = results[0].labels["sweep"]
    means = [(value, float(mine.final(metric, split).mean())) for (value,), mine in results.groups("value")]
    text = ", ".join(f"{mean:.3g} at {value}" for value, mean in means)
    return f"{metric.replace('_', ' ')} ({split}) by {name}: {text}."


def _numbers_in_words(values: np.ndarray) -> str:
    return ", ".join(f"{value:.2f}" for value in values)
