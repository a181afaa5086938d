"""One name, one thing: no two classes are called the same, rooms are small, and old names say what they are now."""

import ast
from collections import defaultdict
from pathlib import Path

import pytest

import neuralcollapse as nc

SOURCE = Path(nc.__file__).parent
STUDIES = "studies"
ASIDE = {"__init__.py", "conftest.py"}


def classes():
    """The public classes of each file; those of studies are called by their question, which several papers ask."""
    for file in sorted(SOURCE.rglob("*.py")):
        place = file.relative_to(SOURCE)
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and place.parts[0] != STUDIES:
                yield node.name, place.as_posix()


def test_no_two_classes_share_a_name():
    places = defaultdict(list)
    for name, place in classes():
        places[name].append(place)
    assert len(places) > 150
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
