"""``neuralcollapse report``, ``explore`` and ``demo``: the commands that end in a page."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from ._app import app

if TYPE_CHECKING:
    from rich.table import Table

    from ..studies import StudyOutcome


@app.command
def report(*folders: Path, out: Path = Path("report.html")) -> int:
    """Write one self-contained HTML page about studies, training runs and solves.

    The page opens from disk and asks the network for nothing. It has each study's question, claim, verdict, picture and
    numbers; the curves of runs and solves, with what the theory says drawn beside; and how to run each again.

    **Try:**

    ```
    neuralcollapse report results --out report.html
    neuralcollapse report results/losses/collapse runs/focal --out two.html
    neuralcollapse report runs
    ```

    Parameters
    ----------
    folders
        The --out of ``study run``, one study in it, a run directory of ``train``, the folder of ``solve --out``, or
        a folder that holds several of these.
    out
        The file to write.

    """
    from ..web.report import write
    from ._output.terminal import say_next, terminal

    if not folders:
        raise ValueError("DIR is missing: name at least one folder of results")
    path = write(folders, out)
    terminal(soft_wrap=True).print(f"wrote {path} ({_size_in_words(path)})")
    say_next(f"open {path} in a browser")
    return 0


def _size_in_words(path: Path) -> str:
    count = path.stat().st_size
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"


@app.command
def explore(
    *networks: Path,
    port: int = 8400,
    results: Path | None = None,
    browser: bool = True,
    static: Path | None = None,
) -> int:
    """Play with the theory in a local web page: collapse, optima, solves, landscapes, results, your own network.

    The server listens on 127.0.0.1 only and the page loads nothing from elsewhere. Ctrl-C ends it.

    **Try:**

    ```
    neuralcollapse explore
    neuralcollapse explore RUN features.npz
    neuralcollapse explore --results results --port 0 --no-browser
    neuralcollapse explore --static collapse.html
    ```

    Parameters
    ----------
    networks
        Run directories, files or folders of features to offer under "Your network".
    port
        Port on 127.0.0.1; 0 takes a free one.
    results
        Show the studies in this folder of results, too.
    browser
        Open the page in a browser, on a desktop.
    static
        Only write the moving picture to this HTML file; no server.

    """
    from .._support.checks import integer

    integer("--port", port, minimum=0, maximum=65535)
    if static is not None and (networks or results is not None):
        raise ValueError("--static writes the moving picture alone: leave out networks and --results")
    from ..web.explorer import ExplorerServer, write_static
    from ._output.terminal import say_next

    if static is not None:
        sys.stdout.write(f"{write_static(static)}\n")
        say_next(f"open {static} in a browser")
        return 0
    import torch

    from ..web import open_page

    # One thread a request: small work is slower on more.
    torch.set_num_threads(1)
    with ExplorerServer(port, results, networks) as server:
        sys.stdout.write(f"{server.url}  (Ctrl-C ends it)\n")
        sys.stdout.flush()
        if browser:
            open_page(server.url)
        try:
            server.serve()
        except KeyboardInterrupt:
            sys.stdout.write("\n")
    return 0


@app.command
def demo(
    *,
    out: Path = Path("demo"),
    profile: Literal["smoke", "desk"] = "desk",
    workers: int | None = None,
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

    Parameters
    ----------
    out
        Folder of the results and of report.html.
    profile
        desk: the demo; smoke: seconds, to see that it works.
    workers
        Processes (default: one a core).

    """
    from ..studies import run_studies
    from ..studies.demo import Demo
    from ..web.report import write_demo
    from ._output.progress import StudiesBar
    from ._output.terminal import terminal

    terminal(stderr=True).print(
        "Four nets on 1,500 digits and the four models that explain them; about two minutes on two cores."
        if profile == "desk"
        else "Four tiny nets and models, to see that it works."
    )
    with StudiesBar() as display:
        (outcome,) = run_studies([Demo()], profile, out, workers=workers, resume=True, on_status=display.status)
    if outcome.failures:
        name, error = next(iter(outcome.failures.items()))
        terminal(stderr=True, soft_wrap=True).print(f"failed: {name}: {error}")
        return 1
    path = write_demo(out)
    _print_demo(outcome, path)
    return 0


def _print_demo(outcome: "StudyOutcome", path: Path) -> None:
    import json

    from ._output.progress import MARKS
    from ._output.terminal import say_next, styled_text, terminal

    console = terminal(soft_wrap=True)
    console.print(_demo_table(json.loads((outcome.folder / "table.json").read_text(encoding="utf-8"))))
    for part in outcome.parts:
        console.print(styled_text((part.verdict, MARKS[part.verdict]), f": {part.says} {part.why}"))
    console.print()
    console.print(styled_text((f"report: {path}", "bold"), f" ({_size_in_words(path)}; open it in a browser)\n"))
    say_next(
        "neuralcollapse explore",
        "neuralcollapse study list",
        "neuralcollapse train --data digits --loss focal:gamma=3 --out run",
        "neuralcollapse measure features.npz",
    )


def _demo_table(rows: list[dict[str, Any]]) -> "Table":
    from rich.table import Table

    from ._output.terminal import loss_text

    table = Table(title="at the last epoch; gap: what the certificate proves of the model")
    columns = ("loss", "train", "test", "nc1", "nc2", "nc3", "|w| / theory", "|h| / theory", "gap")
    for number, name in enumerate(columns):
        table.add_column(name, justify="right" if number else "left")
    for row in rows:
        table.add_row(
            loss_text(row["loss"]),
            *(f"{row[name]:.1%}" for name in ("train_accuracy", "test_accuracy")),
            *(f"{row[name]:.0e}" for name in ("nc1", "nc2", "nc3")),
            *(f"{row[f'{name}_net'] / row[f'{name}_predicted']:.3f}" for name in ("weight_norm", "feature_norm")),
            f"{row['certified_gap']:.0e}",
        )
    return table
