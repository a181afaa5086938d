"""Version, changelog and citation say the same."""

import re
import tomllib
from pathlib import Path

import yaml

import neuralcollapse as nc

HOME = Path(__file__).parents[2]


def test_one_version():
    project = tomllib.loads((HOME / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    citation = yaml.safe_load((HOME / "CITATION.cff").read_text(encoding="utf-8"))
    changes = re.findall(r"^## \[(.+?)\] - (\d{4}-\d\d-\d\d)$", (HOME / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert nc.__version__ == project["version"] == citation["version"] == changes[0][0]
    assert citation["date-released"] == changes[0][1]
    assert citation["license"] == project["license"]
    assert f"version = {{{nc.__version__}}}" in (HOME / "docs" / "cite.md").read_text(encoding="utf-8")


def test_the_citation_has_what_the_format_asks_for():
    citation = yaml.safe_load((HOME / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["cff-version"] == "1.2.0"
    assert {"message", "title", "authors", "type"} <= set(citation)
    assert [entry["year"] for entry in citation["references"]] == [2021, 2022, 2022, 2022]
    page = (HOME / "docs" / "cite.md").read_text(encoding="utf-8")
    for entry in citation["references"]:
        assert entry["type"] == "conference-paper"
        assert entry["url"] in page
        assert all({"family-names", "given-names"} <= set(author) for author in entry["authors"])


def test_changes_are_sorted_by_kind():
    text = (HOME / "CHANGELOG.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^### (.+)$", text, re.MULTILINE)) <= {
        "Added", "Changed", "Deprecated", "Removed", "Fixed", "Security",
    }  # fmt: skip
