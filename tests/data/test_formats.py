"""Each reader on good files, and on the particular ways in which files go wrong."""

import gzip
import pickle
import pickletools
import struct

import numpy as np
import pytest

from neuralcollapse.data import DataError
from neuralcollapse.data._formats.cifar import read_binary_batch, read_names, read_pickle_batch
from neuralcollapse.data._formats.idx import read_idx
from neuralcollapse.data._formats.pickles import PickledBytes, read_pickle
from neuralcollapse.data._formats.pictures import read_picture


@pytest.mark.parametrize("packed", [True, False])
def test_idx_round_trip(tmp_path, idx_bytes, packed):
    array = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    content = idx_bytes(array)
    path = tmp_path / "file"
    path.write_bytes(gzip.compress(content) if packed else content)
    assert np.array_equal(read_idx(path, 3), array)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not an IDX file"),
        (b"\0\0", "not an IDX file"),
        (b"\0\0\x0d\x01" + struct.pack(">I", 1) + b"\0", "not an IDX file of unsigned bytes"),
        (b"\0\0\x08\x03\0\0", "has 3 dimensions, expected 1"),
        (b"\0\0\x08\x01\0\0", "truncated in its header"),
        (b"\0\0\x08\x01\0\0\0\x05abc", "truncated, holds 3 of the 5 bytes"),
        (b"\0\0\x08\x01\0\0\0\x02abc", "goes on after the 2 bytes"),
        (b"\0\0\x08\x01\xff\xff\xff\xffabc", "claims 4,294,967,295 bytes"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x05abc"), "truncated, holds 3 of the 5"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x03abc")[:-6], "end-of-stream"),
        (gzip.compress(b"\0\0\x08\x01\0\0\0\x03abc")[:12], ""),
        (b"\x1f\x8b" + b"\xff" * 30, ""),
    ],
    ids=range(12),
)
def test_idx_faults_are_one_line_that_names_the_file(tmp_path, content, message):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message or ".") as caught:
        read_idx(path, 1)
    assert str(caught.value).startswith(str(path))
    assert "\n" not in str(caught.value)


def test_a_gzip_bomb_is_read_no_further_than_its_header_says(tmp_path):
    path = tmp_path / "bomb.gz"
    with gzip.open(path, "wb", compresslevel=9) as file:
        file.write(b"\0\0\x08\x01" + struct.pack(">I", 10))
        for _ in range(64):
            file.write(bytes(2**20))
    with pytest.raises(DataError, match="goes on after the 10 bytes"):
        read_idx(path, 1)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_pickle_of_plain_data_and_arrays(tmp_path, protocol):
    array = np.arange(12, dtype=np.uint8).reshape(3, 4)
    value = {
        b"data": array,
        "labels": [1, 2, 3],
        b"none": None,
        b"nested": {"a": (1, 2.5, True, False)},
        b"n": 10**6,
    }
    path = tmp_path / "file"
    path.write_bytes(pickle.dumps(value, protocol=protocol))
    if protocol == 5:  # numpy pickles arrays by another function there, which official files do not use
        with pytest.raises(DataError, match="nothing was executed"):
            read_pickle(path)
        return
    found = read_pickle(path)
    assert np.array_equal(found["data"].array(), array)
    assert found["labels"] == [1, 2, 3]
    assert found["nested"] == {"a": (1, 2.5, True, False)}
    assert found["none"] is None
    assert found["n"] == 10**6


class Touch:
    """A pickle of this calls ``os.system`` (or another function) when a plain unpickler reads it."""

    def __init__(self, function, *arguments):
        self.call = (function, arguments)

    def __reduce__(self):
        return self.call


def malicious_pickles(sentinel: str) -> dict[str, bytes]:
    import os
    import subprocess

    command = f"touch {sentinel}"
    made = {
        f"{function.__module__}.{function.__name__}.{protocol}": pickle.dumps(
            {b"data": Touch(function, *arguments), b"labels": [0]}, protocol=protocol
        )
        for function, arguments in (
            (os.system, (command,)),
            (eval, (f"open({sentinel!r}, 'w')",)),
            (exec, (f"open({sentinel!r}, 'w')",)),
            (subprocess.check_call, (["touch", sentinel],)),
            (open, (sentinel, "w")),
            (np.load, (sentinel,)),
        )
        for protocol in (0, 1, 2, 3, 4, 5)
    }
    made["inst"] = b"(S'touch " + sentinel.encode() + b"'\nios\nsystem\n."
    made["obj"] = b"(cos\nsystem\nS'touch " + sentinel.encode() + b"'\no."
    made["persistent"] = b"Pevil\n."
    made["extension"] = b"\x82\x01."
    made["memo"] = b"}r\xff\xff\xff\xff."
    made["bytes"] = b"\x80\x04\x8e\xff\xff\xff\xff\xff\xff\xff\x7f."
    made["deep"] = b"\x80\x02" + b"N" + b"\x85" * 20_000 + b"."
    made["reconstruct"] = b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n)R."
    made["huge"] = pickle.dumps({b"data": PickledBytes((2**40, 2**40), "u1", b"")}, protocol=2)
    return made


