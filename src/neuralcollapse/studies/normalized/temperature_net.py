"""Figure 10 of the normalized paper: the temperature decides whether a normalised net trains, and how it collapses."""

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from ...training import Plan, Run
from .._cells import Train
from .._common.plans import desk_plan, paper_plan, smoke_plan
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import AtLeast, Below, Between, Claim, Evidence, known
from ..pictures import GREY, MARKERS, Figure, band, figure, legend_below, property_name, shades
from ._nets import CODE, PROVENANCE, TEXT, as_in_text, epochs_to_fit, least_loss, least_loss_of_relu, normalized

CLASSES = 10
TEMPERATURES = (0.001, 0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 100.0)
INSIDE, OUTSIDE = (1.0, 5.0, 10.0), (0.001, 0.01, 100.0)
"""Clearly inside and clearly outside "about 0.1 to 10": .1 and .5 may go either way."""
NEAR_FIVE = Between(2.5, 10.0)
FITTED = 0.99
FLOOR = "the net with tau = 5 fits 99 % of its training set"
SIZE = "the nets are large enough: at tau = 1 one of half the width fits as well, within a point"
WIDTH = 32
"""At desk size, half of the paper's; nets of half that width at tau = 1 say whether it is the size that decides."""
MEASURED = (*range(1, 21), *range(24, 81, 8))
"""Every epoch of the first phase, in which nets come to fit."""
METRICS = ("nc1", "nc2", "nc3", "accuracy", "loss")


