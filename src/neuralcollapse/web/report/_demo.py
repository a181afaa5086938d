"""The page of ``neuralcollapse demo``: what neural collapse is, told by what the demo has just measured."""

import io
import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from ..._support.files import JSONObject, write_text
from ..._support.theme import CLASSES, GREY, series_colour, series_mark
from ...frames import simplex_etf
from ...metrics import METRICS
from ...studies.demo import LOSS_WORDS, Demo, sizes
from ...studies.pictures import figure, styled
from ...training import Run, closed_form_loss
from ...ufm import Trace
from ._charts import LEVEL, ChartLine, Panel, picture
from ._numbers import duration, heading, shown
from ._parts import Details, Picture, Table, table_of
from ._stored import environment, read_json
from ._studies import BADGES, study_section
from ._svg import inline_svg
from ._write import page_file, render

__all__ = ["write_demo"]

CORNERS = CLASSES[:4]
"""Of the four watched classes."""
SIZES = {"weight_norm": "|w|", "feature_norm": "|h|", "logit_scale": "margin"}

FORMULAS = {
    "nc1": Markup("tr(S<sub>W</sub> S<sub>B</sub><sup>+</sup>) / K, from the covariances within and between classes"),
    "nc2": Markup("‖ WWᵀ/‖WWᵀ‖ − (I − 11ᵀ/K)/√(K−1) ‖, with W the classifier"),
    "nc3": Markup("‖ WMᵀ/‖WMᵀ‖ − (I − 11ᵀ/K)/√(K−1) ‖, with M the centred class means"),
    "nc4_mismatch": Markup(
        "share with argmax<sub>k</sub> (w<sub>k</sub>·h + b<sub>k</sub>) ≠ argmin<sub>k</sub> |h − m<sub>k</sub>|"
    ),
}


@dataclass(frozen=True)
class Card:
    """One of the four properties."""

    name: str
    title: str
    words: str
    formula: Markup
    picture: Picture


@dataclass(frozen=True)
class _Loss:
    """What the demo found under one loss."""

    spec: str
    run: Run
    trace: Trace
    row: Mapping[str, Any]
    """Of the study's table."""

    @property
    def words(self) -> str:
        return LOSS_WORDS[self.spec]

    def curve(self, name: str) -> ChartLine:
        epochs, values = self.run.curve(name)
        return ChartLine(self.words, epochs, values, series_colour(self.spec), mark=series_mark(self.spec))


def write_demo(folder: str | Path) -> Path:
    """Write ``folder/report.html`` from the demo's results in ``folder``, and return its path."""
    home = Path(folder)
    place = home / Demo.id
    facts = read_json(place / "study.json", dict, ("cells", "verdict", "profile", "parts"))
    rows = read_json(place / "table.json", list)
    found = _losses(home, facts, rows)
    section = study_section(place, "study")
    timing = read_json(place / "timing.json", dict)
    target = home / "report.html"
    text = render(
        "demo.html.jinja",
        live=True,
        title="Neural collapse, seen on handwritten digits",
        facts=facts,
        headline=next(part for part in facts["parts"] if part["decides"]),
        badge=BADGES[facts["verdict"]],
        tiles=_tiles(rows),
        watched=_watched_frames(found),
        solid=_solid_drawing(found[0]),
        story=_story(found),
        accuracy=_accuracy_picture(found),
        cards=_cards(found, facts["profile"]),
        losses=_loss_picture(found),
        sizes=_size_table(rows),
        gaps=_gap_picture(found),
        certificates=_certificate_table(rows),
        accuracies=_accuracy_table(rows),
        plan=section.details[0],
        environment=Details("Environment", {heading(k): shown(v) for k, v in environment(place).items()}),
        command=f"neuralcollapse demo --out {shlex.quote(str(home))}",
        run_folder=shlex.quote(str(found[0].run.folder)),
        seconds=duration(sum(value for value in timing.values() if value)),
        demo_style=page_file("demo.css"),
        demo_script=page_file("demo.js"),
    )
    write_text(target, text)
    return target


def _losses(home: Path, facts: Mapping[str, Any], rows: list[JSONObject]) -> list[_Loss]:
    places = {(c["labels"]["what"], c["labels"]["loss"]): home / "cells" / c["key"] for c in facts["cells"]}
    return [
        _Loss(spec, Run.open(places["net", spec] / "run"), Trace.load(places["model", spec] / "trace"), row)
        for spec, row in zip(LOSS_WORDS, rows, strict=True)
    ]


def _tiles(rows: list[JSONObject]) -> list[tuple[str, str]]:
    """The page's four numbers and what they are; each is the worst of the four losses."""
    fallen = min(row["nc1_at_epoch_1"] / row["nc1"] for row in rows)
    off = max(abs(row[f"{name}_net"] / row[f"{name}_predicted"] - 1) for row in rows for name in SIZES)
    return [
        (f"{100 * min(row['train_accuracy'] for row in rows):.4g} %", "lowest training accuracy of the four nets"),
        (f"{fallen:,.0f} ×", "smaller, or more, became NC1, the spread within the classes"),
        (f"{100 * off:.1f} %", "at most: how far the nets' norms and margins are from the closed form"),
        (
            shown(max(row["certified_gap"] for row in rows)),
            "or less: proved distance of the solved models from their global minima",
        ),
    ]


