"""Subsets, labels, hold-out, imbalance, normalisation, augmentation: exact, and drawn once."""

import pytest
import torch

import neuralcollapse as nc
from neuralcollapse.data import CropFlip, load


def test_a_split_is_a_torch_data_set():
    data = load("digits", per_class=5)
    image, label = data.train[7]
    assert image.shape == (1, 8, 8)
    assert image.dtype == torch.float32
    assert data.train[-1][1] == int(data.train.labels[-1])
    with pytest.raises(IndexError):
        data.train[50]
    batches = list(torch.utils.data.DataLoader(data.train, batch_size=20))
    assert [len(labels) for _, labels in batches] == [20, 20, 10]
    assert torch.equal(batches[0][0][7], image)
    assert label == int(batches[0][1][7])


def test_the_loader_gives_everything_in_order_and_can_be_used_again():
    split = load("digits").test
    loader = split.loader(batch_size=100)
    assert len(loader) == 3
    for _ in range(2):
        assert torch.equal(torch.cat([labels for _, labels in loader]), split.labels)
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        split.loader(batch_size=0)


def test_normalisation_is_measured_on_the_training_split_only():
    data = load("digits", per_class=30, validation=0.2)
    images, _ = data.train.batch(torch.arange(len(data.train)))
    assert float(images.mean()) == pytest.approx(0, abs=1e-5)
    assert float(images.std(correction=0)) == pytest.approx(1, abs=1e-5)
    for other in (data.validation, data.test):
        assert other.normalisation is data.train.normalisation
    assert abs(float(data.test.batch(torch.arange(200))[0].mean())) > 1e-5


def test_normalisation_of_floats_and_of_constant_channels():
    from neuralcollapse.data._split import measure_normalisation

    images = torch.randn(50, 2, 3, 3, generator=torch.Generator().manual_seed(0)) + 1000
    images[:, 1] = 7.0
    found = measure_normalisation(images, torch.arange(50))
    assert float(found.std[0]) == pytest.approx(float(images[:, 0].double().std(correction=0)), rel=1e-6)
    assert found.std[1] == 1
    assert (found(images)[:, 1] == 0).all()


@pytest.mark.parametrize("per_class", [1, 10, 150])
def test_balanced_subsets_are_nested_sorted_and_reproducible(per_class):
    one, again = load("digits", per_class=per_class).train, load("digits", per_class=per_class).train
    assert one.class_counts.tolist() == [per_class] * 10
    assert torch.equal(one.index, again.index)
    assert torch.equal(one.index, one.index.sort().values)
    assert torch.equal(one.labels, load("digits").train.labels[one.index])
    larger = load("digits", per_class=150).train
    assert set(one.index.tolist()) <= set(larger.index.tolist())
    if per_class == 10:
        assert not torch.equal(one.index, load("digits", per_class=per_class, seed=1).train.index)


def test_subsets_share_memory():
    data = load("digits")
    assert nc.data.balanced_subset(data.train, 3).images.data_ptr() == data.train.images.data_ptr()


def test_random_labels_are_drawn_once_and_only_for_training():
    plain, first, again = (
        load("digits"),
        load("digits", random_labels=True),
        load("digits", random_labels=True),
    )
    assert torch.equal(first.train.labels, again.train.labels)
    assert torch.equal(first.test.labels, plain.test.labels)
    share = float((first.train.labels == plain.train.labels).double().mean())
    assert 0.05 < share < 0.15
    assert torch.equal(first.train.index, plain.train.index)
    other = load("digits", random_labels=True, seed=1).train.labels
    assert not torch.equal(first.train.labels, other)


def test_hold_out_takes_its_share_of_every_class():
    data = load("digits", validation=0.1)
    assert data.validation.class_counts.tolist() == [15] * 10
    assert data.train.class_counts.tolist() == [135] * 10
    assert not set(data.train.index.tolist()) & set(data.validation.index.tolist())
    with pytest.raises(ValueError, match="has one sample"):
        load("digits", per_class=1, validation=0.1)
    with pytest.raises(ValueError, match="validation must be less than 1"):
        load("digits", validation=1.0)
    assert load("digits").validation is None


