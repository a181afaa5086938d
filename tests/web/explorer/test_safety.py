"""What the server refuses, and how: one line, the right status, never a traceback."""

import contextlib
import http.client
import io
import json
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest

from neuralcollapse.cli import main
from neuralcollapse.web.explorer import ExplorerServer, _app, _network

pytestmark = pytest.mark.unchecked

GOOD = {"loss": "ce", "classes": 4, "per_class": 3, "dim": 5, "weight_decay": 0.01, "feature_decay": 0.01}


def check_error(answer, status, text=""):
    assert answer.status == status, answer.body[:300]
    assert set(answer.json) == {"error"}
    line = answer.json["error"]
    assert line
    assert "\n" not in line
    assert "Traceback" not in line
    assert text in line


@pytest.mark.parametrize("host", ["127.0.0.1:{}", "localhost:{}", "LOCALHOST:{}", "[::1]:{}"])
def test_own_hosts_are_served(client, host):
    answer = client.send("GET", "/", Host=host.format(client.server.port))
    assert answer.status == 200
    assert b"<title>Neural collapse explorer</title>" in answer.body


@pytest.mark.parametrize("host", ["evil.example:{}", "127.0.0.1", "127.0.0.1:1", "localhost.evil.example:{}", ""])
def test_other_hosts_are_refused(client, host):
    for path in ("/", "/app.js", "/api/about"):
        check_error(client.send("GET", path, Host=host.format(client.server.port)), 403)


def test_it_listens_on_the_loopback_only(server):
    assert server.address == "127.0.0.1"


@pytest.mark.parametrize("origin", [None, "null", "http://evil.example", "https://127.0.0.1:{}", "http://127.0.0.1:1"])
def test_a_post_needs_the_pages_origin(client, origin):
    headers = {} if origin is None else {"Origin": origin.format(client.server.port)}
    for path, kind in (("/api/solve", "application/json"), ("/api/measure?name=a.npz", "application/octet-stream")):
        body = json.dumps(GOOD).encode()
        check_error(client.send("POST", path, body, Content_Type=kind, **headers), 403, "other pages")


def test_a_get_from_another_page_is_refused(client):
    check_error(client.send("GET", "/api/about", Origin="http://evil.example"), 403)
    check_error(client.send("GET", "/api/about", Sec_Fetch_Site="cross-site"), 403)
    assert client.send("GET", "/", Sec_Fetch_Site="cross-site").status == 200
    assert client.send("GET", "/api/about", Sec_Fetch_Site="same-origin").status == 200


def test_every_answer_is_guarded(client):
    for path in ("/", "/style.css", "/plotly.js", "/api/about", "/api/none", "/api/picture?study=geometric%2Fbound"):
        headers = client.send("GET", path).headers
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["X-Frame-Options"] == "DENY"
        assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
        policy = headers["Content-Security-Policy"]
        assert policy.startswith(("default-src 'self'", "default-src 'none'"))
        assert "http" not in policy
        assert "eval" not in policy
        assert "script-src 'self';" in policy or "default-src 'none'" in policy
        assert "Server" not in headers


@pytest.mark.parametrize(
    "path",
    [
        "/..",
        "/../_server.py",
        "/%2e%2e/_server.py",
        "/static/app.js",
        "/_server.py",
        "/app.js/",
        "/app.js%00.svg",
        "/etc/passwd",
        "/static/",
        "/api/",
        "/api/about/../optimum",
    ],
)
def test_no_path_leaves_the_table(client, path):
    check_error(client.send("GET", path), 404)


def test_it_is_no_proxy(client):
    host = f"127.0.0.1:{client.server.port}"
    check_error(client.send("GET", "http://evil.example/", Host=host), 404)
    check_error(client.send("GET", "http://[/", Host=host), 404)


@pytest.mark.parametrize(
    "study",
    ["", "..", "../..", "losses/link", "geometric", "geometric/../geometric/bound", "/etc", "a\x00b", "cells/x"],
)
def test_no_study_leaves_the_folder(client, study):
    check_error(client.get("study", study=study), 404)
    check_error(client.get("picture", study=study), 404)


