"""``neuralcollapse results``: ask the results of all studies of a folder."""

from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from ._app import app, print_json


@app.command
def results(
    query: str = "",
    /,
    *,
    out: Path = Path("results"),
    export: Path | None = None,
    limit: int = 50,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Answer a query on the results of studies.

    QUERY is a condition on the runs (their last values), or SQL on the tables runs, studies, cells and metrics.

    Examples
    --------
        neuralcollapse results
        neuralcollapse results "study = 'losses/collapse' and nc1 < 0.1"
        neuralcollapse results "select loss, avg(nc1) from runs where split = 'train' group by loss" --json
        neuralcollapse results "from metrics where metric = 'nc2'" --export nc2.parquet

    Parameters
    ----------
    query
        A condition, or SQL; nothing for all runs.
    out
        Folder of the results: the --out of ``study run``.
    export
        Write the whole answer to this .csv or .parquet file.
    limit
        Rows to print at most.
    json
        Print one JSON list of all rows.

    """
    from rich.table import Table
    from rich.text import Text

    from ..studies import query as ask
    from ._terminal import terminal

    answer = ask(out, query)
    if export is not None:
        answer.export(export)
    if json:
        print_json(answer.to_dicts())
        return
    rows = answer.rows
    shown = [place for place in range(len(answer.columns)) if any(row[place] is not None for row in rows)]
    table = Table()
    for place in shown:
        table.add_column(Text(answer.columns[place]), overflow="fold")
    for row in rows[:limit]:
        table.add_row(*(_text(row[place]) for place in shown))
    console = terminal()
    console.print(table)
    if len(rows) > limit:
        console.print(f"{len(rows) - limit} more rows: --limit, --json or --export show them")
    if export is not None:
        console.print(f"wrote {export}: {len(rows)} rows", soft_wrap=True)


def _text(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
