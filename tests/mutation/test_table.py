"""The table of mutations is of use only while its lines and its tests are those of the package."""

import pytest

from mutation.table import ROOT, TABLE, Mutation


@pytest.mark.parametrize("mutation", TABLE, ids=lambda mutation: f"{mutation.file}:{mutation.new.strip()[:30]}")
def test_the_line_is_there_once_and_what_replaces_it_is_other_code(mutation: Mutation):
    text = (ROOT / "src" / "neuralcollapse" / mutation.file).read_text(encoding="utf-8")
    changed = mutation.applied(text)
    compile(changed, mutation.file, "exec")
    assert changed != text


def test_the_tests_that_are_named_exist():
    missing = {name for mutation in TABLE for name in mutation.tests if not (ROOT / "tests" / name).is_file()}
    assert not missing


def test_every_layer_has_mutations():
    layers = {path.name for path in (ROOT / "src" / "neuralcollapse").iterdir() if (path / "__init__.py").is_file()}
    assert {mutation.file.split("/")[0] for mutation in TABLE} == layers


def test_a_line_that_is_gone_is_named():
    with pytest.raises(ValueError, match="stands there 0 times"):
        Mutation("frames/simplex.py", "no such line", "other", ()).applied("text\n")
