"""Classes without samples and classes with few: left out alike wherever a report is made."""

import pytest
import torch

import neuralcollapse as nc
from neuralcollapse.metrics import NeuralCollapse
from neuralcollapse.metrics.recorder import Recorder
from neuralcollapse.metrics.selection import Selection
from neuralcollapse.metrics.settings import Settings

K, D = 7, 9
SIZES = (30, 0, 12, 2, 25, 1, 9)


def data():
    generator = torch.Generator().manual_seed(0)
    y = torch.repeat_interleave(torch.arange(K), torch.tensor(SIZES))
    y = y[torch.randperm(len(y), generator=generator)]
    H = torch.randn(K, D, generator=generator, dtype=torch.float64)[y]
    H = H + 0.4 * torch.randn(len(y), D, generator=generator, dtype=torch.float64) + 3
    W = torch.randn(K, D, generator=generator, dtype=torch.float64)
    return H, y, W, torch.randn(K, generator=generator, dtype=torch.float64)


def by_hand(least):
    """The rows and the classifier of the classes that stay, numbered anew, as features of their own."""
    H, y, W, b = data()
    stay = [k for k in range(K) if SIZES[k] >= least]
    numbers = {label: place for place, label in enumerate(stay)}
    rows = torch.tensor([label in numbers for label in y.tolist()])
    labels = torch.tensor([numbers[label] for label in y[rows].tolist()])
    return nc.measure(H[rows], labels, W[stay], b[stay], metrics="all")


def recorded(selection, memory_limit, passes=None):
    H, y, W, b = data()
    recorder = Recorder(Settings("all", passes, "samples", -100, memory_limit, selection), K, W, b)
    for rows in torch.arange(len(y)).split(20):
        recorder.add(H[rows], y[rows])
    if recorder.finish_first_pass():
        for rows in torch.arange(len(y)).split(11):
            recorder.add_again(H[rows], y[rows])
    return recorder.report()


@pytest.mark.parametrize("least", [1, 3, 10])
def test_every_way_to_a_report_leaves_out_the_same_classes(least):
    H, y, W, b = data()
    options = {"present_only": True} if least == 1 else {"min_samples": least}
    expected = by_hand(least)
    metric = NeuralCollapse(K, D, "all", **options)
    metric.use_classifier(W, b)
    metric.update(H, y)
    reports = {
        "measure": nc.measure(H, y, W, b, metrics="all", **options),
        "torchmetrics": metric.report(),
        "recorder": recorded(Selection(**options), 1 << 30),
        "streaming recorder": recorded(Selection(**options), 5000),
    }
    for passes in (1, 2):
        statistics = nc.ClassStatistics(K, D, passes=passes)
        statistics.update(H, y)
        reports[f"statistics {passes}"] = statistics.report(W, b, metrics="all", **options)
        halves = [statistics.second_pass(W, b, metrics="all", **options) for _ in range(2)]
        halves[0].update(H[:30], y[:30])
        halves[1].update(H[30:], y[30:])
        halves[0].merge(halves[1])
        reports[f"second pass {passes}"] = halves[0].report()
    for way, report in reports.items():
        assert report.num_classes == expected.num_classes, way
        assert report.num_samples == expected.num_samples, way
        for name, value in report.scalars.items():
            assert value == pytest.approx(expected[name], rel=1e-9), (way, name)
        assert any("left out" in note for note in report.notes) == (least > 1), way
    for way in ("measure", "recorder", "streaming recorder", "second pass 1", "second pass 2"):
        lacking = set(expected.scalars) - set(reports[way].scalars)
        assert lacking <= ({"vci", "nc1_debiased"} if "pass" in way or "streaming" in way else set()), way
    if least > 1:
        assert "min_samples leaves out" in reports["statistics 1"].reasons["nc1"]


@pytest.mark.unchecked
def test_bad_selections_give_one_clear_line():
    H, y, W, b = data()
    for options, error, words in (
        ({"min_samples": 0}, ValueError, "min_samples"),
        ({"min_samples": 2.5}, TypeError, "min_samples"),
        ({"min_samples": 31}, ValueError, "at least 31 samples"),
        ({"present_only": "yes"}, TypeError, "present_only"),
    ):
        with pytest.raises(error, match=words):
            nc.measure(H, y, W, b, **options)
        statistics = nc.ClassStatistics(K, D)
        statistics.update(H, y)
        with pytest.raises(error, match=words):
            statistics.report(**options)
        with pytest.raises(error, match=words):
            statistics.second_pass(**options)


def test_reasons_name_the_classes_by_their_numbers_among_all():
    """They used to name them by their places among those that are measured: class 1 for class 5."""
    generator = torch.Generator().manual_seed(0)
    y = torch.tensor([2, 5, 7]).repeat_interleave(12)
    H = torch.randn(len(y), D, generator=generator)
    W = torch.randn(10, D, generator=generator)
    W[7] = 0
    single = torch.cat([y, torch.tensor([9])]), torch.cat([H, torch.ones(1, D)])
    reasons = nc.measure(single[1], single[0], W, present_only=True).reasons
    assert "class 9 has a single sample" in reasons["nc1_quotient_debiased"]
    H[y == 7] = H[y == 5]
    for part in (H, H.double()):
        reasons = nc.measure(part, y, W, present_only=True, metrics="all").reasons
        assert "classes 5 and 7 coincide" in reasons["cdnv"]
        assert "classes 5 and 7 have the same direction" in reasons["uniformity_means"]
        for name in ("nc3_cosine", "equiangular_weight", "one_vs_rest_weight"):
            assert "class 7 is zero" in reasons[name], name
    H[y == 5] = 0
    assert "class 5 are zero" in nc.measure(H, y, W, present_only=True, metrics="all").reasons["numerical_rank"]
    H = torch.randn(len(y), D, generator=generator)
    H[y == 5] = H.reshape(3, 12, D)[[0, 2]].mean(0)
    assert "class 5 is the global mean" in nc.measure(H, y, W, present_only=True).reasons["equiangular_means"]
    W = W.double()
    W[7] = (W[2] + W[5]) / 2
    assert "row 7 equals" in nc.measure(H, y, W, present_only=True).reasons["cosine_margin"]
