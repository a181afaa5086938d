"""``neuralcollapse explore``: the local web page."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ._app import app


@app.command
def explore(
    *networks: Annotated[
        Path, Parameter(help='Run directories, files or folders of features to offer under "Your network".')
    ],
    port: Annotated[int, Parameter(help="Port on 127.0.0.1; 0 takes a free one.")] = 8400,
    results: Annotated[Path | None, Parameter(help="Show the studies in this folder of results, too.")] = None,
    browser: Annotated[bool, Parameter(help="Open the page in a browser, on a desktop.")] = True,
    static: Annotated[
        Path | None, Parameter(help="Only write the moving picture to this HTML file; no server.")
    ] = None,
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
    """
    from .._support.checks import integer

    integer("--port", port, minimum=0, maximum=65535)
    from ..web.explorer import ExplorerServer, write_static
    from ._terminal import say_next

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
