"""Results in one short line: no arrays, the words and numbers that matter."""

from typing import get_args

import torch

from neuralcollapse import data, frames, measure, studies
from neuralcollapse.ufm import NormalizedUFM, Point, RegularizedUFM, Verdict


def test_results_of_models_are_one_line():
    model = RegularizedUFM("ce", 3, 40, 50, 0.01, 0.001)
    optimum = model.optimum()
    zero = Point(torch.zeros(3, 50).double(), torch.zeros(120, 50).double())
    assert repr(zero) == "Point(W (3, 50), H (120, 50))"
    assert repr(optimum).startswith(f"Optimum(neural collapse, value {optimum.value:.10g}, logit scale ")
    assert repr(optimum).endswith(", proved)")
    assert "not proved" in repr(NormalizedUFM("ce", 6, 1, 4, 2.0).optimum())
    saddle, best = model.certify(zero), model.certify(optimum.point)
    assert repr(saddle).startswith("Certificate(strict saddle, value 1.098612289, gap ")
    assert f"curvature {saddle.curvature:.3g}" in repr(saddle)
    assert "curvature" not in repr(best)
    for shown in (optimum, saddle, best):
        assert "tensor" not in repr(shown)
        assert len(repr(shown)) < 160
    assert {saddle.verdict, best.verdict} <= set(get_args(Verdict))


def test_data_sets_are_one_line():
    digits = data.load("digits", per_class=20, test_per_class=5)
    assert repr(digits) == "DataSet('digits', train 200, test 50, 10 classes, 1 x 8 x 8)"
    assert repr(digits.test) == "Split(50 samples of 10 classes, 1 x 8 x 8)"
    assert "tensor" not in repr(digits.test.loader(16)) + repr(digits.train.normalisation)
    held = data.load("digits", per_class=20, validation=0.5)
    assert "train 100, validation 100, test" in repr(held)


def test_what_else_is_returned_is_one_line():
    rows = measure(torch.randn(40, 60), torch.arange(40) % 4, torch.randn(4, 60)).per_class
    assert repr(rows).startswith("PerClass(4 classes: counts, mean_norms, ")
    assert repr(frames.nearest_etf(2 * frames.simplex_etf(4, 50))).startswith("NearestETF(frame 4x50, scale 2, ")
    assert repr(studies.get("losses/collapse")) == "Study('losses/collapse')"
    assert repr(studies.get("losses/collapse").vary(seeds=[3])) != "Study('losses/collapse')"
