"""The command line: a file for a command, or for a few of one kind, each found and registered by itself.

A command module adds a function to :data:`neuralcollapse.cli._app.app`; heavy imports belong inside the function, so
that ``--help`` stays instant. Bad input ends in one line on stderr and exit code 2.
"""

from ._app import main

__all__ = ["main"]
