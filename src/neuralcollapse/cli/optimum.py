"""``neuralcollapse optimum``: the global minimum of a model in closed form."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ._app import app, print_json
from ._problem_options import ProblemOptions


@app.command
def optimum(
    *,
    problem: ProblemOptions | None = None,
    out: Annotated[Path | None, Parameter(help="Write a minimiser to this .safetensors file.")] = None,
    json: Annotated[bool, Parameter(help="Print one JSON object.", negative="")] = False,
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
    """
    from rich.table import Table

    from ..ufm import save_point
    from ._terminal import say_next, terminal

    model = (problem or ProblemOptions()).build()
    best = model.optimum()
    if out is not None:
        save_point(out, best.point, {"problem": model.to_json()})
    if json:
        print_json(best.to_dict())
        return
    console = terminal()
    console.print(repr(model))
    table = Table(show_header=False)
    for name, value in best.to_dict().items():
        if value is not None and value != "":
            table.add_row(name.replace("_", " "), f"{value:.12g}" if isinstance(value, float) else str(value))
    console.print(table)
    if out is not None:
        console.print(f"wrote {out}", soft_wrap=True)
        say_next(f"neuralcollapse certify {out}")
    else:
        say_next("the same command with --out point.safetensors, then: neuralcollapse certify point.safetensors")
