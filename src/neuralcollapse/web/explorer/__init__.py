"""The local web page: play with the theory, watch a solve, look at results, measure a file.

Starlette under uvicorn on 127.0.0.1: a JSON interface over the library, and a few static files.
"""

from ..._support.public import explain_calls
from ._server import ExplorerServer
from ._static import write_static

__all__ = ["ExplorerServer", "write_static"]

explain_calls(__name__)
