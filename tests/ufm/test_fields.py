"""A model's fields are declared once: files, options, the page's form and the command that it shows follow."""

import inspect
import json

import cyclopts
import pytest

from neuralcollapse._support.fields.models import MODEL_FIELDS, SIZES, ModelField, declare_model, fields_of
from neuralcollapse.cli._problem_options import ProblemOptions, problem_options
from neuralcollapse.ufm import NormalizedUFM, Problem, RegularizedUFM, problems
from neuralcollapse.web.explorer._about import describe_page
from neuralcollapse.web.explorer._fields import Fields, Limits, problem_of
from neuralcollapse.web.explorer._sentences import command

LIMITS = Limits(classes=100, per_class=100, dim=100)


@pytest.fixture
def toy():
    """A model with a field that no other has, taken away again afterwards."""
    fields = declare_model(
        "toy",
        MODEL_FIELDS["normalized"][0],
        *SIZES,
        ModelField("temperature", "scale", "Temperature.", 1.0, label="temperature"),
        ModelField(
            "stretch", "scale", "How far rows are stretched.", label="stretch", page=(0.0, 9.0), slider=(0.5, 5)
        ),
    )

    class ToyUFM(NormalizedUFM):
        kind = "toy"

        def __init__(self, loss, num_classes, per_class, dim, temperature=1.0, stretch=1.0):
            super().__init__(loss, num_classes, per_class, dim, temperature)
            self.stretch = fields_of(self.kind)["stretch"].check(stretch)

    problems.add("toy")(ToyUFM)
    yield ToyUFM
    del MODEL_FIELDS["toy"]
    problems._entries.pop("toy")
    assert fields[-1].name == "stretch"


def test_a_new_field_is_one_declaration(toy, capsys):
    model = toy("ce", 4, 3, 6, 2.0, stretch=1.5)
    assert json.loads(model.to_json())["stretch"] == 1.5
    assert Problem.from_json(model.to_json()) == model
    with pytest.raises(ValueError, match="stretch must be greater than 0, got -1"):
        toy("ce", 4, 3, 6, stretch=-1)

    options, built = problem_options(), []
    app = cyclopts.App(name="toy", result_action="return_value")

    def show(*, problem=None):
        assert problem is not None
        built.append(problem.build())

    show.__annotations__["problem"] = options | None
    app.default(show)
    app(["--help"])
    assert "--stretch" in capsys.readouterr().out
    app(
        ["--model", "toy", "--classes", "4", "--per-class", "3", "--dim", "6", "--temperature", "2", "--stretch", "1.5"]
    )
    assert built == [model]
    with pytest.raises(ValueError, match="--stretch does not belong to the normalized model"):
        app(["--classes", "4", "--dim", "6", "--temperature", "2", "--stretch", "1.5"], exit_on_error=False)

    form = {field["name"]: field for field in describe_page(False)["models"]["toy"]}
    assert (form["stretch"]["label"], form["stretch"]["min"], form["stretch"]["max"]) == ("stretch", 0.5, 5)
    asked = {"model": "toy", "loss": "ce", "classes": 4, "per_class": 3, "dim": 6, "temperature": 2, "stretch": "1.5"}
    assert problem_of(Fields(asked), LIMITS) == model
    with pytest.raises(ValueError, match="stretch"):
        problem_of(Fields({**asked, "stretch": 10}), LIMITS)
    assert "--stretch 1.5" in command("solve", model)


@pytest.mark.parametrize("kind", sorted(MODEL_FIELDS))
def test_declared_fields_are_the_arguments_of_the_constructor(kind):
    parameters = inspect.signature(problems[kind].__init__).parameters
    fields = MODEL_FIELDS[kind]
    assert [field.name for field in fields] == list(parameters)[1:]
    for field in fields:
        default = parameters[field.name].default
        assert (default is inspect.Parameter.empty) == field.required
        assert field.required or default == field.default


def test_options_build_the_models_that_files_name():
    options = ProblemOptions(num_classes=4, per_class=("50,50,5", "5"), dim=6, weight_decay=0.1, feature_decay=0.2)
    expected = RegularizedUFM("ce", 4, [50, 50, 5, 5], 6, 0.1, 0.2)
    assert options.build() == expected
    assert json.loads(expected.to_json()) == {
        "model": "regularized",
        "loss": "cross-entropy",
        "num_classes": 4,
        "per_class": [50, 50, 5, 5],
        "dim": 6,
        "weight_decay": 0.1,
        "feature_decay": 0.2,
        "bias_decay": None,
    }
    assert "--per-class 50,50,5,5" in command("optimum", expected)
    assert options.given
    assert not ProblemOptions().given
    with pytest.raises(ValueError, match=r"--feature-decay is missing \(or give --temperature"):
        ProblemOptions(num_classes=4, dim=6, weight_decay=0.1).build()
    with pytest.raises(ValueError, match="--temperature does not belong to the regularized model"):
        ProblemOptions(model="regularized", num_classes=4, dim=6, temperature=1.0).build()
