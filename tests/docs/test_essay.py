"""The numbers that the essay computes in the browser are those of the package."""

import json
import random
import shutil
import subprocess
from pathlib import Path

import pytest

import neuralcollapse as nc

SCRIPT = Path(__file__).parents[2] / "docs" / "assets" / "understand.js"


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_essay_agrees_with_the_package():
    draw = random.Random(0)
    cases = [
        (draw.randint(2, 30), draw.randint(1, 200), 10 ** draw.uniform(-5, -1), 10 ** draw.uniform(-5, -1))
        for _ in range(60)
    ]
    program = f"""
    const essay = require({json.dumps(str(SCRIPT))});
    const cases = {json.dumps(cases)};
    console.log(JSON.stringify(cases.map((c) => [essay.optimum(...c), essay.onSpheres(c[0], c[1] / 10)])));
    console.log(JSON.stringify(essay.mergesBelow(304, 0.008, 0.008)));
    """
    done = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True)
    found, threshold = (json.loads(line) for line in done.stdout.splitlines())
    for (classes, per_class, weight, feature), (free, sphere) in zip(cases, found, strict=True):
        best = nc.ufm.RegularizedUFM("ce", classes, per_class, classes, weight, feature).optimum()
        assert free["value"] == pytest.approx(best.value, rel=1e-10)
        assert free["weight"] == pytest.approx(best.weight_norm, rel=1e-9, abs=1e-12)
        assert free["feature"] == pytest.approx(best.feature_norm, rel=1e-9, abs=1e-12)
        assert free["margin"] == pytest.approx(best.logit_scale, rel=1e-9, abs=1e-12)
        assert free["learned"] == (best.weight_norm > 0)
        model = nc.ufm.NormalizedUFM("ce", classes, 1, classes, temperature=per_class / 10)
        assert sphere == pytest.approx(model.optimum().value, rel=1e-10)
    assert {entry[0]["learned"] for entry in found} == {True, False}
    model = nc.ufm.RegularizedUFM("ce", 5, [100, 100, 100, 2, 2], 8, 0.008, 0.008)
    assert threshold == pytest.approx(model.count_threshold(), rel=1e-12)


@pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")
def test_the_essay_writes_numbers_as_the_package_does_and_no_fraction_of_a_sample():
    program = f"""
    const essay = require({json.dumps(str(SCRIPT))});
    console.log(JSON.stringify([0, 0.5, -1 / 3, 5e-4, 1.25e-7, 123456].map(essay.shown)));
    console.log(JSON.stringify([0.04, 1.9, 6.4, 100].map((count) => essay.whoMerges(count, 100))));
    """
    done = subprocess.run(["node", "-e", program], capture_output=True, text=True, check=True)
    numbers, words = (json.loads(line) for line in done.stdout.splitlines())
    assert numbers == ["0", "0.5", "−0.3333", "5×10⁻⁴", "1.25×10⁻⁷", "1.23×10⁵"]
    assert [word.split(",")[0].split(";")[0] for word in words] == [
        "no class is that small",
        "classes of a single sample merge",
        "classes of at most 6 samples merge",
        "all classes are that small",
    ]
