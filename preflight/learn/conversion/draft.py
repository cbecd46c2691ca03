"""Draft of a class: values with their source lines, and lines not converted."""

from __future__ import annotations

from collections import Counter
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.nodeset import fold, unfold

Path = tuple[str, ...]


@dataclass(frozen=True)
class Loss:
    """A line, or part of it, that was not converted; ``covered`` if it needs no key."""

    line: int
    text: str
    reason: str
    covered: bool = False


@dataclass(frozen=True)
class Entry:
    """The value of a key, and its source lines."""

    value: Any
    lines: tuple[int, ...]
    note: str = ""


@dataclass
class Draft:
    """The values of one class by path, and the lines that were not converted."""

    entries: dict[Path, Entry] = field(default_factory=dict)
    losses: list[Loss] = field(default_factory=list)
    rates: dict[str, tuple[float, int, str]] = field(default_factory=dict)  # device -> Gb/s, line, its text
    line: int = 0
    text: str = ""

    def at(self, line: int, text: str) -> None:
        """Set the source line for the calls that follow."""
        self.line, self.text = line, text

    def lose(self, reason: str, covered: bool = False) -> None:
        """Record the line, or the part named in the reason, as not converted."""
        self.losses.append(Loss(self.line, self.text, reason, covered))

    def put(self, path: Path, value: Any, note: str = "") -> None:
        """Set a key; the first of two contradicting lines wins."""
        before = self.entries.get(path)
        if before is None:
            self.entries[path] = Entry(value, (self.line,), note)
        elif before.value != value:
            self.lose(f"contradicts line {before.lines[0]}, whose value is used: {'.'.join(path)} = {before.value}")

    def least(self, path: Path, value: float) -> None:
        """Set a minimum: the highest of several lines wins."""
        before = self.entries.get(path)
        if before is None or before.value < value:
            self.entries[path] = Entry(value, (self.line,))

    def append(self, path: Path, item: str) -> None:
        """Add an item to a list."""
        before = self.entries.get(path)
        if before is None:
            self.entries[path] = Entry([item], (self.line,))
        elif item not in before.value:
            self.entries[path] = Entry([*before.value, item], (*before.lines, self.line))

    def mount(self, path: str, **fields: Any) -> None:
        """Expect a file system; the highest of several minimums is used."""
        self.entries.setdefault(("host", "mounts", path, ""), Entry(None, (self.line,)))
        for name, value in fields.items():
            if value is not None:
                (self.least if name.startswith("min_") else self.put)(("host", "mounts", path, name), value)

    def join_ports(self) -> None:
        """Convert the named devices, each with its rate, to ports and their number."""
        if not self.rates:
            return
        counts = Counter(rate for rate, _, _ in self.rates.values())
        usual = max(counts, key=lambda rate: (counts[rate], rate))
        compute = []
        for device, (rate, line, text) in self.rates.items():
            self.at(line, text)
            if rate == usual:
                compute.append(device)
            else:
                self.lose(
                    f"{device} at {rate:g} Gb/s: ports.rate_gbps applies to all rails, here {usual:g}; "
                    "storage and management ports belong in ports.storage or ports.management"
                )
        lines = tuple(line for rate, line, _ in self.rates.values() if rate == usual)
        folded = fold(compute)
        self.line = lines[0]
        for path, value in (
            (("hcas",), len(compute)),
            (("ports", "compute"), folded if set(unfold(folded)) == set(compute) else sorted(compute)),
            (("ports", "rate_gbps"), usual),
        ):
            self.put(path, value)
            if self.entries[path].value == value:
                self.entries[path] = Entry(value, lines)
