"""The regularised model: weight decay on classifier, features and bias; any counts."""

from .model import RegularizedUFM

__all__ = ["RegularizedUFM"]
