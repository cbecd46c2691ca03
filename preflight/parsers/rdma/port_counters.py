"""RDMA port counters: sysfs ``counters``, ``hw_counters``, ``rdma statistic``.

The sysfs files may be listed with ``grep``, ``cat``, ``more``, ``tail`` or a loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.parsers.counter_list import WORDS, CounterList, facts, summary
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.rdma.counter_names import OWN_NAMES
from preflight.parsers.text_block import block, json_at
from preflight.textprep.lines import Lines

__all__ = ["HINTS", "begins", "facts", "parse_lines", "summary"]

HINTS = ()

#: A number, which may have thousands separators.
_VALUE = r"(?P<value>-?\d{1,3}(?:,\d{3}){1,8}|-?\d{1,30})"
_BETWEEN = r"(?:\s*[:=]\s*|\s+)"  # between a name and its value
_PORT = r"(?:(?P<device>[A-Za-z][\w.-]{0,63})/ports/(?P<port>\d{1,3})/)?(?:hw_counters|counters)"
#: Some counter names of irdma contain spaces.
_PATH = (
    rf"(?:\S{{0,300}}?/)??{_PORT}/(?P<name>[A-Za-z]\w{{2,60}}(?:(?: [A-Za-z]\w{{0,20}}){{1,4}}(?=\s?(?:[:=]|<==|$)))?)"
)
#: A line of ``grep . *``, or of a loop that prints the name before the value.
_SYSFS = re.compile(rf"\s*{_PATH}{_BETWEEN}{_VALUE}\s*")
#: The name above a value: a line of ``tail -n +1 *`` or of a loop, or the command that prints the value.
_ABOVE = re.compile(rf"\s*(?:==>\s*|.{{0,200}}\bcat\s+)?{_PATH}(?:\s*<==)?(?:\s*:)?\s*")
_NAMED = re.compile(rf"\s*(?P<name>[A-Za-z]\w{{2,60}}){_BETWEEN}{_VALUE}\s*")
_ALONE = re.compile(r"\s*(?:==>\s*)?(?:\./)?(?P<name>[A-Za-z]\w{2,60})(?:\s*<==)?(?:\s*:)?\s*")
_NUMBER = re.compile(rf"\s*{_VALUE}\s*")
#: A command in the counters' directory that prints one of them, and a command that lists them.
_WITHIN = re.compile(
    rf"(?:.{{0,200}}?[/:\s])?{_PORT}\]?[#$%>]\s+(?:cat|more)\s+(?:\./)?(?P<name>[A-Za-z]\w{{2,60}})\s*"
)
_THROUGH = re.compile(r".{0,300}(?:/hw_counters\b|/ports/\d{1,3}/counters\b|[/\s](?:hw_)?counters\]?[#$%>]\s).{0,300}")
#: The port in a command that lists its counters.
_IN_COMMAND = re.compile(r"(?<![\w.-])(?P<device>[A-Za-z][\w.-]{0,63})/ports/(?P<port>\d{1,3})(?!\d)")
#: Text that ``more`` prints around the name of each file.
_MORE = re.compile(r"\s*:{14}\s*")
#: The kernel's message for a counter that the port's management agent lacks.
_NONE = re.compile(rf"\s*{_PATH}{_BETWEEN}N/A \(no PMA\)\s*")
#: ``rdma statistic``: a port, followed by all its counters on the line, or by one per line. Counters of queue pairs
#: have the number of their set and the owner.
_LINK = re.compile(
    r"\s*(?:\S.{0,80}[\s:](?=link ))?link (?P<device>[A-Za-z][\w.-]{0,63})/(?P<port>\d{1,3}):?"
    r"(?:\s+cntn \d{1,9}(?:\s+(?:pid|comm|type|qp-type) \S{1,64}){0,4})?(?:\s+(?P<rest>.*))?"
)
#: Minimum number of numeric fields of a JSON object to be a list of counters, if all their names are unknown.
_LEAST_IN_JSON = 3
_TWO_PAIRS = re.compile(r"(?:[A-Za-z]\w{2,60}\s+\d{1,30}(?:\s+|$)){2}.*")
_PAIRS = re.compile(r"\s*(?:(?:[A-Za-z]\w{2,60}|\d{1,30}|[A-Z][a-z]+-set:)(?:\s+|$))+")


class _Rows:
    """The counters of ports, read line by line."""

    def __init__(self) -> None:
        self.counters: dict[str, int] = {}
        self.by_port: dict[str, dict[str, int]] = {}
        self._where: str | None = None
        self._linked = False  # in ``rdma statistic``, where names and values continue across line breaks
        self.waiting: str | None = None  # the name that precedes its value

    def take(self, text: str) -> bool:
        """Process a line; return whether it belongs to a list of counters."""
        if _MORE.fullmatch(text) or ("N/A" in text and _NONE.fullmatch(text)):
            return True
        if match := _SYSFS.fullmatch(text):
            self.locate(match)
            self._add(match["name"], match["value"])
        elif match := _LINK.fullmatch(text):
            self.locate(match)
            self._linked, self.waiting = True, None
            self._pairs(match["rest"] or "")
        elif self.waiting and not self._linked and (match := _NUMBER.fullmatch(text)):
            self._add(self.waiting, match["value"])
            self.waiting = None
        elif match := _NAMED.fullmatch(text) if not self.waiting else None:
            self._add(match["name"], match["value"])
        elif self._linked and _PAIRS.fullmatch(text):
            self._pairs(text)
        elif match := _ABOVE.fullmatch(text) or _WITHIN.fullmatch(text) or _ALONE.fullmatch(text):
            if "counters" in text:
                self.locate(match)
            elif match["name"] not in OWN_NAMES:
                return False
            self.waiting = match["name"]
        else:
            return False
        return True

    def locate(self, match: re.Match[str]) -> None:
        """Set the port of the next counters; it is unknown if the match lacks it."""
        self._where = f"{match['device']}/{match['port']}" if match["device"] else None

    def _pairs(self, text: str) -> None:
        for word in text.split():
            if self.waiting and word.isdecimal():
                self._add(self.waiting, word)
                self.waiting = None
            elif re.fullmatch(r"[A-Za-z]\w{2,60}", word):
                self.waiting = word

    def _add(self, name: str, value: str) -> None:
        number = int(value.replace(",", "")) * (4 if name in WORDS else 1)
        if self._where:
            self.by_port.setdefault(self._where, {})[name] = number
        self.counters.setdefault(name, number)


def begins(lines: Lines, at: int) -> bool:
    """Return whether a list of RDMA counters begins at a line."""
    text = lines[at].text
    after = lines[at + 1].text if at + 1 < len(lines) else ""
    if "counters" in text and (_SYSFS.fullmatch(text) or _NONE.fullmatch(text) or _shown(lines, at)):
        return True
    if at and "counters" in lines[at - 1].text and _THROUGH.fullmatch(lines[at - 1].text):
        return all(_NAMED.fullmatch(line) for line in (text, after))
    if text.lstrip().startswith("[") and any('"ifname"' in line.text for line in lines[at : at + 5]):
        return _json(lines, at) is not None
    if match := _LINK.fullmatch(text) if "link " in text else None:
        rest = match["rest"] or after
        first = rest.split()[:1]
        if not match["rest"] and all(_NAMED.fullmatch(line.text) for line in lines[at + 1 : at + 3]):
            return at + 2 < len(lines)  # one per line, with names of the driver
        return bool(first) and (first[0] in OWN_NAMES or bool(_TWO_PAIRS.fullmatch(rest.strip())))
    if match := _ALONE.fullmatch(text):
        return match["name"] in OWN_NAMES and bool(_NUMBER.fullmatch(after)) and any(
            (result := _ALONE.fullmatch(line.text)) and result["name"] in OWN_NAMES for line in lines[at + 2 : at + 5]
        )  # fmt: skip
    match = _NAMED.fullmatch(text)
    if not match or match["name"] not in OWN_NAMES:
        return False
    near = [_NAMED.fullmatch(line.text) for line in lines[at + 1 : at + 4]]
    return any(result and result["name"] in OWN_NAMES for result in near)


def parse_lines(lines: Lines, at: int) -> Parsed[CounterList]:
    """Read the counters, with data in bytes."""
    rows = _Rows()
    if document := _json(lines, at) if lines[at].text.lstrip().startswith("[") else None:
        end, links = document
        for where, counters in links:
            for name, value in counters.items():
                rows.by_port.setdefault(where, {})[name] = value
                rows.counters.setdefault(name, value)
        return Parsed(CounterList(rows.counters, rows.by_port), (), end)
    if at and (command := _IN_COMMAND.search(lines[at - 1].text)):
        rows.locate(command)
    rows.take(lines[at].text)
    end, taken = block(lines, at, rows.take, blanks=1)
    while not rows.waiting and _shown(lines, end):  # several commands, each followed by its value
        rows.take(lines[end].text)
        end, taken = block(lines, end, rows.take, blanks=1)
    cut = [ParseGap(taken[-1].number, f"{rows.waiting} has no value")] if rows.waiting else []
    return Parsed(CounterList(rows.counters, rows.by_port), tuple(cut), end)


def _shown(lines: Lines, at: int) -> bool:
    """Return whether a line names a counter's file, and the next one is its value."""
    if at + 1 >= len(lines) or "counters" not in lines[at].text:
        return False
    value = at + 1 + bool(_MORE.fullmatch(lines[at + 1].text))
    head = _ABOVE.fullmatch(lines[at].text) or _WITHIN.fullmatch(lines[at].text)
    return bool(head and value < len(lines) and _NUMBER.fullmatch(lines[value].text))


def _json(lines: Lines, at: int) -> tuple[int, list[tuple[str, dict[str, int]]]] | None:
    """Return the end of ``rdma -j statistic`` and each port's counters, or None."""
    result = json_at(lines, at)
    if result is None or not isinstance(result[1], list):
        return None
    links = list(_links(result[1]))
    return (result[0], links) if links and len(links) == len(result[1]) else None


def _links(entries: list[object]) -> Iterator[tuple[str, dict[str, int]]]:
    for entry in entries:
        if isinstance(entry, dict) and {"ifname", "port"} <= entry.keys():
            values = {str(name): value for name, value in entry.items() if name not in ("ifindex", "ifname", "port")}
            counters = {name: value for name, value in values.items() if type(value) is int}
            if not OWN_NAMES & values.keys() and (len(counters) < _LEAST_IN_JSON or len(counters) < len(values)):
                continue  # a link or a resource, as opposed to counters
            yield f"{entry['ifname']}/{entry['port']}", counters