def test_a_study_without_a_picture(client):
    check_error(client.get("picture", study="losses/torn"), 404, "no picture")


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_other_verbs_are_refused(client, method):
    check_error(client.send(method, "/api/solve", Origin=client.origin), 405)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"classes": 1}, "classes must be at least 2"),
        ({"classes": 10**9}, "classes must be at most 100"),
        ({"classes": "9" * 5000}, "classes must be a whole number"),
        ({"classes": "4.5"}, "classes must be a whole number"),
        ({"classes": "x"}, "classes must be a whole number"),
        ({"per_class": 10**9}, "per_class must be at most"),
        ({"dim": 10**9}, "dim must be at most"),
        ({"dim": 0}, "dim must be at least 1"),
        ({"weight_decay": -1}, "weight_decay must be at least 0"),
        ({"weight_decay": "nan"}, "weight_decay must be finite"),
        ({"weight_decay": "1e999"}, "weight_decay must be finite"),
        ({"weight_decay": 0}, "the minimum is not attained"),
        ({"feature_decay": ""}, "feature_decay is missing"),
        ({"loss": "focl"}, "did you mean 'focal'"),
        ({"loss": "focal:gamma=-1"}, "gamma must be at least 0"),
        ({"loss": "focal:gamma=__import__('os')"}, "gamma must be a real number"),
        ({"loss": "sc"}, "a loss on logits"),
        ({"loss": "x" * 5000}, "at most 200 characters"),
        ({"model": "bent"}, "unknown feature model"),
        ({"temperature": 1}, "unknown field 'temperature'"),
        ({"model": "normalized", "temperature": 0}, "temperature must be greater than 0"),
        ({"model": "normalized", "weight_decay": "", "feature_decay": ""}, "temperature is missing"),
        ({"<script>": 1}, "unknown field"),
    ],
)
def test_bad_fields_are_one_line(client, fields, text):
    check_error(client.get("optimum", **{**GOOD, **fields}), 400, text)


@pytest.mark.parametrize(
    ("path", "fields", "text"),
    [
        ("slice", {"loss": "ce", "classes": 2, "reach": 1}, "classes must be at least 3"),
        ("slice", {"loss": "ce", "classes": 10**7, "reach": 1}, "classes must be at most"),
        ("slice", {"loss": "ce", "classes": 5, "reach": 0}, "reach must be at least"),
        ("phases", {"loss": "focal", "classes": 5, "per_class": 1, "dim": 5, "bias_decay": 1}, "takes minutes"),
        ("phases", {"loss": "ce", "classes": 10**7, "per_class": 1, "dim": 5}, "classes must be at most"),
        ("about", {"x": 1}, "unknown field 'x'"),
    ],
)
def test_bad_fields_of_the_other_views(client, path, fields, text):
    check_error(client.get(path, **fields), 400, text)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"classes": 51}, "classes must be at most 50"),
        ({"classes": 50, "per_class": 50}, "classes times per_class must be at most 500"),
        ({"dim": 10**12}, "dim must be at most"),
        ({"max_iter": 10**9}, "max_iter must be at most"),
        ({"seed": -1}, "seed must be at least 0"),
        ({"seed": 10**30}, "seed must be at most"),
        ({"classes": True}, "classes must be an integer"),
        ({"classes": [4]}, "classes must be an integer"),
        ({"loss": {"a": 1}}, "loss must be a text"),
        ({"method": "newton"}, "unknown method"),
        ({"method": "lbfgs:memory=x"}, "memory"),
        ({"weight_decay": None}, "weight_decay is missing"),
    ],
)
def test_bad_solves_are_one_line(client, fields, text):
    check_error(client.solve(**{**GOOD, **fields}), 400, text)


def test_bodies_that_are_not_what_they_should_be(client):
    for body in (b"", b"{", b"[1]", b"null", b"\xff\xfe", b"[" * 50_000):
        check_error(client.post("/api/solve", body, "application/json"), 400, "JSON")
    check_error(client.post("/api/solve", b'{"classes": NaN}', "application/json"), 400, "classes")
    check_error(client.post("/api/solve", b"{}", "text/plain"), 415)
    check_error(client.post("/api/none", b"{}", "application/json"), 404)
    check_error(client.post("/api/solve", b" " * (65 << 10), "application/json"), 413)
    for length in ("9" * 5000, "-5", "1e3", "9" * 15):
        refused = client.send(
            "POST", "/api/solve", Origin=client.origin, Content_Type="application/json", Content_Length=length
        )
        assert refused.status in (400, 413)
        assert b"<" not in refused.body
    check_error(client.send("GET", "/api/optimum?" + "a=1&" * 60), 400, "too many fields")


