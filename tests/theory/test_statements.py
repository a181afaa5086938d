"""The table of statements in docs/theory.md names things that exist."""

import re
from collections import Counter
from pathlib import Path

import pytest

import neuralcollapse as nc

HOME = Path(__file__).resolve().parent.parent.parent
ROWS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in (HOME / "docs" / "theory.md").read_text().partition("## Statements of the papers")[2].splitlines()
    if line.startswith("| ") and not line.startswith("| statement")
]
TESTS = Counter(
    name
    for path in (HOME / "tests").rglob("test_*.py")
    for name in re.findall(r"^def (test_\w+)", path.read_text(encoding="utf-8"), re.M)
)


def test_all_four_papers_have_their_rows():
    named = [match[1] for row in ROWS if (match := re.match(r"\*\*(\w+)\*\*", row[0]))]
    assert named == ["geometric", "mse", "losses", "normalized"]
    assert len(ROWS) > 45


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0][:50])
def test_each_row_names_what_exists(row):
    assert len(row) == 3
    for name in re.findall(r"`([\w.]+)`", row[1]):
        found = nc
        for part in name.split("."):
            found = getattr(found, part)
    tests = re.findall(r"`(\w+)`", row[2])
    assert {name: TESTS[name] for name in tests} == dict.fromkeys(tests, 1)  # a name that two tests have says nothing
    assert tests or "standard" in row[0]
