"""Every field of a plan is an option of ``neuralcollapse train``, and what is given replaces what a file says."""

import io
import re

import pytest
from rich.console import Console

from neuralcollapse import training
from neuralcollapse.cli import main
from neuralcollapse.cli._app import app
from neuralcollapse.training import Plan

FILE = """
augment = true
random_labels = true
shuffle = false
model = "mlp:width=16,depth=2"
"""


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


@pytest.fixture
def file(tmp_path):
    (tmp_path / "plan.toml").write_text(FILE)
    return "--plan", str(tmp_path / "plan.toml")


OTHER = {
    "data": "digits:size=4",
    "imbalance": "exponential:ratio=3",
    "random_labels": "independent",
    "model": "mlp",
    "init": "torch",
    "head": "etf",
    "loss": "supervised-contrastive",
    "optimizer": "adam",
    "schedule": "constant",
    "feature_decay_over": "batch",
    "decay_on": "features",
    "precision": "bfloat16",
    "device": "cpu",
    "measure": (1, 5),
    "metrics": ("nc1", "nc2"),
    "validation": 0.25,
    "intervals": 0.9,
    "views": 2,
}
TOGETHER = {
    "feature_decay": {"decay_on": "features"},
    "bias_decay": {"decay_on": "features"},
    "feature_decay_over": {"decay_on": "features", "feature_decay": 0.5},
    "views": {"augment": True, "loss": "supervised-contrastive"},
    "projection": {"loss": "supervised-contrastive"},
}


def words(name, value):
    option = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [f"{option}={str(value).lower()}"]
    if name == "measure":
        return [option, ",".join(map(str, value))]
    return [option, *map(str, value if isinstance(value, tuple) else [value])]


@pytest.mark.parametrize("name", Plan.model_fields)
def test_every_field_of_a_plan_is_an_option_that_reaches_it(planned, name):
    default = Plan.model_fields[name].default
    value = OTHER[name] if name in OTHER else not default if isinstance(default, bool) else (default or 0) + 2
    wanted = {**TOGETHER.get(name, {}), name: value}
    plan = planned(*[word for key, one in wanted.items() for word in words(key, one)])
    assert getattr(plan, name) == value != default
    assert plan == Plan(**wanted)


def test_nothing_given_is_the_plan_without_fields(planned):
    assert planned() == Plan()


@pytest.mark.parametrize(
    ("given", "changed"),
    [
        ((), {}),
        (("--augment=false",), {"augment": False}),
        (("--no-augment",), {"augment": False}),
        (("--shuffle",), {"shuffle": True}),
        (("--no-random-labels",), {"random_labels": False}),
        (("--random-labels", "independent", "--epochs", "1"), {"random_labels": "independent", "epochs": 1}),
        (("--width", "8"), {"model": "mlp:width=8,depth=2"}),
        (("--feature-dim", "9"), {"model": "mlp:width=16,depth=2,feature_dim=9"}),
        (("--model", "mlp", "--width", "8"), {"model": "mlp:width=8"}),
    ],
)
def test_what_is_given_replaces_what_the_file_says(planned, file, given, changed):
    said = {"augment": True, "random_labels": True, "shuffle": False, "model": "mlp:width=16,depth=2"}
    assert planned(*file, *given) == Plan(**{**said, **changed})


def test_flags_without_a_value_are_true(planned):
    plan = planned("--random-labels", "--augment", "--epochs", "1")
    assert plan.random_labels is True
    assert plan.augment is True
    assert plan.epochs == 1


def test_the_help_has_the_words_and_the_default_of_every_field():
    console = Console(width=1000, file=io.StringIO())
    app.help_print(["train"], console=console)
    lines = console.file.getvalue().splitlines()
    for name, field in Plan.model_fields.items():
        (line,) = (line for line in lines if re.match(rf"│ --{name.replace('_', '-')} ", line))
        assert len(field.description) > 10
        default = re.search(r"\[default: (.*)\]", line)
        if field.default is None:
            assert default is None
        else:
            assert default[1] == (str(field.default).lower() if isinstance(field.default, bool) else str(field.default))
