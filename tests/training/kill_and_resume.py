"""Run by a test: train in forked children that are killed at random moments, until one reaches the end.

Arguments: folder of the data, folder of the run, number of kills, seed. Prints how many kills hit.
"""

import os
import random
import signal
import sys
import time

import torch

torch.set_num_threads(1)

from neuralcollapse.training import Plan, train  # noqa: E402

PLAN = Plan(
    data="mnist",
    per_class=4,
    model="resnet8:width=2",
    epochs=8,
    batch_size=10,
    validation=0.25,
    augment=True,
    measure=(1, 2, 3, 5, 8),
    metrics=("nc1", "nc2", "nc3"),
)


def child(root: str, out: str) -> int:
    process = os.fork()
    if process == 0:
        try:
            train(PLAN, out, root=root, resume=True, checkpoint_seconds=0.0)
        except BaseException as error:
            print(f"failed: {error!r}", flush=True)  # noqa: T201
            os._exit(1)
        os._exit(0)
    return process


def main() -> None:
    root, out, kills, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    dice, hits = random.Random(seed), 0
    while True:
        process = child(root, out)
        if hits < kills:
            time.sleep(dice.uniform(0.002, 0.25))
            os.kill(process, signal.SIGKILL)
        _, status = os.waitpid(process, 0)
        if os.WIFSIGNALED(status):
            hits += 1
        elif os.WEXITSTATUS(status) == 0:
            print(hits, flush=True)  # noqa: T201
            return
        else:
            sys.exit(1)


if __name__ == "__main__":
    main()
