"""``neuralcollapse train``: a run directory from options or a plan, lines on stderr, one line for bad input."""

import json
from types import SimpleNamespace

import pytest

from neuralcollapse.cli import main
from neuralcollapse.cli._output.progress import TrainingBar
from neuralcollapse.training import Plan, Run

SMALL = [
    *("--data", "synthetic:num_classes=4,dim=8,per_class=20", "--model", "mlp:depth=2", "--width", "12"),
    *("--epochs", "3", "--batch-size", "20"),
]


def test_options_become_a_plan_and_a_run(tmp_path, capsys):
    out = tmp_path / "run"
    code = main(["train", *SMALL, "--loss", "focal:gamma=2", "--measure", "1,3", "--out", str(out)])
    captured = capsys.readouterr()
    assert code == 0
    assert captured.out == ""
    assert "epoch 3 train: loss" in captured.err
    assert f"finished: {out}" in captured.err
    run = Run.open(out)
    assert run.plan.model == "mlp:depth=2,width=12"
    assert run.plan.loss == "focal:gamma=2"
    assert [row["epoch"] for row in run.history] == [1, 1, 3, 3]
    assert main(["train", *SMALL, "--loss", "focal:gamma=2", "--measure", "1,3", "--out", str(out), "--resume"]) == 0
    assert "finished already" in capsys.readouterr().err


def test_a_net_is_made_for_the_size_of_its_images(tmp_path):
    arguments = ["--data", "digits:size=4", "--per-class", "5", "--model", "resnet8:width=4", "--epochs", "1"]
    assert main(["train", *arguments, "--out", str(tmp_path / "run")]) == 0
    run = Run.open(tmp_path / "run")
    assert run.plan.data == "digits:size=4"
    assert json.loads((tmp_path / "run/data.json").read_text())["image_shape"] == [1, 4, 4]


def test_a_plan_file_and_options_together(tmp_path):
    (tmp_path / "plan.toml").write_text('data = "synthetic:num_classes=4,dim=8"\nmodel = "mlp:width=8"\nepochs = 9\n')
    code = main(["train", "--plan", str(tmp_path / "plan.toml"), "--epochs", "1", "--out", str(tmp_path / "run")])
    assert code == 0
    plan = json.loads((tmp_path / "run/plan.json").read_text())
    assert (plan["model"], plan["epochs"]) == ("mlp:width=8", 1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--epochs", "0"], "plan: epochs: Input should be greater than or equal to 1 (got 0)"),
        (["--loss", "focl"], "unknown loss 'focl'; did you mean 'focal'"),
        (["--data", "mnist"], "mnist is not embedded: say where it is"),
        (["--data", "mnist:size=15"], "size must divide the side of the stored images, 28, or exceed it, got 15"),
        (["--measure", "often"], "--measure takes log, every or a list such as 1,10,100, got 'often'"),
        (["--model", "mlp:width=3", "--width", "4"], "--width is given twice"),
        (["--plan", "nowhere.toml"], "nowhere.toml: No such file or directory"),
        (["--decay-on", "everything"], "decay"),
        (["--speed", "9"], "--speed"),
    ],
)
def test_bad_input_is_one_line_and_code_2(tmp_path, capsys, monkeypatch, arguments, message):
    monkeypatch.delenv("NEURALCOLLAPSE_DATA", raising=False)
    assert main(["train", "--out", str(tmp_path / "run"), *arguments]) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.count("\n") == 1
    assert captured.out == ""


def test_an_accuracy_is_not_rounded_to_one(capsys):
    rows = [{"split": split, "accuracy": 0.9996, "nc1": 0.0123456} for split in ("train", "test")]
    TrainingBar(Plan()).finish(SimpleNamespace(folder="RUN", history=rows))
    assert "train: accuracy 0.9996, nc1 0.0123\n" in capsys.readouterr().err


def test_a_run_that_diverges_has_code_1(tmp_path, capsys):
    arguments = [*SMALL, "--learning-rate", "1e12", "--loss", "squared-error", "--out", str(tmp_path / "run")]
    assert main(["train", *arguments]) == 1
    assert "stopped: training diverged" in capsys.readouterr().err