@pytest.mark.parametrize(
    ("imbalance", "counts"),
    [
        ("exponential:ratio=100", [100, 60, 36, 22, 13, 8, 5, 3, 2, 1]),
        ("exponential:ratio=1", [100] * 10),
        ("step:ratio=10", [100] * 5 + [10] * 5),
        ("step:ratio=20,minority=0.2", [100] * 8 + [5] * 2),
        ("step:ratio=10,minority=0.99", [100] + [10] * 9),
        ("step:ratio=10,minority=0.01", [100] * 9 + [10]),
    ],
)
def test_imbalances(imbalance, counts):
    data = load("digits", per_class=100, imbalance=imbalance)
    assert data.train.class_counts.tolist() == counts
    assert len(data.test) == 297


def test_old_names_work_with_a_warning():
    with pytest.warns(DeprecationWarning, match=r"nc\.data\.profiles is called nc\.data\.imbalances"):
        assert nc.data.profiles is nc.data.imbalances
    split = load("digits").train
    with pytest.warns(DeprecationWarning, match="profile= of imbalanced_subset is called imbalance="):
        old = nc.data.imbalanced_subset(split, profile="step:ratio=10")
    assert torch.equal(old.labels, nc.data.imbalanced_subset(split, "step:ratio=10").labels)
    with pytest.warns(DeprecationWarning, match="classes= of data set 'synthetic' is called num_classes="):
        assert load("synthetic:classes=3,dim=4,per_class=5").num_classes == 3
    with pytest.raises(AttributeError, match="no attribute 'profile'"):
        nc.data.profile  # noqa: B018


def test_bad_arguments():
    with pytest.raises(ValueError, match="exclude each other"):
        load("digits", imbalance="step", random_labels=True)
    with pytest.raises(ValueError, match="ratio must be at least 1"):
        load("digits", imbalance="step:ratio=0.5")
    with pytest.raises(ValueError, match="unknown imbalance 'stp'; did you mean 'step'"):
        load("digits", imbalance="stp")
    with pytest.raises(ValueError, match="class 0 has 150 samples, fewer than the 151"):
        load("digits", per_class=151)
    with pytest.raises(ValueError, match="unknown data set 'digit'; did you mean 'digits'"):
        load("digit")
    with pytest.raises(ValueError, match="seed must be at least 0"):
        load("digits", per_class=3, seed=-1)


@pytest.mark.unchecked
def test_other_labels_are_classes():
    split = load("digits", per_class=2).train
    assert split.relabel(split.labels.flip(0)).labels.tolist() == split.labels.tolist()[::-1]
    with pytest.raises(TypeError, match="labels must be a tensor, got"):
        split.relabel(split.labels.tolist())
    for wrong in (split.labels.float(), split.labels[1:]):
        with pytest.raises(ValueError, match=r"labels must be int64 and have shape \(20,\), got"):
            split.relabel(wrong)
    with pytest.raises(ValueError, match=r"labels must lie in 0..9, got 1 to 10"):
        split.relabel(split.labels + 1)


@pytest.mark.unchecked
def test_samples_are_chosen_by_integers_or_by_one_bool_each():
    split = load("digits", per_class=2).train
    first = torch.arange(len(split)) < 3
    assert split.select(first).labels.tolist() == split.select(torch.tensor([0, 1, 2])).labels.tolist()
    assert split.batch(first)[1].tolist() == split.labels[:3].tolist()
    assert split.select(torch.tensor([-1])).labels.tolist() == split.labels[-1:].tolist()
    for wrong in (first[1:], torch.tensor([0.0]), torch.tensor([[0]])):
        with pytest.raises(ValueError, match="positions must be a vector of integers, got"):
            split.select(wrong)
    for beyond in (20, -21):
        with pytest.raises(
            ValueError, match=rf"positions must lie in -20\.\.19, got {min(beyond, 3)} to {max(beyond, 3)}"
        ):
            split.select(torch.tensor([beyond, 3]))


def reference(images: torch.Tensor, padding: int, flip: bool, seed: int) -> torch.Tensor:
    """Crop and flip one image at a time."""
    generator = torch.Generator().manual_seed(seed)
    count, _, height, width = images.shape
    shifts = torch.randint(0, 2 * padding + 1, (2, count, 1), generator=generator)
    mirrored = torch.randint(0, 2, (count, 1), generator=generator) if flip else torch.zeros(count, 1)
    results = []
    for i, image in enumerate(images):
        padded = torch.zeros(image.shape[0], height + 2 * padding, width + 2 * padding, dtype=image.dtype)
        padded[:, padding : padding + height, padding : padding + width] = image
        top, left = int(shifts[0, i]), int(shifts[1, i])
        crop = padded[:, top : top + height, left : left + width]
        results.append(crop.flip(2) if mirrored[i] else crop)
    return torch.stack(results)


