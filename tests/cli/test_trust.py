"""What a command line may not do, whatever it is given: a traceback, a wrong culprit, markup for names, half a file."""

import errno
import json
import os
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from neuralcollapse import cli
from neuralcollapse.cli import main
from neuralcollapse.ufm import RegularizedUFM, Trace, solve_many

SMALL = ["--data", "synthetic:num_classes=4,dim=8,per_class=10", "--model", "mlp:depth=1,width=6", "--epochs", "2"]
MANY_DIGITS = "1" + "0" * 400


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    features = np.random.default_rng(0).normal(size=(20, 4))
    np.savez("features.npz", features=features, labels=np.arange(20) % 2)
    (tmp_path / "deep.json").write_text("[" * 100_000)
    (tmp_path / "deep.toml").write_text("a = " + "[" * 3000 + "]" * 3000)
    return tmp_path


COMMANDS = {
    "solve --classes 3 --dim 1 --temperature 1 --perturbation 0.1": "perturbation needs a direction",
    "solve --loss mse --classes 2 --dim 1 --feature-decay 0.02 --weight-decay 1e-300": "weight_decay must be 0 or",
    "optimum --classes 4 --dim 5 --weight-decay 0.1 --feature-decay 1e300": "feature_decay must be 0 or between",
    "optimum --loss sc --classes 3 --dim 3 --temperature 1e200": "temperature must be between",
    "optimum --loss ls --classes 4 --dim 5 --temperature 1e99": "temperature must be between",
    "optimum --loss focal:gamma=1e-300 --classes 4 --dim 5 --temperature 1": "gamma must be 0 (cross-entropy) or at",
    "optimum --loss mse:alpha=1e99 --classes 4 --dim 5 --temperature 1": "alpha must be between",
    f"optimum --classes {MANY_DIGITS} --dim 3 --temperature 1": "num_classes must be at most",
    f"solve --classes 3 --dim 3 --temperature 1 --max-iter {MANY_DIGITS}": "max_iter must be at most",
    "solve --classes 3 --dim 4 --per-class 9223372036854775807 --temperature 1": "a point of this model would take",
    "solve --classes 3 --dim 9999999 --per-class 999999 --temperature 1": "a point of this model would take",
    "solve --classes 3 --dim 3 --temperature 1 --trials 10000000000": "--trials must be at most 1000000",
    "train --plan deep.json --out run": "deep.json: a plan must be JSON",
    "train --plan deep.toml --out run": "deep.toml:",
    "train --data digits --model mlp:width=100000000 --out run": "width must be at most",
    "train --data digits --model mlp:depth=1000000000 --out run": "depth must be at most",
    "train --data digits --model mlp:width=900000 --out run": "would take",
    "train --data synthetic:per_class=10000000000 --out run": "these samples would take",
    f"train --data digits --epochs {MANY_DIGITS} --out run": "plan: epochs",
    f"train --data digits --seed {MANY_DIGITS} --out run": "plan: seed",
    "train --device cuda:99 --out run": "device must be auto, cpu, cuda or cuda:N, got 'cuda:99'; this machine has",
    "measure features.npz --memory-limit 1e300": "--memory-limit must be at most",
    "measure features.npz --classes 1000000000000": "num_classes",
    "results --limit -1": "--limit must be at least 0",
}
NOT_TOGETHER = {
    "explore features.npz --static page.html": "--static writes the moving picture alone",
    "explore --results . --static page.html": "--static writes the moving picture alone",
    "study run geometric/bound --first-steps 1 --json": "--json is not for --first-steps",
    "study run geometric/bound --first-steps 1 --fresh": "--fresh is not for --first-steps",
    "study run geometric/bound --first-steps 1 --workers 2": "--workers is not for --first-steps",
    "study run geometric/bound --first-steps 1 --engine ray": "--engine is not for --first-steps",
    "study run geometric/bound --first-steps 1 --resume": "--resume is not for --first-steps",
    "study run geometric/bound --first-steps 1 --out kept": "--out is not for --first-steps",
    "study run all geometric/bond --profile smoke": "unknown study 'geometric/bond'",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_number_out_of_range_is_one_line_that_names_it(command, files, capsys):
    assert main(command.split()) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("neuralcollapse: error: ")
    assert COMMANDS[command] in error
    assert not (files / "run").exists()


@pytest.mark.parametrize("command", NOT_TOGETHER)
def test_what_would_be_ignored_is_refused(command, files, capsys):
    before = set(files.iterdir())
    assert main(command.split()) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert NOT_TOGETHER[command] in captured.err
    assert set(files.iterdir()) == before


def test_a_fault_of_the_program_is_one_line_and_a_file_with_the_traceback(monkeypatch, capsys):
    def broken(*arguments, **options):
        raise ZeroDivisionError("float division\nby zero")

    monkeypatch.setattr(cli._app, "app", broken)
    monkeypatch.delenv("NEURALCOLLAPSE_DEBUG", raising=False)
    assert main(["optimum"]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("neuralcollapse: failed: ZeroDivisionError: float division by zero; the details are in ")
    assert "please report it" in line
    path = line.split("the details are in ")[1].split(" ")[0]
    with open(path) as file:
        text = file.read()
    os.unlink(path)
    assert "Traceback" in text
    assert "in broken" in text


def test_too_little_memory_is_said_as_such(monkeypatch, capsys):
    def greedy(*arguments, **options):
        raise MemoryError

    monkeypatch.setattr(cli._app, "app", greedy)
    monkeypatch.delenv("NEURALCOLLAPSE_DEBUG", raising=False)
    assert main(["optimum"]) == 1
    line = capsys.readouterr().err
    assert "not enough memory for this" in line
    os.unlink(line.split("the details are in ")[1].strip())


@pytest.mark.parametrize("name", ["x[/run]", "[red]y[/red]", ":warning:", "[bold", "[/]", "a[link=b]c"])
def test_names_reach_the_terminal_as_they_are(name, files, capsys):
    assert main(["train", *SMALL, "--out", name]) == 0
    assert f"finished: {name}\n" in capsys.readouterr().err
    point = ["--classes", "3", "--dim", "3", "--temperature", "1", "--out", f"{name}.safetensors"]
    assert main(["optimum", *point]) == 0
    assert f"wrote {name}.safetensors" in capsys.readouterr().out
    assert main(["solve", *point]) == 0
    assert f"wrote {name}.safetensors" in capsys.readouterr().out
    assert main(["data", "list", "--root", name]) == 0
    assert f"data sets in {name}\n" in capsys.readouterr().err  # a pipe gets the table alone
    arrays = {f"features.{name.replace('/', '')}": np.eye(4), "labels": np.arange(4) % 2}
    np.savez("layers.npz", **arrays)
    assert main(["measure", "layers.npz", "--layers"]) == 0
    assert name.replace("/", "") in capsys.readouterr().out


@pytest.fixture
def full_disk():
    """Writes of more than a few kB fail, as they do on a full disk."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (400, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("optimum --classes 9 --dim 9 --temperature 1 --out point.safetensors", "point.safetensors"),
        ("solve --classes 9 --dim 9 --temperature 1 --out point.safetensors", "point.safetensors"),
        ("solve --classes 9 --dim 9 --temperature 1 --out folder", "folder/point.safetensors"),
        ("solve --classes 9 --dim 9 --temperature 1 --trials 1 --out trials", "trials/"),
        ("measure features.npz --out page.html", "page.html"),
    ],
)
def test_a_file_that_cannot_be_written_is_named_and_not_left_in_half(command, name, files, capsys, full_disk):
    before = {path for path in files.rglob("*") if path.is_file()}
    assert main(command.split()) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith(f"neuralcollapse: error: {name}")
    assert os.strerror(errno.EFBIG) in error
    left = {path for path in files.rglob("*") if path.is_file()} - before
    assert not [path for path in left if path.suffix in (".tmp", ".safetensors", ".html")]


def test_too_few_file_handles_are_not_an_unknown_command():
    script = (
        "import resource; from neuralcollapse.cli import main; resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))\n"
    )
    script += "raise SystemExit(main(['doctor']))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=120, check=False)
    assert "Unknown command" not in done.stderr
    assert done.returncode in (1, 2)
    assert len(done.stderr.splitlines()) == 1


def test_an_interrupted_command_says_that_it_can_go_on(tmp_path):
    command = [sys.executable, "-m", "neuralcollapse", "train", *SMALL[:-1], "100000", "--out", str(tmp_path / "r")]
    # A runner in the background hands down an ignored interrupt, which a terminal does not.
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    )
    end = time.monotonic() + 100
    while not (tmp_path / "r/checkpoints").is_dir() and time.monotonic() < end:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error.splitlines()[-1] == "neuralcollapse: interrupted: the same command with --resume goes on where it was"
    assert not (tmp_path / "r/.lock").exists()


# trials --------------------------------------------------------------------------------------------------------------

PROBLEM = RegularizedUFM("ce", 3, 2, 4, 0.01, 0.01)


@pytest.mark.parametrize("name", ["history.jsonl", "point.safetensors", "trace.json"])
def test_damaged_trials_are_run_again_with_a_line(name, tmp_path):
    solve_many(PROBLEM, range(2), workers=1, out=tmp_path / "out")
    path = tmp_path / "out/trial-0001" / name
    whole = path.read_bytes()
    for content in (b"", whole[:-7], b"[]", bytes([*whole[:-9], whole[-9] ^ 1, *whole[-8:]])):
        path.write_bytes(content)
        lines = []
        solve_many(PROBLEM, range(2), workers=1, out=tmp_path / "out", resume=True, message=lines.append)
        assert path.read_bytes() == whole
        (line,) = lines
        assert "trial-0001" in line
        assert line.endswith("this trial is run again")
    assert Trace.load(tmp_path / "out/trial-0001").converged


def test_two_commands_do_not_write_the_same_trials(tmp_path):
    def again(trace):
        with pytest.raises(ValueError, match="is writing here"):
            solve_many(PROBLEM, range(1), workers=1, out=tmp_path / "out", resume=True)

    assert len(solve_many(PROBLEM, range(1), workers=1, out=tmp_path / "out", on_trial=again)) == 1


def test_a_killed_worker_costs_its_trial_a_second_try(tmp_path):
    """The first worker to start is killed while it solves."""
    script = (
        "import os, signal, sys, threading, time, multiprocessing\n"
        "import neuralcollapse as nc\n"
        "def kill():\n"
        "    while not multiprocessing.active_children(): time.sleep(0.01)\n"
        "    time.sleep(float(sys.argv[1])); os.kill(multiprocessing.active_children()[0].pid, signal.SIGKILL)\n"
        "if __name__ == '__main__':\n"
        "    threading.Thread(target=kill, daemon=True).start()\n"
        "    problem = nc.ufm.RegularizedUFM('ce', 3, 2, 4, 0.01, 0.01)\n"
        "    print(len(nc.ufm.solve_many(problem, range(4), workers=2)))\n"
    )
    (tmp_path / "script.py").write_text(script)
    command = [sys.executable, str(tmp_path / "script.py"), "0.5"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=False)
    assert done.stdout == "4\n", done.stderr


def test_a_report_shows_the_trials_of_solve(tmp_path, capsys):
    solve = ["solve", "--classes", "3", "--dim", "4", "--temperature", "1", "--trials", "2", "--workers", "1"]
    assert main([*solve, "--out", str(tmp_path / "trials")]) == 0
    assert main(["report", str(tmp_path / "trials"), "--out", str(tmp_path / "page.html")]) == 0
    page = (tmp_path / "page.html").read_text()
    assert "trial-0000" in page
    assert "trial-0001" in page
    assert json.loads((tmp_path / "trials/summary.json").read_text())["converged"] == 2
    assert not list(tmp_path.glob(".*.lock"))
