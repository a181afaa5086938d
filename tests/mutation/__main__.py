"""Break one line at a time, and see that a test notices.

    make mutation                                  all of the table, in about half an hour on one core
    make mutation MUTATION="--only losses"         those in whose place or words it occurs
    make mutation MUTATION="--again --out evidence/mutation.json"   those that survived there, with new tests

Each mutation of ``mutation.table`` is made in a copy of ``src``, and the tests that are named beside it run there until
the first that fails. One that no test notices survives: it is printed, and the exit code is 1. First they all run on
what is not broken, where they have to pass.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from mutation.table import ROOT, TABLE, Mutation

LIMIT = 600
"""Seconds; tests that take longer have noticed."""


def survives(mutation: Mutation, place: Path) -> bool:
    """Whether the tests pass with the mutation made; ``place`` has a copy of ``src``, left as it was."""
    path = place / "src" / "neuralcollapse" / mutation.file
    before = path.read_text(encoding="utf-8")
    path.write_text(mutation.applied(before), encoding="utf-8")
    try:
        return run(mutation.tests, place).returncode == 0
    except subprocess.TimeoutExpired:
        return False
    finally:
        path.write_text(before, encoding="utf-8")


def run(tests: tuple[str, ...], place: Path, seconds: float = LIMIT) -> subprocess.CompletedProcess[str]:
    """Run some test files of this checkout on the source in ``place``."""
    environment = os.environ | {"PYTHONPATH": str(place / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    options = ("-x", "-q", "-p", "no:cacheprovider", "-p", "no:randomly")
    command = [sys.executable, "-m", "pytest", *options, *(f"tests/{name}" for name in tests)]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=seconds
    )


def main() -> int:
    """Make every mutation, say what became of it, and write the outcome."""
    parser = argparse.ArgumentParser(prog="python -m mutation", description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="mutations in whose place or words this occurs")
    parser.add_argument("--out", type=Path, help="JSON file to write")
    parser.add_argument("--again", action="store_true", help="only those that --out says survived; the rest is kept")
    given = parser.parse_args()
    chosen = [mutation for mutation in TABLE if given.only in f"{mutation.file} {mutation.old}"]
    counted = chosen
    if given.again:
        alive = {(one["old"], one["new"]) for one in json.loads(given.out.read_text(encoding="utf-8"))["survivors"]}
        chosen = [mutation for mutation in chosen if (mutation.old, mutation.new) in alive]
    survivors: list[Mutation] = []
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        shutil.copytree(ROOT / "src", place / "src", ignore=shutil.ignore_patterns("__pycache__"))
        tests = tuple(sorted({name for mutation in chosen for name in mutation.tests}))
        if run(tests, place, LIMIT * 2).returncode != 0:
            sys.stdout.write("the tests fail on what is not broken: nothing can be learnt from them\n")
            return 2
        for number, mutation in enumerate(chosen, 1):
            began = time.monotonic()
            alive = survives(mutation, place)
            survivors += [mutation] * alive
            words = f"{'SURVIVED' if alive else 'killed'} in {time.monotonic() - began:.0f} s"
            sys.stdout.write(f"{number}/{len(chosen)} {mutation.file}: {mutation.new.strip()}: {words}\n")
            sys.stdout.flush()
    if given.out is not None:
        facts = {
            "mutations": len(counted),
            "killed": len(counted) - len(survivors),
            "files": len({mutation.file for mutation in counted}),
            "survivors": [{"file": m.file, "old": m.old, "new": m.new} for m in survivors],
        }
        given.out.write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
