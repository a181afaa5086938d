"""The application object, its errors and its output."""

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import cyclopts
from rich.console import Console

from .. import __version__
from .._support.registry import load_entries

__all__ = ["app", "main", "print_json"]

HELP = """Measure neural collapse, solve and certify the models that explain it, re-run the experiments that show it.

**Try:**

```
neuralcollapse demo
neuralcollapse optimum --loss ce --classes 10 --per-class 100 --dim 20 --weight-decay 5e-4 --feature-decay 5e-4
neuralcollapse study run losses/collapse --profile smoke
neuralcollapse COMMAND --help
```
"""

app = cyclopts.App(name="neuralcollapse", help=HELP, help_format="markdown", version=__version__)


def print_json(value: Any) -> None:
    """One JSON value on stdout and nothing else (NaN and infinity are not JSON: they raise)."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 the work failed, 2 bad input, 130 interrupted."""
    load_entries(__package__ or "neuralcollapse.cli", [os.path.dirname(__file__)])
    try:
        outcome = app(
            sys.argv[1:] if arguments is None else arguments,
            exit_on_error=False,
            print_error=False,
            result_action="return_value",
        )
    except cyclopts.CycloptsError as error:
        return _complain(error)
    except (ValueError, TypeError, NotImplementedError, OSError) as error:
        if os.environ.get("NEURALCOLLAPSE_DEBUG"):
            raise
        return _complain(error)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted")
        return 130
    return outcome if isinstance(outcome, int) else 0


def _complain(error: Exception) -> int:
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror or error}"
    else:
        text = str(error) or type(error).__name__
    sys.stderr.write("neuralcollapse: error: " + " ".join(text.split()) + "\n")
    return 2
