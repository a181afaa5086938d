"""Every data set of the registry, from small files in its public layout; then real ones if at hand."""

import gzip
import pickle
import shutil

import numpy as np
import pytest
import torch
from sklearn import datasets
from torch.nn.functional import avg_pool2d

import neuralcollapse as nc
from neuralcollapse.data import DataError, check, load, sources
from neuralcollapse.data._sources.synthetic import bayes_error, separation_for


@pytest.mark.parametrize("name", list(sources))
def test_every_source_describes_itself(name):
    source = sources[name]()
    assert source.title
    assert source.licence
    assert len(source.image_shape) == 3
    assert source.embedded or source.downloads or source.how_to_get
    for download in source.downloads:
        assert download.url.startswith("http")
        assert len(download.md5) == 32
        assert all(len(file.md5) == 32 for file in download.gives)


@pytest.mark.parametrize("name", [name for name in sources if not sources[name].embedded])
def test_missing_files_and_missing_root_are_one_clear_line(name, tmp_path):
    with pytest.raises(DataError, match="not embedded: say where"):
        load(name)
    with pytest.raises(DataError, match=f"{name} is not in {tmp_path}"):
        load(name, tmp_path)
    assert not check(name, tmp_path).official


@pytest.mark.parametrize("name", [name for name in sources if sources[name].embedded])
def test_embedded_sets_are_as_described(name):
    data, source = load(name), sources[name]()
    assert (len(data.train), len(data.test)) == (source.train_size, source.test_size)
    assert data.image_shape == source.image_shape
    assert data.num_classes == source.num_classes
    assert check(name).problem is None


def test_digits_are_scikit_learns():
    expected = datasets.load_digits()
    data = load("digits")
    ours = torch.cat([data.train.images, data.test.images])[:, 0].numpy()
    labels = torch.cat([data.train.labels, data.test.labels]).numpy()
    order, other = np.lexsort(ours.reshape(1797, -1).T), np.lexsort(expected.images.reshape(1797, -1).T)
    assert np.array_equal(ours[order], expected.images[other])
    assert np.array_equal(labels[order], expected.target[other])
    assert data.train.class_counts.tolist() == [150] * 10


@pytest.mark.parametrize("packed", [True, False])
def test_mnist_layouts(tmp_path, mnist_writer, packed):
    data = load("mnist", mnist_writer(tmp_path, packed=packed))
    assert (len(data.train), len(data.test), data.image_shape) == (40, 20, (1, 28, 28))
    assert data.classes[3] == "3"


def test_fashion_mnist_lies_in_its_own_folder(tmp_path, mnist_writer):
    mnist_writer(tmp_path)
    (tmp_path / "MNIST").rename(tmp_path / "FashionMNIST")
    assert load("fashion-mnist", tmp_path).classes[9] == "ankle boot"


def test_mnist_faults(tmp_path, mnist_writer, idx_bytes):
    root = mnist_writer(tmp_path)
    labels = root / "MNIST/raw/train-labels-idx1-ubyte.gz"
    good = labels.read_bytes()
    labels.write_bytes(gzip.compress(idx_bytes(np.zeros(39, np.uint8))))
    with pytest.raises(DataError, match=r"40 images, but train-labels-idx1-ubyte.gz has 39 labels"):
        load("mnist", root, cache=False)
    labels.write_bytes(gzip.compress(idx_bytes(np.full(40, 10, np.uint8))))
    with pytest.raises(DataError, match="label 10 is not one of the classes 0 to 9"):
        load("mnist", root, cache=False)
    report = check("mnist", root)
    assert report.problem is not None
    assert "label 10" in report.problem
    labels.write_bytes(good)
    assert check("mnist", root).problem is None
    assert [file.status for file in check("mnist", root).files] == ["other"] * 4
    images = root / "MNIST/raw/train-images-idx3-ubyte.gz"
    images.write_bytes(gzip.compress(idx_bytes(np.zeros((40, 8, 8), np.uint8))))
    with pytest.raises(DataError, match=r"images have shape \(8, 8\)"):
        load("mnist", root, cache=False)


