"""Kills at random moments: what goes on afterwards ends in the files of an undisturbed run."""

import io
import os
import random
import re
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any

import small_study
from attack.damage import contents, extracted, write_shards
from attack.samples import PLAN
from attack.workers import SECONDS, Reporter
from neuralcollapse.cli import main
from neuralcollapse.studies import run_studies
from neuralcollapse.training import train

MOST = 25
"""Kills of one run before it is let through."""
CLOCK = 600
"""Seconds of the clock for what a worker waits for; the processor's are counted in the command's own process."""


def _train(folder: Path) -> None:
    train(PLAN, folder / "run", resume=True, checkpoint_seconds=0.0)


def _solve(folder: Path) -> None:
    line = f"solve --classes 3 --dim 4 --temperature 1 --trials 8 --max-iter 40 --workers 1 --out {folder / 'trials'}"
    _quietly([*line.split(), "--resume"])


def _study(folder: Path) -> None:
    cells = [small_study.solve_cell(seed) for seed in range(4)]
    study = small_study.Small(*cells, small_study.train_cell(), small_study.calculation_cell())
    run_studies([study], "smoke", folder / "results", engine="inline")


def _measure(folder: Path) -> None:
    if not (folder / "data").exists():
        write_shards(folder)
    line = ["measure", str(folder / "data"), "--keep", str(folder / "kept"), "--workers", "1", "--metrics", "all"]
    _quietly([*line, "--out", str(folder / "page.html")])


def _extract(folder: Path) -> None:
    extracted(folder)


def _quietly(line: list[str]) -> None:
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as said:
        if main(line) not in (0, 1):
            raise ValueError(said.getvalue())


COMMANDS: dict[str, Callable[[Path], None]] = {
    "train": _train,
    "solve --trials": _solve,
    "study run": _study,
    "measure --keep": _measure,
    "extract": _extract,
}


class Kills:
    """The attack on running commands: trial ``n`` kills one of them until it gets through."""

    def __init__(self, seed: int, base: Path):
        self.seed, self.folder = seed, base / "work"
        self.expected: dict[str, Any] = {}
        self.seconds: dict[str, float] = {}

    def __call__(self, number: int, reporter: Reporter) -> None:
        name = list(COMMANDS)[number % len(COMMANDS)]
        randomly = random.Random(f"{self.seed}/kills/{number}")
        if name not in self.expected:
            began = time.monotonic()
            reporter.now(f"{name} undisturbed", CLOCK)
            self._fresh(name)
            self._run(name)
            self.seconds[name], self.expected[name] = time.monotonic() - began, self._contents()
        self._fresh(name)
        kills = 0
        while kills < MOST:
            reporter.now(f"{name}, killed {kills} times", CLOCK)
            if not self._killed(name, randomly.random() * self.seconds[name] / 3):
                break
            kills += 1
        else:
            self._run(name)
        found, expected = self._contents(), self.expected[name]
        names = sorted(key for key in found.keys() | expected.keys() if found.get(key) != expected.get(key))
        bad = f"trial {number}: {name} after {kills} kills: different {names[:3]}" if names else None
        reporter.ended("different" if names else "same", name, bad, max(kills, 1))

    def _fresh(self, name: str) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        if name == "measure --keep":
            write_shards(self.folder)
            for path in (self.folder / "data").iterdir():
                os.utime(path, (0, 0))  # statistics go by the times of their files too

    def _contents(self) -> dict[str, bytes]:
        """All files, but for the time that ``study.json`` says that the cells took."""
        return {
            name: re.sub(rb'"cpu_minutes": [^,\n]*', b"", content) if name.endswith("study.json") else content
            for name, content in contents(self.folder).items()
        }

    def _begin(self, name: str) -> int:
        """The command in a process of its own, by its number."""
        child = os.fork()
        if child == 0:
            status = 1
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            try:
                COMMANDS[name](self.folder)
                status = 0
            finally:
                os._exit(status)
        return child

    def _run(self, name: str) -> None:
        child = self._begin(name)
        _, status = os.waitpid(child, 0)
        if status:
            raise RuntimeError(f"{name} did not come to its end: {_status(status)}")

    def _killed(self, name: str, seconds: float) -> bool:
        """Whether the command was killed before it ended."""
        child = self._begin(name)
        time.sleep(seconds)
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if status not in (0, signal.SIGKILL):
            raise RuntimeError(f"{name} failed after kills: {_status(status)}")
        return status == signal.SIGKILL


def _status(status: int) -> str:
    if os.WIFSIGNALED(status):
        return "hang" if os.WTERMSIG(status) == signal.SIGPROF else f"signal {os.WTERMSIG(status)}"
    return f"exit code {os.WEXITSTATUS(status)}"