@studies.add("normalized/temperature-net")
class TemperatureNet(Study):
    """NC1 to NC3, training accuracy and loss for eight temperatures."""

    figures = ("10",)
    question = "For which temperatures does a normalised net fit its training set, and where does it collapse best?"
    claims = (
        Claim(
            "inside",
            "Nets fit their training set for tau from about .1 to 10: tau = 1, 5 and 10 do (their smallest training "
            "accuracy).",
            "Figure 10, E.3",
            AtLeast(FITTED),
            floor=SIZE,
            decides_at="nets of the paper's width",
        ),
        Claim(
            "outside",
            "Not for all tau: .001, .01 and 100 do not (their largest training accuracy).",
            "Figure 10, E.3",
            Below(FITTED),
            floor=FLOOR,
        ),
        Claim(
            "fastest",
            "Training is fastest for tau around 1 to 10 (the tau that fits first).",
            "Figure 10, E.3",
            Between(1.0, 10.0),
            floor=FLOOR,
        ),
        *(
            Claim(
                name,
                f"{name.upper()} is smallest for tau close to 5, within a factor of two (the tau of the smallest).",
                "Figure 10, E.3",
                NEAR_FIVE,
                floor=FLOOR,
            )
            for name in ("nc1", "nc2", "nc3")
        ),
    )
    costs = {"smoke": "2 s", "desk": "60 min on 1 core", "paper": "20 GPU hours with the variant"}
    setting = {
        "smoke": "A perceptron on 120 digits, 3 epochs, three temperatures.",
        "desk": (
            "ResNet18 of width 32 on 1,000 CIFAR10 images of 16 x 16 (the paper's n = 100), 80 epochs of the paper's "
            "batches of 128: small ones keep narrow nets from fitting. A tenth of the rate every 16 epochs, three "
            "seeds. At tau = 1 also nets of half the width, to see whether it is the size that decides."
        ),
        "paper": (
            "ResNet18 on 1,000 CIFAR10 images, 200 epochs, three seeds (the paper does not say how many). The variant "
            "is the released script's: the whole of CIFAR10, a bias, no shuffling."
        ),
    }
    provenance = {**PROVENANCE, "temperature": "code", "per_class (100)": "text", "variant: whole CIFAR10": "code"}

    final_seeds = {"smoke": (0,), "desk": (70, 71, 72), "paper": (0, 1, 2)}

    def cells(self, profile: Profile) -> Iterator[Planned]:
        if profile == "desk":
            for seed in self.seeds(profile):
                labels = {"temperature": 1.0, "seed": seed, "width": WIDTH // 2}
                yield Planned(Train(_plan(profile, 1.0, seed, model=f"resnet18:width={WIDTH // 2}")), labels)
        for temperature in (0.01, 1.0, 100.0) if profile == "smoke" else TEMPERATURES:
            for seed in self.seeds(profile):
                labels = {"temperature": temperature, "seed": seed}
                if profile != "paper":
                    yield Planned(Train(_plan(profile, temperature, seed)), labels)
                    continue
                yield Planned(Train(_plan(profile, temperature, seed)), {**labels, "variant": TEXT})
                whole = {
                    "per_class": None,
                    "shuffle": False,
                    "head": f"normalized:temperature={temperature:g},bias=True",
                }
                yield Planned(Train(_plan(profile, temperature, seed, **whole)), {**labels, "variant": CODE})

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        text, narrow = _with_own_width(results), _with_half_the_width(results)
        by_seed = [text.where(seed=seed) for seed in text.labels("seed")]
        fives = text.where(temperature=5.0)
        met = len(fives) > 0 and bool((fives.final("accuracy") >= FITTED).all())
        found = {
            "inside": Evidence(
                [_accuracies_at(runs, INSIDE).min() for runs in by_seed],
                _width_is_large_enough(text, narrow),
                why=_means_by_temperature(text, "accuracy") + _half_width_in_words(narrow),
            ),
            "outside": Evidence(
                [_accuracies_at(runs, OUTSIDE).max() for runs in by_seed],
                met,
                why=_means_by_temperature(text, "accuracy"),
            ),
            "fastest": _of_temperatures(
                [_fastest_temperature(runs) for runs in by_seed], met, _fitting_epochs_in_words(text)
            ),
        }
        for name in ("nc1", "nc2", "nc3"):
            best = [float(runs.labels("temperature")[int(np.nanargmin(runs.final(name)))]) for runs in by_seed]
            found[name] = _of_temperatures(best, met, _means_by_temperature(text, name))
        return found

    def table(self, results: Results) -> list[dict[str, Any]]:
        return [
            {
                **entry.labels,
                "epochs_to_99": known(epochs_to_fit(entry.value, FITTED)),
                **{name: entry.value.final()[name] for name in METRICS},
            }
            for entry in results
        ]

    def draw(self, results: Results) -> Figure:
        text = _with_own_width(results)
        temperatures = text.labels("temperature")
        colours = shades(len(temperatures))
        picture, axes = figure(2, len(METRICS), size=(1.75, 1.75))
        for column, name in enumerate(METRICS):
            log = name != "accuracy"
            for place, temperature in enumerate(temperatures):
                found = text.where(temperature=temperature)
                mark = {"marker": MARKERS[place % len(MARKERS)], "color": colours[place]}
                label = rf"$\tau$ = {temperature:g}"
                steps, runs = found.curves(name)
                band(axes[0, column], steps, runs, log=log, label=label, markevery=max(1, len(steps) // 4), **mark)
                finals = found.final(name)
                axes[1, column].plot([temperature] * len(finals), finals, **mark, linestyle="none", ms=4.5)
            axes[0, column].set_title(property_name(name) if column < 3 else f"training {name}")
            axes[0, column].set_xlabel("epoch")
            axes[0, column].locator_params(axis="x", integer=True, nbins=5)
            axes[1, column].set_xscale("log")
            axes[1, column].set_xlabel(r"temperature $\tau$")
            for axis in axes[:, column] if log else ():
                axis.set_yscale("log")
        axes[0, 0].set_ylabel("over the epochs")
        axes[1, 0].set_ylabel("at the end")
        for style, bound, words in (("-", least_loss, "closed form"), ("--", least_loss_of_relu, "after a ReLU")):
            grid = np.geomspace(min(temperatures), max(temperatures), 200)
            line = {"color": GREY, "linewidth": 0.9, "zorder": 1}
            axes[1, -1].plot(grid, [bound(CLASSES, t) for t in grid], style, **line)
            axes[0, 0].plot([], [], style, **line, label=f"least loss, {words}")
        final = text.final("loss")
        axes[1, -1].set_ylim(max(1e-6, final.min() / 5), 3 * final.max())
        legend_below(picture, axes[0, 0], 5)
        return picture


def _with_own_width(results: Results) -> Results:
    """The runs that the claims speak of."""
    return as_in_text(results).select(lambda entry: "width" not in entry.labels)


def _with_half_the_width(results: Results) -> Results:
    return results.select(lambda entry: "width" in entry.labels)


def _width_is_large_enough(results: Results, narrow: Results) -> bool:
    """Whether half the width loses less than a point at tau = 1; true where no such nets are asked for."""
    own = results.where(temperature=1.0).final("accuracy")
    return not len(narrow) or bool(narrow.final("accuracy").mean() > own.mean() - 0.01)


def _half_width_in_words(narrow: Results) -> str:
    return f" With half the width {narrow.final('accuracy').mean():.3g} at 1." if len(narrow) else ""


def _accuracies_at(results: Results, temperatures: tuple[float, ...]) -> np.ndarray:
    """Training accuracies at some temperatures, those that were run."""
    found = [results.where(temperature=tau).final("accuracy") for tau in temperatures]
    return np.concatenate(found)


def _fastest_temperature(results: Results) -> float:
    """The temperature that fits first; not a number if none does. Of equals, the one with the higher accuracy then."""
    runs = {entry.labels["temperature"]: entry.value for entry in results}
    epochs = {tau: epochs_to_fit(run, FITTED) for tau, run in runs.items()}
    first = min(epochs.values())
    if np.isinf(first):
        return np.nan
    return max((tau for tau in epochs if epochs[tau] == first), key=lambda tau: _accuracy_at_epoch(runs[tau], first))


def _of_temperatures(values: list[float], floor_met: bool, why: str) -> Evidence:
    """One temperature a seed: they lie on a grid of factors, so that means and intervals are those of logarithms."""
    seeds = f"By seed: tau = {', '.join(f'{tau:g}' for tau in values)}."
    return Evidence(values, floor_met, why=f"{seeds} {why}", log_scale=True)


def _fitting_epochs_in_words(results: Results) -> str:
    """How many nets fit and when, by temperature."""
    texts = []
    for tau in results.labels("temperature"):
        epochs = np.array([epochs_to_fit(entry.value, FITTED) for entry in results.where(temperature=tau)])
        fitted = epochs[np.isfinite(epochs)]
        if len(fitted):
            count = "" if len(fitted) == len(epochs) else f" ({len(fitted)} of {len(epochs)})"
            texts.append(f"{fitted.mean():.3g} at {tau:g}{count}")
    return f"Mean epoch at which the training set is fitted: {', '.join(texts) or 'never'}."


def _accuracy_at_epoch(run: Run, epoch: float) -> float:
    return dict(zip(*run.curve("accuracy"), strict=True))[int(epoch)] or 0.0


def _means_by_temperature(results: Results, name: str) -> str:
    texts = (
        f"{runs.final(name).mean():.3g} at {tau:g}"
        for tau, runs in ((tau, results.where(temperature=tau)) for tau in results.labels("temperature"))
    )
    return f"{'Training accuracy' if name == 'accuracy' else name.upper()}: {', '.join(texts)}."


def _plan(profile: Profile, temperature: float, seed: int, **changes: Any) -> Plan:
    settings = {**normalized(temperature), "seed": seed, **changes}
    if profile == "smoke":
        return smoke_plan(**settings)
    if profile == "desk":
        small = {"data": "cifar10:size=16", "per_class": 100, "test_per_class": 50, "model": f"resnet18:width={WIDTH}"}
        return desk_plan(**{**small, **settings}, epochs=80, measure=MEASURED, schedule="step:every=16")
    return paper_plan(**{"per_class": 100, **settings})
