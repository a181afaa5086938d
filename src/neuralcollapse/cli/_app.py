"""The application object, its errors and its output."""

import json
import os
import shlex
import sys
import tempfile
import traceback
from collections.abc import Sequence
from typing import Annotated

import cyclopts

from .. import __version__
from .._support.checks import is_out_of_memory
from .._support.registry import load_entries

__all__ = ["Flag", "app", "main", "print_json"]

Flag = Annotated[bool, cyclopts.Parameter(negative="")]
"""An option that is off unless it is given."""

HELP = """Measure neural collapse, solve and certify the models that explain it, re-run the experiments that show it.

**Try:**

```
neuralcollapse demo
neuralcollapse measure features.npz
neuralcollapse optimum --loss ce --classes 10 --per-class 100 --dim 20 \\
    --weight-decay 5e-4 --feature-decay 5e-4
neuralcollapse study run losses/collapse --profile smoke
neuralcollapse COMMAND --help
neuralcollapse --install-completion
```
"""

app = cyclopts.App(
    name="neuralcollapse",
    help=HELP,
    help_format="markdown",
    version=__version__,
    suppress_keyboard_interrupt=False,  # main has a word to say
)
app.register_install_completion_command(help="Let the shell (bash, zsh, fish) complete commands and options.")


def print_json(value: object) -> None:
    """One JSON value on stdout and nothing else (NaN and infinity are not JSON: they raise)."""
    sys.stdout.write(json.dumps(value, indent=2, allow_nan=False) + "\n")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 done, 1 the work failed, 2 bad input, 130 interrupted."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        load_entries(__package__ or "neuralcollapse.cli", [os.path.dirname(__file__)])
        outcome = app(given, exit_on_error=False, print_error=False, result_action="return_value")
    except cyclopts.CycloptsError as error:
        return _complain(error)
    except KeyboardInterrupt:
        _say(f"interrupted{_how_to_go_on(given)}")
        return 130
    except Exception as error:
        if os.environ.get("NEURALCOLLAPSE_DEBUG"):
            raise
        if isinstance(error, ValueError | TypeError | NotImplementedError | OSError):
            return _complain(error)
        return _fail(error)
    return outcome if isinstance(outcome, int) else 0


def _complain(error: Exception) -> int:
    """Bad input: one line that names it."""
    if isinstance(error, BrokenPipeError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    if isinstance(error, OSError) and error.filename is not None:
        text = f"{error.filename}: {error.strerror or error}"
    else:
        text = str(error) or type(error).__name__
    _say(f"error: {text}")
    return 2


def _fail(error: Exception) -> int:
    """What no check foresaw: one line, and the traceback in a file to report."""
    memory = is_out_of_memory(error)
    text = "not enough memory for this" if memory else f"{type(error).__name__}: {error}"
    try:
        handle, path = tempfile.mkstemp(prefix="neuralcollapse-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(f"neuralcollapse {__version__}: {shlex.join(sys.argv)}\n\n")
            file.write("".join(traceback.format_exception(error)))
        where = f"; the details are in {path}"
    except OSError:
        where = ""
    ask = "" if memory else " (a fault of this program: please report it with them)"
    _say(f"failed: {' '.join(text.split())[:300]}{where}{ask if where else ''}")
    return 1


def _how_to_go_on(arguments: Sequence[str]) -> str:
    """What an interrupted command can say to its user."""
    name = arguments[0] if arguments else ""
    if (
        name in ("study", "demo")
        or list(arguments[:2]) == ["data", "get"]
        or (name == "measure" and "--keep" in arguments)
    ):
        return ": the same command goes on where it was"
    if name == "train" or (name == "solve" and "--trials" in arguments):
        return f": the same command{'' if '--resume' in arguments else ' with --resume'} goes on where it was"
    return ""


def _say(text: str) -> None:
    sys.stderr.write("neuralcollapse: " + " ".join(text.split()) + "\n")
