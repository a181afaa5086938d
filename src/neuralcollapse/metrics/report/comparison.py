"""Reports side by side."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich.table import Table

from ..._support.checks import describe
from ..definitions._registry import METRICS
from .render import html_table, rendered, short

if TYPE_CHECKING:
    from .report import CollapseReport

__all__ = ["ReportComparison"]

ORDINALS = ("first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth")


@dataclass(frozen=True, eq=False)
class ReportComparison:
    """Two or more reports side by side; ``changes`` is the last minus the first where both have a value."""

    reports: "tuple[CollapseReport, ...]"
    labels: tuple[str, ...]

    @classmethod
    def of(cls, reports: "Sequence[CollapseReport]", names: Sequence[str] | None = None) -> "ReportComparison":
        """The comparison of these reports under these column heads (``first``, ``second``, ... by default)."""
        from .report import CollapseReport

        for report in reports:
            if not isinstance(report, CollapseReport):
                raise TypeError(f"other must be a CollapseReport, got {describe(report)}")
        if len(reports) < 2:
            raise ValueError("compare needs at least one other report")
        if names is None:
            labels = tuple(ORDINALS[i] if i < len(ORDINALS) else f"report {i + 1}" for i in range(len(reports)))
        else:
            labels = tuple(str(name) for name in names)
        if len(labels) != len(reports) or len(set(labels)) < len(labels):
            raise ValueError(
                f"names must be {len(reports)} different names, one for each report, got {describe(names)}"
            )
        return cls(tuple(reports), labels)

    @property
    def first(self) -> "CollapseReport":
        """The report that the others are compared with."""
        return self.reports[0]

    @property
    def second(self) -> "CollapseReport":
        """The second report."""
        return self.reports[1]

    @property
    def names(self) -> tuple[str, ...]:
        """Metrics that any report holds, in the order of the first."""
        return tuple(dict.fromkeys(name for report in self.reports for name in report.values))

    @property
    def changes(self) -> dict[str, float]:
        """Last minus first."""
        first, last = self.first.scalars, self.reports[-1].scalars
        return {name: last[name] - first[name] for name in self.names if name in first and name in last}

    @property
    def more_collapsed(self) -> dict[str, bool | None]:
        """Whether the last is nearer to collapse than the first; ``None`` where the two are equal."""
        result: dict[str, bool | None] = {}
        for name, change in self.changes.items():
            sign = 1 if METRICS[name].better == "higher" else -1
            result[name] = None if change == 0 else change * sign > 0
        return result

    @property
    def most_collapsed(self) -> dict[str, str | None]:
        """For each metric the label of the report that is nearest to collapse; ``None`` where several are."""
        result: dict[str, str | None] = {}
        for name in self.names:
            sign = -1 if METRICS[name].better == "higher" else 1
            known = [
                (sign * value, label)
                for report, label in zip(self.reports, self.labels, strict=True)
                if (value := report.values.get(name)) is not None
            ]
            best = [label for value, label in known if value == min(known)[0]]
            result[name] = best[0] if len(best) == 1 and len(known) > 1 else None
        return result

    def to_dict(self) -> dict[str, dict[str, float | bool | None]]:
        """For each metric: the values by label, ``change`` and ``more_collapsed``."""
        changes, better = self.changes, self.more_collapsed
        return {
            name: {
                **{label: r.values.get(name) for label, r in zip(self.labels, self.reports, strict=True)},
                "change": changes.get(name),
                "more_collapsed": better.get(name),
            }
            for name in self.names
        }

    def _header(self) -> list[str]:
        return ["metric", *self.labels, "change", "most collapsed"]

    def _rows(self) -> list[list[str]]:
        changes, best = self.changes, self.most_collapsed
        return [
            [name, *(short(r.values.get(name)) for r in self.reports), short(changes.get(name)), best[name] or ""]
            for name in self.names
        ]

    def __repr__(self) -> str:
        return f"ReportComparison({', '.join(self.labels)}: {len(self.names)} metrics)"

    def __rich__(self) -> Table:
        table = Table(title=f"Neural collapse, {len(self.reports)} reports")
        head, *rest, last = self._header()
        table.add_column(head, no_wrap=True)
        for name in rest:
            table.add_column(name, justify="right", no_wrap=True)
        table.add_column(last)
        for row in self._rows():
            table.add_row(*row)
        return table

    def __str__(self) -> str:
        return rendered(self.__rich__())

    def _repr_html_(self) -> str:
        return html_table(self._header(), self._rows())
