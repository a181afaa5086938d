"""What a run writes of a split: loss, accuracy and metrics, in the precision that the run trains in."""

import pytest
import torch
from torch import nn

import low_rank
from neuralcollapse.data import Split
from neuralcollapse.data._split import Normalisation
from neuralcollapse.metrics.settings import Settings
from neuralcollapse.models import Classifier, LinearHead
from neuralcollapse.training import Plan
from neuralcollapse.training._distributed import Team
from neuralcollapse.training._measure import measure_split


def test_a_plan_that_names_no_metrics_measures_the_core():
    split, _, _ = low_rank_split()
    model = Classifier(nn.Sequential(nn.Flatten(), low_rank.Net().trunk), LinearHead(low_rank.DIM, low_rank.CLASSES))
    row = measure_split(Plan(data="digits"), model, split, Team(), torch.device("cpu"))
    core = [metric.name for metric in Settings("core").chosen]
    assert set(row) == {"loss", "accuracy", *core}
    assert len(core) < len(Settings("all").chosen)


def low_rank_split():
    x, y = low_rank.inputs()
    images = x[:, None, None, :]
    plain = Normalisation(torch.zeros(1), torch.ones(1))
    return Split(images, torch.arange(len(y)), y, low_rank.CLASSES, plain), x, y


@pytest.mark.parametrize("precision", ["float32", "bfloat16"])
def test_a_run_in_low_precision_is_cut_at_its_own_rounding(precision):
    split, x, y = low_rank_split()
    net = low_rank.Net()
    head = LinearHead(low_rank.DIM, low_rank.CLASSES)
    model = Classifier(nn.Sequential(nn.Flatten(), net.trunk), head)
    plan = Plan(data="digits", precision=precision, metrics=("nc1", "nc1_quotient"))
    row = measure_split(plan, model, split, Team(), torch.device("cpu"))
    assert row["nc1"] == pytest.approx(low_rank.truth(net, x, y), rel=1e-4 if precision == "float32" else 2e-2)
    logits = x.double() @ (head.weight @ net.trunk.weight).double().T
    logits = logits + (head.weight.double() @ net.trunk.bias.double() + head.bias.double())
    exact = nn.functional.cross_entropy(logits, y).item()
    assert row["loss"] == pytest.approx(exact, rel=1e-5 if precision == "float32" else 2e-2)
