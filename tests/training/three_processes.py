"""Run by a test, once per process: one ``train`` command, its exit code as the process's own.

Arguments: what goes wrong ("", "seed", "kill"), then the command.
"""

import os
import signal
import sys

import torch

torch.set_num_threads(1)

from neuralcollapse.cli import main  # noqa: E402
from neuralcollapse.training import _trainer  # noqa: E402

RANK = os.environ["RANK"]


def run() -> int:
    fault, arguments = sys.argv[1], sys.argv[2:]
    if fault == "seed":
        arguments += ["--seed", RANK]
    if fault == "kill" and RANK == "1":
        original = _trainer.Trainer._step

        def step(self, *batch):
            if self.epoch == 1:
                os.kill(os.getpid(), signal.SIGKILL)
            return original(self, *batch)

        _trainer.Trainer._step = step
    return main(["train", *arguments])


if __name__ == "__main__":
    sys.exit(run())