@pytest.mark.parametrize("name", ["cifar10", "cifar100"])
def test_cifar_layouts_hold_the_same(tmp_path, cifar_writer, name):
    cifar_writer(tmp_path, name, "pickle")
    cifar_writer(tmp_path, name, "binary")
    first = load(f"{name}:layout=pickle", tmp_path, cache=False)
    second = load(f"{name}:layout=binary", tmp_path, cache=False)
    assert torch.equal(first.train.images, second.train.images)
    assert torch.equal(first.train.labels, second.train.labels)
    assert torch.equal(first.test.images, second.test.images)
    assert load(name, tmp_path, cache=False).image_shape == (3, 32, 32)


@pytest.mark.parametrize("protocol", [2, 3, 4])
def test_cifar_pickle_protocols(tmp_path, cifar_writer, protocol):
    assert len(load("cifar10", cifar_writer(tmp_path, protocol=protocol), cache=False).train) == 50


def test_cifar_names_come_from_its_meta_file(tmp_path, cifar_writer):
    cifar_writer(tmp_path)
    meta = tmp_path / "cifar-10-batches-py/batches.meta"
    meta.write_bytes(pickle.dumps({"label_names": [f"thing {i}" for i in range(10)]}, protocol=2))
    assert load("cifar10", tmp_path).classes[4] == "thing 4"
    meta.write_bytes(pickle.dumps({"label_names": ["one"]}, protocol=2))
    with pytest.raises(DataError, match="1 names for 10 classes"):
        load("cifar10", tmp_path, cache=False)


def test_cifar_layout_must_exist(tmp_path):
    with pytest.raises(ValueError, match="layout must be one of auto, pickle, binary"):
        load("cifar10:layout=zip", tmp_path)


