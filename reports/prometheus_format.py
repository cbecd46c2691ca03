"""Prometheus text format of node_exporter's textfile collector: one metric."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from preflight._startup.lightclass import dataclass, field
from preflight.reports.sanitize import one_line

#: Maximum length of a label value; a host name has at most 253 characters.
_LONGEST = 253


@dataclass
class Metric:
    """One gauge: name, help text and samples."""

    name: str
    about: str
    samples: list[tuple[Mapping[str, str], float]] = field(default_factory=list)

    def add(self, value: float, **labels: str) -> None:
        """Add a sample with its labels."""
        self.samples.append((labels, value))

    def lines(self) -> Iterator[str]:
        """Yield the lines; a metric without samples has none."""
        if not self.samples:
            return
        yield f"# HELP {self.name} {self.about}"
        yield f"# TYPE {self.name} gauge"
        for labels, value in self.samples:
            written = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            yield f"{self.name}{{{written}}} {value:.15g}" if written else f"{self.name} {value:.15g}"


def _escaped(text: str) -> str:
    """Escape a label value; foreign text may contain any character."""
    return one_line(text[:_LONGEST]).replace("\\", "\\\\").replace('"', '\\"')
