"""A thousand damaged files: each is read, or refused in one line; nothing is executed, nothing explodes."""

import pickle
import shutil
import sys
import time

import numpy as np
import pytest

import neuralcollapse as nc

FORBIDDEN = (
    "os.system",
    "os.exec",
    "os.posix_spawn",
    "os.spawn",
    "subprocess.Popen",
    "pickle.find_class",
    "os.fork",
)
watched: list[str] = []
watching = False


def _audit(event: str, arguments: tuple) -> None:
    if watching and event in FORBIDDEN:
        watched.append(event)


sys.addaudithook(_audit)


class Call:
    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def damage(content: bytes, random: np.random.Generator, sentinel: str) -> bytes:
    """One of the ways in which files go wrong, by accident or on purpose."""
    import os

    data = bytearray(content)
    kind = random.integers(0, 9)
    if kind == 0:
        return bytes(data[: random.integers(0, len(data))])
    if kind == 1:
        for _ in range(random.integers(1, 9)):
            data[random.integers(0, len(data))] ^= 1 << int(random.integers(0, 8))
        return bytes(data)
    if kind == 2:
        data[:4] = random.bytes(4)
        return bytes(data)
    if kind == 3:
        start = int(random.integers(0, min(len(data), 64)))
        data[start : start + 8] = random.choice([b"\xff" * 8, b"\0" * 8, b"\x7f" + b"\xff" * 7])
        return bytes(data)
    if kind == 4:
        start, end = sorted(random.integers(0, len(data), 2))
        return bytes(data[:start] + data[end:])
    if kind == 5:
        return bytes(data) + random.bytes(int(random.integers(1, 100)))
    if kind == 6:
        return random.bytes(int(random.integers(0, 300)))
    if kind == 7:
        harm = Call(os.system, f"touch {sentinel}")
        return pickle.dumps({b"data": harm, b"labels": [0]}, protocol=int(random.integers(0, 6)))
    start = int(random.integers(0, len(data)))
    return bytes(data[:start]) + random.bytes(int(random.integers(1, 50))) + bytes(data[start:])


@pytest.mark.parametrize(
    ("kind", "rounds"),
    [("mnist", 250), ("mnist-plain", 150), ("cifar10", 300), ("cifar10-binary", 100), ("mini-imagenet", 200)],
)
def test_damaged_files(tmp_path, kind, rounds, mnist_writer, cifar_writer, mini_imagenet_writer):
    global watching
    root, sentinel = tmp_path / "root", tmp_path / "executed"
    name = kind.removesuffix("-plain").removesuffix("-binary")
    if name == "mnist":
        mnist_writer(root, packed=kind == "mnist", train=20, test=10)
    elif name == "cifar10":
        cifar_writer(root, layout="binary" if kind.endswith("binary") else "pickle")
    else:
        mini_imagenet_writer(root, classes=3, per_class=3)
    files = sorted(path for path in root.rglob("*") if path.is_file())
    random = np.random.default_rng(len(kind))
    lines: list[str] = []
    slowest = 0.0
    for _ in range(rounds):
        path = files[random.integers(0, len(files))]
        good = path.read_bytes()
        path.write_bytes(damage(good, random, str(sentinel)))
        watching, begin = True, time.perf_counter()
        try:
            nc.data.load(name, root, cache=False)
        except nc.data.DataError as error:
            lines.append(str(error))
        watching = False
        slowest = max(slowest, time.perf_counter() - begin)
        path.write_bytes(good)
        assert not sentinel.exists()
    assert watched == []
    assert len(lines) > rounds / 3
    assert not any("Type-check" in line for line in lines)
    assert all(len(line) < 600 and "\n" not in line and str(root) in line for line in lines)
    assert slowest < 5
    assert len(nc.data.load(name, root, cache=False).train) > 0


def test_damaged_caches_are_made_again(tmp_path, mnist_writer):
    root = mnist_writer(tmp_path, train=20, test=10)
    expected = nc.data.load("mnist", root)
    cache = root / ".neuralcollapse" / "mnist.safetensors"
    good = cache.read_bytes()
    random = np.random.default_rng(0)
    for _ in range(100):
        damaged = cache.with_suffix(".damaged")  # a file in use must not shrink: put a new one in its place
        damaged.write_bytes(damage(good, random, str(tmp_path / "executed")))
        damaged.replace(cache)
        found = nc.data.load("mnist", root)
        assert (found.train.images == expected.train.images).all()
        assert (found.train.labels == expected.train.labels).all()
    shutil.rmtree(cache.parent)
