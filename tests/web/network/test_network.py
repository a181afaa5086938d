"""What the page shows of a network: its numbers against plain numpy, and where they come from."""

import itertools
import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

import neuralcollapse as nc
from neuralcollapse.web.network import network_of_files, network_of_model, network_of_run, sources
from neuralcollapse.web.network.picture import describe_network


@pytest.fixture(scope="module")
def arrays():
    generator = np.random.default_rng(1)
    labels = generator.permutation(np.repeat(np.arange(5), [12, 20, 15, 30, 9]))
    means = generator.normal(size=(5, 8))
    spread = np.array([0.1, 0.3, 0.05, 0.2, 0.6])
    features = means[labels] + spread[labels][:, None] * generator.normal(size=(86, 8)) + 3.0
    return features, labels, means + 0.1 * generator.normal(size=(5, 8))


@pytest.fixture(scope="module")
def network(arrays):
    features, labels, weight = arrays
    report = nc.measure(features, labels, weight, intervals=0.95)
    return report, describe_network(report, *(torch.from_numpy(part) for part in arrays))


def test_gauges_are_the_reports(network):
    report, shown = network
    for gauge, name in zip(shown["gauges"], ("nc1", "nc2", "nc3", "nc4_mismatch"), strict=True):
        assert gauge["value"] == report.values[name]
        assert gauge["interval"] == report.intervals.get(name)
        if gauge["span"] is not None:
            low, high = gauge["span"]
            assert 0 <= low <= gauge["position"] <= high <= 1
    assert shown["gauges"][0]["span"] is not None
    json.dumps(shown, allow_nan=False)


def test_the_view_keeps_the_distances_of_the_means(arrays, network):
    features, labels, weight = arrays
    view = network[1]["view"]
    means = np.stack([features[labels == k].mean(0) for k in range(5)])
    centred = means - features.mean(0)
    unit = np.sqrt((centred**2).sum(1).mean())
    seen = np.array(view["means"])
    for i, j in itertools.combinations(range(5), 2):
        assert np.linalg.norm(seen[i] - seen[j]) == pytest.approx(np.linalg.norm(means[i] - means[j]) / unit, abs=1e-4)
    # Angles between a classifier row and a mean are kept, too.
    rows = weight - weight.mean(0)
    rows /= np.sqrt((rows**2).sum(1).mean())
    assert np.array(view["classifier"]) @ seen.T == pytest.approx(rows @ centred.T / unit, abs=1e-3)
    assert sorted(set(view["labels"])) == list(range(5))


def test_the_worst_pair_is_found_by_looking_at_all(arrays, network):
    features, labels, _ = arrays
    pair = network[1]["pair"]
    means = {k: features[labels == k].mean(0) for k in range(5)}
    spread = {k: ((features[labels == k] - means[k]) ** 2).sum(1).mean() for k in range(5)}
    ratio = {
        (i, j): (spread[i] + spread[j]) / (2 * ((means[i] - means[j]) ** 2).sum())
        for i, j in itertools.combinations(range(5), 2)
    }
    worst = max(ratio, key=ratio.__getitem__)
    assert tuple(pair["classes"]) == worst
    assert pair["cdnv"] == pytest.approx(ratio[worst])
    assert np.mean(pair["first"]) == pytest.approx(0, abs=1e-4)
    assert np.mean(pair["second"]) == pytest.approx(1, abs=1e-4)


def test_spread_margins_and_cosines(arrays, network):
    features, labels, weight = arrays
    shown = network[1]
    means = np.stack([features[labels == k].mean(0) for k in range(5)])
    centred = means - features.mean(0)
    size = np.sqrt((centred**2).sum(1).mean())
    spread = [np.sqrt(((features[labels == k] - means[k]) ** 2).sum(1).mean()) / size for k in range(5)]
    assert shown["spread"] == pytest.approx(spread, abs=1e-4)
    unit = centred / np.linalg.norm(centred, axis=1, keepdims=True)
    assert np.array(shown["gram"]["means"]) == pytest.approx(unit @ unit.T, abs=1e-4)
    rows = weight / np.linalg.norm(weight, axis=1, keepdims=True)
    assert np.array(shown["gram"]["classifier"]) == pytest.approx(rows @ rows.T, abs=1e-4)
    assert shown["margins"]["at_collapse"] == pytest.approx(5 / 4)
    assert shown["margins"]["margin"] == sorted(shown["margins"]["margin"])


