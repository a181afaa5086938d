"""An attack on the program: kills, damaged files, random command lines and random calls, counted.

    python tests/attack/attack.py [--minutes 4] [--seed 0] [--out evidence/attack.json]

Each trial runs in a forked child with a limit on memory and time, so that nothing it does reaches the others. What must
never happen is counted as bad and printed with all that is needed to repeat it: a traceback, an exit code other than 0,
1, 2 or 130, more than one line for bad input, 20 seconds without an end, a result that differs after a kill or after
damage.
"""

import argparse
import io
import json
import os
import random
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

import neuralcollapse as nc
import neuralcollapse.studies
import neuralcollapse.web.report
from neuralcollapse import cli
from neuralcollapse._support.registry import load_entries
from neuralcollapse.cli import main
from neuralcollapse.cli._app import app
from neuralcollapse.training import Plan, Run, train
from neuralcollapse.ufm import solve_many

SECONDS, MEMORY = 20, 2 << 30
EXPECTED = (ValueError, TypeError, NotImplementedError, OSError)
PLAN = Plan(
    data="synthetic:classes=3,dim=4,per_class=12",
    model="mlp:width=6,depth=1",
    epochs=4,
    batch_size=12,
    validation=0.25,
    measure=(1, 2, 4),
    metrics=("nc1", "nc2"),
)
PROBLEM = nc.ufm.RegularizedUFM("ce", 3, 2, 4, 0.01, 0.01)
KEPT = ("metrics.jsonl", "plan.json", "data.json", "done.json", "model.safetensors", "checkpoints/best.safetensors")


@dataclass
class Tally:
    """What a part of the attack tried, how it ended, and what should not have been."""

    tried: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)

    def add(self, ended: str, what: object, bad: bool) -> None:
        """Count one trial."""
        self.tried += 1
        self.ended[ended] += 1
        if bad:
            self.bad.append(f"{ended}: {what}"[:600])


def in_child(do: Callable[[], str]) -> str:
    """What ``do`` returns in a forked process of bounded memory and time; "hang" or "died" where it does not."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        signal.alarm(SECONDS)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        text = "no answer"
        try:
            text = do()
        except BaseException as error:
            text = f"escaped {type(error).__name__}: {error}"
        finally:
            os.write(write, text.encode()[:4000])
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answer = pipe.read().decode(errors="replace")
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        return "hang" if os.WTERMSIG(status) == signal.SIGALRM else f"died of signal {os.WTERMSIG(status)}"
    return answer


# command lines -------------------------------------------------------------------------------------------------------


def commands(application: Any = app, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], list[str]]]:
    """Every command with the names of its options, from the parser's own table."""
    for name in application:
        if name.startswith("-"):
            continue
        below = application[name]
        if below.default_command is None:
            yield from commands(below, (*path, name))
        else:
            arguments = below.assemble_argument_collection()
            yield (*path, name), [option for argument in arguments for option in argument.names]


TEXTS = ["", "x", "ce", "focal:gamma=1e9", "digits", "mlp:width=3", "[/bold]", "../x", "nan", "inf", "a" * 5000, "é\n"]
TEXTS += [
    "mse:alpha=0",
    "synthetic:classes=2,dim=2,per_class=3",
    "point.safetensors",
    "features.npz",
    "run",
    "plan.toml",
]
NUMBERS = [
    "0",
    "1",
    "2",
    "3",
    "-1",
    "1e300",
    "1e-300",
    ".01",
    "5",
    "2147483648",
    "9223372036854775807",
    "9" * 400,
    "1e9",
]


BASES = [
    "optimum --loss ce --classes 3 --dim 4 --weight-decay .01 --feature-decay .01",
    "optimum --classes 3 --dim 4 --temperature 1 --json",
    "solve --classes 3 --dim 4 --per-class 2 --temperature 1 --max-seconds 2",
    "solve --loss mse --classes 3 --dim 2 --weight-decay .01 --feature-decay .01 --max-seconds 2 --out solved",
    "certify point.safetensors",
    "measure features.npz",
    "measure features.npz --json --metrics all",
    "train --data synthetic:classes=2,dim=2,per_class=3 --model mlp:width=3 --epochs 1 --out run",
    "report run --out page.html",
    "study show losses/collapse",
    "data list",
]


