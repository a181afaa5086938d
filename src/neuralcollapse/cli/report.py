"""``neuralcollapse report``: results as one page."""

from pathlib import Path

from ._app import app


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
    from ._terminal import say_next, terminal

    if not folders:
        raise ValueError("DIR is missing: name at least one folder of results")
    path = write(folders, out)
    terminal(soft_wrap=True).print(f"wrote {path} ({size(path)})")
    say_next(f"open {path} in a browser")
    return 0


def size(path: Path) -> str:
    """A file's size."""
    count = path.stat().st_size
    return f"{count / 1e6:.1f} MB" if count >= 1e6 else f"{count / 1e3:.0f} kB"