def test_files_of_every_kind(arrays, tmp_path):
    features, labels, weight = arrays
    whole = nc.measure(features, labels, weight)
    np.savez(tmp_path / "a.npz", features=features[:50], labels=labels[:50], weight=weight)
    np.savez(tmp_path / "b.npz", features=features[50:], labels=labels[50:])
    shards = network_of_files([tmp_path / "a.npz", tmp_path / "b.npz"])
    network = shards.frames[0]["network"]
    assert shards.title == "2 files"
    assert network["gauges"][0]["value"] == pytest.approx(whole.nc1)
    assert network["gauges"][0]["interval"] is not None
    assert network["view"] is not None
    np.savez(tmp_path / "foreign.npz", features=features.astype(">f8"), labels=labels.astype(">i8"), weight=weight)
    assert network_of_files([tmp_path / "foreign.npz"]).frames[0]["network"]["view"] is not None
    names = np.array(["ant", "bee", "cat", "dog", "elk"])[labels]
    np.savez(tmp_path / "named.npz", features=features, labels=names)
    named = network_of_files([tmp_path / "named.npz"]).frames[0]["network"]
    assert named["names"] == ["ant", "bee", "cat", "dog", "elk"]
    assert len(named["view"]["classes"]) == 5
    two = {"features.early": features + 1.0, "features.late": features, "labels": labels}
    np.savez(tmp_path / "layers.npz", **two)
    layered = network_of_files([tmp_path / "layers.npz"]).frames[0]["network"]
    assert [layer["name"] for layer in layered["layers"]] == ["early", "late"]
    statistics = nc.ClassStatistics(5, 8)
    statistics.update(torch.from_numpy(features), torch.from_numpy(labels))
    statistics.save(tmp_path / "sums.safetensors")
    summed = network_of_files([tmp_path / "sums.safetensors"]).frames[0]["network"]
    assert summed["view"] is None
    assert summed["gauges"][0]["value"] == pytest.approx(whole.nc1)


def test_layers_in_a_file_are_read_as_features_are(arrays, tmp_path):
    """Labels may be text, digits too, or say that a sample is to be left out; the file says how coarse it is."""
    features, labels, weight = arrays
    for names in (["ant", "bee", "cat", "dog", "elk"], ["1", "2", "3", "4", "5"]):
        words = np.array(names)[labels]
        np.savez(tmp_path / "text.npz", **{"features.a": features, "features.b": features}, labels=words)
        np.savez(tmp_path / "plain.npz", features=features, labels=words)
        plain, text = (network_of_files([tmp_path / f"{name}.npz"]).frames[0]["network"] for name in ("plain", "text"))
        assert plain["names"] == text["names"] == names
        assert plain["view"] == text["view"]
    left = np.where(np.arange(86) % 4 == 0, -100, labels)
    np.savez(tmp_path / "left.npz", **{"features.a": features, "labels": left, "weight": weight})
    network = network_of_files([tmp_path / "left.npz"]).frames[0]["network"]
    assert network["samples"] == int((left >= 0).sum())
    assert set(network["view"]["labels"]) == set(range(5))
    means = np.eye(5, 8)
    means[4] = means[3] + 1e-3 * np.eye(8)[6]  # apart by less than a rounding of bfloat16
    rows = torch.from_numpy(means[labels] + 1e-4 * features).float()
    tensors = {"features.a": rows, "labels": torch.from_numpy(labels)}
    save_file(tensors, tmp_path / "fine.safetensors")
    save_file(tensors, tmp_path / "coarse.safetensors", {"precision": "bfloat16"})
    values = {
        name: network_of_files([tmp_path / f"{name}.safetensors"]).frames[0]["network"]["layers"][0]["nc1"]
        for name in ("fine", "coarse")
    }
    assert values["coarse"] == nc.measure(rows, torch.from_numpy(labels), precision=torch.bfloat16).nc1
    assert values["coarse"] < 0.5 * values["fine"]


