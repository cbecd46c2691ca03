"""Lines of a job's output, as they were before a terminal, a launcher or a mail got hold of them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

from preflight.textprep.plain_text import limit_blank_runs, normalize_text, numbered

#: No line of NCCL or nccl-tests comes near this length; what is longer is looked at up to here.
LONGEST_LINE_CHARS = 8192
#: Characters of a line up to which any number of blanks in it does no harm.
SHORT_LINE_CHARS = 1024

_MARKS = re.compile("[\x1b\ufeff\x00\r]")
_COLOUR_WITHOUT_ESC = re.compile(r"\[\d{1,3}(?:;\d{1,3}){0,4}m")
#: What a page that numbers lines leaves behind each.
_CELLS = re.compile(r"\s\|\s\|\s*$")
_AUTOLINK = re.compile(r"\[([^\[\]]{1,200})\]\(https?://[^()\s]{1,200}\)")

#: What a launcher puts before a line. The group is the process or host that wrote the line, if it tells.
_LAUNCHER = re.compile(
    "|".join(
        (
            r"\s*(?:>\s?){1,8}",  # quoted mail, Markdown
            # rsyslog, journalctl -o short-iso
            r"(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S{8,24})"
            r" [\w.-]{1,128} [\w.@/-]{1,64}(?:\[\d{1,10}\])?:\s",
            r"\s{1,4}[\w.-]{1,128} [\w.@/-]{1,64}\[\d{1,10}\]:\s",  # the same, whose time was read already
            r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\s",  # RFC 3339
            r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}(?=\[)",  # mpirun --timestamp-output (Open MPI 4)
            # mpirun --tag-output (Open MPI 4, 5), SageMaker's own
            r"\[(?:[\w.-]+[@:])?(\d+,(?:mpirank:)?\d+(?:,[\w.-]{1,64})?)\]<std(?:out|err|diag)>:\s?",
            r"\[([a-z]+\d+(?:\|\d{1,6})?)\]:\s?",  # torchrun: [rank0]: [default0]: [trainer0|1]:
            r"\(((?:[\w.:-]+ )?pid=\w{1,32}(?:, ip=[^)\s]{1,64})?)\)\s",  # Ray
            r"\[(pod/[^\]\s]{1,256})\]\s",  # kubectl logs --prefix
            r"([\w.-]{1,128})\s+\|\s",  # docker compose
            r"\s?\|\s",  # CloudWatch
            r"([\w./-]{1,128}\.(?:txt|log|out|err))[:-](?:\d{1,7}[:-])? ?",  # grep in files
            r"([a-z][a-z0-9.]{0,62}-(?=[a-z0-9.-]*\d)[a-z0-9.-]{1,190} [a-z][a-z0-9-]{0,62})\s",  # stern
            r"\s{0,6}(\d{1,6}):\s",  # srun --label
            r"([A-Za-z][\w.-]{0,127}):\s(?!\s*Test )",  # pdsh, clush; but `host: Test NCCL failure` is nccl-tests'
            r"(\d{1,3}(?:\.\d{1,3}){3}):\s",  # pdsh with addresses
            r"\s{0,8}\[(\d{1,6})\]:?\s",  # mpiexec -l (Hydra)
            r"\[\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?\]\s",  # Jenkins, ts
            r"\[?\d\d:\d\d:\d\d(?:[.,]\d{1,9})?\]?\s",
        )
    )
)


def lines(text: str, holding: str = "") -> Iterator[tuple[int, str]]:
    """Yield (line number from 1, line) without escape sequences and HTML; only lines that hold a text."""
    marked = _MARKS.search(text) is not None
    for number, raw in numbered(text):
        if holding and holding not in raw:
            continue
        raw = limit_blank_runs(raw[:LONGEST_LINE_CHARS]) if len(raw) > SHORT_LINE_CHARS else raw
        for part in normalize_text(raw).split("\n") if marked and _MARKS.search(raw) else (raw,):
            yield number, unmarked(part)


def unmarked(line: str) -> str:
    """Take HTML escapes, a page's empty cells, colour codes without their ESC and Markdown links off a line."""
    if "&" in line:
        line = unescape(line)
    if "| |" in line[-6:]:
        line = _CELLS.sub("", line)
    if "[" in line:
        line = _AUTOLINK.sub(r"\1", _COLOUR_WITHOUT_ESC.sub("", line))
    return line


def strip_launcher_prefix(line: str) -> tuple[str, str]:
    """Strip a launcher's prefix: return the writer, empty if unknown, and the line."""
    who: list[str] = []
    for _ in range(4):
        if not (match := _LAUNCHER.match(line)):
            break
        if match.lastindex:
            who.append(match[match.lastindex])
        line = line[match.end() :]
    return " ".join(who), line
