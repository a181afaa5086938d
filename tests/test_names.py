"""One name, one thing: no two classes, types or functions share one, rooms are small, old names say the new ones."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import neuralcollapse as nc

SOURCE = Path(nc.__file__).parent
ASIDE = {"__init__.py", "conftest.py"}


def bodies():
    """The statements of each file of the package."""
    for file in sorted(SOURCE.rglob("*.py")):
        yield file.relative_to(SOURCE).as_posix(), ast.parse(file.read_text(encoding="utf-8")).body


def kinds():
    """The public classes and types of each file."""
    for place, body in bodies():
        for node in body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, place
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                variable = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in ("TypeVar", "ParamSpec")
                if name[0].isupper() and not name.isupper() and not variable:
                    yield name, place


def functions():
    """The public functions of each file; commands are called as what they do is."""
    for place, body in bodies():
        for node in body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_") and not place.startswith("cli/"):
                yield node.name, place


def shared(named):
    """The names that more than one file has, with those files."""
    places = defaultdict(list)
    for name, place in named:
        places[name].append(place)
    assert len(places) > 200
    return {name: files for name, files in places.items() if len(files) > 1}


def test_no_two_classes_or_types_share_a_name():
    assert {"LogitLoss", "Batches", "StudyOutcome", "Plan"} <= {name for name, _ in kinds()}
    assert shared(kinds()) == {}


SAME = {
    "get": "a loss, a study, a data set: by the layer's name",
    "nc5_ood": "of features, and of the geometry of a report",
    "backtrack": "one solve, or many as a batch",
    "search": "one solve, or many as a batch",
}
"""The functions that share a name because they do the same to different things."""


def test_no_two_functions_share_a_name_unless_they_do_the_same():
    assert {"measure", "solve", "wide_resnet18"} <= {name for name, _ in functions()}
    assert set(shared(functions())) == set(SAME)


def test_no_folder_has_more_than_a_dozen_files():
    tests = Path(__file__).parent
    folders = [folder for top in (SOURCE, tests) for folder in (top, *top.rglob("*")) if folder.is_dir()]
    sizes = {str(folder): len({file.name for file in folder.glob("*.py")} - ASIDE) for folder in folders}
    assert {folder: size for folder, size in sizes.items() if size > 12} == {}


def test_the_old_name_of_the_last_layer_warns():
    with pytest.warns(DeprecationWarning, match=r"nc\.metrics\.Classifier is called nc\.metrics\.LastLayer now"):
        assert nc.metrics.Classifier is nc.metrics.LastLayer
    with pytest.raises(AttributeError, match="no attribute 'Klassifier'"):
        nc.metrics.Klassifier  # noqa: B018


def test_the_old_name_of_what_a_study_leaves_warns():
    with pytest.warns(DeprecationWarning, match=r"nc\.studies\.Outcome is called nc\.studies\.StudyOutcome now"):
        assert nc.studies.Outcome is nc.studies.StudyOutcome
    with pytest.raises(AttributeError, match="no attribute 'Income'"):
        nc.studies.Income  # noqa: B018


def test_the_old_name_of_the_losses_warns():
    with pytest.warns(DeprecationWarning, match=r"nc\.losses\.registry is called nc\.losses\.losses now"):
        assert nc.losses.registry is nc.losses.losses
    with pytest.raises(AttributeError, match="no attribute 'registries'"):
        nc.losses.registries  # noqa: B018
