"""Small data sets in the public layouts, written by the tests themselves."""

import gzip
import os
import pickle
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

DATA = os.environ.get("NEURALCOLLAPSE_DATA")


@pytest.fixture
def real_data() -> Path:
    if not DATA:
        pytest.skip("NEURALCOLLAPSE_DATA is not set: no real data at hand")
    return Path(DATA)


@pytest.fixture(autouse=True)
def _no_environment(request, monkeypatch):
    if "real_data" not in request.fixturenames:
        monkeypatch.delenv("NEURALCOLLAPSE_DATA", raising=False)


def idx(array: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write_mnist(root: Path, seed: int = 0, packed: bool = True, train: int = 40, test: int = 20) -> Path:
    random = np.random.default_rng(seed)
    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    for prefix, count in (("train", train), ("t10k", test)):
        files = {
            f"{prefix}-images-idx3-ubyte": idx(random.integers(0, 256, (count, 28, 28), dtype=np.uint8)),
            f"{prefix}-labels-idx1-ubyte": idx((np.arange(count) % 10).astype(np.uint8)),
        }
        for name, content in files.items():
            path = folder / (f"{name}.gz" if packed else name)
            path.write_bytes(gzip.compress(content, mtime=0) if packed else content)
    return root


def cifar_batch(seed: int, count: int, label_key: bytes, classes: int) -> tuple[dict, np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    images = random.integers(0, 256, (count, 3072), dtype=np.uint8)
    labels = random.permutation(np.arange(count) % classes)
    batch = {
        b"batch_label": b"a batch",
        b"data": images,
        label_key: labels.tolist(),
        b"filenames": [f"picture_{i}.png".encode() for i in range(count)],
    }
    return batch, images, labels


def write_cifar(root: Path, name: str = "cifar10", layout: str = "pickle", protocol: int = 2) -> Path:
    """Batches of 10 (or 200) images; the same content in both layouts."""
    ten = name == "cifar10"
    label_key, classes = (b"labels", 10) if ten else (b"fine_labels", 100)
    parts = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"] if ten else ["train", "test"]
    folder = (
        root
        / {
            ("cifar10", "pickle"): "cifar-10-batches-py",
            ("cifar10", "binary"): "cifar-10-batches-bin",
            ("cifar100", "pickle"): "cifar-100-python",
            ("cifar100", "binary"): "cifar-100-binary",
        }[name, layout]
    )
    folder.mkdir(parents=True)
    for seed, part in enumerate(parts):
        batch, images, labels = cifar_batch(seed, 10 if ten else 200, label_key, classes)
        if layout == "pickle":
            (folder / part).write_bytes(pickle.dumps(batch, protocol=protocol))
        else:
            heads = labels[:, None] if ten else np.stack([labels // 5, labels], axis=1)
            records = np.concatenate([heads.astype(np.uint8), images], axis=1)
            (folder / f"{part}.bin").write_bytes(records.tobytes())
    return root


def write_mini_imagenet(root: Path, classes: int = 6, per_class: int = 6, suffix: str = "png", side: int = 84) -> Path:
    image = pytest.importorskip("PIL.Image", reason="Pillow is not installed")
    random = np.random.default_rng(0)
    folder = root / "mini-imagenet"
    (folder / "images").mkdir(parents=True)
    for part, name in enumerate(("train", "val", "test")):
        lines = ["filename,label"]
        for label in range(part, classes, 3):
            for i in range(per_class):
                file_name = f"n{label:04d}_{i}.{suffix}"
                pixels = random.integers(0, 256, (side, side, 3), dtype=np.uint8)
                image.fromarray(pixels).save(folder / "images" / file_name)
                lines.append(f"{file_name},n{label:04d}")
        (folder / f"{name}.csv").write_text("\n".join(lines) + "\n")
    return root


@pytest.fixture
def mnist_writer() -> Callable[..., Path]:
    return write_mnist


@pytest.fixture
def cifar_writer() -> Callable[..., Path]:
    return write_cifar


@pytest.fixture
def mini_imagenet_writer() -> Callable[..., Path]:
    return write_mini_imagenet


@pytest.fixture
def idx_bytes() -> Callable[[np.ndarray], bytes]:
    return idx
