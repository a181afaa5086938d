"""``nc.watch``: what it streams, and that training goes on as if nobody looked."""

import copy
import http.server
import json
import logging
import random
import threading
import urllib.request

import numpy as np
import pytest
import torch
from torch import nn

import neuralcollapse as nc
from neuralcollapse.web.explorer import ExplorerServer

pytestmark = pytest.mark.unchecked


@pytest.fixture
def data():
    generator = torch.Generator().manual_seed(0)
    x, y = torch.randn(60, 5, generator=generator), torch.arange(60) % 3
    return torch.utils.data.TensorDataset(x + 2.0 * torch.eye(3, 5)[y], y)


def net():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


def frames_at(port, after=0):
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/watch?after={after}", timeout=30) as answer:
        return json.load(answer)


def test_measurements_reach_the_page(data):
    model = net()
    with nc.watch(model, data, port=0, title="my net") as watcher:
        assert watcher.update(7) is not None
        with torch.no_grad():
            model[-1].weight.mul_(2)
        report = watcher.update()
        answer = frames_at(watcher._port)
        assert answer["title"] == "my net"
        assert [frame["step"] for frame in answer["frames"]] == [0, 7, 2]
        direct = nc.measure_model(model, data)
        assert dict(report.values) == pytest.approx(dict(direct.values))
        gauges = answer["frames"][-1]["network"]["gauges"]
        assert gauges[0]["value"] == pytest.approx(direct.nc1)
        assert [step for step, _ in watcher.history] == [0.0, 7.0, 2.0]
        nc.plot_history(watcher.history)
        port = watcher._port
    with pytest.raises(OSError, match="refused"):
        frames_at(port)


def train(model, data, watched):
    """Three epochs with everything random that training may use; the weights, and what random states are left."""
    random.seed(5), np.random.seed(5), torch.manual_seed(5)
    generator = torch.Generator().manual_seed(9)
    loader = torch.utils.data.DataLoader(data, batch_size=20, shuffle=True, generator=generator)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    watcher = nc.watch(model, loader, port=0) if watched else None
    model.train()
    model[3].eval()  # a mode of its own, as fine-tuning sets it
    for _ in range(3):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x + 0.01 * torch.randn_like(x)), y).backward()
            optimizer.step()
        if watcher is not None:
            before = [parameter.grad.clone() for parameter in model.parameters()]
            watcher.update()
            after = [parameter.grad for parameter in model.parameters()]
            assert all(torch.equal(a, b) for a, b in zip(before, after, strict=True))
    if watcher is not None:
        watcher.close()
    modes = [module.training for module in model.modules()]
    drawn = (random.random(), np.random.rand(), torch.rand(1).item(), torch.rand(1, generator=generator).item())
    return model.state_dict(), modes, drawn


def test_training_goes_on_as_if_nobody_looked(data):
    threads = torch.get_num_threads()
    model = net()
    plain = train(copy.deepcopy(model), data, watched=False)
    seen = train(copy.deepcopy(model), data, watched=True)
    assert plain[0].keys() == seen[0].keys()
    assert all(torch.equal(plain[0][name], seen[0][name]) for name in plain[0])
    assert plain[1:] == seen[1:]
    assert torch.get_num_threads() == threads
    assert all(not module._forward_hooks for module in model.modules())


def test_an_open_page_is_used_and_stays(data):
    with ExplorerServer(0) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            for title in ("first", "second"):
                with nc.watch(net(), data, port=server.port, title=title, layers=False) as watcher:
                    assert watcher.url.startswith(server.url)
                    watcher.update()
                answer = frames_at(server.port)
                assert answer["title"] == title
                assert [frame["step"] for frame in answer["frames"]] == [0, 1]
            assert [frame["number"] for frame in frames_at(server.port)["frames"]] == [1, 2]
        finally:
            server.stop()
            thread.join()


def test_a_long_run_is_thinned_out(data):
    with nc.watch(net(), data, port=0, layers=False) as watcher:
        network = frames_at(watcher._port)["frames"][0]["network"]
        board = watcher._server.pages.board
        for step in range(1, 300):
            board.add({"run": watcher._run, "title": "t", "name": "n", "step": step, "network": network})
        steps = [frame["step"] for frame in frames_at(watcher._port)["frames"]]
        assert len(steps) <= 64
        assert steps[0] == 0
        assert steps[-1] == 299
        assert steps == sorted(steps)


def test_only_every_so_many_calls_measure(data):
    with nc.watch(net(), data, port=0, every=3, layers=False) as watcher:
        assert [watcher.update() is None for _ in range(7)] == [True, True, False, True, True, False, True]
        assert [step for step, _ in watcher.history] == [0.0, 3.0, 6.0]


def test_neither_a_diverged_model_nor_a_closed_page_ends_training(data, caplog):
    model = net()
    watcher = nc.watch(model, data, port=0, layers=False)
    watcher.close()
    with caplog.at_level(logging.WARNING, "neuralcollapse"):
        assert watcher.update() is not None
        assert watcher.update() is not None
    assert sum("takes no measurements" in record.message for record in caplog.records) == 1
    with torch.no_grad():
        model[-1].weight.fill_(float("nan"))
    with caplog.at_level(logging.WARNING, "neuralcollapse"):
        assert watcher.update() is watcher.update() is None
    assert sum("was not measured" in record.message for record in caplog.records) == 1
    watcher.close()


def test_what_cannot_be_watched_is_said(data):
    with pytest.raises(TypeError, match="loader must be read again"):
        nc.watch(net(), iter([1]), port=0)
    with pytest.raises(TypeError, match="model must be"):
        nc.watch("net", data, port=0)
    with pytest.raises(ValueError, match="every must be at least 1"):
        nc.watch(net(), data, every=0, port=0)
    threads = threading.active_count()
    with pytest.raises(ValueError, match="loader holds no batches"):
        nc.watch(net(), [], port=0)
    assert threading.active_count() <= threads
    other = http.server.HTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler)
    thread = threading.Thread(target=other.serve_forever)
    thread.start()
    try:
        with pytest.raises(ValueError, match=r"port \d+ is taken"):
            nc.watch(net(), data, port=other.server_port)
    finally:
        other.shutdown()
        other.server_close()
        thread.join()


def test_the_page_takes_descriptions_only(data):
    with nc.watch(net(), data, port=0, layers=False) as watcher:
        board = watcher._server.pages.board
        good = {
            "run": "r",
            "title": "t",
            "name": "n",
            "step": 1,
            "network": {"gauges": [], "metrics": [], "headline": ""},
        }
        for name, value in (("network", 3), ("network", {}), ("step", "x"), ("title", 4), ("extra", 1)):
            with pytest.raises((ValueError, TypeError), match=name):
                board.add({**good, name: value})
