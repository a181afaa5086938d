"""What is summed over labelled features; a metric names what it reads.

First look: :class:`Moments` and :class:`Scatter`. Second look, once the class means are known: :class:`Spread`,
:class:`Projection`, :class:`Decisions`, :class:`Margins` and :class:`Ranks`, on a :class:`Look` at a chunk of
samples from their class means. Each can be added to, merged, reduced over processes, and taken apart into named
tensors and put together again.
"""

from .decisions import Decisions
from .look import Chunk, Look
from .margins import Margins
from .moments import Moments
from .projection import Projection
from .ranks import Ranks
from .scatter import Scatter
from .spread import Spread

__all__ = ["Chunk", "Decisions", "Look", "Margins", "Moments", "Projection", "Ranks", "Scatter", "Spread"]
