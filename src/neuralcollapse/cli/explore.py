"""``neuralcollapse explore``: the local web page."""

import os
import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ._app import app


@app.command
def explore(
    *,
    port: Annotated[int, Parameter(help="Port on 127.0.0.1; 0 takes a free one.")] = 8400,
    results: Annotated[Path | None, Parameter(help="Show the studies in this folder of results, too.")] = None,
    browser: Annotated[bool, Parameter(help="Open the page in a browser, on a desktop.")] = True,
    static: Annotated[
        Path | None, Parameter(help="Only write the moving picture to this HTML file; no server.")
    ] = None,
) -> int:
    """Play with the theory in a local web page: optima, solves, landscapes, results, your own features.

    The server listens on 127.0.0.1 only and the page loads nothing from elsewhere. Ctrl-C ends it.

    **Try:**

    ```
    neuralcollapse explore
    neuralcollapse explore --results results --port 0 --no-browser
    neuralcollapse explore --static collapse.html
    ```
    """
    from .._support.checks import integer

    integer("--port", port, minimum=0, maximum=65535)
    from ..web.explorer import ExplorerServer, write_static
    from ._terminal import say_next

    if static is not None:
        sys.stdout.write(f"{write_static(static)}\n")
        say_next(f"open {static} in a browser")
        return 0
    with ExplorerServer(port, results) as server:
        sys.stdout.write(f"{server.url}  (Ctrl-C ends it)\n")
        sys.stdout.flush()
        if browser:
            _open(server.url)
        try:
            server.serve()
        except KeyboardInterrupt:
            sys.stdout.write("\n")
    return 0


def _open(url: str) -> None:
    """Show the page where there is a desktop; a text browser would take the terminal."""
    import threading
    import webbrowser

    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return

    def show() -> None:
        try:
            webbrowser.open(url)
        except (webbrowser.Error, OSError):
            return

    threading.Thread(target=show, daemon=True).start()
