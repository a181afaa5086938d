"""Points, their files, and what happens to bad ones."""

import json
import math

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from neuralcollapse.ufm import (
    ContrastiveUFM,
    NormalizedUFM,
    Point,
    Problem,
    RegularizedUFM,
    load_point,
    save_point,
)

MODELS = [
    RegularizedUFM("ce", 3, 2, 4, 0.01, 0.02),
    RegularizedUFM("focal:gamma=2", 3, [1, 2, 3], 4, 0.01, 0.02, 0.0),
    NormalizedUFM("ls", 3, 2, 4, 2.0),
    ContrastiveUFM(3, 2, 4),
]


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_file_round_trip_is_exact(model, tmp_path):
    point = model.random_point(0)
    save_point(tmp_path / "deep" / "point.safetensors", point, {"problem": model.to_json()})
    again, metadata = load_point(tmp_path / "deep" / "point.safetensors")
    assert torch.equal(point.flatten(), again.flatten())
    assert Problem.from_json(metadata["problem"]) == model
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["point.safetensors"]


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "point.safetensors"
    point = MODELS[0].random_point(0)
    save_point(path, point)
    before = path.read_bytes()
    with pytest.raises(Exception, match=r"metadata|str"):
        save_point(path, point, {"problem": 3})
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "text", "pickle"])
def test_damaged_files_are_named(damage, tmp_path):
    path = tmp_path / "point.safetensors"
    save_point(path, MODELS[0].random_point(0))
    content = path.read_bytes()
    damaged = {
        "truncate": content[:-9],
        "flip": b"\xff" + content[1:],
        "empty": b"",
        "text": b"hello",
        "pickle": b"\x80\x04cos\nsystem\n(S'true'\ntR.",
    }[damage]
    path.write_bytes(damaged)
    with pytest.raises(ValueError, match=r"point.safetensors: not a readable safetensors file"):
        load_point(path)


def test_missing_and_unexpected_arrays_are_named(tmp_path):
    path = tmp_path / "p.safetensors"
    save_file({"W": torch.zeros(2, 2, dtype=torch.float64)}, path)
    with pytest.raises(ValueError, match=r"the array 'H' is missing .it has: W."):
        load_point(path)
    save_file({"H": torch.zeros(2, 2, dtype=torch.float64), "X": torch.zeros(1)}, path)
    with pytest.raises(ValueError, match="unexpected array 'X'"):
        load_point(path)
    save_file({"H": torch.zeros(2, 2)}, path)
    with pytest.raises(ValueError, match="H must be float64, got a float32 tensor"):
        load_point(path)
    with pytest.raises(ValueError, match=r"nowhere.safetensors: no such file"):
        load_point(tmp_path / "nowhere.safetensors")


def spoil(model, **changes):
    point = model.random_point(0)
    blocks = {"W": point.W, "H": point.H, "b": point.b, **changes}
    return lambda: model.value(Point(**blocks))


REGULARIZED, BIASED, NORMALIZED, CONTRASTIVE = MODELS
NAN = torch.full((6, 4), math.nan, dtype=torch.float64)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: RegularizedUFM("ce", 1, 2, 3, 0.1, 0.1),
            ValueError,
            "num_classes must be at least 2, got 1",
        ),
        (lambda: RegularizedUFM("ce", 3, 0, 3, 0.1, 0.1), ValueError, "per_class must be at least 1, got 0"),
        (lambda: RegularizedUFM("ce", 3, [1, 2], 3, 0.1, 0.1), ValueError, "per_class must name 3 counts"),
        (
            lambda: RegularizedUFM("ce", 3, [1, 0, 2], 3, 0.1, 0.1),
            ValueError,
            "per_class.1. must be at least 1",
        ),
        (lambda: RegularizedUFM("ce", 3, 2, 0, 0.1, 0.1), ValueError, "dim must be at least 1, got 0"),
        (
            lambda: RegularizedUFM("ce", 3, 2.5, 3, 0.1, 0.1),
            TypeError,
            "per_class must be an integer, got 2.5",
        ),
        (
            lambda: RegularizedUFM("ce", 3, 2, 3, -0.1, 0.1),
            ValueError,
            "weight_decay must be at least 0, got -0.1",
        ),
        (lambda: RegularizedUFM("ce", 3, 2, 3, 0.1, math.inf), ValueError, "feature_decay must be finite"),
        (lambda: RegularizedUFM("ce", 3, 2, 3, 0.1, 0.1, math.nan), ValueError, "bias_decay must be finite"),
        (lambda: RegularizedUFM("cee", 3, 2, 3, 0.1, 0.1), ValueError, "unknown loss 'cee'"),
        (lambda: RegularizedUFM("sc", 3, 2, 3, 0.1, 0.1), TypeError, "loss must be a loss on logits"),
        (lambda: RegularizedUFM("ce", 3, 2, 3, "much", 0.1), TypeError, "weight_decay must be a real number"),
        (lambda: NormalizedUFM("ce", 3, 2, 3, 0.0), ValueError, "temperature must be greater than 0"),
        (
            lambda: ContrastiveUFM(3, 1, 3),
            ValueError,
            "per_class must be at least 2 in the contrastive model",
        ),
        (spoil(REGULARIZED, W=None), ValueError, "point.W is missing"),
        (
            spoil(REGULARIZED, W=torch.zeros(2, 4, dtype=torch.float64)),
            ValueError,
            r"point.W must have shape \(3, 4\)",
        ),
        (
            spoil(REGULARIZED, H=torch.zeros(6, 4)),
            ValueError,
            "point.H must be float64, got a float32 tensor",
        ),
        (spoil(REGULARIZED, H=NAN), ValueError, "point.H must be finite, but 24 of its 24 entries"),
        (spoil(REGULARIZED, H=np.zeros((6, 4))), TypeError, "point.H must be a tensor"),
        (spoil(REGULARIZED, b=torch.zeros(3, dtype=torch.float64)), ValueError, "this model has no bias"),
        (spoil(BIASED, b=None), ValueError, "point.b is missing: this model has a bias"),
        (
            spoil(NORMALIZED, H=torch.ones(6, 4, dtype=torch.float64)),
            ValueError,
            "point.H must have rows of unit norm",
        ),
        (
            spoil(CONTRASTIVE, W=torch.zeros(3, 4, dtype=torch.float64)),
            ValueError,
            "this model has no classifier",
        ),
        (lambda: REGULARIZED.value(3), TypeError, "point must be a Point"),
        (
            lambda: REGULARIZED.hessian_vector(REGULARIZED.random_point(0), 3),
            TypeError,
            "direction must be a Point",
        ),
        (lambda: REGULARIZED.random_point("x"), TypeError, "seed must be an integer"),
        (lambda: Problem.from_json("{"), ValueError, "not a description of a model"),
        (lambda: Problem.from_json(json.dumps({"model": "other"})), ValueError, "unknown feature model 'other'"),
        (
            lambda: Problem.from_json(json.dumps({"model": "normalized"})),
            ValueError,
            "not a description of a model",
        ),
    ],
)
@pytest.mark.unchecked
def test_bad_input_names_the_argument(call, error, text):
    with pytest.raises(error, match=text):
        call()
