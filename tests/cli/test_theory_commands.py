"""optimum, certify and doctor as a user calls them, and the help of all."""

import json
import subprocess
import sys

import pytest
import torch

import neuralcollapse
from neuralcollapse.cli import main
from neuralcollapse.ufm import NormalizedUFM, Point, RegularizedUFM, load_point, save_point

pytestmark = pytest.mark.unchecked

REGULARIZED = [
    "--loss",
    "ce",
    "--classes",
    "10",
    "--per-class",
    "100",
    "--dim",
    "20",
    "--weight-decay",
    "5e-4",
    "--feature-decay",
    "5e-4",
]


def run(capsys, *arguments):
    code = main([str(a) for a in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_optimum_json(capsys):
    code, out, err = run(capsys, "optimum", *REGULARIZED, "--json")
    values = json.loads(out)
    assert (code, err) == (0, "")
    model = RegularizedUFM("ce", 10, 100, 20, 5e-4, 5e-4)
    assert values["value"] == model.optimum().value
    assert values["regime"] == "neural collapse"
    assert set(values) >= {"value", "regime", "logit_scale", "weight_norm", "feature_norm", "bias"}
    assert values["bias"] is None
    code, out, _ = run(capsys, "optimum", *REGULARIZED, "--bias-decay", "0", "--json")
    assert json.loads(out)["bias"] == 0.0


def test_optimum_of_the_other_models(capsys):
    code, out, _ = run(capsys, "optimum", "--loss", "ce", "--classes", 10, "--dim", 32, "--temperature", 1, "--json")
    assert code == 0
    assert json.loads(out)["value"] == NormalizedUFM("ce", 10, 1, 32).optimum().value
    code, out, _ = run(capsys, "optimum", "--loss", "sc", "--classes", 4, "--per-class", 3, "--dim", 8, "--json")
    assert code == 0
    assert json.loads(out)["weight_norm"] is None
    code, out, _ = run(capsys, "optimum", *REGULARIZED)
    assert "neural collapse" in out


def test_certify_reads_what_optimum_wrote(capsys, tmp_path):
    path = tmp_path / "point.safetensors"
    assert run(capsys, "optimum", *REGULARIZED, "--out", path)[0] == 0
    code, out, _ = run(capsys, "certify", path, "--json")
    values = json.loads(out)
    assert code == 0
    assert values["verdict"] == "global minimum"
    assert set(values) >= {"value", "lower_bound", "gap", "gradient_norm", "verdict", "curvature"}
    assert abs(values["gap"]) < 1e-9
    code, out, _ = run(capsys, "certify", path)
    assert "global minimum" in out


def test_certify_with_options_and_escape(capsys, tmp_path):
    model = RegularizedUFM("ce", 3, 2, 4, 0.01, 0.01)
    path, escape = tmp_path / "zero.safetensors", tmp_path / "escape.safetensors"
    save_point(path, model.random_point(0) * 0.0)
    options = [
        "--classes",
        "3",
        "--per-class",
        "2",
        "--dim",
        "4",
        "--weight-decay",
        "0.01",
        "--feature-decay",
        "0.01",
    ]
    code, out, _ = run(capsys, "certify", path, *options, "--escape-out", escape, "--json")
    values = json.loads(out)
    assert code == 0
    assert values["verdict"] == "strict saddle"
    direction, _ = load_point(escape)
    assert direction.dot(model.hessian_vector(Point(*load_point(path)[0].blocks), direction)) == pytest.approx(
        values["curvature"]
    )


def test_imbalanced_counts_on_the_command_line(capsys, tmp_path):
    model = NormalizedUFM("ce", 3, [1, 2, 4], 3, 2.0)
    path = tmp_path / "p.safetensors"
    save_point(path, model.random_point(0))
    options = ["--classes", "3", "--per-class", "1", "2", "4", "--dim", "3", "--temperature", "2"]
    code, out, _ = run(capsys, "certify", path, *options, "--json")
    assert code == 0
    assert json.loads(out)["value"] == model.value(model.random_point(0))


def test_doctor(capsys):
    code, out, _ = run(capsys, "doctor", "--json")
    values = json.loads(out)
    assert code == 0
    assert values["healthy"] is True
    assert values["neuralcollapse"] == neuralcollapse.__version__
    code, out, _ = run(capsys, "doctor")
    assert "healthy" in out


def bad_calls(tmp_path):
    point = tmp_path / "p.safetensors"
    save_point(point, NormalizedUFM("ce", 3, 2, 4).random_point(0))
    torn = tmp_path / "torn.safetensors"
    torn.write_bytes(point.read_bytes()[:50])
    return {
        (
            "optimum",
            "--loss",
            "focl",
            "--classes",
            "3",
            "--dim",
            "3",
            "--temperature",
            "1",
        ): "did you mean 'focal'",
        ("optimum", "--loss", "focal:gama=1", "--classes", "3", "--dim", "3", "--temperature", "1"): "gama",
        ("optimum", "--classes", "1", "--dim", "3", "--temperature", "1"): "num_classes must be at least 2",
        ("optimum", "--classes", "3", "--dim", "0", "--temperature", "1"): "dim must be at least 1",
        ("optimum", "--classes", "3", "--per-class", "0", "--dim", "3", "--temperature", "1"): "per_class",
        ("optimum", "--dim", "3", "--temperature", "1"): "--classes is missing: it names the model's size",
        ("optimum", "--classes", "3", "--temperature", "1"): "--dim is missing: it names the model's size",
        ("optimum", "--classes", "3", "--dim", "3"): "--weight-decay is missing",
        ("optimum", "--classes", "x", "--dim", "3"): "--classes",
        (
            "optimum",
            *REGULARIZED,
            "--temperature",
            "1",
            "--model",
            "regularized",
        ): "--temperature does not belong",
        (
            "optimum",
            "--classes",
            "3",
            "--dim",
            "3",
            "--weight-decay",
            "nan",
            "--feature-decay",
            "1",
        ): "weight_decay",
        (
            "optimum",
            "--classes",
            "3",
            "--dim",
            "3",
            "--weight-decay",
            "-1",
            "--feature-decay",
            "1",
        ): "weight_decay",
        ("optimum", "--classes", "9", "--dim", "3", "--temperature", "1"): "no closed form is known",
        ("optimum", "--model", "bent", "--classes", "3", "--dim", "3"): "--model",
        ("optimum", "--bogus"): "--bogus",
        ("certify", str(tmp_path / "none.safetensors")): "no such file",
        ("certify", str(torn)): "not a readable safetensors file",
        ("certify", str(point)): "does not say which model",
        (
            "certify",
            str(point),
            "--classes",
            "4",
            "--dim",
            "4",
            "--temperature",
            "1",
        ): "point.W must have shape",
        ("certify", str(point), *REGULARIZED, "--tolerance", "0"): "--tolerance must be greater than 0",
        ("certif",): "certify",
        ("optimum", *REGULARIZED, "--out", "/proc/none/p.safetensors"): "/proc",
    }


def test_bad_input_is_one_line_and_exit_code_2(capsys, tmp_path):
    for arguments, text in bad_calls(tmp_path).items():
        code, out, err = run(capsys, *arguments)
        assert code == 2, (arguments, out, err)
        assert out == "", arguments
        assert err.count("\n") == 1, err
        assert err.startswith("neuralcollapse: error: "), err
        assert text in err, (arguments, err)
        assert "Traceback" not in err


@pytest.mark.parametrize("command", [(), ("optimum",), ("certify",), ("doctor",), ("demo",), ("report",)])
def test_help_has_examples(capsys, command):
    code, out, _ = run(capsys, *command, "--help")
    assert code == 0
    assert "Try:" in out
    assert f"neuralcollapse {command[0] if command else 'demo'}" in out


def test_module_entry_point():
    done = subprocess.run(
        [sys.executable, "-m", "neuralcollapse", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == neuralcollapse.__version__
    done = subprocess.run(
        [sys.executable, "-m", "neuralcollapse", "optimum"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2


def test_points_are_float64(tmp_path, capsys):
    from safetensors.torch import save_file

    save_file({"W": torch.zeros(3, 4), "H": torch.zeros(6, 4)}, tmp_path / "p.safetensors")
    code, _, err = run(capsys, "certify", tmp_path / "p.safetensors")
    assert code == 2
    assert "must be float64" in err


def test_counts_are_separated_by_commas_or_by_spaces(capsys):
    sizes = ["--classes", "3", "--dim", "3", "--weight-decay", ".01", "--feature-decay", ".01", "--json"]
    answers = [
        run(capsys, "optimum", *sizes, "--per-class", *counts) for counts in (["4,2,1"], ["4", "2", "1"], ["4,2", "1"])
    ]
    assert {code for code, _, _ in answers} == {0}
    values = {json.loads(out)["value"] for _, out, _ in answers}
    assert values == {RegularizedUFM("ce", 3, [4, 2, 1], 3, 0.01, 0.01).optimum().value}


@pytest.mark.parametrize(("outcome", "code"), [(1, 1), (0, 0), (None, 0)])
def test_what_a_command_returns_is_the_exit_code(outcome, code, monkeypatch):
    monkeypatch.setattr("neuralcollapse.cli._app.app", lambda *arguments, **options: outcome)
    assert main(["doctor"]) == code
