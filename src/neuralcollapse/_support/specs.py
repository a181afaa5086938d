"""The string form of a choice with parameters, ``"name:key=value,..."``, as a value; the one parser of it."""

import ast
from dataclasses import dataclass, field

from .checks import describe

__all__ = ["Spec"]

LONGEST = 100_000
"""Characters; longer strings are no names."""
OPENING, CLOSING = "([{", ")]}"


@dataclass(frozen=True)
class Spec:
    """A name and its keyword arguments.

    Values are Python literals (numbers, lists, quoted strings); anything else is a plain word. Commas inside brackets
    and quotes do not separate.

    >>> Spec.parse("focal:gamma=3")
    Spec(name='focal', arguments={'gamma': 3})
    >>> str(Spec("logit-adjusted", {"loss": "focal:gamma=2.0", "prior": (0.9, 0.1)}))
    "logit-adjusted:loss='focal:gamma=2.0',prior=(0.9, 0.1)"
    """

    name: str
    arguments: dict[str, object] = field(default_factory=dict)

    @staticmethod
    def parse(text: str, kind: str = "spec") -> "Spec":
        """The spec that ``text`` writes; ValueError says what is wrong, naming the ``kind`` of thing."""
        if not isinstance(text, str):
            raise TypeError(f"a {kind} is named by a string such as 'name:key=value', got {describe(text)}")
        if len(text) > LONGEST:
            raise ValueError(f"{kind} must be at most {LONGEST} characters long, got {len(text)}")
        _, _, tail = text.strip().partition(":")
        arguments: dict[str, object] = {}
        for part in _pieces(tail):
            key, equals, value = part.partition("=")
            key = key.strip()
            if not equals or not value.strip():
                raise ValueError(f"{kind} {_short(text)}: expected key=value, got {_short(part)}")
            if key in arguments:
                raise ValueError(f"{kind} {_short(text)}: parameter {key!r} is given twice")
            arguments[key] = _literal(value.strip())
        return Spec(Spec.name_of(text).strip(), arguments)

    @staticmethod
    def name_of(text: str) -> str:
        """The name alone, of a text that may be no spec at all: what is before the colon.

        >>> Spec.name_of("focal:gamma=3")
        'focal'
        """
        return text.strip().partition(":")[0]

    @property
    def details(self) -> str:
        """The arguments for people to read.

        >>> Spec.parse("mse:alpha=5,target=2").details
        'alpha=5, target=2'
        """
        return ", ".join(f"{key}={value}" for key, value in self.arguments.items())

    def __str__(self) -> str:
        pairs = ",".join(f"{key}={value!r}" for key, value in self.arguments.items())
        return f"{self.name}:{pairs}" if pairs else self.name


def _pieces(tail: str) -> list[str]:
    """``tail`` split at commas that are not inside brackets or quotes, without empty pieces."""
    pieces, depth, quote = [""], 0, ""
    for character in tail:
        if quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
        elif character in OPENING:
            depth += 1
        elif character in CLOSING:
            depth -= 1
        elif character == "," and depth <= 0:
            pieces.append("")
            continue
        pieces[-1] += character
    return [piece.strip() for piece in pieces if piece.strip()]


def _literal(text: str) -> object:
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return text


def _short(text: str) -> str:
    return repr(text) if len(text) <= 60 else repr(text[:57] + "...")
