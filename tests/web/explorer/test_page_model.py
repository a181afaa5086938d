"""The model that the page steps in the browser is the package's: value, gradient, measures and optimum, under node."""

import json
import shutil
import subprocess
from importlib import resources
from pathlib import Path

import numpy as np
import pytest
import torch

import neuralcollapse as nc

pytestmark = pytest.mark.unchecked

LOSSES = {
    "ce": ({"kind": "ce"}, "ce"),
    "focal": ({"kind": "focal", "gamma": 3}, "focal:gamma=3"),
    "soft focal": ({"kind": "focal", "gamma": 0.5}, "focal:gamma=0.5"),
    "ls": ({"kind": "ls", "alpha": 0.1}, "ls:alpha=0.1"),
    "mse": ({"kind": "mse", "alpha": 5, "target": 3}, "mse:alpha=5,target=3"),
}


def ask(questions):
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no node on this machine")
    model = resources.files("neuralcollapse.web.explorer") / "static" / "collapse" / "model"
    script = Path(__file__).with_name("evaluate.mjs")
    command = [node, "--no-warnings", "--experimental-default-type=module", str(script), str(model)]
    done = subprocess.run(command, input=json.dumps(questions), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def problems(count, seed):
    generator = np.random.default_rng(seed)
    for index in range(count):
        script, spec = LOSSES[sorted(LOSSES)[index % len(LOSSES)]]
        classes, dim = int(generator.integers(2, 7)), int(generator.integers(1, 9))
        counts = (
            generator.integers(1, 6, classes).tolist() if index % 3 == 0 else [int(generator.integers(1, 6))] * classes
        )
        temperature = float(generator.uniform(0.5, 5))
        decays = 10 ** generator.uniform(-4, -1, 3)
        bias = [None, 0.0, float(decays[2])][index % 4 % 3]
        if index % 2:
            problem = nc.ufm.NormalizedUFM(spec, classes, counts, dim, temperature)
            bias = None
        else:
            problem = nc.ufm.RegularizedUFM(spec, classes, counts, dim, float(decays[0]), float(decays[1]), bias)
        plain = {
            "model": "normalized" if index % 2 else "regularized",
            "loss": script,
            "counts": counts,
            "dim": dim,
            "weightDecay": float(decays[0]),
            "featureDecay": float(decays[1]),
            "biasDecay": bias,
            "temperature": temperature,
        }
        yield problem, plain, problem.random_point(index)


def flat(point):
    return [part.flatten() for part in (point.W, point.H, point.b) if part is not None]


def question(plain, point, steps=0):
    parts = {
        name: None if part is None else part.flatten().tolist()
        for name, part in zip("WHb", (point.W, point.H, point.b), strict=True)
    }
    return {"problem": plain, "point": parts, "steps": steps}


def test_value_gradient_and_measures_are_the_packages():
    cases = list(problems(120, seed=3))
    answers = ask([question(plain, point) for _, plain, point in cases])
    for (problem, plain, point), answer in zip(cases, answers, strict=True):
        assert answer["value"] == pytest.approx(problem.value(point), rel=1e-12), plain
        expected = torch.cat(flat(problem.gradient(point)))
        found = torch.tensor(answer["gradient"], dtype=torch.float64)
        assert float((found - expected).norm()) <= 1e-12 * max(1.0, float(expected.norm())), plain
        scale = plain["temperature"] if plain["model"] == "normalized" else 1.0
        report = nc.measure(
            point.H, problem.labels, scale * point.classifier, point.b, metrics=["nc1", "nc2", "nc3", "nc4_mismatch"]
        )
        for name, theirs in (("nc1", "nc1"), ("nc2", "nc2"), ("nc3", "nc3"), ("nc4_mismatch", "nc4")):
            value = getattr(report, name)
            if value is None:
                assert name == "nc4_mismatch" or answer[theirs] in (None, 0), (name, report.reasons[name], plain)
            else:
                assert answer[theirs] == pytest.approx(value, rel=1e-8, abs=1e-12), (name, plain)


def test_the_pages_optimum_is_the_closed_form():
    cases = [entry for entry in problems(120, seed=5) if len(set(entry[1]["counts"])) == 1]
    answers = ask([question(plain, point) for _, plain, point in cases])
    seen = 0
    for (problem, plain, _), answer in zip(cases, answers, strict=True):
        if answer["least"] is None:
            continue
        try:
            best = problem.optimum()
        except NotImplementedError:
            continue
        seen += 1
        assert answer["least"]["value"] == pytest.approx(best.value, rel=1e-9, abs=1e-12), plain
    assert seen >= 20


def test_the_pages_descent_ends_at_the_minimum():
    problem = nc.ufm.RegularizedUFM("ce", 4, 10, 3, 0.005, 0.005)
    plain = {
        "model": "regularized", "loss": {"kind": "ce"}, "counts": [10] * 4, "dim": 3, "weightDecay": 0.005,
        "featureDecay": 0.005, "biasDecay": None, "temperature": 1,
    }  # fmt: skip
    (answer,) = ask([question(plain, problem.random_point(0), steps=2000)])
    assert answer["end"] == pytest.approx(problem.optimum().value, rel=1e-12)
