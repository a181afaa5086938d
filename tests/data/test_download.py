"""Fetching, against a local server that can resume, cannot, breaks off, lies and overflows."""

import gzip
import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from neuralcollapse.data import DataError, get, load, sources
from neuralcollapse.data import _download as module
from neuralcollapse.data._archive import extract_members
from neuralcollapse.data._sources import Download, OfficialFile


def md5(content: bytes) -> str:
    return hashlib.md5(content).hexdigest()


class Server:
    """Files by name, and how to misbehave with them."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.ranges: list[str | None] = []
        self.resume = True
        self.break_after: list[int] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                content = outer.files.get(self.path.rsplit("/", 1)[1])
                asked = self.headers.get("Range")
                outer.ranges.append(asked)
                if content is None:
                    self.send_error(404)
                    return
                start = int(asked.removeprefix("bytes=").rstrip("-")) if asked and outer.resume else 0
                if start >= len(content) and start:
                    self.send_error(416)
                    return
                body = content[start:]
                self.send_response(206 if start else 200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if outer.break_after:
                    body = body[: outer.break_after.pop(0)]
                self.wfile.write(body)

            def log_message(self, *arguments) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/files"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def server(monkeypatch) -> Iterator[Server]:
    monkeypatch.setattr(module.time, "sleep", lambda seconds: None)
    running = Server()
    yield running
    running.close()


CONTENT = bytes(range(256)) * 1000
DOWNLOAD = Download("http://nowhere/file.bin", md5(CONTENT), len(CONTENT), (OfficialFile("file.bin", md5(CONTENT)),))


def fetch(server: Server, target: Path, download: Download = DOWNLOAD, progress=None) -> None:
    module.fetch(f"{server.url}/{download.file_name}", target, download, progress)


def test_a_whole_download_with_progress(server, tmp_path):
    server.files["file.bin"] = CONTENT
    seen = []
    fetch(server, tmp_path / "file.bin", progress=lambda *state: seen.append(state))
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert seen[-1] == ("file.bin", len(CONTENT), len(CONTENT))
    assert not (tmp_path / "file.bin.part").exists()


def test_a_broken_connection_is_resumed(server, tmp_path):
    server.files["file.bin"] = CONTENT
    server.break_after = [100_000, 50_000]
    fetch(server, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.ranges == [None, "bytes=100000-", "bytes=150000-"]


def test_a_later_call_continues_where_an_earlier_one_gave_up(server, tmp_path):
    server.files["file.bin"] = CONTENT
    server.break_after = [1000] * module.ATTEMPTS
    with pytest.raises(DataError, match="4,000 bytes are kept, run it again to continue"):
        fetch(server, tmp_path / "file.bin")
    fetch(server, tmp_path / "file.bin")
    assert server.ranges[-1] == "bytes=4000-"
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_server_that_cannot_resume_sends_it_all_again(server, tmp_path):
    server.files["file.bin"] = CONTENT
    server.resume = False
    (tmp_path / "file.bin.part").write_bytes(b"x" * 5000)
    fetch(server, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


def test_a_part_longer_than_the_file_is_thrown_away(server, tmp_path):
    server.files["file.bin"] = CONTENT
    (tmp_path / "file.bin.part").write_bytes(b"x" * (len(CONTENT) + 5))
    fetch(server, tmp_path / "file.bin")
    assert (tmp_path / "file.bin").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("sent", "message"),
    [
        (CONTENT[:-1] + b"?", "MD5 is .*the download was deleted"),
        (CONTENT + b"more", "sends more than the 256,000 bytes stated"),
        (None, "the server answered 404"),
    ],
)
def test_wrong_content_is_deleted(server, tmp_path, sent, message):
    if sent is not None:
        server.files["file.bin"] = sent
    with pytest.raises(DataError, match=message or "."):
        fetch(server, tmp_path / "file.bin")
    assert not list(tmp_path.glob("file.bin*"))


def test_no_server_and_no_http(tmp_path):
    monkey = Download("http://127.0.0.1:9/file.bin", "0" * 32, 10, ())
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module.time, "sleep", lambda seconds: None)
        with pytest.raises(DataError, match="0 bytes are kept"):
            module.fetch(monkey.url, tmp_path / "file.bin", monkey)
    with pytest.raises(ValueError, match="must start with http"):
        module.fetch("file:///etc/passwd", tmp_path / "file.bin", monkey)


def archive(members: dict[str, bytes], extra: list[tarfile.TarInfo] | None = None) -> bytes:
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as file:
        for info in extra or []:
            file.addfile(info)
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))
    return raw.getvalue()


def test_get_fetches_unpacks_and_then_has_nothing_to_do(server, tmp_path, monkeypatch, cifar_writer):
    made = cifar_writer(tmp_path / "made", "cifar100") / "cifar-100-python"
    members = {f"cifar-100-python/{path.name}": path.read_bytes() for path in made.iterdir()}
    packed = archive({**members, "cifar-100-python/unasked": b"for"})
    files = tuple(OfficialFile(name, md5(content)) for name, content in members.items())
    download = Download("https://x/cifar-100-python.tar.gz", md5(packed), len(packed), files)
    monkeypatch.setattr(sources["cifar100"], "downloads", (download,))
    server.files["cifar-100-python.tar.gz"] = packed
    root = tmp_path / "root"
    found = get("cifar100", root, mirror=server.url)
    assert {path.name for path in found} == {"train", "test"}
    assert (root / "cifar-100-python/train").read_bytes() == members["cifar-100-python/train"]
    assert not (root / "cifar-100-python/unasked").exists()
    assert not list((root / ".neuralcollapse/downloads").iterdir())
    asked = len(server.ranges)
    get("cifar100", root, mirror=server.url)
    assert len(server.ranges) == asked
    (root / "cifar-100-python/train").write_bytes(b"damaged")
    get("cifar100", root, mirror=server.url)
    assert (root / "cifar-100-python/train").read_bytes() == members["cifar-100-python/train"]


def test_get_of_plain_files(server, tmp_path, monkeypatch, mnist_writer):
    made = mnist_writer(tmp_path / "made") / "MNIST/raw"
    downloads = []
    for original in sources["mnist"].downloads:
        content = (made / original.file_name).read_bytes()
        server.files[original.file_name] = content
        given = (OfficialFile(original.gives[0].path, md5(content)),)
        downloads.append(replace(original, md5=md5(content), size=len(content), gives=given))
    monkeypatch.setattr(sources["mnist"], "downloads", tuple(downloads))
    assert len(get("mnist", tmp_path / "root", mirror=server.url)) == 4


def test_two_do_not_fetch_the_same_file(server, tmp_path, monkeypatch):
    """The second is told of the first while that is at work, and finds its file afterwards."""
    monkeypatch.setattr(sources["cifar100"], "downloads", (DOWNLOAD,))
    server.files["file.bin"] = CONTENT

    def again(*state):
        with pytest.raises(ValueError, match="is writing here; wait for it"):
            get("cifar100", tmp_path, mirror=server.url)

    get("cifar100", tmp_path, mirror=server.url, progress=again)
    assert (tmp_path / "file.bin").read_bytes() == CONTENT
    assert server.ranges == [None]

    class Late:
        """Another process finishes while the lock is waited for."""

        def __enter__(self):
            (tmp_path / "file.bin").write_bytes(CONTENT)

        def __exit__(self, *_):
            return None

    (tmp_path / "file.bin").unlink()
    monkeypatch.setattr(module, "locked", lambda *arguments: Late())
    get("cifar100", tmp_path, mirror=server.url)
    assert server.ranges == [None]


def test_get_says_what_cannot_be_fetched(tmp_path):
    assert get("digits") == []
    with pytest.raises(DataError, match="has no official address"):
        get("mini-imagenet", tmp_path)
    for ask in (get, load):
        with pytest.raises(DataError, match="gives the pickle layout: leave out layout=binary"):
            ask("cifar10:layout=binary", tmp_path)
    with pytest.raises(DataError, match="say where mnist shall go"):
        get("mnist")


def test_archives_cannot_write_elsewhere(tmp_path):
    link = tarfile.TarInfo("data/wanted")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    device = tarfile.TarInfo("data/device")
    device.type = tarfile.CHRTYPE
    packed = tmp_path / "a.tar.gz"
    packed.write_bytes(archive({"../escape": b"x", "/absolute": b"x", "data/wanted": b"good"}, [link, device]))
    extract_members(packed, {"data/wanted": (tmp_path / "out/wanted", md5(b"good"))}, 10**6)
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["wanted"]
    assert not (tmp_path.parent / "escape").exists()
    assert not (tmp_path / "out/wanted").is_symlink()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (archive({"other": b"x"}), "does not hold data/wanted"),
        (archive({"data/wanted": b"bad"}), "wanted in it has MD5"),
        (archive({"data/wanted": b"x" * 3_000_000}), "expands to more than 1,000,000 bytes"),
        (
            archive({"zeros": bytes(50_000_000), "data/wanted": b"good"}),
            "expands to more than 1,000,000 bytes",
        ),
        (gzip.compress(b"no archive at all"), ""),
        (b"\x1f\x8b truncated", ""),
        (archive({"data/wanted": b"good"})[:60], ""),
        (b"", ""),
    ],
    ids=range(8),
)
def test_bad_archives_are_one_line_and_leave_nothing(tmp_path, content, message):
    packed = tmp_path / "a.tar.gz"
    packed.write_bytes(content)
    with pytest.raises(DataError, match=message or ".") as caught:
        extract_members(packed, {"data/wanted": (tmp_path / "out/wanted", md5(b"good"))}, 1_000_000)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "out").exists() or not list((tmp_path / "out").iterdir())