def test_a_request_that_is_not_http(server):
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(b"hello there friend\r\n\r\n")
        text = connection.recv(4096)
    assert text.startswith(b"HTTP/1.1 400")
    assert b"<" not in text


def npz(**arrays) -> bytes:
    stream = io.BytesIO()
    np.savez(stream, **arrays)
    return stream.getvalue()


def test_bad_files_are_one_line(client, monkeypatch):
    def send(body, name="a.npz"):
        return client.post(f"/api/measure?name={name}", body, "application/octet-stream")

    check_error(send(b"x", "a.pkl"), 400, "must be one of")
    check_error(send(b"x", ""), 400, "name: give 1 to")
    check_error(send(b"x", "a.npz&size=2"), 400, "size")
    check_error(send(b"x", "a.npz&size=one"), 400, "size")
    check_error(send(b"xx", "a.npz&size=1&name=b.npz"), 400, "size")
    check_error(send(b"xx", "a.npy&size=1&name=b%2Fa.npy&size=1"), 400, "the same name")
    check_error(send(b"not a zip"), 400, "not a readable .npz file")
    check_error(send(b"not tensors", "../../a.safetensors"), 400, "not a readable .safetensors file")
    check_error(send(npz(features=np.zeros((4, 2)))), 400, "no array 'labels'")
    check_error(send(npz(features=np.zeros((4, 2)), labels=np.zeros(3, int))), 400, "labels")
    check_error(send(npz(features=np.full((4, 2), np.nan), labels=np.array([0, 0, 1, 1]))), 400)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        pickled = io.BytesIO()
        np.save(pickled, np.array([{}], dtype=object), allow_pickle=True)
        for name in ("features.npy", "labels.npy"):
            archive.writestr(name, pickled.getvalue())
    check_error(send(stream.getvalue()), 400, "Python objects")
    answer = client.send(
        "POST", "/api/measure?name=a.npz", Origin=client.origin, Content_Type="application/octet-stream",
        Content_Length=str(201 << 20),
    )  # fmt: skip
    check_error(answer, 413)
    monkeypatch.setattr(_network, "LARGEST_UNPACKED", 1000)
    check_error(send(npz(features=np.zeros((400, 2)), labels=np.zeros(400, int))), 400, "more than")


def test_a_file_that_does_not_arrive_whole(server, client, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    before = set(Path(tempfile.gettempdir()).glob("neuralcollapse-*"))
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
    connection.putrequest("POST", "/api/measure?name=a.npz")
    for name, value in {
        "Origin": f"http://127.0.0.1:{server.port}",
        "Content-Type": "application/octet-stream",
        "Content-Length": "1000",
    }.items():
        connection.putheader(name, value)
    connection.endheaders()
    connection.send(b"short")
    connection.close()
    # The connection is gone, so there is nobody to tell; the server goes on, and nothing is left on the disk.
    assert client.send("GET", "/api/about").status == 200
    deadline = time.monotonic() + 20
    while set(Path(tempfile.gettempdir()).glob("neuralcollapse-*")) - before and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not set(Path(tempfile.gettempdir()).glob("neuralcollapse-*")) - before


def test_an_internal_error_is_one_line(client, monkeypatch, caplog):
    def fail(fields):
        raise ZeroDivisionError("secret detail")

    monkeypatch.setattr(_app, "describe_slice", fail)
    answer = client.get("slice", loss="ce", classes=5, reach=1)
    check_error(answer, 500, "ZeroDivisionError")
    assert "secret" not in answer.json["error"]


def test_one_long_calculation_at_a_time(client, monkeypatch):
    began, done = threading.Event(), threading.Event()

    def slow(fields):
        began.set()
        done.wait(30)
        return {}

    monkeypatch.setattr(_app, "BUSY_SECONDS", 0.1)
    monkeypatch.setattr(_app, "describe_certificate", slow)
    asking = threading.Thread(target=lambda: client.post("/api/certify", b"{}", "application/json"))
    asking.start()
    assert began.wait(30)
    check_error(client.solve(**GOOD), 503, "another calculation")
    done.set()
    asking.join()
    assert client.solve(**GOOD, max_iter=5).status == 200


def test_no_folder_of_results():
    with ExplorerServer(0) as server:
        thread = threading.Thread(target=server.serve)
        thread.start()
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=20)
        connection.request("GET", "/api/studies")
        response = connection.getresponse()
        assert response.status == 404
        assert b"--results" in response.read()
        connection.close()
        server.stop()
        thread.join()


