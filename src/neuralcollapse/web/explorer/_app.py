"""The page's routes: a fixed table of files and a JSON interface, with no trust in what comes in.

A page of another origin may send requests to a local port. So the Host must be this server's (a rebound DNS name is
not), a POST must come from this page's Origin, and no other site may embed or read what is served.
"""

import asyncio
import json
import logging
import math
import tempfile
from collections.abc import Awaitable, Callable, Iterator, Sequence
from functools import cache
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TypeVar
from urllib.parse import parse_qsl

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ..._support.checks import one_line
from ..._support.files import JSONObject
from ..network import digits_sample
from ..theme import style_sheet
from ._about import describe_page
from ._collapse import describe_certificate, describe_least
from ._fields import Fields
from ._landscape import describe_phases, describe_slice
from ._network import LARGEST_UPLOAD, Board, Upload, describe_files, describe_place, uploads_in
from ._optimum import describe_optimum
from ._results import ResultsFolder, UnknownStudyError
from ._solve import InterruptedSolveError, SolveRequest

__all__ = ["Guard", "Pages"]

Worked = TypeVar("Worked")

LOG = logging.getLogger(__name__)
LARGEST_JSON = 64 << 10
LARGEST_POINT = 2 << 20
LARGEST_NETWORK = 4 << 20
LARGEST_QUERY = 8 << 10
BUSY_SECONDS = 20.0
BODY_SECONDS = 60.0

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

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


