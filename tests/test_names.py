"""One name, one thing: no two classes or types share one, rooms are small, and old names say what they are now."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import neuralcollapse as nc

SOURCE = Path(nc.__file__).parent
STUDIES = "studies"
ASIDE = {"__init__.py", "conftest.py"}


def kinds():
    """The public classes and types of each file; studies are called by their question, which two may ask."""
    for file in sorted(SOURCE.rglob("*.py")):
        place = file.relative_to(SOURCE)
        if place.parts[0] == STUDIES:
            continue
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                yield node.name, place.as_posix()
            if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
                name = node.targets[0].id
                variable = isinstance(node.value, ast.Call) and ast.unparse(node.value.func) in ("TypeVar", "ParamSpec")
                if name[0].isupper() and not name.isupper() and not variable:
                    yield name, place.as_posix()


def test_no_two_classes_or_types_share_a_name():
    places = defaultdict(list)
    for name, place in kinds():
        places[name].append(place)
    assert len(places) > 200
    assert {"LogitLoss", "Batches"} <= set(places)
    assert {name: files for name, files in places.items() if len(files) > 1} == {}


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
