"""Solvers against their rivals: the same start, interleaved in one run, the minimum of several, as ratios.

    python benchmarks/solvers.py            all but the largest problem
    python benchmarks/solvers.py --quick    small sizes, in a minute or so
    python benchmarks/solvers.py --large    the K = 1000, n = 50, d = 1024 problem besides
    python benchmarks/solvers.py --only starts    the problems of the tests from 100 starts by every method

Everything runs on one thread, and times are those of the processor, not of the clock: the machine may be
shared. Pymanopt's time is taken when its cost function is first called at a point within the gap: what it
does afterwards (in the same iteration) is not counted.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
from pathlib import Path

import torch
from _solver_tables import (
    TABLES,
    batch,
    compiled,
    growth,
    large,
    memory,
    normalized,
    recording,
    regularized,
    starts,
)

torch.set_num_threads(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes only")
    parser.add_argument("--large", action="store_true", help="the largest problem besides")
    parts = ["normalized", "regularized", "compiled", "growth", "memory", "recording", "batch", "starts", "large"]
    parser.add_argument("--only", choices=parts)
    parser.add_argument("--json", type=Path, help="keep the tables in this file (evidence/bench/solvers.json)")
    chosen = parser.parse_args()

    def wanted(name: str) -> bool:
        return chosen.only in (None, name)

    limits = {"SD": 150.0, "CG": 60.0, "TR": 60.0}
    if wanted("normalized"):
        normalized((10, 5, 32), 3 if chosen.quick else 7, limits, ["torch", "autograd"])
        if not chosen.quick:
            normalized((100, 30, 110), 2, limits, ["torch"])
    if wanted("regularized"):
        regularized((10, 20, 20) if chosen.quick else (10, 100, 20), 2 if chosen.quick else 3)
    if wanted("compiled"):
        sizes = [(10, 5, 32), (10, 100, 20), (100, 30, 110)]
        compiled(sizes[:1] if chosen.quick else sizes, 3)
    if wanted("growth"):
        growth((10, 20, 32) if chosen.quick else (20, 100, 64), 2)
    if wanted("memory"):
        ways = ["gradient-descent", "conjugate-gradient", "adam", "trust-region", "lbfgs", "reduced"]
        for sizes in [(20, 100, 128)] if chosen.quick else [(100, 300, 110), (10, 5000, 128)]:
            memory(sizes, ways, 6)
        if chosen.large:
            memory((1000, 50, 1024), ["reduced", "conjugate-gradient"], 2)
    if wanted("recording"):
        recording((10, 5, 32), 5 if chosen.quick else 15)
        if not chosen.quick:
            recording((50, 20, 64), 5)
    if wanted("batch"):
        batch((10, 5, 32), 40 if chosen.quick else 100, 2 if chosen.quick else 7)
    if chosen.only == "starts":
        starts(5 if chosen.quick else 100)
    if chosen.large or chosen.only == "large":
        large()
    if chosen.json:
        TABLES.save(chosen.json)


if __name__ == "__main__":
    main()