@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("shape", [(6, 3, 32, 32), (5, 1, 8, 11), (0, 1, 4, 4)])
@pytest.mark.parametrize("padding", [0, 4])
def test_vectorised_crop_and_flip_equals_one_image_at_a_time(shape, padding, flip):
    images = torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(9))
    found = CropFlip(padding, flip)(images, torch.Generator().manual_seed(3))
    expected = reference(images, padding, flip, 3) if shape[0] else images
    assert torch.equal(found, expected)


def test_augmented_batches_follow_their_generator():
    split = load("digits").train
    positions = torch.arange(32)
    one, _ = split.batch(positions, CropFlip(1), torch.Generator().manual_seed(0))
    two, _ = split.batch(positions, CropFlip(1), torch.Generator().manual_seed(0))
    assert torch.equal(one, two)
    assert not torch.equal(one, split.batch(positions)[0])
    with pytest.raises(ValueError, match="needs a generator"):
        split.batch(positions, CropFlip(1))
    with pytest.raises(ValueError, match="padding must be at least 0"):
        CropFlip(-1)


def test_global_random_state_is_untouched():
    before = torch.random.get_rng_state()
    load("digits", per_class=5, validation=0.2, random_labels=True)
    load("synthetic", imbalance="step")
    assert torch.equal(before, torch.random.get_rng_state())


@pytest.mark.parametrize("per_class", [None, 7])
def test_random_labels_are_balanced_unless_told_otherwise(per_class):
    plain = load("digits", per_class=per_class).train
    balanced = load("digits", per_class=per_class, random_labels=True).train
    counts = balanced.class_counts
    assert int(counts.max() - counts.min()) == (0 if len(plain) % 10 == 0 else 1)
    assert torch.equal(balanced.index, plain.index)
    agree = float((balanced.labels == plain.labels).float().mean())
    assert agree < 0.25
    independent = load("digits", random_labels="independent").train.class_counts
    assert int(independent.max() - independent.min()) > 10
    with pytest.raises(TypeError, match="random_labels"):
        load("digits", random_labels="fair")


def test_images_are_enlarged_bilinearly_and_repeated_over_channels(mnist_writer, tmp_path):
    root = mnist_writer(tmp_path)
    small, large = load("mnist", root).train, load("mnist:size=32,channels=3", root).train
    assert large.image_shape == (3, 32, 32)
    assert large.images.dtype == torch.uint8
    assert all(torch.equal(large.images[:, 0], large.images[:, c]) for c in (1, 2))
    image, expected = small.images[0, 0].double(), torch.empty(32, 32, dtype=torch.float64)
    for row in range(32):
        for column in range(32):
            y, x = (min(max((i + 0.5) * 28 / 32 - 0.5, 0.0), 27.0) for i in (row, column))
            top, left = min(int(y), 26), min(int(x), 26)
            down, right = y - top, x - left
            expected[row, column] = (1 - down) * (
                (1 - right) * image[top, left] + right * image[top, left + 1]
            ) + down * ((1 - right) * image[top + 1, left] + right * image[top + 1, left + 1])
    assert float((large.images[0, 0].double() - expected).abs().max()) <= 0.5 + 1e-4
    torch.testing.assert_close(
        large.images[0, 0].double(),
        torch.nn.functional.interpolate(image[None, None], size=(32, 32), mode="bilinear")[0, 0].round(),
        atol=1.0,
        rtol=0,
    )
    flat = load("digits:size=16").train
    assert flat.image_shape == (1, 16, 16)
    for spec, message in (
        ("mnist:size=30", None),
        ("mnist:size=13", "must divide the side of the stored images, 28, or exceed it"),
        ("mnist:size=100000", "size must be at most 512"),
        ("mnist:channels=2", "channels must be 1 or 3 for grey images, got 2"),
        ("cifar10:channels=1", "channels must be 3 for these images, got 1"),
    ):
        if message is None:
            assert load(spec, root).image_shape == (1, 30, 30)
        else:
            with pytest.raises(ValueError, match=message):
                load(spec, root)
