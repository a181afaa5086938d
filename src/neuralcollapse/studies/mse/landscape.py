"""Figure 2 of the mse paper: vanilla MSE is steep in a feature's norm, cross-entropy and rescaled MSE in its angle."""

from collections.abc import Iterator
from typing import Any

import numpy as np

from .._cells import Calculation, calculations
from .._pictures import figure
from .._results import Planned, Results
from .._study import Profile, Study, Verdict, studies
from ._slices import LOSSES, NORM, descent_field, grid

SURFACES = ("MSE", "CE", "MSE (M=5)", "MSE (alpha=5, M=5)")
CLASSES = {"smoke": (10,), "desk": (10, 100), "paper": (10, 100)}
POINTS = {"smoke": 60, "desk": 400, "paper": 400}
DRAWN = 41


@calculations.add("mse/landscape")
def landscape(loss: str, num_classes: int, points: int) -> dict[str, Any]:
    """How steep the slice is in theta and in s over the region, and the surface on a coarse grid."""
    field = descent_field(loss, num_classes, *grid(points))
    inner = (field.s > 1) & (field.theta < 1.5)
    s, theta = np.linspace(0, NORM, DRAWN), np.linspace(0, np.pi / 2, DRAWN)
    return {
        "share": float(field.share.mean()),
        "root_mean_square_by_s": float(np.sqrt((field.by_s**2).mean())),
        "root_mean_square_by_theta": float(np.sqrt((field.by_theta**2).mean())),
        "steeper_in_theta": float((np.abs(field.by_theta) > np.abs(field.by_s))[inner].mean()),
        "s": s.tolist(),
        "theta": theta.tolist(),
        "value": descent_field(loss, num_classes, s, theta).value.tolist(),
    }


@studies.add("mse/landscape")
class Landscape(Study):
    """Loss surfaces over the norm and the angle of one feature."""

    figures = ("2",)
    question = (
        "Is vanilla MSE steep in the norm s and flat in the angle theta, and do CE and rescaled MSE turn that round?"
    )
    claim = (
        "Over 0 < s < 5, 0 < theta < pi/2 the mean share of the gradient's squared norm along theta is below one half "
        "for vanilla MSE and above it for CE, MSE with M = 5, and MSE with alpha = 5, M = 5, at every K."
    )
    costs = {"smoke": "4 s", "desk": "6 s", "paper": "6 s"}
    decides = ("smoke", "desk", "paper")
    setting = {
        "smoke": "K = 10, a coarse grid.",
        "desk": "K = 10 and 100; the paper's size.",
        "paper": (
            "K = 10 and 100, classifiers a simplex ETF with unit rows. The paper names neither K nor its large M and "
            "alpha: 5 and 5, from the values of its experiments."
        ),
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for count in CLASSES[profile]:
            for name in SURFACES:
                arguments = {"loss": LOSSES[name], "num_classes": count, "points": POINTS[profile]}
                yield Planned(Calculation("mse/landscape", arguments), {"loss": name, "K": count})

    def check(self, results: Results) -> Verdict:
        shares = {name: [entry.value["share"] for entry in results.where(loss=name)] for name in SURFACES}
        vanilla = max(shares["MSE"])
        least = min(min(shares[name]) for name in SURFACES if name != "MSE")
        steeper = {name: np.mean([e.value["steeper_in_theta"] for e in results.where(loss=name)]) for name in SURFACES}
        return Verdict.of(
            vanilla < 0.5 < least,
            least - vanilla,
            "smallest share of CE and rescaled MSE less the largest of vanilla MSE",
            "Shares along theta: "
            + ", ".join(f"{name} {' / '.join(f'{share:.3f}' for share in shares[name])}" for name in SURFACES)
            + f" (K = {' / '.join(map(str, results.labels('K')))}). In the paper's region s > 1, theta < 1.5, CE is "
            f"steeper in theta on {steeper['CE']:.0%} and vanilla MSE on {steeper['MSE']:.0%} of the area.",
        )

    def draw(self, results: Results) -> Any:
        counts = results.labels("K")
        picture, axes = figure(len(counts), len(SURFACES), size=(1.95, 1.75))
        for row, count in zip(axes, counts, strict=True):
            for axis, name in zip(row, SURFACES, strict=True):
                value = results.only(loss=name, K=count)
                drawn = axis.contourf(value["s"], value["theta"], value["value"], levels=16)
                picture.colorbar(drawn, ax=axis, pad=0.02, aspect=25, format="%.3g").ax.tick_params(labelsize=5.5)
                share = f"share {value['share']:.2f}"
                axis.set_title(f"{name}\n{share}" if count == counts[0] else share)
            row[0].set_ylabel(rf"K = {count}" + "\n" + r"angle $\theta$")
        for axis in axes[-1]:
            axis.set_xlabel("norm s")
        return picture

    def interactive(self, results: Results) -> Any:
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots

        count = results.labels("K")[0]
        scene = {"xaxis_title": "norm s", "yaxis_title": "angle theta", "zaxis_title": "loss"}
        picture = make_subplots(2, 2, specs=[[{"type": "surface"}] * 2] * 2, subplot_titles=SURFACES)
        for place, name in enumerate(SURFACES):
            value = results.only(loss=name, K=count)
            surface = go.Surface(
                x=np.round(value["s"], 4),
                y=np.round(value["theta"], 4),
                z=np.round(value["value"], 4),
                colorscale="Viridis",
                showscale=False,
                contours_z={"show": True, "usecolormap": True, "project_z": True},
            )
            picture.add_trace(surface, row=place // 2 + 1, col=place % 2 + 1)
        picture.update_scenes(scene)
        picture.update_layout(title=f"Loss of one feature, K = {count}", height=800, margin={"l": 0, "r": 0, "b": 0})
        return picture
