"""Detection of one message that floods a kernel log."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from preflight._startup.lightclass import dataclass
from preflight.parsers.host.kernel_log import KernelLogLine

#: Minimum number of lines of a flooded log, and minimum share of the message. A judgement call: no healthy log of a
#: thousand lines repeats one message in half of them.
_LEAST_LINES, _SHARE = 1000, 0.5
#: Number of compared characters of a line: numbers and addresses differ between lines of one message.
_COMPARED = 120
_NUMBER = re.compile(r"(?:0x)?[0-9a-fA-F]*[0-9][0-9a-fA-F]*")


@dataclass(frozen=True)
class LogFlood:
    """A message that floods a log, and its first line."""

    lines: int
    of_lines: int
    text: str


def flood(lines: Sequence[KernelLogLine]) -> LogFlood | None:
    """Return the message that makes up at least half of a long log; None if none does."""
    if len(lines) < _LEAST_LINES:
        return None
    counts = Counter(map(_message, lines))
    message, number = counts.most_common(1)[0]
    if number < _SHARE * len(lines):
        return None
    return LogFlood(number, len(lines), next(line.text for line in lines if _message(line) == message))


def _message(line: KernelLogLine) -> str:
    return _NUMBER.sub("0", line.text[:_COMPARED])
