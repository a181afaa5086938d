"""The server: loopback only, a fixed table of files, a JSON interface, and no trust in what comes in.

A page of another origin may send requests to a local port. So the Host must be this server's (a rebound DNS name is
not), a POST must come from this page's Origin, and no other site may embed or read what is served.
"""

import errno
import json
import logging
import math
import os
import socketserver
import tempfile
import threading
from collections.abc import Callable
from functools import cache
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar
from urllib.parse import parse_qsl, urlsplit

import torch

from ._about import describe_page
from ._fields import Fields
from ._landscape import describe_phases, describe_slice
from ._measure import LARGEST_UPLOAD, SUFFIXES, describe_file
from ._optimum import describe_optimum
from ._results import ResultsFolder, UnknownStudyError
from ._solve import InterruptedSolveError, SolveRequest

__all__ = ["ExplorerServer"]

LOG = logging.getLogger(__name__)
LARGEST_JSON = 64 << 10
BUSY_SECONDS = 20.0
CHUNK = 1 << 20

# plotly.js writes style elements and attributes, and draws heat maps as data: images. Scripts come from here only.
PAGE_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; object-src 'none'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# Pictures come from a folder that anyone may have written: nothing in them runs, even if opened by themselves.
PICTURE_POLICY = "default-src 'none'; style-src 'unsafe-inline'; sandbox"
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
TYPES = {".html": "text/html", ".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


class RefusedError(Exception):
    """A request that is answered with a status and one line."""

    def __init__(self, status: HTTPStatus, text: str):
        super().__init__(text)
        self.status = status


class ExplorerServer(ThreadingHTTPServer):
    """``ExplorerServer(port, results).serve_forever()``; port 0 takes a free one, :attr:`url` says which.

    ValueError if the port is taken or ``results`` is not a folder.
    """

    daemon_threads = True
    allow_reuse_address = os.name == "posix"

    def __init__(self, port: int = 8400, results: Path | None = None):
        self.results = None if results is None else ResultsFolder(results)
        self.files = _static_files()
        self.working = threading.Lock()
        self.ending = threading.Event()
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            if error.errno in (errno.EADDRINUSE, errno.EACCES):
                why = "is taken" if error.errno == errno.EADDRINUSE else "may not be used"
                raise ValueError(
                    f"port {port} {why}: choose another with --port N, or --port 0 for any free one"
                ) from None
            raise
        # One thread a request: small work is slower on more.
        torch.set_num_threads(1)

    def server_bind(self) -> None:
        """Bind without looking up a name for the address, which would ask a name server."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = "127.0.0.1", self.server_address[1]

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://127.0.0.1:{self.server_port}/"

    @property
    def hosts(self) -> set[str]:
        """The Host headers that name this server."""
        names = {f"{name}:{self.server_port}" for name in ("127.0.0.1", "localhost", "[::1]")}
        return names | ({"127.0.0.1", "localhost", "[::1]"} if self.server_port == 80 else set())

    def server_close(self) -> None:
        """Close the socket and let a running solve end at its next iteration."""
        self.ending.set()
        super().server_close()
        if self.working.acquire(timeout=2.0):
            self.working.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break are no news."""

    def work(self, function: Callable[[], Any]) -> Any:
        """One long calculation at a time."""
        if not self.working.acquire(timeout=BUSY_SECONDS):
            raise RefusedError(HTTPStatus.SERVICE_UNAVAILABLE, "another calculation is running; try again when it ends")
        try:
            return function()
        finally:
            self.working.release()


class _Handler(BaseHTTPRequestHandler):
    server: ExplorerServer  # pyright: ignore[reportIncompatibleVariableOverride]
    protocol_version = "HTTP/1.1"
    timeout = 60.0

    def do_GET(self) -> None:
        """The page, its files, and answers."""
        self._answer(self._get)

    def do_POST(self) -> None:
        """Solves and files."""
        self._answer(self._post)

    def version_string(self) -> str:
        """The Server header, without Python's version."""
        return "neuralcollapse"

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed for a request."""

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What the base class refuses (another verb, a malformed request), in the same form as the rest."""
        self.close_connection = True
        self._send_json(HTTPStatus(code), {"error": message or HTTPStatus(code).phrase})

    def _answer(self, respond: Callable[[str, dict[str, str]], None]) -> None:
        try:
            self._check_sender()
            try:
                parts = urlsplit(self.path)
                query = dict(parse_qsl(parts.query, max_num_fields=50))
            except ValueError:
                raise RefusedError(HTTPStatus.BAD_REQUEST, "malformed address, or too many fields") from None
            if parts.netloc:
                raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such page")
            respond(parts.path, query)
        except RefusedError as refusal:
            # What is left of a body that was not read must not be taken for the next request.
            self.close_connection = True
            self._send_json(refusal.status, {"error": str(refusal)})
        except UnknownStudyError as error:
            self._send_json(HTTPStatus.NOT_FOUND, {"error": str(error)})
        except (ValueError, TypeError, NotImplementedError) as error:
            self._send_json(HTTPStatus.BAD_REQUEST, {"error": " ".join(str(error).split())[:500]})
        except InterruptedSolveError:
            self._send_json(HTTPStatus.SERVICE_UNAVAILABLE, {"error": "the server is ending"})
        except OSError:
            self.close_connection = True
        except Exception as error:
            LOG.error("%s %s: %r", self.command, self.path[:200], error)
            self._send_json(HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"internal error: {type(error).__name__}"})

    def _check_sender(self) -> None:
        if self.headers.get("Host", "").lower() not in self.server.hosts:
            raise RefusedError(HTTPStatus.FORBIDDEN, f"open {self.server.url}: this host name is not served")
        origin = self.headers.get("Origin")
        if origin is None:
            allowed = self.command == "GET"
        else:
            allowed = origin.lower() in {f"http://{host}" for host in self.server.hosts}
        # A link from elsewhere may open the page; no other site may ask for answers.
        if self.path.startswith("/api/") and self.headers.get("Sec-Fetch-Site", "none") not in ("same-origin", "none"):
            allowed = False
        if not allowed:
            raise RefusedError(HTTPStatus.FORBIDDEN, "requests from other pages are not served")

    # GET --------------------------------------------------------------------------------------------------------

    def _get(self, path: str, query: dict[str, str]) -> None:
        if path in self.server.files:
            content, kind = self.server.files[path]
            self._send(HTTPStatus.OK, content, kind, PAGE_POLICY)
        elif path == "/plotly.js":
            self._send(HTTPStatus.OK, _plotly(), TYPES[".js"], PAGE_POLICY)
        elif path == "/api/picture":
            picture = self._results().picture(query.get("study", ""))
            self._send(HTTPStatus.OK, picture, TYPES[".svg"], PICTURE_POLICY)
        elif path in self._pages:
            self._send_json(HTTPStatus.OK, self._pages[path](self, query))
        else:
            raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such page")

    def _about(self, query: dict[str, str]) -> dict[str, Any]:
        Fields(query).finish()
        return describe_page(self.server.results is not None)

    def _studies(self, query: dict[str, str]) -> dict[str, Any]:
        Fields(query).finish()
        return self._results().studies()

    def _study(self, query: dict[str, str]) -> dict[str, Any]:
        return self._results().study(query.get("study", ""))

    def _results(self) -> ResultsFolder:
        if self.server.results is None:
            raise UnknownStudyError("no folder of results was given: start with --results DIR")
        return self.server.results

    _pages: ClassVar[dict[str, Callable[["_Handler", dict[str, str]], dict[str, Any]]]] = {
        "/api/about": _about,
        "/api/optimum": lambda self, query: describe_optimum(Fields(query)),
        "/api/slice": lambda self, query: describe_slice(Fields(query)),
        "/api/phases": lambda self, query: describe_phases(Fields(query)),
        "/api/studies": _studies,
        "/api/study": _study,
    }

    # POST -------------------------------------------------------------------------------------------------------

    def _post(self, path: str, query: dict[str, str]) -> None:
        if path == "/api/solve":
            self._send_json(HTTPStatus.OK, self._solve())
        elif path == "/api/measure":
            self._send_json(HTTPStatus.OK, self._measure(query.get("name", "")))
        else:
            raise RefusedError(HTTPStatus.NOT_FOUND, "there is no such page")

    def _solve(self) -> dict[str, Any]:
        self._check_type("application/json")
        text = self.rfile.read(self._length(LARGEST_JSON))
        try:
            given = json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError("the request is not JSON") from None
        if not isinstance(given, dict):
            raise ValueError("the request must be a JSON object")
        request = SolveRequest.read(Fields(given))
        return self.server.work(lambda: request.run(self.server.ending.is_set))

    def _measure(self, name: str) -> dict[str, Any]:
        self._check_type("application/octet-stream")
        suffix = Path(name).suffix.lower()
        if suffix not in SUFFIXES:
            raise RefusedError(HTTPStatus.BAD_REQUEST, f"the file must be one of {', '.join(SUFFIXES)}")
        left = self._length(LARGEST_UPLOAD)
        with tempfile.TemporaryDirectory(prefix="neuralcollapse-") as folder:
            path = Path(folder) / f"upload{suffix}"
            with path.open("wb") as file:
                while left:
                    part = self.rfile.read(min(left, CHUNK))
                    if not part:
                        raise RefusedError(HTTPStatus.BAD_REQUEST, "the file did not arrive whole")
                    file.write(part)
                    left -= len(part)
            return self.server.work(lambda: describe_file(path))

    def _check_type(self, wanted: str) -> None:
        given = self.headers.get("Content-Type", "").partition(";")[0].strip().lower()
        if given != wanted:
            raise RefusedError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"the content type must be {wanted}")

    def _length(self, largest: int) -> int:
        text = self.headers.get("Content-Length", "")
        if not text.isascii() or not text.isdigit() or "Transfer-Encoding" in self.headers:
            raise RefusedError(HTTPStatus.LENGTH_REQUIRED, "the request must state its length")
        # Before int(), which refuses thousands of digits with an error of its own.
        if len(text) > 12 or int(text) > largest:
            raise RefusedError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"the request may have at most {largest >> 10} kB")
        return int(text)

    # Answers ----------------------------------------------------------------------------------------------------

    def _send_json(self, status: HTTPStatus, value: Any) -> None:
        self._send(status, json.dumps(_finite(value), allow_nan=False).encode(), "application/json", PAGE_POLICY)

    def _send(self, status: HTTPStatus, content: bytes, kind: str, policy: str) -> None:
        self.send_response(status)
        charset = "" if kind == TYPES[".svg"] else "; charset=utf-8"
        self.send_header("Content-Type", kind + charset)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-Security-Policy", policy)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)


def _finite(value: Any) -> Any:
    """``value`` with null for every number that is not finite, and plain numbers for numpy's."""
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(entry) for entry in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def _static_files() -> dict[str, tuple[bytes, str]]:
    """The page's own files by path: all there is to serve, so no path reaches the disk."""
    folder = resources.files("neuralcollapse.web.explorer") / "static"
    files = {
        f"/{file.name}": (file.read_bytes(), TYPES[Path(file.name).suffix])
        for file in folder.iterdir()
        if Path(file.name).suffix in TYPES
    }
    return {"/": files["/index.html"], **files}


@cache
def _plotly() -> bytes:
    """plotly.js from the installed package."""
    from plotly.offline import get_plotlyjs

    return get_plotlyjs().encode()