@pytest.mark.parametrize("suffix", ["png", "jpg"])
def test_mini_imagenet_pools_and_splits_every_class(tmp_path, mini_imagenet_writer, suffix):
    data = load("mini-imagenet", mini_imagenet_writer(tmp_path, suffix=suffix, side=84 if suffix == "png" else 50))
    assert data.num_classes == 6
    assert data.train.class_counts.tolist() == [5] * 6
    assert data.test.class_counts.tolist() == [1] * 6
    again = load("mini-imagenet", tmp_path, cache=False)
    assert torch.equal(data.train.images, again.train.images)


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("filename,label\n../../secret.png,a\n", "outside the image folder"),
        ("filename,label\n/etc/passwd,a\n", "outside the image folder"),
        ("filename,label\nmissing.png,a\n", "is not in"),
        ("name,class\nx,y\n", "line 2 needs the columns filename and label"),
        ("\xff\xfe", ""),
    ],
)
def test_mini_imagenet_split_files_are_checked(tmp_path, mini_imagenet_writer, lines, message):
    root = mini_imagenet_writer(tmp_path)
    (tmp_path / "secret.png").write_bytes(b"")
    (root / "mini-imagenet/val.csv").write_text(lines, encoding="latin-1")
    with pytest.raises(DataError, match=message or ".") as caught:
        load("mini-imagenet", root, cache=False)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cache", [True, False])
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("mnist", [1, 4, 14]),
        ("fashion-mnist", [7]),
        ("cifar10", [8, 16]),
        ("cifar100", [16]),
        ("mini-imagenet", [12, 42]),
        ("digits", [4]),
    ],
)
def test_smaller_images_are_means_over_squares(
    tmp_path, mnist_writer, cifar_writer, mini_imagenet_writer, name, sizes, cache
):
    if name.startswith("cifar"):
        cifar_writer(tmp_path, name)
    elif name == "mini-imagenet":
        mini_imagenet_writer(tmp_path)
    elif name != "digits":
        mnist_writer(tmp_path)
        (tmp_path / "MNIST").rename(tmp_path / {"mnist": "MNIST", "fashion-mnist": "FashionMNIST"}[name])
    stored = load(name, tmp_path, cache=False)
    side = stored.image_shape[1]
    assert torch.equal(load(f"{name}:size={side}", tmp_path, cache=cache).train.images, stored.train.images)
    for size in sizes:
        small = load(f"{name}:size={size}", tmp_path, cache=cache)
        assert small.image_shape == (stored.image_shape[0], size, size)
        for part in ("train", "test"):
            expected = avg_pool2d(getattr(stored, part).images.double(), side // size).float()
            assert torch.equal(getattr(small, part).images, expected)
            assert torch.equal(getattr(small, part).labels, getattr(stored, part).labels)
        mean = small.train.images.double().mean(dim=(0, 2, 3))
        assert torch.allclose(small.train.normalisation.mean.double(), mean)
        std = small.train.images.double().std(dim=(0, 2, 3), correction=0)
        assert torch.allclose(small.train.normalisation.std.double(), std)


@pytest.mark.unchecked
@pytest.mark.parametrize("name", ["mnist", "fashion-mnist", "cifar10", "cifar100", "mini-imagenet", "digits"])
def test_a_size_must_divide_the_stored_one_or_exceed_it(name):
    side = sources[name].image_shape[1]
    assert sources[name](size=2 * side).size == 2 * side
    for size in (side - 1, side // 2 + 1):
        message = f"size must divide the side of the stored images, {side}, or exceed it, got {size}"
        with pytest.raises(ValueError, match=message):
            load(f"{name}:size={size}")
    with pytest.raises(ValueError, match="size must be at least 1"):
        load(f"{name}:size=0")
    with pytest.raises(TypeError, match="size must be an integer"):
        load(f"{name}:size=small")


@pytest.mark.parametrize(("classes", "error"), [(2, 0.1), (4, 0.02), (10, 0.3), (10, 1e-4)])
def test_the_stated_bayes_error_is_that_of_the_nearest_mean(classes, error):
    separation = separation_for(classes, error)
    assert bayes_error(classes, separation) == pytest.approx(error, rel=1e-6)
    generator = torch.Generator().manual_seed(0)
    means = separation * nc.frames.simplex_etf(classes, classes + 1, generator)
    labels = torch.arange(200_000) % classes
    samples = means[labels] + torch.randn(200_000, classes + 1, dtype=torch.float64, generator=generator)
    wrong = float(((samples @ means.T).argmax(1) != labels).double().mean())
    assert wrong == pytest.approx(error, abs=4 * (error / 200_000) ** 0.5)


def test_bayes_error_of_two_classes_is_the_normal_tail():
    """Two classes at distance 2 r: the error is Phi(-r)."""
    from scipy.stats import norm

    assert bayes_error(2, 1.3) == pytest.approx(norm.cdf(-1.3), rel=1e-9)
    assert bayes_error(5, 0.0) == pytest.approx(0.8, rel=1e-9)


def test_synthetic_parameters():
    data = load("synthetic:num_classes=4,dim=8,per_class=25,bayes_error=0.05,seed=3")
    assert (len(data.train), data.num_classes, data.image_shape) == (100, 4, (1, 1, 8))
    assert data.facts["bayes_error"] == 0.05
    assert not torch.equal(data.train.images, data.test.images)
    with pytest.raises(ValueError, match="dim must be at least 9"):
        load("synthetic:dim=5")
    with pytest.raises(ValueError, match="bayes_error must be less than"):
        load("synthetic:bayes_error=0.95")


def test_real_mnist(real_data):
    data = load("mnist", real_data, cache=False)
    assert (len(data.train), len(data.test)) == (60_000, 10_000)
    assert float(data.train.normalisation.mean[0]) / 255 == pytest.approx(0.1307, abs=1e-4)
    assert float(data.train.normalisation.std[0]) / 255 == pytest.approx(0.3081, abs=1e-4)
    assert data.train.class_counts.tolist()[:3] == [5923, 6742, 5958]
    report = check("mnist", real_data)
    assert report.official
    assert {file.status for file in report.files} == {"official"}


def test_real_cifar10_is_read_and_cached_alike(real_data, tmp_path):
    folder = tmp_path / "cifar-10-batches-py"
    folder.mkdir()
    for path in (real_data / "cifar-10-batches-py").iterdir():
        (folder / path.name).symlink_to(path)
    first, second = load("cifar10", tmp_path), load("cifar10", tmp_path)
    assert first.facts["origin"] == second.facts["origin"] == "cache"
    assert len(second.train) == 50_000
    assert second.train.class_counts.tolist() == [5000] * 10
    assert second.classes[:2] == ("airplane", "automobile")
    scaled = (second.train.normalisation.mean / 255).tolist()
    assert scaled == pytest.approx([0.4914, 0.4822, 0.4465], abs=1e-4)
    shutil.rmtree(tmp_path / ".neuralcollapse")


def test_real_cifar100_part_is_usable_though_not_official(real_data):
    report = check("cifar100", real_data)
    assert report.problem is None
    data = load("cifar100", real_data, cache=False, per_class=30)
    assert data.train.class_counts.tolist() == [30] * 100
    assert data.classes[0] == "apple"
