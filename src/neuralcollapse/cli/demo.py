"""``neuralcollapse demo``: the main job on embedded data, as one page."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from ._app import app
from .report import size

if TYPE_CHECKING:
    from ..studies import Outcome


@app.command
def demo(
    *,
    out: Annotated[Path, Parameter(help="Folder of the results and of report.html.")] = Path("demo"),
    profile: Annotated[
        Literal["smoke", "desk"], Parameter(help="desk: the demo; smoke: seconds, to see that it works.")
    ] = "desk",
    workers: Annotated[int | None, Parameter(help="Processes (default: one a core).")] = None,
) -> int:
    """Train a net under four losses until it collapses, beside the theory, and write a page about it.

    Takes about two minutes on two cores, with nothing but the embedded digits: the net is trained with cross-entropy,
    focal loss, label smoothing and squared error; neural collapse is measured; the matching models are solved and
    certified. Parts that OUT holds already are not run again.

    **Try:**

    ```
    neuralcollapse demo
    neuralcollapse demo --profile smoke --out try
    ```
    """
    from ..studies import run_studies
    from ..studies.demo import Demo
    from ..web.report import write_demo
    from ._study_progress import Display
    from ._terminal import terminal

    terminal(stderr=True).print(
        "Four nets on 1,500 digits and the four models that explain them; about two minutes on two cores."
        if profile == "desk"
        else "Four tiny nets and models, to see that it works."
    )
    with Display() as display:
        (outcome,) = run_studies([Demo()], profile, out, workers=workers, resume=True, on_status=display.status)
    if outcome.failures:
        name, error = next(iter(outcome.failures.items()))
        terminal(stderr=True, soft_wrap=True).print(f"failed: {name}: {error}")
        return 1
    path = write_demo(out)
    _show(outcome, path)
    return 0


def _show(outcome: "Outcome", path: Path) -> None:
    import json

    from ._study_progress import MARKS
    from ._terminal import say_next, styled, terminal

    console = terminal(soft_wrap=True)
    console.print(_table(json.loads((outcome.folder / "table.json").read_text(encoding="utf-8"))))
    for part in outcome.parts:
        console.print(styled((part.verdict, MARKS[part.verdict]), f": {part.says} {part.why}"))
    console.print()
    console.print(styled((f"report: {path}", "bold"), f" ({size(path)}; open it in a browser)\n"))
    say_next(
        "neuralcollapse explore",
        "neuralcollapse study list",
        "neuralcollapse train --data digits --loss focal:gamma=3 --out run",
        "neuralcollapse measure features.npz",
    )


def _table(rows: list[dict[str, Any]]) -> Any:
    from rich.table import Table

    table = Table(title="at the last epoch; gap: what the certificate proves of the model")
    columns = ("loss", "train", "test", "nc1", "nc2", "nc3", "|w| / theory", "|h| / theory", "gap")
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(
            row["loss"],
            *(f"{row[name]:.1%}" for name in ("train_accuracy", "test_accuracy")),
            *(f"{row[name]:.0e}" for name in ("nc1", "nc2", "nc3")),
            *(f"{row[f'{name}_net'] / row[f'{name}_predicted']:.3f}" for name in ("weight_norm", "feature_norm")),
            f"{row['certified_gap']:.0e}",
        )
    return table
