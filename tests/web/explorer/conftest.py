"""A server on a free port, and a client that can send anything."""

import http.client
import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode, urlsplit

import pytest

from neuralcollapse.web.explorer import ExplorerServer
from web_browser import ARGUMENTS, CHROMIUM, Watched


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        def refuse(text: str) -> None:
            raise AssertionError(f"{text} is not JSON")

        return json.loads(self.body, parse_constant=refuse)


class Client:
    def __init__(self, server: ExplorerServer):
        self.server = server
        self.origin = f"http://127.0.0.1:{server.port}"

    def send(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            response = connection.getresponse()
            return Answer(
                response.status, {name.title(): value for name, value in response.getheaders()}, response.read()
            )
        finally:
            connection.close()

    def get(self, path: str, **fields: Any) -> Answer:
        return self.send("GET", f"/api/{path}?{urlencode(fields)}")

    def solve(self, **fields: Any) -> Answer:
        return self.post("/api/solve", json.dumps(fields).encode(), "application/json")

    def post(self, path: str, body: bytes, kind: str) -> Answer:
        return self.send("POST", path, body, Origin=self.origin, Content_Type=kind)


@pytest.fixture(scope="session")
def results(tmp_path_factory):
    """A folder as ``study run`` writes it, with a study that is fine, one that is broken and one that tries tricks."""
    folder = tmp_path_factory.mktemp("results")
    good = folder / "geometric" / "bound"
    good.mkdir(parents=True)
    facts = {
        "id": "geometric/bound",
        "paper": "geometric",
        "figures": ["11"],
        "question": "Is <b>it</b> so?",
        "profile": "smoke",
        "verdict": "holds",
        "parts": [
            {
                "name": "it",
                "says": "It is.",
                "source": "Figure 11",
                "kind": "paper",
                "verdict": "holds",
                "measured": 0.25,
                "low": 0.2,
                "high": 0.3,
                "limit": "at most 1",
                "floor": None,
                "erratum": 3,
                "why": "3 of 3 <b>are</b>.",
                "decides": True,
            }
        ],
        "cpu_minutes": 1.5,
        "setting": "small",
        "cells": [{"labels": {}, "error": None}, {"labels": {}, "error": "it broke"}],
    }
    (good / "study.json").write_text(json.dumps(facts))
    (good / "table.json").write_text(
        json.dumps([{"K": 4, "value": 0.5}, {"K": 10, "value": None, "loss": "<i>ce</i>"}])
    )
    (good / "figure.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg" width="10" height="10"><rect/></svg>')
    broken = folder / "losses" / "torn"
    broken.mkdir(parents=True)
    (broken / "study.json").write_text('{"id": "losses/to')
    outside = tmp_path_factory.mktemp("outside") / "secret"
    outside.mkdir()
    (outside / "study.json").write_text('{"claim": "secret"}')
    (folder / "losses" / "link").symlink_to(outside)
    (folder / "study.json").write_text("{}")
    return folder


@pytest.fixture(scope="session")
def server(results) -> Iterator[ExplorerServer]:
    with ExplorerServer(0, results) as running:
        thread = threading.Thread(target=running.serve)
        thread.start()
        yield running
        running.stop()
        thread.join()


@pytest.fixture
def client(server) -> Client:
    return Client(server)


# One browser at a time in a process: that of the last module is closed before another kind of test opens its own.
@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine")
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as running:
        chromium = running.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def watched(browser, server):
    found = Watched(browser, server)
    yield found
    found.context.close()
    assert found.troubles == []
    assert {host for host in found.hosts if host} == {urlsplit(server.url).netloc}
