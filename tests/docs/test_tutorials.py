"""Every tutorial runs, says what it found and draws; their own assertions hold what their text claims."""

import importlib.util
import re
from pathlib import Path

import pytest

HOME = Path(__file__).parents[2]
SPEC = importlib.util.spec_from_file_location("tutorials", HOME / "docs_build" / "tutorials.py")
tutorials = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(tutorials)


def test_every_script_is_listed():
    assert {path.stem for path in tutorials.FOLDER.glob("*.py")} == set(tutorials.ORDER)
    navigation = (HOME / "mkdocs.yml").read_text(encoding="utf-8")
    assert all(f"tutorials/{name}.md" in navigation for name in tutorials.ORDER)


@pytest.mark.unchecked
@pytest.mark.parametrize("name", tutorials.ORDER)
def test_a_tutorial_runs(name):
    page = tutorials.render(tutorials.FOLDER / f"{name}.py")
    assert page.text.startswith("# ")
    assert page.text.count("```{.text .output}") >= 3
    assert page.pictures
    assert all("<svg" in picture and len(picture) < 400_000 for picture in page.pictures.values())
    for link in re.findall(r"\]\((\w+)\.md\)", page.text):
        assert link in tutorials.ORDER


def test_cells_are_text_or_code():
    source = "# %% [markdown]\n# # A title\n#\n# words\n\n# %%\nx = 1  # one\n# %%\ny = x\n"
    assert tutorials.cells(source) == [(True, "# A title\n\nwords"), (False, "x = 1  # one"), (False, "y = x")]