def changed_line(randomly: random.Random) -> list[str]:
    """A command that works, with one or two of its values replaced, or an option more."""
    line = randomly.choice(BASES).split()
    for _ in range(randomly.randrange(1, 3)):
        value = randomly.choice(NUMBERS + TEXTS)
        options = dict(commands()).get((line[0],), []) or ["--json"]
        if randomly.random() < 0.5:
            line[randomly.randrange(1, len(line))] = value
        else:
            line += [randomly.choice(options), value]
    return line


def command_lines(randomly: random.Random) -> list[str]:
    """A command with random options; most values are of a kind that fits somewhere."""
    load_entries("neuralcollapse.cli", [str(Path(cli.__file__).parent)])
    known = [entry for entry in commands() if entry[0][0] not in ("demo", "explore")]
    if randomly.random() < 0.6:
        return changed_line(randomly)
    path, options = randomly.choice(known)
    line = list(path)
    for _ in range(randomly.randrange(7)):
        value = randomly.choice(NUMBERS if randomly.random() < 0.6 else TEXTS)
        line += [randomly.choice(options), value] if options and randomly.random() < 0.85 else [value]
    if path == ("train",):
        line += ["--epochs", "1", "--data", "synthetic:classes=2,dim=2,per_class=3", "--out", "run"]
    if path == ("solve",):
        line += ["--max-seconds", "2"]
    if path == ("study", "run"):
        line += ["--profile", "smoke", "--steps", "1"]
    return line


def one_command(line: list[str], folder: Path) -> str:
    """The exit code of a command, with what is wrong about how it ended."""

    def do() -> str:
        os.chdir(folder)
        out, error = io.StringIO(), io.StringIO()
        with redirect_stdout(out), redirect_stderr(error):
            try:
                code = main(line)
            except SystemExit as end:
                code = end.code
        said = error.getvalue()
        if code not in (0, 1, 2, 130):
            return f"code {code}"
        if "a fault of this program" in said or "Traceback" in said:
            return f"fault {said}"
        if code == 2 and sum(text.startswith("neuralcollapse: error") for text in said.splitlines()) != 1:
            return f"lines {said}"
        return str(code)

    return in_child(do)


# calls ---------------------------------------------------------------------------------------------------------------

VALUES: list[Any] = [0, 1, 2, 3, 4, 10, -1, 2**31, 2**63 - 1, 10**400, 0.0, 0.01, 0.5, 1e300, 1e-300, float("nan")]
VALUES += [float("inf"), -1.0, True, None, "", "ce", "focal:gamma=2", "x" * 999, [], [1, 2], (2, 2), {}, b"x", object()]
VALUES += [torch.zeros(0), torch.zeros(4, 2), torch.eye(4), torch.arange(4) % 2, torch.full((4, 2), float("nan"))]
VALUES += [np.eye(3), np.arange(3), np.array(["a"]), range(3), "digits", "mlp:width=4", "resnet8:width=2", (1, 8, 8)]


def calls() -> dict[str, tuple[Callable[..., Any], int]]:
    """Public functions by name, with the number of arguments to give."""
    return {
        "RegularizedUFM": (nc.ufm.RegularizedUFM, 6),
        "NormalizedUFM": (nc.ufm.NormalizedUFM, 5),
        "ContrastiveUFM": (nc.ufm.ContrastiveUFM, 4),
        "measure": (nc.measure, 4),
        "ClassStatistics": (nc.ClassStatistics, 2),
        "losses.get": (nc.losses.get, 1),
        "CrossEntropy()": (nc.losses.CrossEntropy(), 2),
        "simplex_etf": (nc.frames.simplex_etf, 3),
        "low_rank_etf": (nc.frames.low_rank_etf, 3),
        "orthogonal_frame": (nc.frames.orthogonal_frame, 3),
        "models.create": (nc.models.create, 4),
        "data.load": (lambda *given: nc.data.load(given[0], None, per_class=given[1], seed=given[2]), 3),
        "Plan": (lambda *given: Plan(data=given[0], epochs=given[1], learning_rate=given[2], head=given[3]), 4),
        "solve": (lambda *given: nc.ufm.solve(PROBLEM, given[0], seed=given[1], tol=given[2], max_iter=given[3]), 4),
    }