class Guard:
    """Lets through what comes from this page alone, and puts the guarding headers on every answer."""

    def __init__(self, app: ASGIApp, hosts: Callable[[], set[str]], url: Callable[[], str]):
        self.app, self.hosts, self.url = app, hosts, url

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One request."""
        if scope["type"] != "http":
            return

        async def guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("Content-Security-Policy", PAGE_POLICY)
                for name, value in HEADERS.items():
                    headers[name] = value
            await send(message)

        refusal = self._refusal(scope)
        if refusal is not None:
            await _error_response(403, refusal)(scope, receive, guarded)
            return
        await self.app(scope, receive, guarded)

    def _refusal(self, scope: Scope) -> str | None:
        headers, hosts = Headers(scope=scope), self.hosts()
        if headers.get("host", "").lower() not in hosts:
            return f"open {self.url()}: this host name is not served"
        origin = headers.get("origin")
        allowed = scope["method"] in ("GET", "HEAD")
        if origin is not None:
            allowed = origin.lower() in {f"http://{host}" for host in hosts}
        # A link from elsewhere may open the page; no other site may ask for answers.
        if scope["path"].startswith("/api/") and headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            allowed = False
        return None if allowed else "requests from other pages are not served"


class Pages:
    """The routes, and the one long calculation that may run at a time."""

    def __init__(self, results: ResultsFolder | None, ending: Callable[[], bool], places: Sequence[Path] = ()):
        self.results, self.ending, self.places = results, ending, tuple(places)
        self.board = Board()
        self.files = _static_files()
        self.working = asyncio.Lock()
        answers: dict[str, Callable[[dict[str, str]], JSONObject]] = {
            "about": self._about,
            "optimum": lambda query: describe_optimum(Fields(query)),
            "least": lambda query: describe_least(Fields(query)),
            "slice": lambda query: describe_slice(Fields(query)),
            "phases": lambda query: describe_phases(Fields(query)),
            "studies": self._studies,
            "watch": lambda query: self.board.since(Fields(query)),
            "study": lambda query: self._results().study(query.get("study", "")),
        }
        self.app = Starlette(
            routes=[
                *(Route(path, self._file) for path in self.files),
                Route("/plotly.js", self._plotly),
                Route("/api/picture", self._picture),
                *(Route(f"/api/{name}", self._asking(answer)) for name, answer in answers.items()),
                Route("/api/solve", self._solve, methods=["POST"]),
                Route("/api/certify", self._certify, methods=["POST"]),
                Route("/api/measure", self._measure, methods=["POST"]),
                Route("/api/watch", self._watch, methods=["POST"]),
                Route("/api/sample", self._sample),
                Route("/api/place", self._place),
            ],
            exception_handlers={Exception: _internal, **dict.fromkeys(ANSWERS, _answer)},
        )
        self.app.router.redirect_slashes = False

    # GET --------------------------------------------------------------------------------------------------------

    async def _file(self, request: Request) -> Response:
        content, kind = self.files[request.url.path]
        return Response(content, media_type=kind)

    async def _plotly(self, request: Request) -> Response:
        return Response(await run_in_threadpool(_plotly), media_type=TYPES[".js"])

    async def _picture(self, request: Request) -> Response:
        content = self._results().picture(_query_fields(request).get("study", ""))
        return Response(content, media_type=TYPES[".svg"], headers={"Content-Security-Policy": PICTURE_POLICY})

    def _asking(self, answer: Callable[[dict[str, str]], JSONObject]) -> Callable[[Request], Awaitable[Response]]:
        async def respond(request: Request) -> Response:
            return _json_response(200, await run_in_threadpool(answer, _query_fields(request)))

        return respond

    def _about(self, query: dict[str, str]) -> JSONObject:
        Fields(query).finish()
        return describe_page(self.results is not None, [path.name or str(path) for path in self.places])

    def _studies(self, query: dict[str, str]) -> JSONObject:
        Fields(query).finish()
        return self._results().studies()

    def _results(self) -> ResultsFolder:
        if self.results is None:
            raise UnknownStudyError("no folder of results was given: start with --results DIR")
        return self.results

    # POST -------------------------------------------------------------------------------------------------------

    async def _solve(self, request: Request) -> Response:
        asked = SolveRequest.read(Fields(await _json_body(request, LARGEST_JSON)))
        return _json_response(200, await self._work(lambda: asked.run(self.ending)))

    async def _certify(self, request: Request) -> Response:
        fields = Fields(await _json_body(request, LARGEST_POINT))
        return _json_response(200, await self._work(lambda: describe_certificate(fields)))

    async def _measure(self, request: Request) -> Response:
        _check_type(request, "application/octet-stream")
        length = _stated_length(request, LARGEST_UPLOAD)
        parts = uploads_in(_query_pairs(request), length)
        with tempfile.TemporaryDirectory(prefix="neuralcollapse-") as folder:
            home = Path(folder)
            whole = home / "body"
            with whole.open("wb") as file:
                await _receive(request, length, file.write)
            return _json_response(200, await self._work(lambda: _measured(whole, parts)))

    async def _watch(self, request: Request) -> Response:
        return _json_response(200, self.board.add(await _json_body(request, LARGEST_NETWORK)))

    async def _sample(self, request: Request) -> Response:
        Fields(_query_fields(request)).finish()
        return _json_response(200, await self._work(digits_sample))

    async def _place(self, request: Request) -> Response:
        fields = Fields(_query_fields(request))
        return _json_response(200, await self._work(lambda: describe_place(fields, self.places)))

    async def _work(self, function: Callable[[], Worked]) -> Worked:
        try:
            await asyncio.wait_for(self.working.acquire(), BUSY_SECONDS)
        except TimeoutError:
            raise RefusedError(503, "another calculation is running; try again when it ends") from None
        try:
            return await run_in_threadpool(function)
        finally:
            self.working.release()


def _measured(whole: Path, parts: Sequence[Upload]) -> JSONObject:
    """The body cut into its files, in a folder of their own, and measured."""
    folder = whole.parent / "files"
    folder.mkdir()
    with whole.open("rb") as body:
        for part in parts:
            with (folder / part.safe).open("wb") as file:
                left = part.size
                while left:
                    block = body.read(min(left, 1 << 20))
                    left -= file.write(block)
    whole.unlink()
    return describe_files(folder, parts)


# What comes in ------------------------------------------------------------------------------------------------------


def _query_fields(request: Request) -> dict[str, str]:
    return dict(_query_pairs(request, 50))


def _query_pairs(request: Request, most: int = 250) -> list[tuple[str, str]]:
    text = request.url.query
    try:
        if len(text) > LARGEST_QUERY:
            raise ValueError
        return parse_qsl(text, max_num_fields=most)
    except ValueError:
        raise RefusedError(400, "malformed address, or too many fields") from None


async def _json_body(request: Request, largest: int) -> JSONObject:
    _check_type(request, "application/json")
    body = bytearray()
    await _receive(request, _stated_length(request, largest), body.extend)
    try:
        given = json.loads(body)
    except (ValueError, RecursionError):
        raise ValueError("the request is not JSON") from None
    if not isinstance(given, dict):
        raise ValueError("the request must be a JSON object")
    return given


async def _receive(request: Request, length: int, keep: Callable[[bytes], object]) -> None:
    left = length
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                left -= len(part)
                keep(part)
    except (ClientDisconnect, TimeoutError):
        left = -1
    if left:
        raise RefusedError(400, "the request did not arrive whole")


def _check_type(request: Request, wanted: str) -> None:
    given = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if given != wanted:
        raise RefusedError(415, f"the content type must be {wanted}")


def _stated_length(request: Request, largest: int) -> int:
    text = request.headers.get("content-length", "")
    if not text.isascii() or not text.isdigit() or "transfer-encoding" in request.headers:
        raise RefusedError(411, "the request must state its length")
    # Before int(), which refuses thousands of digits with an error of its own.
    if len(text) > 12 or int(text) > largest:
        raise RefusedError(413, f"the request may have at most {largest >> 10} kB")
    return int(text)


# What goes out ------------------------------------------------------------------------------------------------------


def _json_response(status: int, value: object) -> Response:
    text = json.dumps(_json_ready(value), allow_nan=False).encode()
    return Response(text, status, media_type="application/json; charset=utf-8")


def _error_response(status: int, text: str) -> Response:
    # What is left of a body that was not read must not be taken for the next request.
    response = _json_response(status, {"error": text})
    response.headers["Connection"] = "close"
    return response


ANSWERS: tuple[type[Exception], ...] = (
    RefusedError,
    HTTPException,
    UnknownStudyError,
    InterruptedSolveError,
    ValueError,
    TypeError,
    NotImplementedError,
)


async def _answer(request: Request, error: Exception) -> Response:
    if isinstance(error, RefusedError):
        return _error_response(error.status, str(error))
    if isinstance(error, HTTPException):
        return _error_response(error.status_code, "there is no such page" if error.status_code == 404 else error.detail)
    if isinstance(error, UnknownStudyError):
        return _error_response(404, str(error))
    if isinstance(error, InterruptedSolveError):
        return _error_response(503, "the server is ending")
    return _error_response(400, one_line(error, 500))


async def _internal(request: Request, error: Exception) -> Response:
    LOG.error("%s %s: %r", request.method, request.url.path[:200], error)
    return _error_response(500, f"internal error: {type(error).__name__}")


def _json_ready(value: object) -> object:
    """``value`` with null for every number that is not finite, and plain numbers for numpy's."""
    if isinstance(value, dict):
        return {key: _json_ready(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [_json_ready(entry) for entry in value]
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    return value


def _static_files() -> dict[str, tuple[bytes, str]]:
    """The page's own files by path: all there is to serve, so no path reaches the disk."""
    files = {
        f"/{path}": (file.read_bytes(), TYPES[Path(path).suffix])
        for path, file in _files_below(resources.files("neuralcollapse.web.explorer") / "static")
        if Path(path).suffix in TYPES
    }
    theme = style_sheet().encode(), TYPES[".css"]
    return {"/": files["/index.html"], **files, "/theme.css": theme}


def _files_below(folder: Traversable, before: str = "") -> Iterator[tuple[str, Traversable]]:
    """All files below a folder, by their paths."""
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _files_below(entry, f"{before}{entry.name}/")
        else:
            yield f"{before}{entry.name}", entry


@cache
def _plotly() -> bytes:
    """plotly.js from the installed package."""
    from plotly.offline import get_plotlyjs

    return get_plotlyjs().encode()
