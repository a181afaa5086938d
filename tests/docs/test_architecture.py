"""ARCHITECTURE.md names files and functions that exist, in walks that go down and are short."""

import ast
import itertools
import re
import tomllib
from pathlib import Path

import grimp
import pytest

HOME = Path(__file__).parents[2]
TEXT = (HOME / "ARCHITECTURE.md").read_text(encoding="utf-8")
WALKS = dict(re.findall(r"^### ([^\n]+)\n(.*?)(?=^### |\Z)", TEXT, re.MULTILINE | re.DOTALL))
HOP = re.compile(r"^(\d+)\. `([\w/]+\.py)` `([\w.]+)`: ", re.MULTILINE)
CONTRACT = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"][0]
LAYERS = [re.findall(r"neuralcollapse\.(\w+)", entry) for entry in CONTRACT["layers"]]


def defined_in(path):
    """Names of a file, with those inside classes after a dot."""
    names = set()
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{inner.name}" for inner in node.body if isinstance(inner, ast.FunctionDef)}
    return names


@pytest.mark.parametrize("title", WALKS)
def test_a_walk(title):
    hops = HOP.findall(WALKS[title])
    assert len(hops) == len(re.findall(r"^\d+\.", WALKS[title], re.MULTILINE))
    assert [int(number) for number, _, _ in hops] == list(range(1, len(hops) + 1))
    assert 4 <= len(hops) <= 8
    depth = 0
    for _, file, name in hops:
        path = HOME / "src" / "neuralcollapse" / file
        assert path.is_file(), file
        assert name in defined_in(path), f"{file} defines no {name}"
        level = next(number for number, layer in enumerate(LAYERS) if file.split("/")[0] in layer)
        assert level >= depth, f"{file} is above the hop before it"
        depth = level


def test_there_are_five_walks():
    assert len(WALKS) == 5
    for word in ("measure_model", "certify", "solve", "study run", "train"):
        assert any(word in title for title in WALKS)


def imports_between_layers():
    """Which layers import which, as the rest of the package has it."""
    graph = grimp.build_graph("neuralcollapse", cache_dir=None)
    names = [name for layer in LAYERS for name in layer]
    return {
        (upper, lower)
        for upper, lower in itertools.permutations(names, 2)
        if graph.direct_import_exists(
            importer=f"neuralcollapse.{upper}", imported=f"neuralcollapse.{lower}", as_packages=True
        )
    }


def below(layer, arrows):
    """All layers that arrows lead to."""
    found = {lower for upper, lower in arrows if upper == layer}
    return found.union(*(below(lower, arrows) for lower in found))


def test_the_picture_has_every_layer_and_the_imports_that_are_there_and_no_others():
    picture = re.search(r"```mermaid\n(.*?)```", TEXT, re.DOTALL)[1].replace("support", "_support").replace("__", "_")
    assert set(re.findall(r'(\w+)\["', picture)) == {name for layer in LAYERS for name in layer}
    arrows = set(re.findall(r"^ *(\w+)(?:\[.*?\])? --> (\w+)", picture, re.MULTILINE))
    assert len(arrows) == picture.count("-->")
    real = imports_between_layers()
    assert arrows - real == set(), "drawn, but no import"
    assert {(upper, lower) for upper, lower in real if lower not in below(upper, arrows)} == set(), "not drawn"
    assert {arrow for arrow in arrows if arrow[1] in below(arrow[0], arrows - {arrow})} == set(), "drawn twice"


@pytest.mark.parametrize(
    "page", ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/theory.md", "docs/metrics.md", "docs/models.md"]
)
def test_paths_in_texts_exist(page):
    text = re.sub(r"```.*?```", "", (HOME / page).read_text(encoding="utf-8"), flags=re.DOTALL)
    roots = (HOME, HOME / "src", HOME / "src" / "neuralcollapse", HOME / "tests" / "theory")
    for name in re.findall(r"`((?:[\w-]+/)+(?:[\w-]+\.(?:py|md|json))?)`", text):
        if "my_" not in name:
            assert any((root / name).exists() for root in roots), f"{page}: there is no {name}"
