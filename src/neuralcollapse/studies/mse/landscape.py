"""Figure 2 of the mse paper: vanilla MSE is steep in a feature's norm, cross-entropy and rescaled MSE in its angle."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from ..._support.notation import typeset
from .._cells import Calculation, calculations
from .._results import Planned, Results
from .._study import Profile, Study, studies
from ..claims import Above, Below, Claim, Evidence
from ..pictures import Figure, figure
from ._slices import AREAS, LOSSES, NORM, descent_field, grid

if TYPE_CHECKING:
    from plotly.graph_objects import Figure as PlotlyFigure

SURFACES = ("MSE", "CE", "MSE (M=5)", "MSE (alpha=5, M=5)")
RESCALED = ("MSE (M=5)", "MSE (alpha=5, M=5)")
CLASSES = {"smoke": (10,), "desk": (10, 100), "paper": (10, 100)}
POINTS = {"smoke": 60, "desk": 400, "paper": 400}
DRAWN = 41
HALF = 0.5
LEAST_NORM, LARGEST_ANGLE = 1.0, 1.5
"""The region that the paper names: s > 1 and theta < 1.5."""
ENDS = tuple(norm for norm in AREAS if norm >= 2 * LEAST_NORM)
"""Where it may end in s, which the paper does not say: nowhere nearer than as far again as it begins."""
REGION = "the largest s of the paper's figure, which its text does not give: the interval spans regions to s = 2, 3, 5"


@calculations.add("mse/landscape")
def landscape(loss: str, num_classes: int, points: int) -> dict[str, Any]:
    """How much of the paper's region, and of others, is steeper in theta than in s; the surface on a coarse grid."""
    field = descent_field(loss, num_classes, *grid(points))
    named = (field.s > LEAST_NORM) & (field.theta < LARGEST_ANGLE)
    areas = []
    for norm in AREAS:
        whole = descent_field(loss, num_classes, *grid(points // 2, norm))
        inner = (whole.s > LEAST_NORM) & (whole.theta < LARGEST_ANGLE)
        areas.append(
            {
                "s_max": norm,
                "steeper_in_theta": float(whole.steeper_in_theta[inner].mean()) if inner.any() else None,
                "share_along_theta_from_0": float(whole.share.mean()),
            }
        )
    s, theta = np.linspace(0, NORM, DRAWN), np.linspace(0, np.pi / 2, DRAWN)
    return {
        "steeper_in_theta": float(field.steeper_in_theta[named].mean()),
        "share": float(field.share.mean()),
        "areas": areas,
        "s": s.tolist(),
        "theta": theta.tolist(),
        "value": descent_field(loss, num_classes, s, theta).value.tolist(),
    }


@studies.add("mse/landscape")
class Landscape(Study):
    """Loss surfaces over the norm and the angle of one feature.

    The figure of each part is the share of the region s > 1, theta < 1.5 (which the paper names; s up to 5 is ours) on
    which the loss changes faster with theta than with s; its interval has what regions to s = 2 and 3 give.
    """

    figures = ("2",)
    question = (
        "Is vanilla MSE steep in the norm s and flat in the angle theta, and do CE and rescaled MSE turn that round?"
    )
    claims = (
        Claim(
            "vanilla",
            "Vanilla MSE is steep in s and flat in theta: on less than half of the region s > 1, theta < 1.5 it is "
            "steeper in theta.",
            "Section 3.3, Figure 2a",
            Below(HALF),
            decides_at=REGION,
        ),
        Claim(
            "cross-entropy",
            "Cross-entropy is steeper in theta than in s in a large part of the region s > 1, theta < 1.5: more than "
            "half of it.",
            "Section 3.3, Figure 2b",
            Above(HALF),
            decides_at=REGION,
        ),
        Claim(
            "rescaled",
            "Rescaled MSE, with large M in particular, has a landscape like that of cross-entropy: steeper in theta on "
            "more than half of the region.",
            "Section 3.3, Figures 2c and 2d",
            Above(HALF),
            decides_at=REGION,
        ),
    )
    costs = {"smoke": "4 s", "desk": "6 s", "paper": "6 s"}
    setting = {
        "smoke": "K = 10, a coarse grid.",
        "desk": "K = 10 and 100, as at paper size: the text names neither K nor its large M and alpha.",
        "paper": (
            "K = 10 and 100, classifiers a simplex ETF with unit rows, no bias. The paper names neither K nor its "
            "large M and alpha: 5 and 5, from the values of its experiments, and s up to 5."
        ),
    }
    provenance = {
        "surfaces (31), (32)": "text",
        "region s > 1, theta < 1.5": "text",
        "K, M, alpha": "guess",
        "largest s": "guess",
    }

    def cells(self, profile: Profile) -> Iterator[Planned]:
        for count in CLASSES[profile]:
            for name in SURFACES:
                arguments = {"loss": LOSSES[name], "num_classes": count, "points": POINTS[profile]}
                yield Planned(Calculation("mse/landscape", arguments), {"loss": name, "K": count})

    def evidence(self, results: Results) -> Mapping[str, Evidence]:
        return {
            "vanilla": _least_favourable(results, ("MSE",), max),
            "cross-entropy": _least_favourable(results, ("CE",), min),
            "rescaled": _least_favourable(results, RESCALED, min),
        }

    def draw(self, results: Results) -> Figure:
        from matplotlib.ticker import MaxNLocator

        counts = results.labels("K")
        picture, axes = figure(len(counts), len(SURFACES), size=(1.95, 1.75))
        for row, count in zip(axes, counts, strict=True):
            for axis, name in zip(row, SURFACES, strict=True):
                value = results.only(loss=name, K=count)
                drawn = axis.contourf(value["s"], value["theta"], value["value"], levels=16)
                drawn.set_rasterized(True)  # a fifth of the file
                bar = picture.colorbar(drawn, ax=axis, pad=0.02, aspect=25, ticks=MaxNLocator(5))
                bar.ax.tick_params(labelsize=5.5)
                if name == SURFACES[-1]:
                    bar.set_label("loss", fontsize=6.5)
                share = f"steeper in angle: {value['steeper_in_theta']:.0%}"
                axis.set_title(f"{typeset(name)}\n{share}" if count == counts[0] else share)
            row[0].set_ylabel(rf"K = {count}" + "\n" + r"angle $\theta$")
        for axis in axes[-1]:
            axis.set_xlabel("norm s")
        return picture

    def interactive(self, results: Results) -> "PlotlyFigure":
        import plotly.graph_objects as go
        from plotly.subplots import make_subplots

        count = results.labels("K")[0]
        # From a little farther than plotly's own place: titles of axes are cut at the edge of their scene.
        scene = {"xaxis_title": "norm s", "yaxis_title": "angle θ", "zaxis_title": "loss"}
        scene |= {"camera_eye": {"x": 1.6, "y": 1.6, "z": 1.3}, "camera_center": {"x": 0, "y": 0, "z": -0.15}}
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


def _least_favourable(results: Results, names: tuple[str, ...], choose: Callable[[Iterable[float]], float]) -> Evidence:
    """The least favourable share over some losses and all K, and what it is over the regions that end at a smaller s.

    The interval spans these readings of the paper's region, which has no upper end in s.
    """
    mine = [entry for entry in results if entry.labels["loss"] in names]
    table = [
        {"loss": entry.labels["loss"], "K": entry.labels["K"], **row} for entry in mine for row in entry.value["areas"]
    ]
    shares = [entry.value["steeper_in_theta"] for entry in mine]
    text = ", ".join(
        f"{entry.labels['loss']} {share:.1%} at K = {entry.labels['K']}"
        for entry, share in zip(mine, shares, strict=True)
    )
    worst = choose(shares)
    readings = {norm: choose(row["steeper_in_theta"] for row in table if row["s_max"] == norm) for norm in ENDS}
    turned = {norm: share for norm, share in readings.items() if (share > HALF) != (worst > HALF)}
    others = ", ".join(f"{share:.0%} at s <= {norm:g}" for norm, share in turned.items())
    depends = f" It depends on the region: {others}." if turned else " Regions that end at a smaller s say the same."
    return Evidence.interval(
        worst,
        min(worst, *readings.values()),
        max(worst, *readings.values()),
        why=f"Steeper in theta than in s: {text} of the region.{depends}",
        table=table,
    )
