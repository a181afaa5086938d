"""An attack on the program: kills, damaged files, random command lines and random calls, counted.

    make attack                                    a few minutes
    make attack ATTACK="--trials 10000"            hours
    make attack ATTACK="--only calls --first 123"  one trial again, with all that it says

Trial ``n`` of a part depends on the seed and ``n`` alone. Trials run in forked workers with 2 GB more than they start
with and 20 seconds of a processor each. What must never happen is counted as bad, printed with its number, and ends in
exit code 1: a traceback, an exit code other than 0, 1, 2 or 130, more than one line for bad input, no end in time, a
worker's death, a result that differs after a kill or after damage.
"""

import argparse
import fcntl
import json
import os
import pickle
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

import neuralcollapse as nc
from attack import samples
from attack.calls import EXAMPLES, Calls
from attack.damage import Damage
from attack.kills import Kills
from attack.lines import Lines
from attack.workers import Tally, Trial, run_trials

PARTS = ("lines", "calls", "damage", "kills")


def made(part: str, seed: int, base: Path) -> Trial:
    """The trials of a part, with the files that they need under ``base``."""
    base.mkdir(parents=True)
    if part == "kills":
        return Kills(seed, base)
    if part == "damage":
        return in_child(lambda: Damage(seed, base))
    in_child(lambda: samples.write_for_lines(base / "samples"))
    return (Lines if part == "lines" else Calls)(seed, base / "samples", base / "work")


def in_child(make: Callable[[], Any]) -> Any:
    """What ``make`` returns in a process of its own: threads that it starts would be lost in forked workers."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            with os.fdopen(write, "wb") as pipe:
                pickle.dump(make(), pipe)
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        content = pipe.read()
    os.waitpid(child, 0)
    return pickle.loads(content)


def attack(
    part: str,
    seed: int,
    numbers: range,
    seconds: float = float("inf"),
    done: Callable[[Tally, range], None] | None = None,
) -> Tally:
    """Run the trials of a part that have these numbers, for at most about ``seconds``."""
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as place:
        try:
            return run_trials(made(part, seed, Path(place) / part), numbers, seconds, done)
        finally:
            os.chdir(here)


def warm() -> None:
    """Import what commands import when they need it, once and not in every worker anew."""
    import duckdb  # noqa: F401
    import matplotlib.backends.backend_agg
    import matplotlib.backends.backend_svg  # noqa: F401
    import torch._dynamo  # noqa: F401  (which the first optimizer imports)


def record(out: Path, part: str, seed: int, tally: Tally, numbers: range) -> None:
    """Add the counts of some trials to a JSON file: to those of other numbers of the same seed and version.

    Several processes may attack with parts of the numbers, and one that is stopped leaves what it has done.
    """
    out.parent.mkdir(parents=True, exist_ok=True)
    with out.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.seek(0)
        facts = json.loads(file.read() or "{}")
        entry = facts.get(part, {})
        same = entry.get("seed") == seed and entry.get("version") == nc.__version__
        before = [tuple(pair) for pair in entry["trials"]] if same else []
        if all(numbers.stop <= first or last <= numbers.start for first, last in before) and before:
            tally, earlier = Tally.from_facts(entry), tally
            tally += earlier
        else:
            before = []
        trials = joined([*before, (numbers.start, numbers.stop)])
        facts[part] = {"version": nc.__version__, "seed": seed, "trials": trials, **tally.facts()}
        file.truncate(0)
        file.write(json.dumps({name: facts[name] for name in PARTS if name in facts}, indent=2) + "\n")


def joined(ranges: list[tuple[int, int]]) -> list[list[int]]:
    """Ranges in order, neighbours as one.

    >>> joined([(5, 8), (0, 5), (10, 11)])
    [[0, 8], [10, 11]]
    """
    found: list[list[int]] = []
    for first, last in sorted(ranges):
        if found and found[-1][1] == first:
            found[-1][1] = last
        else:
            found.append([first, last])
    return found


def main() -> int:
    """From the command line: exit code 1 if anything was bad."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--trials", type=int, default=300, help="trials of each part (a fiftieth of them kills)")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="minutes of each part, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", choices=PARTS, action="append", help="a part; all of them by default")
    parser.add_argument("--first", type=int, default=None, help="one trial alone: its number")
    parser.add_argument("--numbers", default=None, help="trials from A to before B of one part, as A:B")
    parser.add_argument("--out", type=Path, default=None, help="write the counts to this JSON file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    warm()
    tallies = {}
    for part in options.only or PARTS:
        share = {"kills": 50, "calls": EXAMPLES}.get(part, 1)
        numbers = range(-(-options.trials // share))
        if options.first is not None:
            numbers = range(options.first, options.first + 1)
        elif options.numbers is not None:
            numbers = range(*map(int, options.numbers.split(":")))
        done = None if options.out is None else partial(record, options.out.resolve(), part, options.seed)
        tally = tallies[part] = attack(part, options.seed, numbers, 60 * options.minutes, done)
        print(f"{part}: {tally.tried} tried, {dict(tally.ended.most_common(8))}, {len(tally.bad)} bad", flush=True)  # noqa: T201
        for line in tally.bad:
            print(f"  BAD {line}", flush=True)  # noqa: T201
    return 1 if any(tally.bad for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