def one_call(name: str, picks: list[int]) -> str:
    """How a call ended: "value", or the name of an exception, or what is wrong with it."""

    def do() -> str:
        try:
            calls()[name][0](*(VALUES[pick] for pick in picks))
        except EXPECTED as error:
            return "long message" if len(str(error).splitlines()) > 1 else type(error).__name__
        except Exception as error:
            return f"fault {type(error).__name__}: {error}"
        return "value"

    return in_child(do)


# kills and damage ----------------------------------------------------------------------------------------------------


def state(folder: Path) -> dict[str, bytes]:
    """What must be the same however a run came to its end."""
    return {name: (folder / name).read_bytes() for name in KEPT}


def killed_run(randomly: random.Random, folder: Path, whole: dict[str, bytes]) -> tuple[int, bool]:
    """Kill a run at random moments until one gets through: the number of kills and whether the end is the same."""
    kills = 0
    while True:
        child = os.fork()
        if child == 0:
            try:
                train(PLAN, folder, resume=True, checkpoint_seconds=0.0)
            finally:
                os._exit(0)
        time.sleep(randomly.random() * 0.25)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            return kills, state(folder) == whole
        kills += 1
        if kills >= 40:
            train(PLAN, folder, resume=True)
            return kills, state(folder) == whole


def harm(randomly: random.Random, path: Path) -> str:
    """Damage a file in one of the ways in which files are damaged, and say which."""
    content = bytearray(path.read_bytes())
    way = randomly.choice(["lost", "empty", "zeros", "cut", "bit", "bytes", "json"])
    if way == "lost":
        path.unlink()
        return way
    if way == "empty":
        content = bytearray()
    elif way == "zeros":
        content = bytearray(len(content))
    elif way == "cut":
        content = content[: randomly.randrange(len(content) + 1)]
    elif way == "bit" and content:
        content[randomly.randrange(len(content))] ^= 1 << randomly.randrange(8)
    elif way == "bytes" and content:
        start = randomly.randrange(len(content))
        content[start : start + 8] = randomly.randbytes(8)
    elif way == "json":
        content = bytearray(randomly.choice([b"{}", b"[]", b"null", b'{"digest":"x","body":null}', b"[" * 9999]))
    path.write_bytes(bytes(content))
    return way


def damaged_run(randomly: random.Random, source: Path, folder: Path, whole: dict[str, bytes]) -> tuple[str, bool]:
    """Damage a file of a run and go on with it: what was done, and whether the end is right or refused."""
    shutil.copytree(source, folder)
    path = randomly.choice(sorted(path for path in folder.rglob("*") if path.is_file()))
    way = harm(randomly, path)

    def do() -> str:
        try:
            train(PLAN, folder, resume=True)
        except ValueError as error:
            return "refused" if str(folder) in str(error) else f"unnamed {error}"
        return "same" if state(folder) == whole else "different"

    answer = in_child(do)
    return f"{answer} after {way} {path.relative_to(folder)}", answer in ("same", "refused")


def damaged_trials(randomly: random.Random, source: Path, folder: Path) -> tuple[str, bool]:
    """The same for trials of ``solve_many``."""
    shutil.copytree(source, folder)
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.name != "seconds.json")
    path = randomly.choice(files)
    way = harm(randomly, path)

    def do() -> str:
        try:
            solve_many(PROBLEM, range(2), workers=1, out=folder, resume=True)
        except ValueError as error:
            return "refused" if str(folder) in str(error) else f"unnamed {error}"
        other = [file for file in files if file.read_bytes() != (source / file.relative_to(folder)).read_bytes()]
        return f"different {other[0].name}" if other else "same"

    answer = in_child(do)
    return f"{answer} after {way} {path.relative_to(folder)}", answer in ("same", "refused")


