"""Small results for the tests of the report: a study by hand, a real run, a real solve."""

import json
from pathlib import Path

import plotly.graph_objects as go

from neuralcollapse._support.files import write_json
from neuralcollapse.studies.pictures import figure, save_picture, styled
from neuralcollapse.training import Plan, train
from neuralcollapse.ufm import NormalizedUFM, solve

NASTY = "<script>window.broken = true</script>"


def make_part(**changes: object) -> dict[str, object]:
    """One part of a claim, with markup in every text."""
    part = {"name": "distance", "says": f"a < b {NASTY}", "source": f"Figure 11 {NASTY}", "kind": "paper"}
    part |= {"verdict": "holds", "measured": 1.25e-7, "low": 1e-7, "high": 1.5e-7, "limit": f"at most 1 {NASTY}"}
    part |= {"floor": None, "erratum": None, "why": f"Found {NASTY}", "decides": True}
    return part | changes


def make_study(out: Path, name: str = "geometric/bound", *, interactive: bool = True, **changes: object) -> Path:
    """The files of one study, with markup in every text; ``changes`` replace entries of study.json."""
    folder = out / name
    facts = {
        "id": name,
        "paper": name.partition("/")[0],
        "figures": ["11", "table 2"],
        "question": f"Does it hold? {NASTY}",
        "profile": "smoke",
        "setting": f"Small & quick {NASTY}",
        "variation": None,
        "verdict": "holds",
        "parts": [make_part()],
        "cpu_minutes": 2.0,
        "cells": [
            {
                "labels": {"loss": NASTY, "seed": seed},
                "kind": "calculation",
                "key": f"{seed:016d}",
                "error": f"ValueError: {NASTY}" if seed else None,
                "spec": {"name": name, "arguments": {"points": 200, "seed": seed}},
            }
            for seed in range(2)
        ],
        **changes,
    }
    write_json(folder / "study.json", facts)
    write_json(folder / "table.json", [{"loss": NASTY, "test_accuracy": 0.98333, "nc1": 1.5e-6, "steps": 12345}])
    write_json(folder / "timing.json", {"a": 40.0, "b": 80.0, "c": None})
    write_json(folder / "environment.json", {"python": "3.11", "versions": {"torch": NASTY}, "git": None})
    with styled():
        picture, axes = figure()
        axes[0, 0].plot([1, 2, 3], [1, 4, 9], label="line")
        axes[0, 0].legend()
        save_picture(picture, folder / "figure")
    if interactive:
        chart = go.Figure(go.Scatter(x=[1, 2, 3], y=[1, 4, 9], name=NASTY), layout={"title": {"text": NASTY}})
        write_json(folder / "figure.json", json.loads(chart.to_json()))
    return folder


def make_run(folder: Path, **changes: object) -> Path:
    """A real run of a second."""
    settings = {"data": "digits", "per_class": 8, "test_per_class": 5, "model": "mlp:width=16,depth=2", "epochs": 3}
    train(Plan(**{**settings, "batch_size": 32, **changes}), folder)
    return folder


def make_solve(folder: Path) -> Path:
    """A real solve."""
    trace = solve(NormalizedUFM("ce", 3, 2, 4), "lbfgs", record=("value", "gap", "nc1", "accuracy"))
    trace.save(folder)
    return folder