def test_ending_stops_a_running_solve():
    server = ExplorerServer(0)
    thread = threading.Thread(target=server.serve)
    thread.start()
    seen = []
    long = {**GOOD, "classes": 50, "per_class": 10, "dim": 100, "weight_decay": 1e-5, "feature_decay": 1e-5}

    def ask():
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        headers = {"Origin": f"http://127.0.0.1:{server.port}", "Content-Type": "application/json"}
        connection.request("POST", "/api/solve", json.dumps({**long, "method": "adam", "max_iter": 2000}), headers)
        seen.append(connection.getresponse().status)
        connection.close()

    asking = threading.Thread(target=ask)
    asking.start()
    while not server.pages.working.locked():
        time.sleep(0.01)
    server.stop()
    asking.join()
    thread.join()
    assert seen == [503]


# The command ---------------------------------------------------------------------------------------------------------


def complain(capsys, *arguments) -> str:
    assert main(["explore", "--no-browser", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    return captured.err


def test_a_port_that_is_taken(capsys, server):
    text = complain(capsys, "--port", str(server.port))
    assert f"port {server.port} is taken" in text


def test_bad_arguments(capsys, tmp_path):
    assert "--port must be at most 65535" in complain(capsys, "--port", "70000")
    assert "--port" in complain(capsys, "--port", "x")
    assert "no such folder" in complain(capsys, "--port", "0", "--results", str(tmp_path / "none"))


def test_help_has_examples(capsys):
    assert main(["explore", "--help"]) == 0
    text = capsys.readouterr().out
    assert "Try:" in text
    assert "neuralcollapse explore" in text


def test_the_command_ends_with_the_interrupt_key():
    command = [sys.executable, "-m", "neuralcollapse", "explore", "--port", "0", "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().split()[0]
            port = int(url.rstrip("/").rpartition(":")[2])
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
            connection.request("GET", "/api/about")
            assert connection.getresponse().status == 200
            connection.close()
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=30)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
    assert process.returncode == 0, err
    assert err == ""
    assert "Traceback" not in out


def test_many_at_once_are_served_or_refused(client, monkeypatch):
    """Idle connections cost little, and solves that pile up wait their turn or are told to come back."""
    monkeypatch.setattr(_app, "BUSY_SECONDS", 2.0)
    idle = [socket.create_connection(("127.0.0.1", client.server.port), timeout=20) for _ in range(300)]
    try:
        statuses = []
        asking = [
            threading.Thread(target=lambda: statuses.append(client.solve(**GOOD, max_iter=3).status)) for _ in range(60)
        ]
        for thread in asking:
            thread.start()
        for thread in asking:
            thread.join()
        assert len(statuses) == 60
        assert set(statuses) <= {200, 503}
        assert 200 in statuses
        assert client.send("GET", "/api/about").status == 200
    finally:
        for connection in idle:
            connection.close()


def test_a_certificate_of_a_point_from_the_page(client):
    fields = {"loss": "ce", "classes": 2, "counts": "2 1", "dim": 2, "weight_decay": 0.1, "feature_decay": 0.1}
    good = {**fields, "W": [0.0] * 4, "H": [0.0] * 6}

    def ask(**changed):
        return client.post("/api/certify", json.dumps({**good, **changed}).encode(), "application/json")

    assert ask().json["verdict"] == "strict saddle"
    assert len(ask().json["escape"]["H"]) == 6
    check_error(ask(W=[0.0] * 3), 400, "W must be a list of 4 numbers")
    check_error(ask(H=[0.0] * 5 + ["x"]), 400, "H must be a list of 6 numbers")
    check_error(ask(H=[0.0] * 5 + [True]), 400, "H must be a list of 6 numbers")
    check_error(ask(H=[0.0] * 5 + [10**400]), 400, "H must be finite")
    check_error(ask(counts="2"), 400, "counts must be 2 whole numbers")
    check_error(ask(counts="2 999999"), 400, "counts")
    check_error(ask(b=[0.0, 0.0]), 400, "b")
