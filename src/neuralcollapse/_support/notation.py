"""Formulas in sentences as people write them: claims and verdicts are kept in ASCII, pages and terminals show signs."""

import re
from collections.abc import Mapping

from .theme import RAISED, number

__all__ = ["typeset", "typeset_fields"]

LETTERS = {
    "alpha": "α",
    "beta": "β",
    "gamma": "γ",
    "lambda": "λ",
    "mu": "μ",
    "omega": "ω",
    "phi": "φ",
    "pi": "π",
    "psi": "ψ",
    "rho": "ρ",
    "sigma": "σ",
    "tau": "τ",
    "theta": "θ",
    "xi": "ξ",
}
SIGNS = {"<=": "≤", ">=": "≥", "!=": "≠", "+-": "±", "->": "→", " - ": " − ", "sqrt(": "√(", "sum_": "Σ_"}

LETTER = re.compile(rf"(?<![\w:,.`])(?<![A-Za-z]-)({'|'.join(LETTERS)})(?![A-Za-z0-9-])")
"""A word of its own; in a spec such as ``focal:gamma=3`` it is a name that is typed."""
DECAY = re.compile(r"\bl([WH])\b")
POWER_OF_TEN = re.compile(r"(?<![\w.])-?(\d+(?:\.\d+)?)e[+-]?\d+\b")
NEGATIVE = re.compile(r"(?<![\w.)-])-(?=\d)|(?<=\()-(?=\w)|\A-(?=[a-z(Σ])")
DIFFERENCE = re.compile(r"(?<=(?<![A-Za-z])[A-Zd])-(?=\d)|(?<=\d)-(?=[α-ω])")
EXPONENT = re.compile(r"\^(-?\d+)")


def typeset(text: str) -> str:
    """``text`` with Greek letters, signs and powers in the place of their ASCII names.

    >>> typeset("No value of xi(rho) is below -3e-04 where N^2 lambda_W lH >= n_B, 0 < theta <= pi/2.")
    'No value of ξ(ρ) is below −3×10⁻⁴ where N² λ_W λ_H ≥ n_B, 0 < θ ≤ π/2.'
    >>> typeset("gaps max(0, 1 - N mu/sqrt(n_k)), at most 1e-09, 4.2e-02 and 0.0e+00; focal:gamma=3, 16 x 16, K-1")
    'gaps max(0, 1 − N μ/√(n_k)), at most 10⁻⁹, 0.042 and 0; focal:gamma=3, 16 × 16, K−1'
    >>> typeset("-sum_j t_j log p_j, t = (1-alpha) e_y + alpha/K")
    '−Σ_j t_j log p_j, t = (1−α) e_y + α/K'
    """
    text = POWER_OF_TEN.sub(_decimal, text)
    text = LETTER.sub(lambda found: LETTERS[found[1]], DECAY.sub(r"λ_\1", text))
    for plain, sign in SIGNS.items():
        text = text.replace(plain, sign)
    text = EXPONENT.sub(lambda found: found[1].translate(RAISED), text)
    text = DIFFERENCE.sub("−", NEGATIVE.sub("−", text))
    return re.sub(r"(?<=\d) x (?=\d)", " × ", text)


def typeset_fields(facts: Mapping[str, object], *names: str) -> dict[str, object]:
    """``facts`` with the texts of these names typeset; what is no text stays."""
    return {
        name: typeset(value) if name in names and isinstance(value, str) else value for name, value in facts.items()
    }


def _decimal(found: re.Match[str]) -> str:
    """A number as it is written everywhere, with the digits that it had."""
    digits = len(found[1].replace(".", "").lstrip("0"))
    shown = number(float(found[0]), max(digits, 1))
    return re.sub(r"(?<![\d.])1×10", "10", shown)
