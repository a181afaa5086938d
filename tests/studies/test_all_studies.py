"""What holds for every study: its plan, its smoke run, its files, and that a killed run ends as an undisturbed one."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from neuralcollapse._support.notation import typeset
from neuralcollapse.cli import main
from neuralcollapse.studies import PROFILES, Train, get, run_studies, studies
from report_results import make_part, make_study

pytestmark = pytest.mark.unchecked

# Figures and tables with a result, as far as the texts at hand tell (the main texts of the geometric and normalized
# papers are not): left out are drawings (geometric 1, 2; mse 1) and what was never seen (normalized table 1).
FIGURES = {
    "geometric": {str(number) for number in range(3, 12)},
    "mse": {str(number) for number in range(2, 9)},
    "losses": {str(number) for number in range(1, 11)},
    "normalized": {*(str(number) for number in range(1, 14)), "table 2"},
}
# The rows of the papers' figures and tables that the project promises.
EXPECTED = {
    "geometric": {"bound", "feature-decay", "fixed-etf", "optimizers", "random-labels", "value"},
    "mse": {
        *("bias", "feature-dim", "fixed-etf", "gradient-field", "landscape", "optimizers", "rescaling"),
        "three-dimensions",
    },
    "losses": {
        *("accuracy", "collapse", "features", "focal-curves", "focal-starts", "mini-imagenet", "width-epochs"),
    },
    "normalized": {
        *("generalization", "losses", "low-dimension", "overparameterization", "random-labels", "speed"),
        *("temperature-net", "temperature-ufm", "value"),
    },
    # Beyond the four papers: statements of docs/theory.md.
    "imbalance": {"minority-collapse", "reweighting", "seli-rate"},
    "codes": {"temperature"},
}


def test_every_figure_has_its_study():
    for paper, figures in FIGURES.items():
        shown = {figure for name in studies if get(name).paper == paper for figure in get(name).figures}
        assert {figure for figure in shown if figure[0].isdigit() or figure.startswith("table")} == figures


def test_every_promised_study_is_there():
    assert set(studies) == {f"{paper}/{name}" for paper, names in EXPECTED.items() for name in names}


@pytest.mark.parametrize("name", list(studies))
def test_every_study_says_what_it_is(name):
    study = get(name)
    assert study.figures
    assert study.question
    assert any(claim.kind == "paper" for claim in study.claims)
    for texts in ([claim.name for claim in study.claims], [claim.says for claim in study.claims]):
        assert all(texts)
        assert len(set(texts)) == len(texts)
    assert all(claim.source for claim in study.claims)
    assert set(study.paper_values) <= {claim.name for claim in study.claims}
    assert set(study.costs) == set(study.setting) == set(PROFILES)


@pytest.mark.parametrize("name", list(studies))
def test_variants_of_the_released_code_are_named_where_there_are_any(name):
    """Both in the plan of the paper profile and in what ``study show`` says of it."""
    study = get(name)
    varied = any("released code" in str(label) for entry in study.planned("paper") for label in entry.labels.values())
    said = any("variant" in setting or "mean over classes" in setting for setting in study.provenance)
    assert said == varied


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("name", list(studies))
def test_every_plan_can_be_made_and_printed(name, profile, capsys):
    planned = get(name).planned(profile)
    assert main(["study", "show", name, "--profile", profile, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert [cell["key"] for cell in shown["cells"]] == [entry.cell.key for entry in planned]
    assert main(["study", "show", name, "--profile", profile]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert all(typeset(claim.says) in said for claim in get(name).claims)
    if profile == "smoke":
        nets = [entry.cell.plan for entry in planned if isinstance(entry.cell, Train)]
        assert all(plan.data.partition(":")[0] in ("digits", "synthetic") for plan in nets)


@pytest.mark.parametrize("name", [name for name in studies if get(name).trains_nets("desk")])
def test_nets_can_be_trained_for_fewer_epochs(name):
    """``--set epochs=50``, the example of the help, at epochs that lie where the study's own do."""
    varied = get(name).vary({"epochs": 50})
    if "epochs" in get(name).planned("desk")[0].labels:
        with pytest.raises(ValueError, match="compares values of epochs"):
            varied.planned("desk")
        return
    plans = [entry.cell.plan for entry in varied.planned("desk") if isinstance(entry.cell, Train)]
    assert {plan.epochs for plan in plans} == {50}
    assert all(max(plan.measure) == 50 for plan in plans if isinstance(plan.measure, tuple))


@pytest.mark.parametrize("name", list(studies))
def test_desk_runs_use_seeds_that_no_pilot_saw(name):
    for entry in get(name).planned("desk"):
        spec = entry.cell.spec()
        for part in (spec, spec.get("plan", {}), spec.get("arguments", {})):
            assert part.get("seed", 10) >= 10


