"""Studies with settings and seeds of one's own: kept apart from the plain ones, and refused where they mean nothing."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from neuralcollapse.studies import Evidence, Planned, Variation, query, run_studies
from neuralcollapse.studies._variation import parse_settings
from small_study import Small, calculation_cell, solve_cell, train_cell

pytestmark = pytest.mark.unchecked


class Seeded(Small):
    def cells(self, profile):
        for seed in self.seeds(profile):
            yield Planned(solve_cell(seed), {"what": "solve", "seed": seed})
            yield Planned(train_cell(seed=seed), {"what": "net", "seed": seed})

    def evidence(self, results):
        return {"all": Evidence.exact(True)}


def test_variations_are_kept_apart_and_marked(tmp_path):
    plain, varied = Seeded(), Seeded().vary({"epochs": 1}, (3,))
    outcomes = run_studies([plain.vary(seeds=(3,)), varied], "desk", tmp_path, engine="inline")
    assert [outcome.folder.name for outcome in outcomes] == ["small+seeds=3", "small+epochs=1+seeds=3"]
    facts = json.loads((outcomes[1].folder / "study.json").read_text())
    assert facts["id"] == "test/small"
    assert facts["variation"] == {"settings": {"epochs": 1}, "seeds": [3]}
    assert [cell["spec"].get("plan", {}).get("epochs") for cell in facts["cells"]] == [None, 1]
    assert len(list((tmp_path / "cells").iterdir())) == 3  # the solve is shared
    assert query(tmp_path, "select count(*) from cells where study = 'test/small+epochs=1+seeds=3'").rows == [(2,)]


def test_measured_epochs_follow_the_number_of_epochs():
    study = Small(train_cell(epochs=1000, measure=(1, 2, 100, 900, 1000)))
    (entry,) = study.vary({"epochs": 50}).planned("desk")
    assert (entry.cell.plan.epochs, entry.cell.plan.measure) == (50, (1, 5, 45, 50))
    (entry,) = study.vary({"measure": (25, 50), "epochs": 50}).planned("desk")
    assert entry.cell.plan.measure == (25, 50)
    (entry,) = Small(train_cell(epochs=10, measure="every")).vary({"epochs": 5}).planned("desk")
    assert entry.cell.plan.measure == "every"


class Widths(Small):
    """Compares nets of two widths, and two starts."""

    def cells(self, profile):
        for width in (4, 8):
            yield Planned(train_cell(model=f"mlp:width={width},depth=1"), {"width": width})
        for seed in self.seeds(profile):
            yield Planned(solve_cell(seed), {"seed": seed})

    def evidence(self, results):
        return {"all": Evidence.exact(True)}


def test_a_setting_that_makes_compared_cells_equal_is_refused():
    """Otherwise results of one net would stand under the names of two."""
    with pytest.raises(ValueError, match=r"compares cells by their model; of 5 different ones 4 would be left"):
        Widths().vary({"model": "mlp:width=8,depth=2"}).planned("desk")
    assert len(Widths().vary({"loss": "focal:gamma=2"}).planned("desk")) == 5


def test_a_study_with_seeds_takes_its_own_as_well():
    plain = Widths()
    own = plain.seeds("desk")
    assert plain.vary(seeds=own).planned("desk") == plain.planned("desk")


def test_settings_reach_every_kind_of_cell():
    settings = {"max_iter": 7, "dim": 6, "method": "lbfgs"}
    (entry,) = Small(solve_cell()).vary(settings).planned("desk")
    assert (entry.cell.options["max_iter"], entry.cell.problem.dim, entry.cell.method) == (7, 6, "lbfgs")
    (entry,) = Small(calculation_cell()).vary({"points": 7}).planned("desk")
    assert entry.cell.arguments["points"] == 7
    (entry,) = Small(train_cell()).vary({"loss": "focal:gamma=2"}).planned("desk")
    assert entry.cell.plan.loss == "focal:gamma=2"


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (
            lambda: Small(solve_cell()).vary({"epoch": 3}).planned("desk"),
            "no cell of study test/small",
        ),
        (lambda: Small(train_cell()).vary({"epochs": -3}).planned("desk"), "epochs"),
        (lambda: Small(solve_cell()).vary(seeds=(1, 2)).planned("desk"), "has no seeds to choose"),
        (lambda: Seeded().vary(seeds=(1, 1)), "seeds must be different"),
        (lambda: Seeded().vary({"seed": 4}).planned("desk"), "compares values of seed"),
        (lambda: parse_settings(["epochs"]), "takes NAME=VALUE"),
        (lambda: parse_settings(["a=1", "a=2"]), "given twice"),
    ],
)
def test_variations_that_cannot_be(make, complaint):
    with pytest.raises(ValueError, match=complaint):
        make()


def test_settings_that_are_no_texts_are_named():
    with pytest.raises(TypeError, match="texts must be strings NAME=VALUE, got 2"):
        parse_settings([2, 2])
    assert parse_settings(["a=" + "-" * 100_000 + "1"])["a"].startswith("---")


@given(st.dictionaries(st.sampled_from(["data", "epochs", "loss"]), st.text(max_size=80) | st.integers(), min_size=1))
def test_slugs_are_names_of_folders(settings):
    slug = Variation(settings).slug
    assert len(slug) < 90
    assert "/" not in slug
    assert slug.isascii()


def test_the_slug_tells_variations_apart():
    assert Variation({"data": "a/b"}).slug != Variation({"data": "a b"}).slug