# Pictures ----------------------------------------------------------------------------------------------------------


def _watched_frames(found: list[_Loss]) -> JSONObject:
    """What the script of the 3-D view reads."""
    paths = [read_json(one.run.folder / "watched.json", dict, ("classes", "frames")) for one in found]
    return {
        "classes": paths[0]["classes"],
        "colours": CORNERS,
        "reference": simplex_etf(4, 3).tolist(),
        "losses": [{"name": one.words, "frames": path["frames"]} for one, path in zip(found, paths, strict=True)],
    }


def _solid_drawing(one: _Loss) -> Markup:
    """The first and the last frame of one loss, for print and browsers without WebGL."""
    path = read_json(one.run.folder / "watched.json", dict, ("classes", "frames"))
    frames = [path["frames"][0], path["frames"][1], path["frames"][-1]]
    with styled():
        drawn, axes = figure(1, len(frames), size=(2.3, 2.3), subplot_kw={"projection": "3d"})
        for axis, frame in zip(axes[0], frames, strict=True):
            for k, (label, tint) in enumerate(zip(path["classes"], CORNERS, strict=True)):
                axis.scatter(*zip(*frame["features"][k], strict=True), s=4, color=tint, alpha=0.6, linewidths=0)
                x, y, z = frame["means"][k]
                axis.scatter(x, y, z, s=40, color=tint, edgecolors="black", linewidths=0.5, label=f"digit {label}")
                for other in frame["means"][:k]:
                    axis.plot(*zip(frame["means"][k], other, strict=True), color=GREY, linewidth=0.7)
            axis.set_title("before training" if frame["epoch"] == 0 else f"epoch {frame['epoch']}")
            axis.set(xlim=(-1, 1), ylim=(-1, 1), zlim=(-1, 1), xticklabels=[], yticklabels=[], zticklabels=[])
        lines, texts = axes[0, 0].get_legend_handles_labels()
        drawn.legend(lines, texts, loc="outside lower center", ncols=len(texts))
        content = io.BytesIO()
        drawn.savefig(content, format="svg", metadata={"Date": None})
    label = (
        f"Features of the digits {', '.join(map(str, path['classes']))} under {one.words}, before training, after one "
        "epoch and at the end: four clouds become four points at the corners of a regular tetrahedron."
    )
    return inline_svg(content.getvalue().decode(), "solid", label)


def _cards(found: list[_Loss], profile: str) -> list[Card]:
    count = sizes(profile)[0]
    cosine = f"−1/{count - 1}"
    words = {
        "nc1": (
            "Within a class, features become one point",
            "All images of a digit end up at the same place. NC1 is the spread within the classes, measured against "
            "the distances between them.",
        ),
        "nc2": (
            "The classes spread out as far as they can",
            f"The {count} classifier rows become equally long and equally far apart: every pair at a cosine of "
            f"{cosine}, the corners of a simplex. No other arrangement keeps them further "
            "apart. NC2 is the distance from it.",
        ),
        "nc3": (
            "Classifier and features align",
            "The row of the classifier that stands for a class points to where the features of that class are. The two "
            "become one shape, up to scale; NC3 is the distance between them.",
        ),
        "nc4_mismatch": (
            "Deciding becomes finding the nearest mean",
            "The net now does what the simplest classifier does: it takes the class whose mean is nearest. NC4 is the "
            "share of training images on which the two still disagree.",
        ),
    }
    return [_card(found, name, profile, *text) for name, text in words.items()]


def _card(found: list[_Loss], name: str, profile: str, title: str, words: str) -> Card:
    metric = METRICS[name]
    share = name == "nc4_mismatch"
    level = None if share or metric.random_value is None else metric.random_value(*sizes(profile))
    levels = [] if level is None else [("no structure", level, LEVEL)]
    label = name[:3].upper()
    panel = Panel(
        f"{label} on the training set", [one.curve(name) for one in found], levels, log_y=not share, percent=share
    )
    return Card(label, title, words, FORMULAS[name], picture([panel], name, ""))


def _reached_at(one: _Loss, name: str, reached: Callable[[float], bool]) -> int | None:
    """The epoch from which on ``name`` on the training set has ``reached`` and keeps it; None if it never does."""
    epochs, values = one.run.curve(name)
    since = None
    for epoch, value in zip(epochs, values, strict=True):
        if value is not None and reached(value):
            since = int(epoch) if since is None else since
        else:
            since = None
    return since


def _span(epochs: list[int]) -> str:
    low, high = min(epochs), max(epochs)
    return f"epoch {low}" if low == high else f"epochs {low} to {high}"