@pytest.mark.timeout(900)
def test_all_studies_at_smoke_size(tmp_path):
    outcomes = run_studies([get(name) for name in studies], "smoke", tmp_path)
    assert [outcome.failures for outcome in outcomes] == [{}] * len(outcomes)
    for outcome in outcomes:
        facts = json.loads((tmp_path / outcome.study.id / "study.json").read_text())
        assert facts["id"] == outcome.study.id
        assert facts["profile"] == "smoke"
        assert facts["verdict"] == "underpowered"
        assert {part["verdict"] for part in facts["parts"]} == {"underpowered"}
        assert sum(part["decides"] for part in facts["parts"]) == 1
        assert facts["cells"]
        for kind, magic in (("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")):
            assert (tmp_path / outcome.study.id / f"figure.{kind}").read_bytes().startswith(magic)


def test_the_list_counts_parts_and_those_that_hold(tmp_path, capsys):
    parts = [make_part(), make_part(verdict="underpowered"), make_part(verdict="contradicted", kind="ours")]
    make_study(tmp_path, "geometric/bound", profile="desk", verdict="underpowered", parts=parts)
    assert main(["study", "list", "--out", str(tmp_path)]) == 0
    rows = dict(line.split("\t", 1) for line in capsys.readouterr().out.splitlines())
    said = rows["geometric/bound"].split("\t")
    assert said[:2] == ["figure 11", "6 parts"]
    assert said[3] == "underpowered, 1 of 2 parts hold (desk)"
    assert rows["geometric/value"].split("\t")[3] == ""


def test_the_list_as_json(capsys):
    assert main(["study", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["id"] for one in listed] == list(studies)
    assert all({"paper", "figures", "question"} <= set(one) for one in listed)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["run"], "needs the id of a study"),
        (["run", "losses/colapse"], "did you mean 'losses/collapse'"),
        (["run", "geometric/bound", "--profile", "huge"], "unknown profile 'huge'"),
        (["run", "geometric/bound", "--engine", "slurm"], "unknown engine 'slurm'"),
        (["run", "geometric/bound", "--workers", "0"], "workers"),
        (["run", "geometric/bound", "--first-steps", "0"], "steps"),
        (["run", "geometric/bound", "--out", "/dev/null/x"], "/dev/null"),
        (["show", "nothing"], "unknown study 'nothing'"),
    ],
)
def test_one_line_for_bad_input(arguments, complaint, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["study", *arguments]) == 2
    error = capsys.readouterr().err
    assert complaint in error
    assert error.count("\n") == 1


def test_a_failed_cell_is_exit_code_one(tmp_path, capsys):
    arguments = ["losses/collapse", "--profile", "desk", "--workers", "2", "--root", str(tmp_path / "nowhere")]
    assert main(["study", "run", *arguments, "--out", str(tmp_path / "out")]) == 1
    captured = capsys.readouterr()
    assert "underpowered" in captured.out
    assert "failed: " in captured.out


def timeless(path: Path) -> bytes:
    """What a file holds, without the time that a study took."""
    lines = path.read_bytes().splitlines()
    return b"\n".join(line for line in lines if path.name != "study.json" or b"cpu_minutes" not in line)


def final_files(folder: Path) -> dict[str, bytes]:
    """Everything that does not tell a time or the environment."""
    skipped = ("seconds.json", "timing.json", "environment.json", ".lock", "cells.parquet", "studies.parquet")
    files = (path for path in sorted(folder.rglob("*")) if path.is_file() and path.name not in skipped)
    return {str(path.relative_to(folder)): timeless(path) for path in files}


@pytest.mark.timeout(600)
def test_killed_ten_times_and_resumed_it_ends_as_if_undisturbed(tmp_path):
    name = "losses/collapse"
    whole, disturbed = tmp_path / "whole", tmp_path / "disturbed"
    command = [sys.executable, "-m", "neuralcollapse", "study", "run", name, "--profile", "smoke", "--workers", "2"]
    began = time.monotonic()
    subprocess.run([*command, "--out", str(whole)], check=True, capture_output=True)
    length = time.monotonic() - began
    draw = random.Random(0)
    for _ in range(10):
        process = subprocess.Popen(
            [*command, "--out", str(disturbed), "--resume"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        time.sleep(draw.uniform(0.15, 0.6) * length)
        process.send_signal(signal.SIGKILL)
        process.wait()
    subprocess.run([*command, "--out", str(disturbed), "--resume"], check=True, capture_output=True)
    assert final_files(disturbed) == final_files(whole)
    assert not [path for path in disturbed.rglob("*") if os.path.basename(path).endswith(".tmp")]
