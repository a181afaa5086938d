"""The solve command: what it prints, writes and refuses, and that a killed run goes on."""

import json
import math
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from neuralcollapse.cli import main
from neuralcollapse.ufm import Problem, Trace, load_point

SPHERES = ["solve", "--classes", "4", "--dim", "6", "--per-class", "3", "--temperature", "1"]
TRIALS = [*SPHERES, "--method", "gd", "--trials", "20", "--workers", "2"]


def run(arguments, capsys):
    code = main(arguments)
    return code, *capsys.readouterr()


@pytest.mark.unchecked
@pytest.mark.parametrize(
    "model",
    [
        ["--temperature", "2"],
        ["--loss", "focal:gamma=2", "--weight-decay", "0.01", "--feature-decay", "0.02", "--bias-decay", "0"],
        ["--loss", "sc"],
    ],
)
def test_what_solve_writes_certify_reads(tmp_path, capsys, model):
    path = tmp_path / "point.safetensors"
    size = ["--classes", "3", "--dim", "5", "--per-class", "2"]
    code, out, _ = run(["solve", *size, *model, "--method", "trust-region", "--out", str(path), "--json"], capsys)
    answer = json.loads(out)
    assert code == 0
    assert answer["outcome"] == "converged"
    assert answer["final"]["gap"] == pytest.approx(0, abs=1e-9)
    code, out, _ = run(["certify", str(path), "--json"], capsys)
    certificate = json.loads(out)
    assert certificate["verdict"] == "global minimum"
    assert certificate["value"] == pytest.approx(answer["value"], rel=1e-14)
    point, metadata = load_point(path)
    Problem.from_json(metadata["problem"]).check(point)


@pytest.mark.unchecked
def test_a_folder_holds_the_whole_trace(tmp_path, capsys):
    code, out, _ = run([*SPHERES, "--out", str(tmp_path / "run"), "--record", "nc1", "--every", "2"], capsys)
    assert code == 0
    assert "converged" in out
    trace = Trace.load(tmp_path / "run")
    assert {"value", "gap", "nc1"} <= set(trace.history)
    assert trace.history["iteration"][:3] == [0, 2, 4]


@pytest.mark.unchecked
def test_a_start_can_be_given_and_perturbed(tmp_path, capsys):
    path = str(tmp_path / "point.safetensors")
    assert main(["optimum", *SPHERES[1:], "--out", path]) == 0
    capsys.readouterr()
    code, out, _ = run([*SPHERES, "--start", path, "--perturbation", "0.1", "--json"], capsys)
    assert code == 0
    assert json.loads(out)["iterations"] > 0


@pytest.mark.unchecked
@pytest.mark.parametrize("most", [0, 2])
def test_not_converged_is_exit_code_one(most, capsys):
    code, out, _ = run([*SPHERES, "--max-iter", str(most), "--json"], capsys)
    assert code == 1
    assert json.loads(out)["outcome"] == "max_iter"
    assert json.loads(out)["iterations"] == most


@pytest.mark.unchecked
@pytest.mark.parametrize("loss", ["mse", "ce"])
def test_a_diverged_solve_is_printed_saved_and_reported(tmp_path, capsys, loss):
    size = ["--classes", "4", "--per-class", "3", "--dim", "6", "--loss", loss]
    model = [*size, "--weight-decay", "0.01", "--feature-decay", "0.01"]
    diverging = ["solve", *model, "--method", "fixed-step:rate=1e6"]
    code, out, _ = run([*diverging, "--out", str(tmp_path / "run"), "--json"], capsys)
    answer = json.loads(out)
    assert code == 1
    assert answer["outcome"] == "diverged"
    assert answer["gradient_norm"] is None
    assert "no longer finite" in answer["message"]
    trace = Trace.load(tmp_path / "run")
    assert trace.outcome == "diverged"
    assert math.isnan(trace.gradient_norm)
    assert trace.history["nc1"][0] > 0
    assert trace.history["nc1"][-1] is None

    code, out, _ = run([*diverging, "--trials", "3", "--workers", "1", "--out", str(tmp_path / "runs")], capsys)
    assert code == 1
    assert "0 of 3 converged, 3 diverged" in out
    summary = json.loads((tmp_path / "runs/summary.json").read_text())
    assert all(None in (trial["value"], trial["gradient_norm"]) for trial in summary["trials"])
    for folder in ("run", "runs"):
        page = tmp_path / f"{folder}.html"
        assert main(["report", str(tmp_path / folder), "--out", str(page)]) == 0
        assert "diverged" in page.read_text()


@pytest.mark.unchecked
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["solve"], "--classes is missing"),
        ([*SPHERES, "--method", "newton"], "unknown method 'newton'"),
        ([*SPHERES, "--resume"], "--resume is for --trials"),
        ([*SPHERES, "--workers", "2"], "--workers is for --trials"),
        ([*SPHERES, "--trials", "2", "--resume"], "--resume needs --out"),
        ([*SPHERES, "--trials", "0"], "--trials must be at least 1"),
        ([*SPHERES, "--trials", "2", "--out", "a.safetensors"], "writes a folder"),
        ([*SPHERES, "--start", "nowhere.safetensors"], "no such file"),
        ([*SPHERES, "--record", "nc9"], "unknown measure to record"),
        ([*SPHERES, "--max-iter", "-1"], "max_iter must be at least 0"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_two(arguments, message, capsys):
    code, out, error = run(arguments, capsys)
    assert code == 2
    assert out == ""
    assert message in error
    assert error.count("\n") == 1


def contents(folder):
    """All files by name, less the times."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "seconds.json")
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def test_a_killed_run_goes_on_where_it_was(tmp_path):
    """kill -9 at a random moment, then the same with --resume: nothing is lost, all files are equal."""
    command = [sys.executable, "-m", "neuralcollapse", *TRIALS]
    whole = [*command, "--out", str(tmp_path / "whole")]
    subprocess.run(whole, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=200)

    killed = tmp_path / "killed"
    process = subprocess.Popen(
        [*command, "--out", str(killed)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    generator = random.Random()
    wanted = generator.randint(1, 15)
    deadline = time.monotonic() + 100
    while len(list(killed.glob("trial-*/trace.json"))) < wanted and time.monotonic() < deadline:
        time.sleep(0.005)
    time.sleep(generator.random() * 0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    kept = {path: path.stat().st_mtime_ns for path in killed.glob("trial-*/trace.json")}
    assert kept

    again = [*command, "--out", str(killed), "--resume"]
    subprocess.run(again, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=200)
    assert all(path.stat().st_mtime_ns == moment for path, moment in kept.items())
    assert not list(killed.rglob("*.tmp"))
    assert contents(killed) == contents(tmp_path / "whole")
