"""``neuralcollapse results``: ask the results of all studies of a folder."""

from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING

from ._app import Flag, app, print_json

if TYPE_CHECKING:
    from rich.console import Console

TERMINAL_ROWS = 50


@app.command
def results(
    query: str = "",
    /,
    *,
    out: Path = Path("results"),
    export: Path | None = None,
    limit: int | None = None,
    json: Flag = False,
) -> None:
    r"""Answer a query on the results of studies.

    QUERY is a condition on the runs (their last values), or SQL on the tables runs, studies, parts, cells and metrics.
    A terminal shows the columns that it has room for; a pipe gets all of them, separated by tabs.

    **Try:**

    ```
    neuralcollapse results
    neuralcollapse results "study = 'losses/collapse' and nc1 < 0.1"
    neuralcollapse results "select loss, avg(nc1) from runs group by loss" --json
    neuralcollapse results "from metrics where metric = 'nc2'" \
        --export nc2.parquet
    ```

    Parameters
    ----------
    query
        A condition, or SQL; nothing for all runs.
    out
        Folder of the results: the --out of ``study run``.
    export
        Write the whole answer to this .csv or .parquet file.
    limit
        Rows to print at most (default: 50 on a terminal, all in a pipe).
    json
        Print one JSON list of all rows.

    """
    from .._support.checks import integer
    from ..studies import query as ask
    from ._output.terminal import say_next, terminal, write_tabs

    if limit is not None:
        integer("--limit", limit, minimum=0)
    answer = ask(out, query)
    if export is not None:
        answer.export(export)
    if json:
        print_json(answer.to_dicts())
        return
    console = terminal()
    most = limit if limit is not None else TERMINAL_ROWS if console.is_terminal else len(answer.rows)
    rows = [[_cell_text(value) for value in row] for row in answer.rows[:most]]
    if console.is_terminal:
        _print_differences(console, list(answer.columns), rows)
    else:
        write_tabs(answer.columns, rows)
    if len(answer.rows) > most:
        more = f"{len(answer.rows) - most} more rows: --limit, --json or --export show them"
        terminal(stderr=not console.is_terminal, soft_wrap=True).print(more)
    if export is not None:
        terminal(stderr=True, soft_wrap=True).print(f"wrote {export}: {len(answer.rows)} rows")
    say_next(
        'neuralcollapse results "select COLUMNS from runs where CONDITION"', f"neuralcollapse report {quote(str(out))}"
    )


def _print_differences(console: "Console", columns: list[str], rows: list[list[str]]) -> None:
    """A table of what differs from row to row, under a line of what does not."""
    from ._output.terminal import print_table

    kept = [place for place in range(len(columns)) if any(row[place] for row in rows)]
    same = [place for place in kept if len(rows) > 1 and len({row[place] for row in rows}) == 1]
    if same and len(same) < len(kept):
        console.print("in all rows: " + ", ".join(f"{columns[place]} {rows[0][place]}" for place in same))
        kept = [place for place in kept if place not in same]
    kept.sort(key=lambda place: columns[place] == "cell")  # a key: of use to look a run up, if there is room
    left_out = print_table(
        [columns[place] for place in kept], [[row[place] for place in kept] for row in rows], console
    )
    if left_out:
        console.print(f"no room for: {', '.join(left_out)}")


def _cell_text(value: object) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
