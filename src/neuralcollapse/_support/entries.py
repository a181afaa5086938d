"""Packages whose modules register themselves, in a file that imports nothing heavy: the command line begins here."""

import importlib
import os
import pkgutil

__all__ = ["load_entries"]


def load_entries(package: str, path: list[str]) -> None:
    """Import every public module of ``package`` so that its entries register themselves.

    Raises:
        OSError: if the folder cannot be read (no file handles left), which would otherwise look like an empty one.

    """
    for folder in path:
        os.listdir(folder)
    for module in sorted(pkgutil.iter_modules(path), key=lambda m: m.name):
        if not module.name.startswith("_"):
            importlib.import_module(f"{package}.{module.name}")
