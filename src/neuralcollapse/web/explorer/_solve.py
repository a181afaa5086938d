"""One solve within a time limit, with the points on its way and the certificate of its end."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ..._support.files import JSONObject
from ...metrics import class_means
from ...ufm import Problem, Trace, solve
from ._fields import Fields, Limits, problem_of
from ._optimum import flat_view
from ._sentences import command

__all__ = ["LIMITS", "MAX_ITER", "InterruptedSolveError", "SolveRequest"]

LIMITS = Limits(classes=50, per_class=50, dim=128, samples=500)
MAX_ITER = 2000
MAX_SECONDS = 5.0
SNAPSHOT_SECONDS = 2.0
SNAPSHOTS = (0, 1, 2, 3, 5, 8, 12, 20, 35, 60, 100, 200, 500, 1000)
DRAWN_SAMPLES = 200
RECORD = ("value", "gap", "gradient_norm", "nc1", "nc2", "nc3", "accuracy")


class InterruptedSolveError(Exception):
    """The server ends while a solve runs."""


@dataclass(frozen=True)
class SolveRequest:
    """What to solve and how; checked."""

    problem: Problem
    method: str
    seed: int
    max_iter: int

    @classmethod
    def read(cls, fields: Fields) -> "SolveRequest":
        """From the fields of a request."""
        request = cls(
            problem_of(fields, LIMITS),
            fields.word("method", "lbfgs"),
            fields.integer("seed", 0, minimum=0, maximum=2**31 - 1),
            fields.integer("max_iter", 500, minimum=1, maximum=MAX_ITER),
        )
        fields.finish()
        return request

    def run(self, stopped: Callable[[], bool]) -> JSONObject:
        """Solve, certify, and look at the way; :class:`InterruptedSolveError` as soon as ``stopped()`` says so."""

        def on_record(_: object) -> None:
            if stopped():
                raise InterruptedSolveError

        trace = self._solve(self.max_iter, MAX_SECONDS, on_record)
        certificate = self.problem.certify(trace.point)
        history = {name: list(column) for name, column in trace.history.items() if name != "seconds"}
        return {
            "outcome": trace.outcome,
            "message": trace.message,
            "method": trace.method,
            "regime": trace.regime,
            "value": trace.value,
            "iterations": trace.iterations,
            "seconds": trace.seconds,
            "history": history,
            "certificate": certificate.to_dict(),
            "view": self._view(trace, on_record),
            "command": command(
                "solve", self.problem, method=self.method, seed=self.seed, **{"max-iter": self.max_iter}
            ),
        }

    def _solve(self, max_iter: int, seconds: float, on_record: Callable[[JSONObject], None]) -> Trace:
        return solve(
            self.problem,
            self.method,
            seed=self.seed,
            max_iter=max_iter,
            record=RECORD,
            max_seconds=seconds,
            every=1,
            on_record=on_record,
        )

    def _view(self, trace: Trace, on_record: Callable[[JSONObject], None]) -> JSONObject:
        """Points along the way, in the three directions that carry most of the last one.

        A solve is the same whenever it is repeated, so the point after m iterations is that of a solve with
        ``max_iter=m``; together they cost about as much as the solve itself.
        """
        points = {trace.iterations: trace.point}
        until = time.monotonic() + SNAPSHOT_SECONDS
        for iterations in SNAPSHOTS:
            left = until - time.monotonic()
            if iterations >= trace.iterations or left <= 0:
                break
            part = self._solve(iterations, left, on_record)
            if part.iterations == iterations:
                points[iterations] = part.point
        last = trace.point
        view = flat_view(last.W, class_means(last.H, self.problem.labels))
        chosen = torch.linspace(0, self.problem.num_samples - 1, min(DRAWN_SAMPLES, self.problem.num_samples)).long()
        # One scale for all frames, so that growth can be seen: the last point's, unless that is nearly zero.
        weight_scale = _longest_row([point.W for point in points.values()], last.W)
        feature_scale = _longest_row([point.H for point in points.values()], last.H)
        return {
            "share": view.share,
            "labels": self.problem.labels[chosen].tolist(),
            "frames": [
                {
                    "iteration": iteration,
                    "weight": None if point.W is None else view.rows(point.W / weight_scale),
                    "features": view.rows(point.H[chosen] / feature_scale),
                }
                for iteration, point in sorted(points.items())
            ],
        }


def _longest_row(blocks: list[Tensor | None], last: Tensor | None) -> float:
    """The norm of the longest row of ``last``; of all ``blocks`` where that is twenty times longer."""
    norms = [float(block.norm(dim=1).max()) for block in [last, *blocks] if block is not None]
    if not norms or max(norms) == 0:
        return 1.0
    return norms[0] if 20 * norms[0] > max(norms) else max(norms)