def test_many_classes_and_few_samples_are_drawn(tmp_path):
    generator = np.random.default_rng(0)
    labels = np.arange(260) % 130
    np.savez(tmp_path / "many.npz", features=generator.normal(size=(260, 6)), labels=labels)
    shown = network_of_files([tmp_path / "many.npz"]).frames[0]["network"]
    assert len(shown["view"]["classes"]) == 100
    assert len(shown["gram"]["means"]) == 100
    assert len(json.dumps(shown)) < 1 << 20


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(6, 9), nn.Linear(9, 7), nn.Linear(7, 3)

    def forward(self, x):
        return self.head(torch.relu(self.second(torch.relu(self.first(x)))))


def test_a_model_is_measured_as_the_library_does():
    torch.manual_seed(0)
    model, data = Net(), [(torch.randn(40, 6), torch.arange(40) % 3) for _ in range(2)]
    report, shown = network_of_model(model, data)
    direct = nc.measure_model(model, data)
    assert dict(report.values) == pytest.approx(dict(direct.values))
    assert report.layer == "head"
    assert [layer["name"] for layer in shown["layers"]] == ["first", "second", "head"]
    assert network_of_model(model, data, layers=False)[1]["layers"] == []
    with pytest.raises(ValueError, match="nowhere"):
        network_of_model(model, data, layers=["nowhere"])


class Mixed(nn.Module):
    """A trunk in bfloat16 before a head in float32."""

    def __init__(self):
        super().__init__()
        self.trunk, self.head = nn.Linear(6, 7, dtype=torch.bfloat16), nn.Linear(7, 3)

    def forward(self, x):
        return self.head(self.trunk(x.bfloat16()).float())


def same_as_measured(model, data, **options):
    """The page's report, after a comparison with that of ``measure_model``."""
    report, shown = network_of_model(model, data)
    direct = nc.measure_model(model, data, intervals=0.95, **options)
    for name in ("values", "intervals", "reasons", "rank", "num_samples", "layer"):
        assert getattr(report, name) == getattr(direct, name), name
    assert {metric["name"]: metric["value"] for metric in shown["metrics"]} == direct.values
    return report


def test_a_coarse_trunk_an_empty_batch_and_labels_to_leave_out_are_measured_as_the_library_does():
    torch.manual_seed(0)
    labels = torch.arange(60) % 3
    inputs = torch.eye(6)[labels]
    inputs[labels == 2] = inputs[1] + 1e-3 * torch.eye(6)[2]  # apart by less than a rounding of bfloat16
    inputs += 1e-4 * torch.randn(60, 6)
    left = torch.where(torch.arange(60) % 5 == 0, -100, labels)
    whole, empty = (inputs, labels), (inputs[:0], labels[:0])
    assert same_as_measured(Mixed(), [whole]).rank == 1
    assert same_as_measured(Net(), [empty, whole, empty]).num_samples == 60
    assert same_as_measured(Net(), [whole, (inputs, left)]).num_samples == 108
    with pytest.raises(ValueError, match="loader holds no batches"):
        network_of_model(Net(), [empty])


def test_a_loader_of_many_features_is_cut(monkeypatch):
    monkeypatch.setattr(sources, "MEMORY", 40 * 7 * 4 + 1)
    torch.manual_seed(0)
    data = [(torch.randn(40, 6), torch.arange(40) % 3) for _ in range(3)]
    report = same_as_measured(Net(), data, max_batches=2)
    assert report.num_samples == 80
    assert "measured on the first 2 batches only (their features take 0 MB)" in report.notes
    assert same_as_measured(Net(), data[:2]).notes == nc.measure_model(Net(), data[:2]).notes


def test_a_run_shows_its_beginning_and_its_end(tmp_path):
    plan = nc.training.Plan(data="digits", per_class=8, model="mlp:width=12,depth=2", epochs=2)
    run = nc.training.train(plan, tmp_path / "run")
    source = network_of_run(run.folder)
    assert [one["name"] for one in source.frames] == ["before training", "after epoch 2"]
    assert source.frames[1]["network"]["gauges"][0]["value"] == pytest.approx(run.final("train")["nc1"], rel=1e-4)
    assert source.frames[0]["network"]["gauges"][0]["value"] != source.frames[1]["network"]["gauges"][0]["value"]
    assert list(source.history) == run.history


def test_the_sample_does_not_depend_on_anyones_random_state(monkeypatch):
    monkeypatch.setattr(sources, "SAMPLE_EPOCHS", (0, 1))
    texts = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        texts.append(sources._sample_text.__wrapped__())
    assert texts[0] == texts[1]
