"""Numbered trials in forked workers of bounded memory and time, and their count."""

import json
import os
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS, CLOCK, MEMORY = 20, 100, 2 << 30
"""Seconds of a processor and of the clock (others may use the machine too), and bytes beyond those at the start."""
TRIALS = 300
"""Trials of one worker, so that what one leaves behind does not add up."""


@dataclass
class Tally:
    """What a part of the attack tried, how it ended, and what should not have been."""

    tried: int = 0
    ended: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    bad: list[str] = field(default_factory=list)
    seconds: float = 0.0
    longest: float = 0.0
    memory: int = 0

    def __iadd__(self, other: "Tally") -> "Tally":
        self.tried += other.tried
        self.ended += other.ended
        self.kinds += other.kinds
        self.bad += other.bad
        self.seconds += other.seconds
        self.longest, self.memory = max(self.longest, other.longest), max(self.memory, other.memory)
        return self

    def add(self, ended: str, kind: str, bad: str | None = None, count: int = 1) -> None:
        """Count a trial, or several that ended alike."""
        self.tried += count
        self.ended[ended] += count
        self.kinds[kind] += count
        if bad is not None:
            self.bad.append(bad[:800])

    def facts(self) -> dict[str, Any]:
        """For a JSON file."""
        return {
            "tried": self.tried,
            "ended": dict(sorted(self.ended.items())),
            "kinds": dict(sorted(self.kinds.items())),
            "bad": self.bad,
            "minutes": round(self.seconds / 60, 1),
            "longest_seconds": round(self.longest, 1),
            "largest_gigabytes": round(self.memory / 1e9, 2),
        }

    @classmethod
    def from_facts(cls, facts: dict[str, Any]) -> "Tally":
        """What :meth:`facts` wrote."""
        counts = facts["tried"], Counter(facts["ended"]), Counter(facts["kinds"]), list(facts["bad"])
        return cls(*counts, 60 * facts["minutes"], facts["longest_seconds"], round(1e9 * facts["largest_gigabytes"]))


class Reporter:
    """What a worker tells of its trials: what it is about to do, and how that ended."""

    def __init__(self, pipe: int):
        self._pipe, self._since = pipe, time.process_time()

    def now(self, what: object, clock: int = CLOCK) -> None:
        """Begin something that must end within the time."""
        signal.setitimer(signal.ITIMER_PROF, SECONDS)
        signal.alarm(clock)
        self._since = time.process_time()
        self._tell("now", what)

    def ended(self, word: str, kind: str, bad: str | None = None, count: int = 1) -> None:
        """Say how it ended, and what is bad about it."""
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.alarm(0)
        self._tell("ended", (word, kind, bad, count, time.process_time() - self._since))

    def next(self, number: int) -> None:
        """Go on with another trial."""
        self._tell("next", (number, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss))

    def _tell(self, kind: str, content: object) -> None:
        text = json.dumps([kind, content], default=repr)
        os.write(self._pipe, text.encode(errors="replace") + b"\n")


Trial = Callable[[int, Reporter], None]


def run_trials(
    trial: Trial, numbers: range, seconds: float, done: Callable[[Tally, range], None] | None = None
) -> Tally:
    """Call ``trial`` with each of ``numbers`` in workers, for at most about ``seconds``.

    A worker that does not answer in time, or dies, is a bad end of what it did; another one goes on behind it.
    ``done`` is told of each worker's trials when it ends.
    """
    tally, began = Tally(), time.monotonic()
    number = numbers.start
    while number < numbers.stop and (since := time.monotonic()) - began < seconds:
        first, last, part = number, min(numbers.stop, number + TRIALS), Tally()
        number = _watch(*_worker(trial, range(number, last), began + seconds), part)
        part.seconds = time.monotonic() - since
        tally += part
        if done is not None:
            done(part, range(first, number))
    return tally


def _worker(trial: Trial, numbers: range, deadline: float) -> tuple[int, int]:
    read, write = os.pipe()
    child = os.fork()
    if child:
        os.close(write)
        return child, read
    try:
        os.close(read)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        reporter = Reporter(write)
        reporter.next(numbers.start)
        for number in numbers:
            try:
                trial(number, reporter)
            except BaseException as error:
                reporter.ended("escaped", "harness", f"trial {number}: escaped {type(error).__name__}: {error}")
            reporter.next(number + 1)
            if time.monotonic() > deadline:
                break
    finally:
        os._exit(0)


def _watch(child: int, pipe: int, tally: Tally) -> int:
    """Count what a worker says; returns the number of the next trial."""
    number, what = 0, "nothing"
    with os.fdopen(pipe, encoding="utf-8", errors="replace") as lines:
        for line in lines:
            kind, content = json.loads(line)
            if kind == "now":
                what = content
            elif kind == "ended":
                *ending, seconds = content
                tally.longest = max(tally.longest, seconds)
                tally.add(*ending)
            else:
                number, peak = content
                tally.memory = max(tally.memory, peak)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        cause = os.WTERMSIG(status)
        word = "hang" if cause in (signal.SIGALRM, signal.SIGPROF) else f"died of signal {cause}"
        tally.add(word, "harness", f"trial {number}: {word}: {what}")
        return number + 1
    return number