# all of it -----------------------------------------------------------------------------------------------------------


def attack(seconds: float, seed: int, say: Callable[[str], None] = lambda line: None) -> dict[str, Tally]:
    """Attack for about ``seconds``, a quarter of it each, from ``seed``."""
    randomly = random.Random(seed)
    tallies = {name: Tally() for name in ("commands", "calls", "kills", "damage")}
    with tempfile.TemporaryDirectory() as place:
        base = Path(place)
        features = np.random.default_rng(seed).normal(size=(12, 3))
        np.savez(base / "features.npz", features=features, labels=np.arange(12) % 3)
        nc.ufm.save_point(base / "point.safetensors", PROBLEM.random_point(seed), {"problem": PROBLEM.to_json()})
        train(PLAN, base / "whole")
        whole = state(base / "whole")
        (base / "half").mkdir()
        _interrupted(base / "half/run")
        solve_many(PROBLEM, range(2), workers=1, out=base / "trials")
        for name, tally in tallies.items():
            end = time.monotonic() + seconds / len(tallies)
            while time.monotonic() < end or tally.tried == 0:
                _one(name, tally, randomly, base, whole)
            say(f"{name}: {tally.tried} tried, {dict(tally.ended.most_common(6))}, {len(tally.bad)} bad")
            for line in tally.bad[:10]:
                say(f"  BAD {line}")
    return tallies


def _one(name: str, tally: Tally, randomly: random.Random, base: Path, whole: dict[str, bytes]) -> None:
    scratch = base / "scratch"
    shutil.rmtree(scratch, ignore_errors=True)
    if name == "commands":
        scratch.mkdir()
        for file in ("features.npz", "point.safetensors"):
            shutil.copy(base / file, scratch)
        line = command_lines(randomly)
        answer = one_command(line, scratch)
        tally.add(answer.split(" ")[0], f"{line} {answer}", answer not in ("0", "1", "2", "130"))
    elif name == "calls":
        target = randomly.choice(sorted(calls()))
        picks = [randomly.randrange(len(VALUES)) for _ in range(calls()[target][1])]
        answer = one_call(target, picks)
        shown = [repr(VALUES[pick])[:40] for pick in picks]
        expected = answer in ("value", "DataError") or (answer.endswith("Error") and " " not in answer)
        tally.add(answer.split(" ")[0], f"{target}{shown} {answer}", not expected)
    elif name == "kills":
        kills, same = killed_run(randomly, scratch, whole)
        tally.tried += kills - 1
        tally.add("same" if same else "different", f"after {kills} kills", not same)
    elif randomly.random() < 0.7:
        what, fine = damaged_run(randomly, randomly.choice([base / "half/run", base / "whole"]), scratch, whole)
        tally.add(what.split(" ")[0], what, not fine)
    else:
        what, fine = damaged_trials(randomly, base / "trials", scratch)
        tally.add(what.split(" ")[0], what, not fine)


def _interrupted(folder: Path) -> None:
    class StopError(Exception):
        pass

    def stop(progress: Any) -> None:
        if progress.epoch == 3 and progress.step == 1:
            raise StopError

    try:
        train(PLAN, folder, on_step=stop, checkpoint_seconds=0.0)
    except StopError:
        assert Run.open(folder).done is None


def main_attack() -> int:
    """From the command line: exit code 1 if anything was bad."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float, default=4.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=None, help="write the counts to this JSON file")
    options = parser.parse_args()
    torch.set_num_threads(1)
    tallies = attack(60 * options.minutes, options.seed, lambda line: print(line, flush=True))  # noqa: T201
    if options.out is not None:
        facts = {name: {"tried": t.tried, "ended": dict(t.ended), "bad": t.bad} for name, t in tallies.items()}
        options.out.parent.mkdir(parents=True, exist_ok=True)
        record = {"seed": options.seed, "minutes": options.minutes, "version": nc.__version__, **facts}
        options.out.write_text(json.dumps(record, indent=2) + "\n")
    return 1 if any(tally.bad for tally in tallies.values()) else 0


if __name__ == "__main__":
    sys.exit(main_attack())
