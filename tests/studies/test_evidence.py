"""Pages say what the evidence says, and the evidence was judged by the claims as they stand."""

import importlib.util
import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from neuralcollapse.cli import main
from neuralcollapse.studies import AtMost, get, run_studies, studies
from neuralcollapse.studies._evidence import claims_differ, collect_evidence

pytestmark = pytest.mark.unchecked

HOME = Path(__file__).resolve().parent.parent.parent
FILES = sorted(path for kind in ("desk", "again") for path in (HOME / "evidence" / kind).glob("*/*.json"))


def pages():
    spec = importlib.util.spec_from_file_location("make_pages", HOME / "evidence" / "make_pages.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.pages()


def test_pages_are_made_from_the_evidence():
    """If this fails: make results."""
    for path, text in pages().items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name} is stale"


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_no_claim_has_moved_since_its_run(file):
    facts = json.loads(file.read_text(encoding="utf-8"))
    assert facts["id"] == f"{file.parent.name}/{file.stem}"
    assert facts["id"] in studies
    assert claims_differ(get(facts["id"]), facts) == []
    assert facts["verdict"] == next(part["verdict"] for part in facts["parts"] if part["decides"])


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_evidence_is_small_and_tells_nothing_of_the_machine(file):
    text = file.read_text(encoding="utf-8")
    assert len(text) < 60_000
    assert not re.search(r"/(work|tmp|home|root|Users)/|hostname", text)


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    study = get("geometric/bound").vary({"points": 50})
    run_studies([get("geometric/bound")], "smoke", folder, workers=1)
    run_studies([study], "smoke", folder, workers=1)
    return folder


def test_evidence_is_copied_from_plain_studies_of_one_profile(results, tmp_path, capsys):
    out, pictures = tmp_path / "evidence", tmp_path / "pictures"
    arguments = ["study", "evidence", str(results), "--out", str(out), "--pictures", str(pictures)]
    assert main([*arguments, "--profile", "smoke"]) == 0
    assert "left out, it is a variation" in capsys.readouterr().out
    assert [path.relative_to(out).as_posix() for path in out.rglob("*.json")] == ["geometric/bound.json"]
    assert (pictures / "geometric" / "bound.svg").read_bytes().startswith(b"<?xml")
    facts = json.loads((out / "geometric" / "bound.json").read_text())
    assert (facts["cells"], facts["nets"], facts["images"]) == (12, 0, [])
    assert main(arguments) == 2  # nothing at desk size
    assert "no finished study at profile desk" in capsys.readouterr().err


def test_runs_with_other_seeds_are_copied_on_demand(results, tmp_path):
    folder = tmp_path / "results"
    for name, seeds in (("bound", None), ("bound@seeds", [30, 31]), ("bound@points", None)):
        facts = json.loads((results / "geometric" / "bound" / "study.json").read_text())
        if "@" in name:
            facts["variation"] = {"settings": {} if seeds else {"points": 50}, "seeds": seeds}
        (folder / "geometric" / name).mkdir(parents=True)
        (folder / "geometric" / name / "study.json").write_text(json.dumps(facts))
    said = collect_evidence(folder, tmp_path / "again", "smoke", again=True)
    assert [line for line in said if "left out" not in line] == [f"geometric/bound: {facts['verdict']}"]
    assert sum("not a run with other seeds" in line for line in said) == 2
    assert [path.relative_to(tmp_path / "again").as_posix() for path in tmp_path.glob("again/*/*")] == [
        "geometric/bound.json"
    ]


def test_a_moved_limit_is_found(results, tmp_path, monkeypatch):
    study = get("geometric/bound")
    facts = json.loads((results / "geometric" / "bound" / "study.json").read_text())
    assert claims_differ(study, facts) == []
    first, second, *rest = study.claims
    changes = {
        "limit of minimiser": replace(second, limit=AtMost(2.0), unit="grid steps"),
        "says of minimiser": replace(second, says="It is near."),
        "floor of minimiser": replace(second, floor="K is large"),
        "kind of minimiser": replace(second, kind="ours"),
    }
    for words, changed in changes.items():
        monkeypatch.setattr(type(study), "claims", (first, changed, *rest))
        assert len(claims_differ(study, facts)) == 1
        assert words in claims_differ(study, facts)[0]
    with pytest.raises(ValueError, match="no finished study"):
        collect_evidence(results, tmp_path / "out", "smoke")
    monkeypatch.setattr(type(study), "claims", (first, *rest))
    assert claims_differ(study, facts) == ["geometric/bound: minimiser is gone"]


def test_failed_cells_are_no_evidence(results, tmp_path):
    folder = tmp_path / "results" / "geometric" / "bound"
    folder.mkdir(parents=True)
    facts = json.loads((results / "geometric" / "bound" / "study.json").read_text())
    facts["cells"][3]["error"] = "ValueError: no"
    (folder / "study.json").write_text(json.dumps(facts))
    with pytest.raises(ValueError, match="no finished study"):
        collect_evidence(tmp_path / "results", tmp_path / "out", "smoke")
