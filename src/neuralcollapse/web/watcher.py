"""``watch``: a training run that one can see. Measurements go to the local page while the model trains."""

import http.client
import json
import logging
import os
import secrets
import sys
import threading
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import Any

from torch import nn

from .. import __version__
from .._support.checks import flag, integer, real
from ..integrations.skips import Skips
from ..metrics import CollapseReport
from ..metrics.hooks.batches import Batches, Forward, LabelsOf
from ..metrics.hooks.run import check_model
from .explorer import ExplorerServer
from .explorer._app import LARGEST_NETWORK
from .network import network_of_model

__all__ = ["Watcher", "watch"]

LOG = logging.getLogger("neuralcollapse")
SECONDS = 10.0
"""Within which the page must answer."""


class Watcher:
    """What :func:`watch` returns: :meth:`update` measures and sends, :meth:`close` ends it; also a context manager.

    Attributes:
        url: the page's address.
        history: ``(step, report)`` of every measurement, as :func:`neuralcollapse.plot_history` takes it.

    """

    def __init__(self, model: nn.Module, loader: Batches, every: int, title: str, port: int, options: dict[str, Any]):
        self.history: list[tuple[float, CollapseReport]] = []
        self._model, self._loader, self._options = model, loader, options
        self._every, self._title, self._run = every, title, secrets.token_hex(8)
        self._calls, self._silent, self._skips = 0, False, Skips()
        self._server: ExplorerServer | None = None
        self._thread: threading.Thread | None = None
        port = integer("port", port, minimum=0, maximum=65535)
        self._port = port if port and _is_page(port) else self._start(port)

    @property
    def url(self) -> str:
        """The page's address."""
        return f"http://127.0.0.1:{self._port}/#tab=network"

    def __repr__(self) -> str:
        return f"Watcher({self.url}, {len(self.history)} measurements)"

    def update(self, step: float | None = None) -> CollapseReport | None:
        """Say that a step (an epoch, usually) is done; every ``every``-th call measures the model and sends it.

        ``step`` is what the page calls this moment; by default the number of the call. A diverged model and a page
        that is gone end no training: both are logged once.

        Returns:
            The report; ``None`` where it was not yet time, or where the model has values that are not finite.

        """
        self._calls += 1
        place = float(self._calls) if step is None else real("step", step)
        return self._measure(place) if self._calls % self._every == 0 else None

    def _measure(self, step: float) -> CollapseReport | None:
        measured = self._skips(step, lambda: network_of_model(self._model, self._loader, **self._options))
        if measured is None:
            return None
        report, network = measured
        self.history.append((step, report))
        self._send({"run": self._run, "title": self._title, "name": f"step {step:g}", "step": step, "network": network})
        return report

    def _send(self, content: dict[str, Any]) -> None:
        body = json.dumps(content, allow_nan=False).encode()
        if len(body) > LARGEST_NETWORK:
            content["network"] |= {"view": None, "gram": {}, "pair": None}
            body = json.dumps(content, allow_nan=False).encode()
        try:
            status, answer = _ask(self._port, "POST", "/api/watch", body)
            trouble = "" if status == 200 else str(answer.get("error"))
        except (OSError, http.client.HTTPException, ValueError) as error:
            trouble = str(error) or type(error).__name__
        if trouble and not self._silent:
            LOG.warning("the page at %s takes no measurements: %s (said once)", self.url, trouble)
        self._silent = bool(trouble)

    def _start(self, port: int) -> int:
        self._server = ExplorerServer(port)
        self._thread = threading.Thread(target=self._server.serve, name="neuralcollapse-watch", daemon=True)
        self._thread.start()
        return self._server.port

    def wait(self) -> None:
        """Keep the page up until the interrupt key; for the end of a script."""
        try:
            while self._thread is not None and self._thread.is_alive():
                self._thread.join(0.5)
        except KeyboardInterrupt:
            self.close()

    def close(self) -> None:
        """End the page, if this watcher started it; one that was open before stays."""
        if self._server is not None and self._thread is not None:
            with self._server:
                self._server.stop()
                self._thread.join(SECONDS)
            self._server = self._thread = None

    def __enter__(self) -> "Watcher":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def watch(
    model: nn.Module,
    loader: Batches,
    *,
    every: int = 1,
    port: int = 8400,
    browser: bool = True,
    title: str | None = None,
    layer: str | None = None,
    num_classes: int | None = None,
    layers: bool | Sequence[str] = True,
    forward: Forward | None = None,
    labels: LabelsOf | None = None,
    class_names: Sequence[str] | None = None,
    max_batches: int | None = None,
) -> Watcher:
    """Watch a model collapse while it trains, on the local page under "Your network".

    The page of a ``neuralcollapse explore`` on that port is used if one is open; else one is started on 127.0.0.1 and
    lives as long as the watcher. The model is measured at once and then at each :meth:`Watcher.update`: it runs in
    evaluation mode without gradients, and modes, gradients, buffers and random states are left as they were.

    Args:
        model: any module, as for :func:`neuralcollapse.measure_model`.
        loader: what to measure it on; it is read anew each time, so no iterator. A part of the training set does.
        every: measure at every so many calls of ``update``.
        port: the page's port; 0 takes a free one.
        browser: open the page in a browser, on a desktop.
        title: what the page calls it; by default the model's class.
        layer: the classifier's name, where it cannot be found by itself.
        num_classes: K; by default the number of the classifier's outputs.
        layers: the layers of the picture from layer to layer; ``False`` for none, which saves half of the time.
        forward: for other batches, a function ``(model, batch)`` that runs the model and returns the labels.
        labels: where the labels of a batch are: a key, a position, or a function of the batch.
        class_names: the names of the classes.
        max_batches: look at no more than so many batches.

    Example::

        with nc.watch(model, loader) as watcher:
            for epoch in range(epochs):
                train_one_epoch(model)
                watcher.update()

    """
    check_model(model)
    integer("every", every, minimum=1)
    flag("browser", browser)
    if isinstance(loader, Iterator):
        raise TypeError("loader must be read again and again: give a loader, a list or a data set, not an iterator")
    options = {
        "layer": layer,
        "num_classes": num_classes,
        "layers": layers,
        "forward": forward,
        "labels": labels,
        "class_names": class_names,
        "max_batches": max_batches,
    }
    watcher = Watcher(model, loader, every, str(title or type(model).__name__)[:100], port, options)
    try:
        watcher._measure(0.0)
    except BaseException:
        watcher.close()
        raise
    LOG.info("watching at %s", watcher.url)
    if browser:
        open_page(watcher.url)
    return watcher


def open_page(url: str) -> None:
    """Show a page where there is a desktop; a text browser would take the terminal."""
    import webbrowser

    if sys.platform.startswith("linux") and not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")):
        return

    def show() -> None:
        try:
            webbrowser.open(url)
        except (webbrowser.Error, OSError):
            return

    threading.Thread(target=show, daemon=True).start()


def _is_page(port: int) -> bool:
    """Whether a page of this version is open there; ValueError for another version's."""
    try:
        status, answer = _ask(port, "GET", "/api/about")
    except (OSError, http.client.HTTPException, ValueError):
        return False
    if status != 200 or "version" not in answer or "places" not in answer:
        return False
    if answer["version"] != __version__:
        raise ValueError(f"port {port}: the page there is of version {answer['version']}; choose another port, or 0")
    return True


def _ask(port: int, method: str, path: str, body: bytes | None = None) -> tuple[int, dict[str, Any]]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        headers = {"Origin": f"http://127.0.0.1:{port}", "Content-Type": "application/json"}
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        answer = json.loads(response.read())
        if not isinstance(answer, dict):
            raise ValueError("not an answer of the page")
        return response.status, answer
    finally:
        connection.close()
