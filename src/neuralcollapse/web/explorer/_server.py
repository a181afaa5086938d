"""The server: loopback only, one page, ended by Ctrl-C or :meth:`ExplorerServer.stop`."""

import errno
import os
import socket
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import uvicorn

from ._app import Guard, Pages
from ._results import ResultsFolder

__all__ = ["ExplorerServer"]


class ExplorerServer:
    """``ExplorerServer(port, results).serve()``; port 0 takes a free one, :attr:`url` says which.

    The port is taken at once, so that ValueError says in time that it is not free (or that ``results`` is no folder).
    ``places`` are run directories, files and folders of features that the page offers under "Your network".
    """

    def __init__(self, port: int = 8400, results: Path | None = None, places: Sequence[Path] = ()):
        self._ending = threading.Event()
        for place in places:
            if not place.exists():
                raise ValueError(f"{place}: no such file or folder")
        self.pages = Pages(None if results is None else ResultsFolder(results), self._ending.is_set, places)
        self._socket = _listening(port)
        self.port: int = self._socket.getsockname()[1]
        config = uvicorn.Config(
            Guard(self.pages.app, lambda: self.hosts, lambda: self.url),
            log_config=None,
            log_level="critical",
            access_log=False,
            server_header=False,
            ws="none",
            lifespan="off",
            http="h11",
            timeout_keep_alive=5,
            timeout_graceful_shutdown=3,
            h11_max_incomplete_event_size=32 << 10,
        )
        self._server = uvicorn.Server(config)

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://127.0.0.1:{self.port}/"

    @property
    def address(self) -> str:
        """The interface that it listens on."""
        return self._socket.getsockname()[0]

    @property
    def hosts(self) -> set[str]:
        """The Host headers that name this server."""
        names = {f"{name}:{self.port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        return names | ({"127.0.0.1", "localhost", "[::1]"} if self.port == 80 else set())

    def serve(self) -> None:
        """Answer until :meth:`stop`, or until the interrupt key raises KeyboardInterrupt."""
        try:
            self._server.run(sockets=[self._socket])
        finally:
            self._ending.set()

    def stop(self) -> None:
        """Let :meth:`serve` return; a running solve ends at its next iteration."""
        self._ending.set()
        self._server.should_exit = True

    def __enter__(self) -> "ExplorerServer":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._socket.close()


def _listening(port: int) -> socket.socket:
    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        if os.name == "posix":
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(("127.0.0.1", port))
        listening.listen(128)
    except OSError as error:
        listening.close()
        if error.errno in (errno.EADDRINUSE, errno.EACCES):
            why = "is taken" if error.errno == errno.EADDRINUSE else "may not be used"
            raise ValueError(f"port {port} {why}: choose another with --port N, or --port 0 for any free one") from None
        raise
    return listening