def _story(found: list[_Loss]) -> str:
    """What the curves of this run show, in its own numbers."""
    fitted = [_reached_at(one, "accuracy", lambda value: value == 1.0) for one in found]
    known = [epoch for epoch in fitted if epoch is not None]
    if len(known) < len(found):
        return "Not every net fits all of its training images in this run, so collapse is not to be expected of each."
    after = {}
    for name in ("nc1", "nc2", "nc3"):
        ratios = []
        for one, epoch in zip(found, known, strict=True):
            epochs, values = one.run.curve(name)
            then = next(value for at, value in zip(epochs, values, strict=True) if at >= epoch and value is not None)
            ratios.append(then / values[-1] if values[-1] else float("inf"))
        after[name.upper()] = min(ratios)
    falls = [f"{name} by a factor of {ratio:.2g}" if ratio < 100 else f"{name} by a factor of {ratio:,.0f}"
             for name, ratio in after.items() if ratio > 1.05]  # fmt: skip
    text = f"Every net fits all of its training images, for good from {_span(known)} on, by loss."
    if falls:
        *front, last = falls
        listed = f"{', '.join(front)} and {last}" if front else last
        text += f" After that the rest still falls under every loss: {listed} or more."
    still = [name for name, ratio in after.items() if ratio <= 1.05]
    if still:
        text += f" By then {' and '.join(still)} had come to rest under one loss at least."
    agreed = [_reached_at(one, "nc4_mismatch", lambda value: value == 0.0) for one in found]
    soon = [epoch for epoch in agreed if epoch is not None]
    if len(soon) == len(found):
        early = sum(epoch <= fit for epoch, fit in zip(soon, known, strict=True))
        text += f" NC4 needs no such patience: it is zero for good from {_span(soon)} on"
        text += ", under every loss no later than the last image is fitted." if early == len(found) else "."
    return text


def _accuracy_picture(found: list[_Loss]) -> Picture:
    return picture(
        [Panel("Training accuracy", [one.curve("accuracy") for one in found], [], log_y=False, percent=True)],
        "accuracy",
        "",
    )


def _loss_picture(found: list[_Loss]) -> Picture:
    curves, levels = [], []
    for one in found:
        curves.append(one.curve("loss"))
        predicted = closed_form_loss(one.run)
        if predicted is not None:
            levels.append(("closed form", predicted, series_colour(one.spec)))
    note = (
        "Each net's training loss settles at the dashed level of its colour, or just above; it is computed, not fitted."
    )
    return picture([Panel("Training loss, and what the theory says", curves, levels)], "loss", note)


def _gap_picture(found: list[_Loss]) -> Picture:
    curves = []
    for one in found:
        steps = [float(step or 0) for step in one.trace.history["iteration"]]
        gaps = [None if gap is None else max(float(gap), 1e-16) for gap in one.trace.history["gap"]]
        curves.append(ChartLine(one.words, steps, gaps, series_colour(one.spec), mark=series_mark(one.spec)))
    note = "Values below 10⁻¹⁶ are drawn there: they are rounding errors."
    return picture(
        [Panel("Certified gap to the global minimum", curves, x_title="iteration", log_x=False)], "gap", note
    )


# Tables ------------------------------------------------------------------------------------------------------------


def _rows_by_loss(rows: list[JSONObject]) -> list[tuple[str, JSONObject]]:
    return list(zip(LOSS_WORDS.values(), rows, strict=True))


def _size_table(rows: list[JSONObject]) -> Table | None:
    lines = []
    for loss, row in _rows_by_loss(rows):
        line: JSONObject = {"loss": loss}
        for name, sign in SIZES.items():
            predicted, measured = row[f"{name}_predicted"], row[f"{name}_net"]
            off = f"{100 * (measured / predicted - 1):+.1f} %".replace("-", "−")
            line |= {f"{sign}, theory": f"{predicted:.3f}", f"{sign}, net": f"{measured:.3f} ({off})"}
        lines.append(line)
    table = table_of(
        "Norms of a classifier row and of a feature, and the logit of the true class minus the others.", lines
    )
    return table and Table(table.caption, table.headings, table.rows, [False] + [True] * (len(table.headings) - 1))


def _certificate_table(rows: list[JSONObject]) -> Table | None:
    lines = [
        {
            "loss": loss,
            "value reached": f"{row['model_value']:.12f}",
            "proved lower bound": f"{row['lower_bound']:.12f}",
            "gap": row["certified_gap"],
            "verdict": row["certificate"],
        }
        for loss, row in _rows_by_loss(rows)
    ]
    return table_of("The model of each loss, solved from a random start.", lines)


def _accuracy_table(rows: list[JSONObject]) -> Table | None:
    names = ("train_accuracy", "test_accuracy", "nc1", "nc2", "nc3", "nc4_mismatch")
    lines = [{"loss": loss, **{name: row[name] for name in names}} for loss, row in _rows_by_loss(rows)]
    return table_of("At the last epoch: accuracies, and the four measures on the training set.", lines)
