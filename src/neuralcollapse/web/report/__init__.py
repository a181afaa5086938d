"""Results as one self-contained HTML page: studies, training runs and solves, theory beside measurement.

``nc.report.write(["results", "runs/focal"], "report.html")`` takes the folders that ``study run``, ``train`` and
``solve --out`` leave. The page opens from disk and asks the network for nothing.
"""

from ..._support.public import explain_calls
from ._demo import write_demo
from ._write import write

__all__ = ["write", "write_demo"]

explain_calls(__name__)
