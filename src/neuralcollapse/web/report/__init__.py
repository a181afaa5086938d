"""Results as one self-contained HTML page: studies, training runs and solves, theory beside measurement.

``nc.report.write(["results", "runs/focal"], "report.html")`` takes the folders that ``study run``, ``train`` and
``solve --out`` leave; ``write_measured`` takes reports of features. The pages open from disk and ask the network for
nothing.
"""

from ..._support.public import explain_calls
from ._demo import write_demo
from ._measured import write_measured
from ._write import write

__all__ = ["write", "write_demo", "write_measured"]

explain_calls(__name__)
