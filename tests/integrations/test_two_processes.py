"""The callbacks under ``torchrun``: both processes have the report on all samples, each counted once."""

import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

WORKER = Path(__file__).parent / "two_processes.py"


@pytest.mark.parametrize(("library", "sizes"), [("transformers", [27, 29]), ("lightning", [61])])
def test_a_report_on_all_samples(library, sizes, tmp_path):
    pytest.importorskip(library)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    command = ["-m", "torch.distributed.run", "--nproc_per_node", "2", "--master_port", port, str(WORKER), library]
    done = subprocess.run([sys.executable, *command, str(tmp_path)], capture_output=True, text=True, timeout=250)
    assert done.returncode == 0, done.stderr[-3000:]
    for rank in range(2):
        content = json.loads((tmp_path / f"{rank}.json").read_text())
        assert [part["samples"] for part in content] == sizes
        for part in content:
            assert not any("process" in note for note in part["notes"])
            for name, value in part["found"].items():
                assert value == pytest.approx(part["truth"][name], rel=1e-6), name
