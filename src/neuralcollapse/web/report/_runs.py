"""A run directory of ``neuralcollapse train`` as a section."""

import shlex
from pathlib import Path

from ..._support.checks import one_line
from ..._support.files import JSONObject
from ..._support.registry import Spec
from ..._support.theme import BLUE, GREEN, MARKS, RED, look_of
from ...studies.pictures import metric_name
from ...training import Plan, Run, closed_form_loss
from ._charts import LEVEL, ChartLine, Panel, picture
from ._numbers import heading, shown
from ._parts import Badge, Details, Picture, Section, Table, table_of
from ._stored import environment

__all__ = ["run_section"]

CURVES = ("loss", "accuracy", "nc1", "nc2", "nc3")
SPLITS = {
    "train": (BLUE, "solid", MARKS[0]),
    "validation": (GREEN, "dot", MARKS[2]),
    "test": (RED, "dash", MARKS[1]),
}
QUANTITIES = {
    "weight_norm": "norm of a classifier row |w|",
    "feature_norm": "norm of a feature |h|",
    "centred_feature_norm": "norm of a feature without the mean |h − h_G|",
    "logit_scale": "logit margin, true minus other",
}


def run_section(folder: Path, anchor: str) -> Section:
    """Curves and final values of a run; ValueError names a file or folder that cannot be used."""
    run = Run.open(folder)
    try:
        return _section(run, folder, anchor)
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{folder}: not what a training leaves ({one_line(error)})") from error


def _section(run: Run, folder: Path, anchor: str) -> Section:
    plan, history = run.plan, run.history
    done = run.done or {}
    for row in history:
        if not isinstance(row, dict) or not {"epoch", "split", "loss", "accuracy"} <= set(row):
            raise ValueError(f"{folder / 'metrics.jsonl'}: a line lacks epoch, split, loss or accuracy")
    last = {row["split"]: row for row in history}
    facts = {
        "Trained": f"{plan.model} with a {plan.head} head on {plan.data}, {plan.epochs} epochs of {plan.optimizer}",
        "Decay": _decay_in_words(plan),
    }
    if not history:
        facts["Measured"] = "Nothing yet."
    elif not done:
        facts["Measured"] = f"Not finished: up to epoch {history[-1]['epoch']} of {plan.epochs}."
    panels = _panels(run, history)
    pictures = [_picture_of_run(panels, anchor)] if panels else []
    tables = [_last_table(last), _theory_table(done.get("theory"))]
    nc1 = last.get("train", {}).get("nc1")
    return Section(
        anchor=anchor,
        title=f"{folder.parent.name}/run" if folder.name == "run" else folder.name or str(folder),
        kind="run",
        source=f"training run, {_loss_words(plan.loss)}",
        lead=f"Does {plan.model} collapse on {plan.data} under {_loss_words(plan.loss)}?",
        badge=Badge("finished", "good") if done else Badge("not finished", "open"),
        merit=shown(nc1),
        merit_is="nc1 on the training set at the end (0 at collapse)" if nc1 is not None else "",
        seconds=None,
        facts=facts,
        pictures=pictures,
        tables=[table for table in tables if table is not None],
        details=[
            Details("Plan", {heading(name): shown(value) for name, value in plan.model_dump().items()}),
            Details("Environment", {heading(name): shown(value) for name, value in environment(folder).items()}),
        ],
        command=f"neuralcollapse train --plan {shlex.quote(str(folder / 'plan.json'))} --out AGAIN",
    )


def _loss_words(spec: str) -> str:
    loss = Spec.parse(spec, "loss")
    look = look_of(loss.name)
    words = loss.name if look is None else look.words
    return f"{words} ({loss.details})" if loss.details else words


def _decay_in_words(plan: Plan) -> str:
    if plan.decay_on == "parameters":
        return f"{shown(plan.weight_decay)} on all parameters."
    decays = (plan.weight_decay, plan.feature_decay, plan.bias_decay)
    return "{} on W, {} on H, {} on b, as in the theory.".format(*(shown(decay) for decay in decays))


def _panels(run: Run, history: list[JSONObject]) -> list[Panel]:
    panels = []
    for name in CURVES:
        curves = []
        for split, (colour, dash, mark) in SPLITS.items():
            rows = [row for row in history if row["split"] == split and row.get(name) is not None]
            if rows:
                x, y = [row["epoch"] for row in rows], [row[name] for row in rows]
                curves.append(ChartLine(split, x, y, colour, dash, mark))
        if not curves:
            continue
        predicted = closed_form_loss(run) if name == "loss" else None
        levels = [] if predicted is None else [("closed form", predicted, LEVEL)]
        percent = name == "accuracy"
        panels.append(Panel(metric_name(name), curves, levels, log_y=not percent, percent=percent))
    return panels


def _picture_of_run(panels: list[Panel], anchor: str) -> Picture:
    note = "Both axes are logarithmic but that of accuracy. At exact collapse nc1, nc2 and nc3 are zero."
    if any(panel.levels for panel in panels):
        note += " The dashed level is the training loss at the global minimum, in closed form."
    return picture(panels, anchor, note)


def _last_table(last: dict[str, JSONObject]) -> Table | None:
    skipped = ("epoch", "split")
    names = list(dict.fromkeys(name for row in last.values() for name in row if name not in skipped))
    values = {split: last[split] for split in SPLITS if split in last}
    headings = ["quantity", *values]
    rows = [[metric_name(name), *(shown(row.get(name), name) for row in values.values())] for name in names]
    if not rows:
        return None
    return Table("The last measurement.", headings, rows, [False] + [True] * len(values))


def _theory_table(theory: object) -> Table | None:
    """Predicted and measured sizes under (W, H, b) decay."""
    if not isinstance(theory, dict):
        return None
    predicted, measured = theory["predicted"], theory["measured"]
    rows = []
    for name, words in QUANTITIES.items():
        known = predicted.get("feature_norm" if name == "centred_feature_norm" else name)
        found = measured.get(name)
        if found is not None and known is not None:
            ratio = found / known if known else None
            rows.append({"quantity": words, "closed form": known, "measured": found, "measured / closed form": ratio})
    caption = (
        f"Theory beside measurement: the unconstrained feature model with the same decay ({predicted.get('regime')}) "
        "and the trained net. The net's features come out of a ReLU, so their mean is not zero as in the model."
    )
    return table_of(caption, rows)
