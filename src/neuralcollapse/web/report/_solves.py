"""A saved trace of ``neuralcollapse solve`` as a section."""

import math
import shlex
from pathlib import Path

from ..._support.files import JSONObject, json_number
from ..._support.theme import BLUE
from ...studies.pictures import metric_name
from ...ufm import Certificate, Problem, RegressionUFM, Trace
from ._charts import LEVEL, ChartLine, Panel, picture
from ._numbers import heading, shown
from ._parts import Badge, Details, Section, table_of

__all__ = ["solve_section"]

SKIPPED = ("iteration", "seconds")
LARGEST = 1e100
"""What is above it, as on the way of a solve that diverges, has no place in a picture."""
NOTE = "Along the solve; the first iterate is at 1 on the logarithmic axis."


def solve_section(folder: Path, anchor: str) -> Section:
    """Curves, certificate and closed form of a solve; ValueError names a file that cannot be used."""
    trace = Trace.load(folder)
    problem = trace.problem
    certificate = None if trace.outcome == "diverged" else problem.certify(trace.point)
    try:
        best: float | None = problem.optimum().value
    except (NotImplementedError, ValueError):  # none is known, or none is attained
        best = None
    panels = _panels(trace, best)
    described = {"model": problem.kind, **problem.parameters()}
    facts = {
        "Solved": f"{trace.method} from seed {shown(trace.seed)}: {trace.message}",
        "Certificate": "none: it diverged" if certificate is None else f"{certificate.verdict}: {certificate.reason}",
    }
    return Section(
        anchor=anchor,
        title=folder.name or str(folder),
        kind="solve",
        source=f"solve, {problem.kind} model",
        lead=f"Does {trace.method} reach the global minimum of the {problem.kind} model with {_sizes(problem)}?",
        badge=_badge(certificate),
        merit=shown(None if certificate is None else certificate.gap),
        merit_is="proved gap to the global minimum",
        seconds=trace.seconds,
        facts=facts,
        pictures=[picture(panels, anchor, NOTE)] if panels else [],
        tables=[table for table in [table_of("Where it ended.", [_end_facts(trace, certificate, best)])] if table],
        details=[Details("Model", {heading(name): shown(value) for name, value in described.items()})],
        command=f"neuralcollapse certify {shlex.quote(str(folder / 'point.safetensors'))}",
    )


def _sizes(problem: Problem) -> str:
    if isinstance(problem, RegressionUFM):
        return f"{shown(problem.num_samples)} targets of {shown(problem.num_classes)} numbers, d = {shown(problem.dim)}"
    return f"K = {shown(problem.num_classes)}, n = {shown(problem.per_class)}, d = {shown(problem.dim)}"


def _badge(certificate: Certificate | None) -> Badge:
    if certificate is None:
        return Badge("diverged", "bad")
    tone = {"global minimum": "good", "strict saddle": "bad"}.get(certificate.verdict, "open")
    return Badge(certificate.verdict, tone)


def _end_facts(trace: Trace, certificate: Certificate | None, best: float | None) -> JSONObject:
    return {
        "value": f"{trace.value:.10g}" if math.isfinite(trace.value) else None,
        "lower_bound": None if certificate is None else f"{certificate.lower_bound:.10g}",
        "closed_form": None if best is None else f"{best:.10g}",
        "gap": None if certificate is None else certificate.gap,
        "gradient_norm": json_number(trace.gradient_norm),
        "iterations": trace.iterations,
        "outcome": trace.outcome,
    }


def _panels(trace: Trace, best: float | None) -> list[Panel]:
    steps = [float(step or 0) + 1 for step in trace.history["iteration"]]
    panels = []
    for name, values in trace.history.items():
        numbers = [None if value is None or abs(value) > LARGEST else float(value) for value in values]
        if name in SKIPPED or all(value is None for value in numbers):
            continue
        percent = name == "accuracy"
        levels = [("closed form", best, LEVEL)] if name == "value" and best is not None else []
        curves = [ChartLine("solve", steps, numbers, BLUE)]
        panels.append(Panel(metric_name(name), curves, levels, "iteration + 1", log_y=not percent, percent=percent))
    return panels
