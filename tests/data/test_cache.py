"""The cache: one whole file or none, mapped into memory, made again when its origin changes."""

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from neuralcollapse.data import _cache as cache_module
from neuralcollapse.data import check, load
from neuralcollapse.data._sources.mnist import MNIST

RESIDENT = Path("/proc/self/statm")


def test_first_load_writes_it_and_the_next_uses_it(tmp_path, mnist_writer, monkeypatch):
    root = mnist_writer(tmp_path)
    plain = load("mnist", root, cache=False)
    assert plain.facts["origin"] == "files"
    assert not (root / ".neuralcollapse").exists()
    first = load("mnist", root)
    monkeypatch.setattr("neuralcollapse.data._sources.mnist.MNIST.read", None)
    second = load("mnist", root)
    for data in (first, second):
        assert data.facts["origin"] == "cache"
        assert torch.equal(data.train.images, plain.train.images)
        assert torch.equal(data.test.labels, plain.test.labels)
        assert data.classes == plain.classes
    assert [path.name for path in (root / ".neuralcollapse").iterdir()] == ["mnist.safetensors"]


def test_sizes_and_layouts_have_caches_of_their_own(tmp_path, mnist_writer, cifar_writer):
    mnist_writer(tmp_path)
    cifar_writer(tmp_path, layout="binary")
    names = ["mnist", "mnist:size=14", "cifar10:size=16,layout=binary"]
    for name in names:
        load(name, tmp_path)
    files = sorted((tmp_path / ".neuralcollapse").iterdir())
    assert [path.stem for path in files] == ["cifar10-size=16-layout=binary", "mnist-size=14", "mnist"]
    times = [path.stat().st_mtime_ns for path in files]
    for name in names:
        assert load(name, tmp_path).facts["origin"] == "cache"
        assert check(name, tmp_path).problem is None
    assert [path.stat().st_mtime_ns for path in files] == times


def test_it_is_made_again_when_the_files_change(tmp_path, mnist_writer):
    root = mnist_writer(tmp_path / "a")
    old = load("mnist", root)
    other = mnist_writer(tmp_path / "b", seed=1)
    for path in (other / "MNIST/raw").iterdir():
        path.replace(root / "MNIST/raw" / path.name)
    assert not torch.equal(load("mnist", root).train.images, old.train.images)


def test_damage_is_found_by_check_too(tmp_path, mnist_writer):
    root = mnist_writer(tmp_path)
    load("mnist", root)
    path = cache_module.cache_path("mnist", MNIST(), root)
    content = bytearray(path.read_bytes())
    content[-1000] ^= 1
    path.write_bytes(content)
    assert "does not match its checksum" in check("mnist", root).problem
    load("mnist", root)
    assert check("mnist", root).problem is None


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES])
def test_without_room_or_right_to_write_the_files_are_used(tmp_path, mnist_writer, monkeypatch, code):
    root = mnist_writer(tmp_path)

    def fail(path, write):
        raise OSError(code, os.strerror(code), str(path))

    monkeypatch.setattr(cache_module, "atomic_write", fail)
    data = load("mnist", root)
    assert len(data.train) == 40
    assert os.strerror(code) in data.facts["origin"]


@pytest.mark.skipif(not RESIDENT.exists(), reason="needs Linux to see resident memory")
def test_images_are_mapped_not_read(tmp_path, real_data):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for path in (real_data / "cifar-10-batches-py").iterdir():
        (folder / path.name).symlink_to(path)
    load("cifar10", tmp_path)
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "cifar10.safetensors" in line]
    data = load("cifar10", tmp_path)
    mapped = [line for line in Path("/proc/self/maps").read_text().splitlines() if "cifar10.safetensors" in line]
    assert mapped
    assert data.train.images.shape == (50_000, 3, 32, 32)


SCRIPT = "import sys, neuralcollapse as nc; print('go', flush=True); nc.data.load('mnist', sys.argv[1])"


def test_killed_while_caching_leaves_a_whole_cache_or_none(tmp_path, mnist_writer):
    root = mnist_writer(tmp_path, train=4000, test=2000)
    expected = load("mnist", root, cache=False)
    for delay in (0.0, 0.02, 0.05, 0.1):
        process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(root)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(delay)
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
        data = load("mnist", root)
        assert data.facts["origin"] == "cache"
        assert torch.equal(data.train.images, expected.train.images)
        cache_module.cache_path("mnist", MNIST(), root).unlink()


def test_leftovers_of_killed_writers_are_removed_after_a_while(tmp_path, mnist_writer):
    root = mnist_writer(tmp_path)
    folder = root / ".neuralcollapse"
    folder.mkdir()
    old, young = folder / ".mnist.safetensors.a.tmp", folder / ".mnist.safetensors.b.tmp"
    for path in (old, young):
        path.write_bytes(b"part")
    os.utime(old, (0, 0))
    load("mnist", root)
    assert not old.exists()
    assert young.exists()
