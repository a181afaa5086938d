"""Every field of a plan is an option of ``neuralcollapse train``."""

import inspect

import pytest

from neuralcollapse import training
from neuralcollapse.cli import main
from neuralcollapse.cli.train import train
from neuralcollapse.training import Plan


def options():
    return inspect.signature(train).parameters


@pytest.fixture
def planned(monkeypatch, tmp_path):
    """The plan that a command line makes, without training it."""

    def plan_of(*arguments):
        seen = []

        def stop(plan, *_, **__):
            seen.append(plan)
            raise training.TrainingStopped("seen")

        monkeypatch.setattr(training, "train", stop)
        assert main(["train", "--out", str(tmp_path / "run"), *arguments]) == 1
        return seen[0]

    return plan_of


def test_every_field_of_a_plan_is_an_option():
    assert set(Plan.model_fields) <= set(options())


def test_no_option_of_a_plan_has_a_default_of_its_own():
    given = {name: options()[name].default for name in Plan.model_fields}
    assert {name for name, default in given.items() if default not in (None, False)} == set()


def test_metrics_and_memory_layout_reach_the_plan(planned):
    plan = planned("--metrics", "nc1", "nc2", "--intervals", "0.9", "--no-channels-last", "--epochs", "1")
    assert plan.metrics == ("nc1", "nc2")
    assert plan.intervals == 0.9
    assert plan.channels_last is False
    assert planned("--epochs", "1").channels_last is True
