"""Doctests in docstrings as code, not as nested quotations."""

import griffe


class FenceDoctests(griffe.Extension):
    """Puts a fence around each doctest before the docstring is read as Markdown."""

    def on_object(self, *, obj: griffe.Object, **_: object) -> None:
        """Every object with a docstring."""
        if obj.docstring is not None and ">>>" in obj.docstring.value:
            obj.docstring.value = fenced(obj.docstring.value)


def fenced(text: str) -> str:
    """``text`` with every run of lines that begins with ``>>>`` fenced up to the next empty line."""
    lines, inside = [], False
    for line in text.splitlines():
        if not inside and line.lstrip().startswith(">>>"):
            indent = line[: len(line) - len(line.lstrip())]
            lines.append(f"{indent}```pycon")
            inside = True
        elif inside and not line.strip():
            lines.append(f"{indent}```")
            inside = False
        lines.append(line)
    if inside:
        lines.append(f"{indent}```")
    return "\n".join(lines)
