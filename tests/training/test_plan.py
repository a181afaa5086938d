"""Plans: plain values, checked when made, equal ids for equal plans; and the schedules they name."""

import json

import pytest

from neuralcollapse.training import Plan, measured_epochs, optimizers, schedules


def test_a_plan_survives_json_and_toml(tmp_path):
    plan = Plan(data="mnist", per_class=7, loss="focal:gamma=2", measure=(1, 5), epochs=5, metrics=("nc1", "nc2"))
    assert Plan.from_json(plan.to_json()) == plan
    (tmp_path / "plan.json").write_text(plan.to_json())
    assert Plan.from_file(tmp_path / "plan.json").run_id == plan.run_id
    (tmp_path / "plan.toml").write_text('data = "mnist"\nper_class = 7\nmeasure = [1, 5]\nepochs = 5\n')
    assert Plan.from_file(tmp_path / "plan.toml").measure == (1, 5)


def test_equal_plans_share_a_run_id_and_others_do_not():
    assert Plan().run_id == Plan(seed=0).run_id
    assert len({Plan(seed=seed).run_id for seed in range(5)}) == 5
    assert len(Plan().run_id) == 12


def test_a_plan_cannot_change():
    with pytest.raises(ValueError, match="frozen"):
        Plan().epochs = 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"epochs": 0}, "epochs: Input should be greater than or equal to 1"),
        ({"learning_rate": -1}, "learning_rate: Input should be greater than 0"),
        ({"learning_rate": float("nan")}, "learning_rate"),
        ({"batch_size": 1}, "batch_size"),
        ({"colour": "red"}, "colour: Extra inputs are not permitted"),
        ({"data": "digit"}, "unknown data set 'digit'; did you mean 'digits'"),
        ({"model": "resnet19"}, "unknown net"),
        ({"head": "eft"}, "unknown head"),
        ({"loss": "focl"}, "unknown loss"),
        ({"optimizer": "sdg"}, "unknown optimizer 'sdg'; did you mean 'sgd'"),
        ({"optimizer": "sgd:speed=1"}, "has no parameter 'speed'"),
        ({"schedule": "milestones:first=x"}, "first must be a fraction such as 3/7"),
        ({"schedule": "step:every=0"}, "every must be at least 1"),
        ({"imbalance": "stp"}, "unknown imbalance"),
        ({"metrics": ("nc9",)}, "unknown metric"),
        ({"measure": (1, 900)}, "measure must name epochs from 1 to 200"),
        ({"feature_decay": 1e-5}, "need decay_on='features'"),
        ({"decay_on": "features", "head": "normalized"}, "norms are fixed"),
        ({"optimizer": "lbfgs", "head": "normalized"}, "cannot keep the rows"),
        ({"optimizer": "riemannian-sgd"}, "is for head='normalized'"),
        ({"optimizer": "lbfgs", "clip_gradient": 2.0}, "exclude each other"),
    ],
)
def test_a_bad_plan_gets_one_clear_line(fields, message):
    with pytest.raises(ValueError, match=message) as caught:
        Plan(**fields)
    assert "\n" not in str(caught.value)


def test_a_bad_file_is_named(tmp_path):
    path = tmp_path / "plan.json"
    for text in ("{", "[1]", json.dumps({"epochs": "many"})):
        path.write_text(text)
        with pytest.raises(ValueError, match=r"plan\.json: "):
            Plan.from_file(path)


def test_measured_epochs():
    assert measured_epochs(Plan(epochs=4, measure="every")) == {1, 2, 3, 4}
    assert measured_epochs(Plan(epochs=9, measure=(2, 5))) == {2, 5, 9}
    log = measured_epochs(Plan(epochs=200))
    assert {1, 2, 3, 200} <= log
    assert len(log) <= 22


def rates(spec: str, epochs: int, base: float = 1.0) -> list[float]:
    return [schedules.create(spec)(epoch, epochs, base) for epoch in range(epochs)]


def test_schedules_are_the_papers():
    assert rates("constant", 3) == [1, 1, 1]
    assert rates("step:every=2", 5) == pytest.approx([1, 1, 0.1, 0.1, 0.01])
    losses_paper = rates("milestones", 100)
    assert losses_paper[:42] == [1.0] * 42
    assert losses_paper[42:71] == pytest.approx([0.1] * 29)
    assert losses_paper[71:] == pytest.approx([0.01] * 29)
    assert rates("milestones:first=0.5,second=1,factor=0.5", 4) == [1, 1, 0.5, 0.5]
    restarts = rates("cosine:period=4,minimum=0.1", 8)
    assert restarts[:4] == pytest.approx(restarts[4:])
    assert restarts[0] == 1
    assert restarts[2] == pytest.approx(0.55)
    assert min(rates("cosine", 50)) > 0


def test_registries_list_what_the_papers_use():
    assert {"sgd", "adam", "adamw", "lbfgs", "riemannian-sgd"} <= set(optimizers)
    assert {"step", "milestones", "cosine", "constant"} <= set(schedules)
