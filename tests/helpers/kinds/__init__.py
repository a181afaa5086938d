"""Forty kinds of model and loader, as their authors write them; importing a file adds its kinds to ``KINDS``."""

from . import convolutions, forwards, language, loaders  # noqa: F401
from .base import KINDS

__all__ = ["KINDS"]
