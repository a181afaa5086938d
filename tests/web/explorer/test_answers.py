"""The JSON interface against the library's own functions, called directly."""

import io
import json
import math
import shlex
from typing import get_args
from urllib.parse import urlencode

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from neuralcollapse import landscape, losses, metrics
from neuralcollapse._support.theme import REGIME_COLOURS
from neuralcollapse.cli import main
from neuralcollapse.ufm import ContrastiveUFM, NormalizedUFM, Point, Regime, RegularizedUFM, methods, solve
from neuralcollapse.web.explorer._optimum import flat_view
from neuralcollapse.web.explorer._sentences import REGIMES

pytestmark = pytest.mark.unchecked

DECAYS = {"weight_decay": 0.005, "feature_decay": 0.003}
SIZES = {"classes": 4, "per_class": 10, "dim": 8}
HUNDRED = {"classes": 100, "per_class": 1, "dim": 100}
EXCHANGE = round(losses.Focal(3.0).transition(100).exchange, 6)
"""Where zero and collapse are equally low, and what is between them lower with a bias."""

MODELS = {
    "cross-entropy": (
        {"loss": "ce", **SIZES, **DECAYS},
        RegularizedUFM("ce", 4, 10, 8, 0.005, 0.003),
    ),
    "focal with a bias": (
        {"loss": "focal:gamma=2", **SIZES, **DECAYS, "bias_decay": 0.01},
        RegularizedUFM("focal:gamma=2", 4, 10, 8, 0.005, 0.003, 0.01),
    ),
    "free bias": (
        {"loss": "mse:alpha=3,target=2", **SIZES, **DECAYS, "bias_decay": 0},
        RegularizedUFM("mse:alpha=3,target=2", 4, 10, 8, 0.005, 0.003, 0.0),
    ),
    "low rank": (
        {"loss": "mse", "classes": 9, "per_class": 5, "dim": 3, **DECAYS},
        RegularizedUFM("mse", 9, 5, 3, 0.005, 0.003),
    ),
    "zero": (
        {"loss": "ce", **SIZES, "weight_decay": 1, "feature_decay": 1},
        RegularizedUFM("ce", 4, 10, 8, 1.0, 1.0),
    ),
    "normalized": (
        {"model": "normalized", "loss": "ls:alpha=0.2", **SIZES, "temperature": 1.5},
        NormalizedUFM("ls:alpha=0.2", 4, 10, 8, 1.5),
    ),
    "spread": (
        {"model": "normalized", "loss": "ls:alpha=0.2", **SIZES, "temperature": 9},
        NormalizedUFM("ls:alpha=0.2", 4, 10, 8, 9.0),
    ),
    "normalized squared error": (
        {"model": "normalized", "loss": "mse", **SIZES, "temperature": 0.5},
        NormalizedUFM("mse", 4, 10, 8, 0.5),
    ),
    "non-negative": (
        {"loss": "ce", **SIZES, **DECAYS, "features": "nonnegative"},
        RegularizedUFM("ce", 4, 10, 8, 0.005, 0.003, features="nonnegative"),
    ),
    "imbalanced": (
        {"loss": "ce", "classes": 4, "counts": "40 40 5 5", "dim": 8, **DECAYS},
        RegularizedUFM("ce", 4, [40, 40, 5, 5], 8, 0.005, 0.003),
    ),
    "broken symmetry": (
        {**HUNDRED, "loss": "focal:gamma=3", "weight_decay": EXCHANGE, "feature_decay": EXCHANGE, "bias_decay": 0},
        RegularizedUFM("focal:gamma=3", 100, 1, 100, EXCHANGE, EXCHANGE, 0.0),
    ),
    "contrastive": (
        {"model": "contrastive", **SIZES, "temperature": 1.2},
        ContrastiveUFM(4, 10, 8, 1.2),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_the_optimum_is_the_librarys(client, name):
    fields, problem = MODELS[name]
    answer = client.get("optimum", **fields)
    assert answer.status == 200, answer.json
    found, best = answer.json, problem.optimum()
    assert found["known"] is True
    assert found["optimum"] == best.to_dict()
    assert found["meaning"]
    assert bool(found["formula"]) == (name != "imbalanced")  # no short sentence says it
    np.testing.assert_allclose(found["grams"]["means"], best.mean_gram, rtol=0, atol=1e-4 * best.mean_gram.abs().max())
    by_margin = name != "normalized squared error"  # its loss is no function of the margin alone
    assert any(curve["minimum"] is not None for curve in found["curves"]) == by_margin
    for curve in found["curves"]:
        values = [y for y in curve["y"] if y is not None]
        assert len(curve["x"]) == len(curve["y"])
        if curve["minimum"] is not None:
            assert curve["minimum"][1] == pytest.approx(best.value, rel=1e-9)
        if curve["name"] != "margin":  # its right part is beyond what unit rows reach
            assert curve["minimum"] is None or min(values) >= curve["minimum"][1] - 1e-12


def test_every_regime_has_its_sentence_and_only_regimes_have_colours():
    assert set(REGIMES) == set(get_args(Regime))
    assert set(REGIME_COLOURS) <= {*get_args(Regime), "unknown"}


def test_what_is_said_of_a_value_is_true_of_it(client):
    """Formula and curves of the symmetric optimum stand beside no other."""
    kinds = {name: client.get("optimum", **MODELS[name][0]).json for name in ("non-negative", "broken symmetry")}
    kinds["code"] = client.get(
        "optimum", model="normalized", loss="ce", classes=6, per_class=5, dim=2, temperature=2
    ).json
    assert [kinds[name]["optimum"]["regime"] for name in kinds] == ["orthogonal features", "broken symmetry", "polygon"]
    for name, found in kinds.items():
        assert found["meaning"], name
        assert "ℓ(a)" not in found["formula"], name
        assert not {"xi", "psi", "margin"} & {curve["name"] for curve in found["curves"]}, name
    assert "need 4 dimensions" in kinds["non-negative"]["dimension"]
    unknown = client.get("optimum", loss="mse", **SIZES, **DECAYS, features="nonnegative").json
    assert (unknown["known"], unknown["formula"], unknown["by_dimension"]) == (False, "", None)


@pytest.mark.parametrize("name", MODELS)
def test_the_command_it_prints_gives_the_same_value(client, capsys, name):
    found = client.get("optimum", **MODELS[name][0]).json
    words = shlex.split(found["command"])
    assert words[:2] == ["neuralcollapse", "optimum"]
    assert main([*words[1:], "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["value"] == pytest.approx(found["optimum"]["value"], rel=1e-12)


def test_where_no_closed_form_is_known_there_is_a_sentence_and_a_bound(client):
    answer = client.get("optimum", loss="ce", classes=6, per_class=4, dim=3, **DECAYS)
    assert answer.status == 200
    found = answer.json
    assert (found["known"], found["optimum"], found["grams"]) == (False, None, None)
    assert "no closed form is known" in found["reason"]
    assert "too few" in found["dimension"]
    low = solve(RegularizedUFM("ce", 6, 4, 3, 0.005, 0.003), max_iter=300).value
    assert found["lower_bound"] < low


def test_the_curve_over_cosines_is_the_models_value(client):
    found = client.get("optimum", **MODELS["contrastive"][0]).json
    curve = next(one for one in found["curves"] if one["name"] == "cosine")
    problem = ContrastiveUFM(4, 10, 8, 1.2)
    for index in (10, 60, 120):
        gram = torch.full((4, 4), curve["x"][index], dtype=torch.float64).fill_diagonal_(1.0)
        values, vectors = torch.linalg.eigh(gram)
        rows = torch.zeros(4, 8, dtype=torch.float64)
        rows[:, :4] = vectors * values.clamp(min=0).sqrt()
        assert curve["y"][index] == pytest.approx(problem.value(Point(None, rows[problem.labels])), rel=1e-9)


def test_values_by_dimension(client):
    found = client.get("optimum", **MODELS["low rank"][0]).json["by_dimension"]
    expected = [RegularizedUFM("mse", 9, 5, d, 0.005, 0.003).optimum().value for d in found["dims"]]
    assert found["values"] == expected
    assert found["values"] == sorted(expected, reverse=True)


def test_a_view_keeps_lengths_and_angles():
    problem = RegularizedUFM("ce", 4, 3, 20, 0.005, 0.005)
    point = problem.optimum().point
    view = flat_view(point.W, metrics.class_means(point.H, problem.labels))
    assert view.share == pytest.approx(1)
    rows = torch.tensor(view.rows(point.classifier))
    torch.testing.assert_close(rows @ rows.T, (point.classifier @ point.classifier.T).float(), atol=1e-3, rtol=0)
    line = flat_view(torch.ones(2, 1, dtype=torch.float64))
    assert np.shape(line.rows(torch.ones(5, 1, dtype=torch.float64))) == (5, 3)


def test_a_solve_is_the_librarys_and_ends_with_a_certificate(client):
    fields, problem = MODELS["cross-entropy"]
    answer = client.solve(**fields, method="lbfgs", seed=3, max_iter=200)
    assert answer.status == 200, answer.json
    found = answer.json
    trace = solve(problem, "lbfgs", seed=3, max_iter=200, every=1, record=("value", "nc1"))
    assert found["value"] == trace.value
    assert found["iterations"] == trace.iterations
    assert found["history"]["value"] == list(trace.history["value"])
    assert found["history"]["nc1"] == list(trace.history["nc1"])
    certificate = problem.certify(trace.point).to_dict()
    assert found["certificate"] == certificate
    assert found["certificate"]["verdict"] == "global minimum"
    frames = found["view"]["frames"]
    assert frames[0]["iteration"] == 0
    assert frames[-1]["iteration"] == trace.iterations
    assert len(found["view"]["labels"]) == len(frames[0]["features"]) == 40


def test_frames_are_points_on_the_way(client):
    """The point after m iterations of the long solve is the last one of a solve of m iterations."""
    problem = NormalizedUFM("ce", 3, 2, 3, 2.0)
    fields = {"model": "normalized", "loss": "ce", "classes": 3, "per_class": 2, "dim": 3, "temperature": 2}
    frames = client.solve(**fields, method="gradient-descent", seed=1, max_iter=30).json["view"]["frames"]
    for frame in frames[1:3]:
        point = solve(problem, "gradient-descent", seed=1, max_iter=frame["iteration"]).point
        rows = torch.tensor(frame["weight"], dtype=torch.float64)
        torch.testing.assert_close(rows @ rows.T, point.classifier @ point.classifier.T, atol=1e-3, rtol=0)


@pytest.mark.parametrize("kind", ["regularized", "normalized", "contrastive"])
def test_every_method_solves_every_model(client, kind):
    fields = {
        "regularized": MODELS["focal with a bias"][0],
        "normalized": MODELS["normalized"][0],
        "contrastive": MODELS["contrastive"][0],
    }[kind]
    about = client.get("about").json
    assert about["methods"][kind] == methods(MODELS[{"regularized": "zero"}.get(kind, kind)][1])
    for method in about["methods"][kind]:
        answer = client.solve(**fields, method=method, max_iter=20)
        assert answer.status == 200, (method, answer.json)
        assert answer.json["certificate"]["lower_bound"] <= answer.json["value"] + 1e-9


def test_a_solve_that_collapses_to_zero_can_be_drawn(client):
    found = client.solve(**MODELS["zero"][0], method="lbfgs").json
    for frame in found["view"]["frames"]:
        assert np.isfinite(frame["weight"]).all()
        assert np.isfinite(frame["features"]).all()


def test_the_slice_is_the_librarys(client):
    found = client.get("slice", loss="mse:alpha=5,target=2", classes=7, reach=4).json
    plane = landscape.FeatureSlice(losses.SquaredError(5, 2), 7)
    s, theta = np.array(found["s"]), np.array(found["theta"])
    np.testing.assert_allclose(found["value"], plane.value(s[None, :], theta[:, None]))
    arrows = found["arrows"]
    by_s, by_theta = plane.gradient(np.array(arrows["s"])[None, :], np.array(arrows["theta"])[:, None])
    np.testing.assert_allclose(arrows["down_s"], -by_s)
    np.testing.assert_allclose(arrows["down_theta"], -by_theta)
    own, towards, _ = plane.logits(1.0, found["boundary"])
    assert own == pytest.approx(towards)


@pytest.mark.parametrize(("loss", "bias"), [("ce", None), ("focal", None), ("mse:alpha=2", 0.1)])
def test_the_phases_are_the_librarys(client, loss, bias):
    more = {} if bias is None else {"bias_decay": bias}
    found = client.get("phases", loss=loss, classes=30, per_class=4, dim=40, **more).json
    diagram = landscape.phase_diagram(loss, 30, 4, 40, found["decays"], found["decays"], bias)
    assert [[found["regimes"][code] for code in row] for row in found["codes"]] == diagram.regimes.tolist()
    np.testing.assert_array_equal(np.array(found["values"], dtype=float), diagram.values)
    if loss == "focal":
        assert found["boundary"]["first_order"] is True
    if bias is not None:
        assert found["boundary"] is None
        return
    # On either side of the line that is drawn, the model itself has the one and the other minimum.
    line = found["boundary"]["exchange"]
    for share, regime in ((0.99, "neural collapse"), (1.01, "zero")):
        assert RegularizedUFM(loss, 30, 4, 40, share * line, 1.0).optimum().regime == regime
    assert found["boundary"]["zero_stable_above"] == pytest.approx(diagram.boundary.zero_stable_above**2 / 4)
    assert found["boundary"]["collapse_exists_below"] == pytest.approx(diagram.boundary.collapse_exists_below**2 / 4)


def test_results_are_read(client):
    found = client.get("studies").json
    assert [one["id"] for one in found["studies"]] == ["geometric/bound", "losses/torn"]
    assert found["studies"][0]["verdict"] == "holds"
    assert found["studies"][1]["error"]
    one = client.get("study", study="geometric/bound").json
    assert (one["cells"], one["failures"], one["rows"], one["picture"]) == (2, ["it broke"], 2, True)
    assert one["table"][1] == {"K": 10, "value": None, "loss": "<i>ce</i>"}
    picture = client.send("GET", "/api/picture?study=geometric%2Fbound")
    assert picture.status == 200
    assert picture.headers["Content-Type"] == "image/svg+xml"
    assert "sandbox" in picture.headers["Content-Security-Policy"]
    torn = client.get("study", study="losses/torn").json
    assert (torn["verdict"], torn["picture"]) == (None, False)


def arrays():
    generator = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), 20)
    means = generator.normal(size=(3, 6))
    return {"features": means[labels] + 0.1 * generator.normal(size=(60, 6)), "labels": labels, "weight": means}


@pytest.mark.parametrize("name", ["my features.npz", "PACKED.NPZ", "f.safetensors"])
def test_a_file_is_measured_as_the_library_does(client, tmp_path, name):
    given = arrays()
    stream = io.BytesIO()
    if name == "f.safetensors":
        save_file({key: torch.from_numpy(value) for key, value in given.items()}, tmp_path / "f.safetensors")
        stream = io.BytesIO((tmp_path / "f.safetensors").read_bytes())
    else:
        (np.savez_compressed if name == "PACKED.NPZ" else np.savez)(stream, **given, extra=np.zeros(2))
    path = f"/api/measure?name={name.replace(' ', '%20')}"
    answer = client.post(path, stream.getvalue(), "application/octet-stream")
    assert answer.status == 200, answer.json
    report = metrics.measure(given["features"], given["labels"], given["weight"])
    (frame,) = answer.json["frames"]
    rows = {row["name"]: row for row in frame["network"]["metrics"]}
    assert {row: rows[row]["value"] for row in rows} == pytest.approx(dict(report.values))
    assert all(rows[row]["meaning"] and rows[row]["definition"] for row in rows)
    assert rows["nc5_ood"]["reason"]
    if name != "f.safetensors":
        assert "not read: extra" in frame["network"]["notes"]
    assert answer.json["title"] == name


def test_several_files_are_measured_together(client):
    given = arrays()
    bodies = []
    for part in range(3):
        stream = io.BytesIO()
        np.savez(stream, features=given["features"][part::3], labels=given["labels"][part::3])
        bodies.append(stream.getvalue())
    fields = [pair for place, body in enumerate(bodies) for pair in (("name", f"{place}.npz"), ("size", len(body)))]
    answer = client.post(f"/api/measure?{urlencode(fields)}", b"".join(bodies), "application/octet-stream")
    assert answer.status == 200, answer.json
    network = answer.json["frames"][0]["network"]
    assert network["samples"] == 60
    rows = {row["name"]: row["value"] for row in network["metrics"]}
    assert rows["nc1"] == pytest.approx(metrics.measure(given["features"], given["labels"]).nc1, rel=1e-9)


def test_what_the_page_is_told(client):
    about = client.get("about").json
    names = [one["name"] for one in about["losses"]]
    assert names == [name for name, loss in losses.losses.items() if issubclass(loss, losses.LogitLoss)]
    for one in about["losses"]:
        spec = ":".join(filter(None, [one["name"], ",".join(f"{p['name']}={p['value']}" for p in one["parameters"])]))
        assert losses.get(spec) == losses.get(one["name"])
        for parameter in one["parameters"]:
            assert math.isfinite(parameter["value"])
