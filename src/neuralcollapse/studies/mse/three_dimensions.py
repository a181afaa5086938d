"""Figure 7 of the mse paper: features of dimension three, to look at."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from safetensors.numpy import load_file

from ...training import Run
from .._cells import Train
from .._pictures import loss_name
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from .feature_dim import LOSSES, dimension_plan

SHOWN = 100
"""Samples of each class in the picture."""


@studies.add("mse/three-dimensions")
class ThreeDimensions(Study):
    """Cross-entropy and squared error, d = 3."""

    figures = ("7",)
    question = "With features of dimension three, does cross-entropy spread the classes more than the squared error?"
    claim = (
        "Seen from the global mean, the angle between a class mean and the nearest other one is, on average over the "
        "classes, at least 1.2 times as large with cross-entropy as with the squared error."
    )
    costs = {"smoke": "2 s", "desk": "1 min of one core", "paper": "8 GPU hours"}
    setting = {
        "smoke": "A small MLP on 120 embedded digits, 3 epochs.",
        "desk": "The nets of mse/feature-dim with d = 3: a 4 x 256 MLP with batch norm on 2,000 CIFAR10 images of 16 "
        "x 16 instead of ResNet18 on all of them.",
        "paper": "The nets of mse/feature-dim with d = 3: ResNet18 on CIFAR10 with augmentation.",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for loss in LOSSES:
            yield Planned(Train(dimension_plan(profile, loss, 3), features=True), {"loss": loss})

    def check(self, results: Results) -> Verdict:
        squared, entropy = (nearest_angles(results.only(loss=loss)).mean() for loss in LOSSES)
        fits = [results.only(loss=loss).final("train")["accuracy"] for loss in LOSSES]
        return Verdict.of(
            entropy >= 1.2 * squared,
            entropy / squared,
            "mean angle to the nearest other class mean, cross-entropy over squared error",
            f"The nearest other class mean is {np.degrees(entropy):.0f} degrees away with cross-entropy and "
            f"{np.degrees(squared):.0f} with the squared error, on average over the classes; training accuracy is "
            f"{fits[1]:.1%} and {fits[0]:.1%}.",
        )

    def table(self, results: Results) -> list[dict[str, Any]]:
        rows = super().table(results)
        for row, entry in zip(rows, results, strict=True):
            angles = np.degrees(nearest_angles(entry.value))
            row |= {"mean_nearest_angle_degrees": float(angles.mean()), "least_angle_degrees": float(angles.min())}
        return rows

    def draw(self, results: Results) -> Any:
        from matplotlib import colormaps
        from matplotlib.figure import Figure

        picture = Figure(figsize=(6.7, 3.4), layout="constrained")
        for place, loss in enumerate(LOSSES):
            features, labels = shown(results.only(loss=loss))
            axis: Any = picture.add_subplot(1, 2, place + 1, projection="3d")
            for label in np.unique(labels):
                dots = features[labels == label]
                axis.scatter(*dots.T, s=4, color=colormaps["tab10"](int(label)), label=str(label), depthshade=False)
            axis.set_title(loss_name(loss))
            axis.view_init(25, 45)
            axis.locator_params(nbins=4)
            axis.tick_params(pad=0)
        lines, texts = picture.axes[0].get_legend_handles_labels()
        picture.legend(lines, texts, loc="outside lower center", ncols=10, markerscale=2, title="class")
        return picture

    def interactive(self, results: Results) -> Any:
        from plotly.colors import qualitative
        from plotly.graph_objects import Scatter3d
        from plotly.subplots import make_subplots

        specs = [[{"type": "scene"}] * len(LOSSES)]
        picture = make_subplots(1, len(LOSSES), specs=specs, subplot_titles=[loss_name(loss) for loss in LOSSES])
        for place, loss in enumerate(LOSSES):
            features, labels = shown(results.only(loss=loss))
            for label in np.unique(labels):
                x, y, z = np.round(features[labels == label].astype(float), 3).T.tolist()
                style = {"size": 2, "color": qualitative.D3[label]}
                name = f"class {label}"
                dots = Scatter3d(
                    x=x, y=y, z=z, mode="markers", marker=style, name=name, legendgroup=name, showlegend=place == 0
                )
                picture.add_trace(dots, 1, place + 1)
        return picture


def nearest_angles(run: Run) -> np.ndarray:
    """For each class, the angle between its mean and the nearest other one, as seen from the global mean."""
    features, labels = _kept(run)
    means = np.stack([features[labels == label].mean(0) for label in np.unique(labels)]) - features.mean(0)
    unit = means / np.linalg.norm(means, axis=1, keepdims=True)
    cosines = unit @ unit.T
    np.fill_diagonal(cosines, -1)
    return np.arccos(np.clip(cosines.max(1), -1, 1))


def shown(run: Run) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels of the first training samples of each class."""
    features, labels = _kept(run)
    places = np.concatenate([np.flatnonzero(labels == label)[:SHOWN] for label in np.unique(labels)])
    return features[places], labels[places]


def _kept(run: Run) -> tuple[np.ndarray, np.ndarray]:
    kept = load_file(run.folder / "features-train.safetensors")
    return kept["features"].astype(np.float64), kept["labels"]
