"""Nothing imports what another layer keeps to itself: modules and names that begin with an underscore."""

import ast
from collections.abc import Iterator
from pathlib import Path

import neuralcollapse

SOURCE = Path(neuralcollapse.__file__).parent
SHARED = "_support"
"""The one private folder that every layer may use."""


def imported(tree: ast.AST, package: tuple[str, ...]) -> Iterator[tuple[int, tuple[str, ...]]]:
    """Line and full dotted path of everything that a module of ``package`` imports from this project."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, tuple(alias.name.split("."))) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            start = package[: len(package) - node.level + 1] if node.level else ()
            middle = tuple(node.module.split(".")) if node.module else ()
            yield from ((node.lineno, (*start, *middle, alias.name)) for alias in node.names)


def trespasses(text: str, package: tuple[str, ...]) -> list[str]:
    """Imports of private names of another layer; a layer is a folder or a file right below the project's."""
    found = []
    for line, path in imported(ast.parse(text), package):
        if path[0] != "neuralcollapse" or len(path) < 3 or path[1] in (SHARED, *package[1:2]):
            continue
        if any(part.startswith("_") and not part.startswith("__") for part in path[2:]):
            found.append(f"line {line}: {'.'.join(path)}")
    return found


def test_layers_import_only_what_others_publish():
    found = {}
    for file in sorted(SOURCE.rglob("*.py")):
        place = file.relative_to(SOURCE.parent).with_suffix("").parts
        inside = place[:-1] if len(place) > 2 else place
        if trouble := trespasses(file.read_text(encoding="utf-8"), inside):
            found[str(file.relative_to(SOURCE))] = trouble
    assert not found


def test_a_trespass_is_seen():
    here = ("neuralcollapse", "cli")
    assert trespasses("from ..studies._study import check_profile", here)
    assert trespasses("def f():\n    import neuralcollapse.training._trainer", here)
    assert trespasses("from ..studies import _cells", here)
    assert not trespasses(
        "from ..studies import get\nfrom ._app import app\nfrom .._support.files import json_text", here
    )
