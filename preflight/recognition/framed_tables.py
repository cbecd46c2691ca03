"""Outputs with a frame (``nvidia-smi``, ``dcgmi``), and statuses of units.

The vertical bars of a frame look like a page frame around text, and its horizontal rules like lines of a patch. Such
outputs are therefore read before prefixes are stripped; a launcher's prefix before the frame names the writer, and a
time before it is removed. The journal lines below the status of a unit start with a host and a program name, which look
like a launcher's prefix.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import islice

from preflight.recognition.detector import OutputFormat, TextPart, parts
from preflight.textprep.launcher_prefixes import without_time
from preflight.textprep.lines import Line, Lines, bare
from preflight.textprep.table_frames import before_frame, is_launchers, writer_of

#: Kinds of outputs with a frame.
FRAMED = frozenset(
    {"nvidia-smi", "dcgmi diag", "dcgmi health", "dcgmi discovery", "dcgmi nvlink", "nvidia-smi mig", "dcgmi stats"}
)

#: Kinds of outputs that end with journal lines.
STATUSES = frozenset({"systemctl status", "fabricmanager status"})

#: Each output with a frame contains one of these strings.
_WORDS = ("NVIDIA-SMI ", "Volatile Uncorr", "| Diagnostic", "| Overall Health", "| Health Monitor Report", "GPU ID: ",
          "Device Information", "NvLink Link Status", "GPU instance", "Compute instance")  # fmt: skip
#: Maximum number of writers whose tables in one text are read.
_MOST_WRITERS = 256


def read_framed(lines: Lines, kinds: Sequence[OutputFormat], most: int) -> tuple[list[TextPart], list[Line]]:
    """Return the parts with a frame or a journal, and the remaining lines."""
    statuses, left = _read_statuses(lines, kinds, most)
    tables, left = _read_tables(left, kinds, most)
    return statuses + tables, left


def _read_statuses(lines: Lines, kinds: Sequence[OutputFormat], most: int) -> tuple[list[TextPart], list[Line]]:
    if not any(line.text.lstrip().startswith("Loaded: ") for line in lines):
        return [], list(lines)
    read = list(islice(parts(bare(lines), "", [kind for kind in kinds if kind.name in STATUSES]), most))
    return read, [line for line in lines if not any(part.first <= line.number <= part.last for part in read)]


def _read_tables(lines: Lines, kinds: Sequence[OutputFormat], most: int) -> tuple[list[TextPart], list[Line]]:
    if not any(word in line.text for line in lines if "|" in line.text or "NvLink" in line.text for word in _WORDS):
        return [], list(lines)
    framed = [kind for kind in kinds if kind.name in FRAMED]
    untimed = [Line(line.number, without_time(line.text)) for line in lines]
    marks: Counter[str] = Counter()
    for line in untimed:
        if (mark := before_frame(line.text)) is not None:
            marks[mark] += 1
    tables: list[TextPart] = []
    taken: set[int] = set()
    for mark, _ in marks.most_common(_MOST_WRITERS):
        if not is_launchers(mark):
            continue
        own = [Line(line.number, line.text[len(mark) :]) for line in untimed if line.text.startswith(mark)]
        for part in islice(parts(bare(own), writer_of(mark), framed), most - len(tables)):
            if part.first not in taken:
                tables.append(part)
                taken.update(line.number for line in own if part.first <= line.number <= part.last)
    return tables, [line for line in lines if line.number not in taken]