def test_malicious_pickles_are_refused_in_one_line_and_execute_nothing(tmp_path):
    sentinel = tmp_path / "executed"
    for name, content in malicious_pickles(str(sentinel)).items():
        path = tmp_path / "batch"
        path.write_bytes(content)
        with pytest.raises(DataError) as caught:
            read_pickle_batch(path, "labels")
        assert "\n" not in str(caught.value), name
        assert str(caught.value).startswith(str(path)), name
        assert not sentinel.exists(), name


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ((1, (2, 3072), "u1", False, b"\0" * 10), "does not hold the bytes of its shape"),
        ((1, (2, 3072), "O", False, b"\0" * 6144), "expected unsigned bytes"),
        ((1, (-2, -3072), "u1", False, b"\0" * 6144), "no proper shape"),
        ((1, (2, 3072), "u1", True, b"\0" * 6144), "not laid out by rows"),
        ((1, (2**62, 2**62), "u1", False, b""), "does not hold the bytes"),
    ],
)
def test_arrays_in_a_pickle_are_checked(tmp_path, state, message):
    from neuralcollapse.data._formats.pickles import _Machine

    machine = _Machine()
    machine.stack = [PickledBytes(), state]

    def build() -> np.ndarray:
        machine._op_build()
        return machine.stack[0].array()

    with pytest.raises(ValueError, match=message):
        build()


def test_official_opcodes_are_all_known():
    """What numpy and Python write for such a batch in the official protocol stays readable."""
    content = pickle.dumps({b"data": np.zeros((2, 3072), np.uint8), b"labels": list(range(300))}, protocol=2)
    assert {opcode.name for opcode, _, _ in pickletools.genops(content)} >= {
        "GLOBAL",
        "REDUCE",
        "BUILD",
        "APPENDS",
    }


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ([1], "holds no dictionary"),
        ({b"labels": [1]}, "not a CIFAR batch"),
        ({b"data": np.zeros((2, 7), np.uint8), b"labels": [1, 2]}, "images have shape"),
        ({b"data": np.zeros((2, 3072), np.uint8), b"labels": [1]}, "1 labels for 2 images"),
        ({b"data": np.zeros((1, 3072), np.uint8), b"labels": [0.5]}, "1 labels for 1 images"),
        ({b"data": np.zeros((1, 3072), np.float32), b"labels": [1]}, "expected unsigned bytes"),
    ],
)
def test_cifar_batches_of_the_wrong_kind(tmp_path, value, message):
    path = tmp_path / "batch"
    path.write_bytes(pickle.dumps(value, protocol=2))
    with pytest.raises(DataError, match=message or "."):
        read_pickle_batch(path, "labels")


@pytest.mark.parametrize("size", [0, 1, 3072, 3074, 3073 * 2 + 1])
def test_binary_batches_must_be_whole_records(tmp_path, size):
    path = tmp_path / "batch.bin"
    path.write_bytes(bytes(size))
    with pytest.raises(DataError, match="not a whole number of records"):
        read_binary_batch(path, 1)


def test_class_names_from_text_and_pickle(tmp_path):
    text, packed = tmp_path / "names.txt", tmp_path / "meta"
    text.write_text("cat\ndog\n\n")
    packed.write_bytes(pickle.dumps({b"names": [b"cat", "dog"]}, protocol=2))
    assert read_names(text, "names") == read_names(packed, "names") == ["cat", "dog"]
    with pytest.raises(DataError, match="no list of names"):
        read_names(packed, "others")


def test_pictures_are_resized_and_bad_ones_refused(tmp_path):
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    good, grey, bad = tmp_path / "a.png", tmp_path / "b.jpg", tmp_path / "c.png"
    pixels = np.random.default_rng(0).integers(0, 256, (84, 84, 3), dtype=np.uint8)
    image.fromarray(pixels).save(good)
    image.fromarray(np.zeros((10, 30), np.uint8)).save(grey)
    bad.write_bytes(b"GIF89a nonsense")
    assert np.array_equal(read_picture(good, 84), pixels.transpose(2, 0, 1))
    assert read_picture(grey, 84).shape == (3, 84, 84)
    with pytest.raises(DataError, match="not a JPEG or PNG"):
        read_picture(bad, 84)


def test_a_picture_with_a_huge_claim_is_refused(tmp_path):
    pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    import zlib

    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    path = tmp_path / "bomb.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk)))
    with pytest.raises(DataError) as caught:
        read_picture(path, 84)
    assert "\n" not in str(caught.value)
