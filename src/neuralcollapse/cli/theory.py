"""``neuralcollapse optimum`` and ``certify``: a model's minimum in closed form, and how far a point is from it."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from ._app import Flag, app, print_json
from ._problem_options import ProblemOptions

if TYPE_CHECKING:
    from .._support.files import JSONObject
    from ..ufm import Problem


@app.command
def optimum(
    *,
    problem: ProblemOptions | None = None,
    out: Path | None = None,
    json: Flag = False,
) -> None:
    r"""Print the global minimum of an unconstrained feature model in closed form.

    **Try:**

    ```
    neuralcollapse optimum --loss ce --classes 10 --per-class 100 --dim 20 \
        --weight-decay 5e-4 --feature-decay 5e-4
    neuralcollapse optimum --loss focal:gamma=3 --classes 100 --dim 128 \
        --weight-decay 0.0114 --feature-decay 0.0114
    neuralcollapse optimum --loss ls:alpha=0.1 --classes 10 --dim 32 \
        --temperature 5 --json
    ```

    Parameters
    ----------
    out
        Write a minimiser to this .safetensors file.
    json
        Print one JSON object.

    """
    from ..ufm import save_point
    from ._output.terminal import say_next, terminal

    model = (problem or ProblemOptions()).build()
    best = model.optimum()
    if out is not None:
        save_point(out, best.point, {"problem": model.to_json()})
    if json:
        print_json(best.to_dict())
        return
    _print_facts(model, best.to_dict())
    if out is not None:
        terminal(soft_wrap=True).print(f"wrote {out}")
        say_next(f"neuralcollapse certify {quote(str(out))}")
    else:
        say_next("the same command with --out point.safetensors, then: neuralcollapse certify point.safetensors")


@app.command
def certify(
    point: Path,
    *,
    problem: ProblemOptions | None = None,
    tolerance: float = 1e-8,
    escape_out: Path | None = None,
    json: Flag = False,
) -> None:
    r"""Certify a point: a rigorous gap to the global minimum, and what kind of point it is.

    The model is read from the file if it was written by this program; options that name a model override it.

    **Try:**

    ```
    neuralcollapse certify point.safetensors
    neuralcollapse certify point.safetensors --classes 10 --dim 32 --per-class 5 \
        --temperature 1 --json
    ```

    Parameters
    ----------
    point
        A .safetensors file with float64 arrays W (K, d), H (N, d) with rows sorted by class, and b (K,) if any.
    tolerance
        Relative gap within which a point counts as global.
    escape_out
        Write the escape direction to this .safetensors file.
    json
        Print one JSON object.

    """
    from .._support.checks import real
    from ..ufm import Problem, load_point, save_point
    from ._output.terminal import say_next

    place, metadata = load_point(point)
    options = problem or ProblemOptions()
    if options.given:
        model = options.build()
    elif "problem" in metadata:
        model = Problem.from_json(metadata["problem"])
    else:
        raise ValueError(f"{point} does not say which model it belongs to: give --classes, --dim and so on")
    result = model.certify(place, real("--tolerance", tolerance, above=0))
    if escape_out is not None:
        if result.escape is None:
            raise ValueError(f"--escape-out: there is no escape direction, the verdict is {result.verdict!r}")
        save_point(escape_out, result.escape, {"problem": model.to_json()})
    if json:
        print_json(result.to_dict())
        return
    _print_facts(model, result.to_dict())
    if result.escape is not None and escape_out is None:
        say_next(f"neuralcollapse certify {quote(str(point))} --escape-out down.safetensors")
    elif result.verdict == "global minimum":
        say_next("neuralcollapse explore")
    else:
        say_next(f"neuralcollapse solve --start {quote(str(point))} and the options of its model")


def _print_facts(model: "Problem", facts: "JSONObject") -> None:
    """The model, and below it what is known of it, a line each."""
    from rich.table import Table

    from ._output.terminal import terminal

    console = terminal()
    console.print(repr(model))
    table = Table(show_header=False)
    for name, value in facts.items():
        if value is not None and value != "":
            table.add_row(name.replace("_", " "), f"{value:.12g}" if isinstance(value, float) else str(value))
    console.print(table)
