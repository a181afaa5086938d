"""Checks of the mse paper's studies of nets on made-up results, and their plans at the paper's size."""

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from neuralcollapse.frames import simplex_etf
from neuralcollapse.studies import get
from neuralcollapse.studies._twins import margins
from neuralcollapse.studies.mse import feature_dim
from neuralcollapse.studies.mse.three_dimensions import nearest_angles
from stand_ins import results_of, stand_in

pytestmark = pytest.mark.unchecked


def test_margins_must_be_ordered_like_test_accuracy(tmp_path):
    check = get("mse/optimizers").check

    def results(folder, cosines):
        runs = []
        for name, test, cosine in zip(("SGD", "Adam", "L-BFGS"), (0.8, 0.79, 0.6), cosines, strict=True):
            train = {"accuracy": 1.0, "nc1": 0.01, "nc2": 0.05, "nc3": 0.05, "cosine_margin": cosine}
            runs.append(({"data": "CIFAR10", "optimizer": name}, train, {"accuracy": test}))
        return results_of(folder, runs)

    assert check(results(tmp_path / "a", (1.0, 0.9, 0.5))).outcome == "holds"
    assert check(results(tmp_path / "b", (0.9, 1.0, 0.5))).outcome == "holds"  # SGD and Adam are a tie
    assert check(results(tmp_path / "c", (0.4, 1.0, 0.5))).outcome == "does not hold"


@pytest.mark.parametrize(
    ("squared", "entropy", "near", "outcome"),
    [
        ((0.4, 0.5), (0.95, 0.68), 0.8, "holds"),
        ((0.95, 0.5), (0.95, 0.68), 0.8, "does not hold"),
        ((0.4, 0.5), (0.5, 0.68), 0.8, "does not hold"),
        ((0.4, 0.5), (0.95, 0.68), 0.1, "does not hold"),
    ],
)
def test_only_the_squared_error_may_need_many_dimensions(tmp_path, monkeypatch, squared, entropy, near, outcome):
    monkeypatch.setattr(feature_dim, "_near", lambda run: near if run.final()["accuracy"] < 1 else 0.0)
    runs = []
    for loss, low in (("squared-error", squared), ("cross-entropy", entropy)):
        for dim in (3, 9, 10):
            train, test = low if dim == 3 else (1.0, 0.7)
            runs.append(({"loss": loss, "d": dim}, {"accuracy": train}, {"accuracy": test}))
    assert get("mse/feature-dim").check(results_of(tmp_path, runs)).outcome == outcome


def test_rescaling_wants_every_trend(tmp_path):
    check = get("mse/rescaling").check

    def results(folder, nc1):
        runs = []
        for sweep in ("alpha", "M"):
            for place, value in enumerate((1, 5, 10)):
                accuracy = 0.1 * (place + 1)
                runs.append(({"sweep": sweep, "value": value}, {"accuracy": accuracy, "nc1": nc1[place]}, None))
        return results_of(folder, runs)

    verdict = check(results(tmp_path / "a", (9.0, 3.0, 1.0)))
    assert (verdict.outcome, verdict.figure) == ("holds", pytest.approx(1))
    assert check(results(tmp_path / "b", (1.0, 3.0, 9.0))).outcome == "does not hold"
    assert check(results(tmp_path / "c", (1.0, 1.0, 1.0))).outcome == "does not hold"


def test_margins_and_angles_of_a_collapsed_run(tmp_path):
    frame = simplex_etf(4, 3).numpy()
    features = np.repeat(frame, 5, axis=0) + 2.0
    labels = np.repeat(np.arange(4), 5)
    run = stand_in(tmp_path, 0, {"accuracy": 1.0})
    save_file(
        {"features": features.astype(np.float32), "labels": labels, "weight": frame.astype(np.float32)},
        run.folder / "features-train.safetensors",
    )
    np.testing.assert_allclose(margins(run), 4 / 3, rtol=1e-5)
    np.testing.assert_allclose(nearest_angles(run), torch.arccos(torch.tensor(-1 / 3)), rtol=1e-5)


def test_paper_plans():
    rescaling = {tuple(e.labels.values()): e.cell.plan for e in get("mse/rescaling").planned("paper")}
    assert [value for sweep, value in rescaling if sweep == "alpha"] == [1, 5, 15, 20]
    assert [value for sweep, value in rescaling if sweep == "M"] == [1, 3, 5, 7, 10]
    plan = rescaling["M", 10]
    assert (plan.data, plan.learning_rate, plan.weight_decay) == ("mini-imagenet", 0.01, 1e-3)
    assert plan.schedule == "cosine:period=200,minimum=0.0001"
    dims = get("mse/feature-dim").planned("paper")
    assert [e.labels["d"] for e in dims if e.labels["loss"] == "squared-error"] == [3, 5, 8, 9, 10, 512]
    assert all(e.cell.plan.augment and e.cell.features for e in dims)
    shared = {e.cell.key for e in get("mse/three-dimensions").planned("paper")}
    assert shared < {e.cell.key for e in dims}
    assert [e.cell.plan.learning_rate for e in get("mse/optimizers").planned("paper")] == [0.05, 1e-3, 0.01]
    assert all(e.cell.plan.loss == "squared-error" for e in get("mse/fixed-etf").planned("paper"))
