"""Forty kinds of model and loader, each against features that were taken from its parts by hand, in float64.

The truths come from ``naive`` (definitions in numpy); the package is not asked for any of them.
"""

import warnings

import numpy as np
import pytest
import torch

import naive
import neuralcollapse as nc
from kinds import KINDS

pytestmark = pytest.mark.filterwarnings("ignore")
CHOSEN = ["nc1", "nc1_quotient", "nc2", "nc3", "nc3_frobenius", "nc4_mismatch", "cdnv", "equinorm_means"]


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_of_model(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        case = KINDS[name]()
    model = case.model
    model.train()
    state = {key: value.clone() for key, value in model.state_dict().items()}
    random_state = torch.get_rng_state()
    report = nc.measure_model(model, case.loader, **{"metrics": CHOSEN} | case.options)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())

    weight = case.weight.detach().double().numpy()
    bias = np.zeros(len(weight)) if case.bias is None else case.bias.detach().double().numpy()
    if name == "a_head_with_one_output":
        bias = np.array([-0.5, 0.5]) * float(model.head.bias.detach())
    truth = naive.all_metrics(case.features.double().numpy(), case.labels.numpy(), weight, bias)
    assert report.layer == case.layer or case.layer in report.layer
    assert (report.num_samples, report.dim) == tuple(case.features.shape)
    for metric in CHOSEN:
        assert report[metric] == pytest.approx(truth[metric], rel=2e-4, abs=1e-6), metric
    if case.note is not None:
        assert any(case.note in note for note in report.notes), report.notes
    if "shifted" not in (case.note or ""):
        assert not any("shifted" in note for note in report.notes)


def test_there_are_enough_kinds():
    assert len(KINDS) >= 40
