"""Finds the lines of a text that have the signature of an error."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterator

from preflight._startup.lightclass import dataclass
from preflight.parsers.messages import (
    cuda_signatures,
    driver_signatures,
    host_signatures,
    network_signatures,
    slurm_signatures,
)
from preflight.parsers.messages.signature import ErrorSignature
from preflight.parsers.parsed import Parsed
from preflight.textprep.lines import Lines

#: All signatures; of those that fit one line, the first counts.
SIGNATURES: tuple[ErrorSignature, ...] = (
    *driver_signatures.SIGNATURES,
    *slurm_signatures.SIGNATURES,
    *cuda_signatures.SIGNATURES,
    *host_signatures.SIGNATURES,
    *network_signatures.SIGNATURES,
)

#: Characters of a line that are looked at.
_LONGEST = 4000
#: Lines without an error after which what comes next is another part; errors of one part.
_GAP, MAX_ERRORS = 12, 1000

#: Words of a person, in front of a message that is quoted within a sentence.
_PROSE = re.compile(
    r"(?i)\b(?:i|i'm|we|we're|my|our|you|your|anyone|please|how|why|does|should|hello|hi|thanks|if|when|whenever)\b"
)
#: A line of Python's own for an exception: the words behind it are not a person's.
_RAISED = re.compile(r"(?:\[[\w:]{1,20}\]:? ?)?\s{0,8}[A-Za-z_][\w.]{0,120}(?:Error|Exception|Warning)\b")
#: The node that a launcher or a search put in front of a line.
_NODE = re.compile(
    r"(?!python\d|mlx\d|nvme\d|rank\d|ib\d|eth\d|sda?\d|line \d)([a-z][a-z0-9.-]{0,62}\d[a-z0-9.-]{0,20}): (?=\S)"
)
#: Log lines that other parsers read: the kernel's and NCCL's.
_OTHERS = re.compile(
    r"\bNCCL (?:INFO|WARN|ERROR|TRACE)\b|NVRM: |\bkernel: |^\s{0,8}(?:<\d{1,3}>)?\[ {0,8}\d{1,9}\.\d{4,9}\]"
)
#: Lines of a program's source in a traceback, and comments.
_SOURCE = re.compile(r"\s{0,40}(?:#|//|raise |except |assert |return |if |print\(|echo |grep |\$ )")
_RANK = re.compile(r"(?i)\brank[ =:]{0,3}(\d{1,6})\b|\[default(\d{1,4})\]|\[rank(\d{1,6})\]|local_rank: (\d{1,4})")
_HOST = re.compile(r"^\s{0,8}host\s{0,8}: ([\w.-]{1,64})\s*$")


@dataclass(frozen=True)
class LoggedError:
    """One line that has a signature."""

    signature: ErrorSignature
    line: int  # number in the source
    text: str
    gpu: str = ""  # PCI address or number, where the line names it
    node: str = ""
    rank: str = ""
    what: str = ""  # what the signature quotes


def error_in(text: str, kind: str | None = None) -> tuple[ErrorSignature, re.Match[str]] | None:
    """Return the first signature that a line has, and its match.

    None for no error, prose and source.
    """
    text = text[:_LONGEST]
    if not _any_hint().search(text) or _OTHERS.search(text) or _SOURCE.match(text):
        return None
    for signature in SIGNATURES:
        if (kind is None or signature.kind == kind) and any(hint in text for hint in signature.hints):
            match = signature.pattern.search(text)
            if match and (_RAISED.match(text) or not _PROSE.search(text[max(0, match.start() - 200) : match.start()])):
                return signature, match
    return None


@functools.cache
def _any_hint() -> re.Pattern[str]:
    return re.compile("|".join(sorted({re.escape(hint) for signature in SIGNATURES for hint in signature.hints})))


def hints(kind: str) -> tuple[str, ...]:
    """Return the hints of all signatures of a kind."""
    return tuple(sorted({hint for signature in SIGNATURES if signature.kind == kind for hint in signature.hints}))


def begins_with(kind: str) -> Callable[[Lines, int], bool]:
    """Return whether a part of a kind begins at a line."""

    def begins(lines: Lines, at: int) -> bool:
        hit = error_in(lines[at].text)
        return hit is not None and hit[0].kind == kind

    return begins


def parser_of(kind: str) -> Callable[[Lines, int], Parsed[tuple[LoggedError, ...]]]:
    """Return the parser of a kind.

    It reads errors of this kind that are near each other.
    """

    def parse_lines(lines: Lines, at: int) -> Parsed[tuple[LoggedError, ...]]:
        errors: list[LoggedError] = []
        end = last = at
        while end < len(lines) and end - last <= _GAP and len(errors) < MAX_ERRORS:
            hit = error_in(lines[end].text)
            if hit is not None and hit[0].kind != kind:
                break
            if hit is not None:
                errors.append(_logged(*hit, lines, end))
                last = end
            end += 1
        return Parsed(tuple(errors), (), last + 1)

    return parse_lines


def _logged(signature: ErrorSignature, match: re.Match[str], lines: Lines, at: int) -> LoggedError:
    groups = {name: value or "" for name, value in match.groupdict().items()}
    text = lines[at].text
    rank = groups.get("rank") or next((value for hit in _RANK.findall(text) for value in hit if value), "")
    node = groups.get("node") or (match_node[1] if (match_node := _NODE.match(text)) else "")
    if not node and "exitcode" in text:  # torchrun prints host and rank above it
        above = [line.text for line in lines[max(0, at - 4) : at]]
        node = next((host[1] for line in above if (host := _HOST.match(line))), "")
        rank = rank or next((hit[0] for line in above for hit in _RANK.findall(line) if hit[0]), "")
    return LoggedError(signature, lines[at].number, text.strip()[:300], groups.get("gpu") or groups.get("gpu2", ""),
                       node, rank, groups.get("what", ""))  # fmt: skip


def by_signature(errors: tuple[LoggedError, ...]) -> Iterator[tuple[ErrorSignature, list[LoggedError]]]:
    """Yield the errors of each signature, in the order in which they came first."""
    grouped: dict[str, list[LoggedError]] = {}
    for error in errors:
        grouped.setdefault(error.signature.id, []).append(error)
    for same in grouped.values():
        yield same[0].signature, same
