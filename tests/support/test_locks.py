"""One writer a folder, named to the others, and none when it is dead."""

import os
import signal
import subprocess
import sys
from itertools import pairwise

import pytest

from neuralcollapse._support.files import (
    atomic_write,
    damaged,
    digests,
    locked,
    remove_unfinished,
    sealed,
    unsealed,
    write_text,
)

HOLD = "import sys, time; from neuralcollapse._support.files import locked\n"
HOLD += "with locked(sys.argv[1]): print('held', flush=True); time.sleep(60)"


@pytest.fixture
def holder(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path / "out")], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_writer_is_refused_and_told_who_writes(tmp_path, holder):
    with (
        pytest.raises(ValueError, match=f"process {holder.pid} on .* is writing here; wait for it"),
        locked(tmp_path / "out"),
    ):
        pass
    with locked(tmp_path / "other"):
        assert (tmp_path / "other/.lock").is_file()
    assert not (tmp_path / "other").exists()
    with locked(tmp_path / "third"):
        (tmp_path / "third/result").write_text("")
    assert [path.name for path in (tmp_path / "third").iterdir()] == ["result"]


def test_a_killed_writer_locks_nothing(tmp_path, holder):
    os.kill(holder.pid, signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "out/.lock").is_file()
    with locked(tmp_path / "out"):
        pass
    assert not (tmp_path / "out/.lock").exists()


def test_only_one_of_many_writers_is_inside_at_a_time(tmp_path):
    """Each notes when it was inside; no two notes overlap although the file of the lock comes and goes."""
    script = (
        "import sys, time; from neuralcollapse._support.files import locked\n"
        "end, name = time.monotonic() + 1.5, sys.argv[2]\n"
        "while time.monotonic() < end:\n"
        "    try:\n"
        "        with locked(sys.argv[1]):\n"
        "            begin = time.monotonic(); time.sleep(0.002)\n"
        "            print(begin, time.monotonic(), flush=True)\n"
        "    except ValueError: time.sleep(0.0005)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "out")]
    workers = [subprocess.Popen([*command, str(n)], stdout=subprocess.PIPE, text=True) for n in range(3)]
    times = []
    for worker in workers:
        output, _ = worker.communicate(timeout=60)
        times += [tuple(map(float, line.split())) for line in output.splitlines()]
    times.sort()
    assert len(times) > 20
    assert all(first[1] <= second[0] for first, second in pairwise(times))


def test_a_file_that_cannot_be_written_is_named(tmp_path):
    class ForeignError(Exception):
        pass

    def full(temporary):
        raise ForeignError("Error while serializing: I/O error: No space left on device (os error 28)")

    target = tmp_path / "point.safetensors"
    with pytest.raises(OSError, match="No space left on device") as caught:
        atomic_write(target, full)
    assert caught.value.filename == str(target)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match=r"Not a directory|File exists"):
        write_text(tmp_path / "file" / "below", "text")

    def other(temporary):
        raise ForeignError("something else")

    with pytest.raises(ForeignError):
        atomic_write(target, other)


def test_checksums_see_every_change_of_a_byte(tmp_path):
    (tmp_path / "a").write_bytes(b"one")
    stated = digests(tmp_path, ["a"])
    assert damaged(tmp_path, stated) is None
    (tmp_path / "a").write_bytes(b"onf")
    assert damaged(tmp_path, stated) == "a"
    (tmp_path / "a").unlink()
    assert damaged(tmp_path, stated) == "a"
    facts = sealed({"value": 0.1, "list": [1, None]})
    assert unsealed(facts) == {"value": 0.1, "list": [1, None]}
    with pytest.raises(ValueError, match="does not match its checksum"):
        unsealed({**facts, "value": 0.2})
    with pytest.raises(ValueError, match="must be a JSON object"):
        unsealed([1])


def test_what_states_checksums_of_files_must_have_its_own():
    facts = sealed({"value": 0.1, "files": {"a": "b"}})
    del facts["checksum"]
    with pytest.raises(ValueError, match="checksum is missing"):
        unsealed(facts)


def test_what_a_killed_writer_left_is_removed(tmp_path):
    unfinished = [tmp_path / ".plan.json.ab3_xyz9.tmp", tmp_path / "checkpoints" / ".a.safetensors.abcdefgh.tmp"]
    others = [tmp_path / ".mine.tmp", tmp_path / "notes.tmp", tmp_path / "checkpoints" / "a.json"]
    (tmp_path / "checkpoints").mkdir()
    for path in (*unfinished, *others):
        path.write_text("x")
    with locked(tmp_path):
        assert not any(path.exists() for path in unfinished)
    assert all(path.exists() for path in others)


def test_what_another_writer_is_writing_is_left_to_it(tmp_path):
    """A temporary file below a folder that another lock is held in, at any depth, and whoever cleans above it."""
    run, cell = tmp_path / "run", tmp_path / "cells" / "key" / "run"
    seen = []

    def write(temporary):
        with locked(tmp_path):
            remove_unfinished(tmp_path)
        seen.append(temporary.exists())
        temporary.write_text("whole")

    for folder in (run, cell):
        with locked(folder):
            write_text(folder / "notes", "")
            atomic_write(folder / "result", write)
            atomic_write(folder / "checkpoints" / "result", write)
        assert (folder / "result").read_text() == (folder / "checkpoints" / "result").read_text() == "whole"
    assert all(seen)
    left = cell / "checkpoints" / ".a.safetensors.abcdefgh.tmp"
    left.write_text("x")
    with locked(tmp_path):
        assert left.exists()
        remove_unfinished(tmp_path)
    assert not left.exists()
