"""Search for lines with an error signature."""

from __future__ import annotations

import functools
import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence

from preflight._startup.lightclass import dataclass, replace
from preflight.parsers.messages import (
    container_signatures,
    cuda_signatures,
    driver_signatures,
    host_signatures,
    network_signatures,
    slurm_signatures,
    traceback,
    training_signatures,
)
from preflight.parsers.messages import logged_level as level
from preflight.parsers.messages.denials import without_denials
from preflight.parsers.messages.error_words import check_of
from preflight.parsers.messages.named_paths import paths_in
from preflight.parsers.messages.named_processes import processes_in
from preflight.parsers.messages.signature import FRAMEWORK, SLURM, ErrorSignature
from preflight.parsers.nccl_log import signatures as nccl_signatures
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.lines import Lines
from preflight.textprep.plain_text import ends_of

#: All signatures; the first one that matches a line is used.
SIGNATURES: tuple[ErrorSignature, ...] = (
    *driver_signatures.SIGNATURES,
    *slurm_signatures.SIGNATURES,
    *cuda_signatures.SIGNATURES,
    *container_signatures.SIGNATURES,
    *host_signatures.SIGNATURES,
    *network_signatures.SIGNATURES,
    *training_signatures.SIGNATURES,
)

_FIRST_ERROR = ("grep -n -i -e error -e traceback LOG | head", "preflight read LOG", "dmesg -T | tail -50")
#: Stand-ins for errors without a signature: an exception that ended a program, a line logged as an error, and a line
#: with a level that ends the program.
RAISED = ErrorSignature(
    "exception", FRAMEWORK, (), "(?!)", "fail", "", "job.errors", _FIRST_ERROR,
    "Check the line of the program that raised it."
)  # fmt: skip
LOGGED = ErrorSignature(
    "logged-error", FRAMEWORK, (), "(?!)", "unknown", "", "job.errors", _FIRST_ERROR,
    "The program logged it as an error; its meaning for the job is unknown."
)  # fmt: skip
FATAL = ErrorSignature(
    "logged-fatal", FRAMEWORK, (), "(?!)", "fail", "", "job.errors", _FIRST_ERROR,
    "The process aborts after this line; the lines before it have the cause."
)  # fmt: skip
#: Ids of errors that are grouped by text.
_BY_TEXT = frozenset({RAISED.id, LOGGED.id, FATAL.id})
#: A line printed or logged by a command or daemon of Slurm.
_SLURMS = re.compile(
    r"(?:\d{1,6}: )?(?:\[[\d:T.-]{10,32}\] )?(?:(?:srun|sbatch|salloc|sinfo|squeue|sacct(?:mgr)?|scontrol|scancel"
    r"|sprio|slurm\w{1,12})"
    r"(?:-\w{1,20})?(?:\[\d{1,10}\])?: )?(?:error|fatal): (?P<text>\S.*)"
)

#: A line of another service in a journal, or of a Kubernetes daemon (klog); unless it names a Slurm program, its error
#: is not Slurm's.
_SERVICE = re.compile(
    r"(?<![\w.-])(?P<unit>[a-z][\w.@-]{1,40})\[\d{1,10}\]: |(?:^|\s)[IWEF]\d{4} \d\d:\d\d:\d\d\.\d{3,9} {1,9}\d{1,10} "
    r"[\w.-]{1,60}\.go:\d{1,6}\]"
)
_NAMES_SLURM = re.compile(r"\b(?:slurm\w{0,12}|srun|sbatch|salloc|munged?|pyxis|enroot|spank|StepId|JobId)\b", re.I)

#: Maximum number of characters that are examined of a line, that are quoted, and that are quoted before the match.
_LONGEST, _WORDS, _BEFORE = 4000, 320, 120
#: Maximum number of consecutive lines without an error within a part, and of errors in a part.
_GAP, MAX_ERRORS = 12, 1000
#: Minimum number of training steps after an error that show that the job continued; checks of errors that a job can
#: survive, or after which it can restart, none of which are hardware faults.
_WENT_ON, _SURVIVED = 3, frozenset({"job.errors", "gpu.memory-headroom", "kernel.events"})
#: Maximum distance in lines at which an error without a signature is part of one with a signature.
_SAME = 1

#: Words of prose before a message that is quoted in a sentence.
_PROSE = re.compile(
    r"(?i)\b(?:i|i'm|we|we're|my|our|you|your|anyone|please|how|why|does|should|hello|hi|thanks|if|when|whenever)\b"
)
#: The name of a Python exception; text after it is a message, not prose.
_RAISED = re.compile(r"(?<![\w.])[A-Za-z_][\w.]{0,120}(?:Error|Exception|Warning)\b")
#: The node name that a launcher or ``grep`` wrote before a line.
_NODE = re.compile(
    r"(?!python\d|mlx\d|nvme\d|rank\d|ib\d|eth\d|sda?\d|line \d)([a-z][a-z0-9.-]{0,62}\d[a-z0-9.-]{0,20}): (?=\S)"
)
#: The node named in the message itself.
_NODE_WITHIN = re.compile(r"\b(?:node|host|hostname): ([a-z][a-z0-9-]{0,60}\d[a-z0-9.-]{0,30})\b")
#: Lines that other parsers read: those of the kernel, UCX and NCCL.
_OTHERS = re.compile(
    r"\bNCCL (?:INFO|WARN|ERROR|TRACE)\b|\bUCX {1,2}(?:ERROR|FATAL)\b|NVRM: |\bkernel: (?!\d+\.\d+\.)"
    r"|^\s{0,8}(?:<\d{1,3}>)?\[ {0,8}\d{1,9}\.\d{4,9}\]"
)
#: Source lines in a traceback, and comments.
_SOURCE = re.compile(r"\s{0,40}(?:#|//|raise |except |assert |return |if |print\(|echo |grep |\$ )")
_RANK = re.compile(r"(?i)\brank[ =:]{0,12}(\d{1,6})\b|\[default(\d{1,4})\]|\[rank(\d{1,6})\]")
_HOST = re.compile(r"^\s{0,8}host\s{0,8}: ([\w.-]{1,64})\s*$")
#: The second line of nvidia-smi's message about versions that differ.
_LIBRARY = re.compile(r"NVML library version: [\d.]{1,20}")
#: The node before a message, if a daemon of Slurm wrote it: its name includes the node's.
_SLURMD = "slurmstepd-"


_DIGITS_ALIKE = bytes.maketrans(b"123456789", b"000000000")


@dataclass(frozen=True)
class LoggedError:
    """One error in a text, with its signature."""

    signature: ErrorSignature
    line: int  # line number in the source
    text: str
    gpu: str = ""  # PCI address or number; empty if not named
    node: str = ""
    rank: str = ""
    what: str = ""  # the part of the text that the signature quotes
    place: str = ""  # file, line and function that raised it; empty if unknown
    words: str = ""  # the message, without its time, level and source file
    follows: bool = False  # whether it reports the end of another process
    survived: bool = False  # whether training steps follow it
    writer: str = ""  # the rank or host in the launcher's prefix
    processes: tuple[str, ...] = ()  # PIDs, or OWN for the process itself
    paths: tuple[str, ...] = ()

    @property
    def has_meaning(self) -> bool:
        """Whether the error has a signature of its own, which explains it."""
        return self.signature.id not in _BY_TEXT


def _in_nccls_log(text: str) -> bool:
    """Return whether NCCL's log parser has a signature for a line."""
    return nccl_signatures.matching(text, "outside") is not None


def repeats_nccl(text: str) -> bool:
    """Return whether a line repeats a failed call that NCCL reports in its log."""
    return "Call to " in text and _in_nccls_log(text)


def _unknown_error(text: str) -> tuple[ErrorSignature, str] | None:
    """Return the signature and message of a line logged as an error, or None."""
    if _OTHERS.search(text) or _SOURCE.match(text):
        return None
    slurms = _SLURMS.match(text)
    logged = slurms["text"] if slurms else level.error_text(text)
    if not logged or _in_nccls_log(text) or not without_denials(text).strip(" .,;"):
        return None
    check = check_of(logged, "host.services" if slurms else LOGGED.check)
    base = FATAL if level.ends_program(text) else LOGGED
    return replace(base, kind=SLURM if slurms else FRAMEWORK, check=check), logged


@functools.lru_cache(maxsize=256)  # the parsers of all kinds examine the same lines
def error_in(text: str, kind: str | None = None) -> tuple[ErrorSignature, re.Match[str]] | None:
    """Return the first signature that matches a line, and the match.

    None if there is none, or if the line is prose, source code or from another parser's log.
    """
    text = text[:_LONGEST]
    signatures = _candidates(_shape(text))
    if not signatures or _OTHERS.search(text) or _SOURCE.match(text):
        return None
    elsewhere = _SERVICE.search(text) is not None and _NAMES_SLURM.search(text) is None
    for signature in signatures:
        if elsewhere and signature.kind == SLURM:
            continue
        if (kind is None or signature.kind == kind) and any(hint in text for hint in signature.hints):
            match = signature.pattern.search(text)
            if match and (stated := without_denials(text)) != text:
                match = signature.pattern.search(stated)
            if match and not _in_prose(match.string, match.start()):
                return signature, match
    return None


def _shape(text: str) -> str:
    """Return a string with all digits replaced by zeros."""
    return text.encode("utf-8", "surrogatepass").translate(_DIGITS_ALIKE).decode("utf-8", "surrogatepass")


@functools.lru_cache(maxsize=4096)  # a log has many lines of few shapes
def _candidates(shape: str) -> tuple[ErrorSignature, ...]:
    """Return the signatures that lines of this shape may have."""
    if not any(hint in shape for hint in _shortest_hints()):
        return ()
    return tuple(signature for signature, hints in _shapes_of_hints() if any(hint in shape for hint in hints))


def _in_prose(text: str, at: int) -> bool:
    """Return whether the text from a position on is quoted in prose."""
    raised = _RAISED.search(text, 0, at)
    end = raised.start() if raised else at
    return _PROSE.search(text[max(0, end - 200) : end]) is not None


@functools.cache
def _shapes_of_hints() -> tuple[tuple[ErrorSignature, tuple[str, ...]], ...]:
    return tuple((signature, tuple(map(_shape, signature.hints))) for signature in SIGNATURES)


@functools.cache
def _shortest_hints() -> tuple[str, ...]:
    """Return the hints of all signatures, except those that contain another hint.

    Testing them one by one takes half the time of one pattern with all of them.
    """
    shortest: list[str] = []
    for hint in sorted({hint for _, hints in _shapes_of_hints() for hint in hints}, key=len):
        if not any(other in hint for other in shortest):
            shortest.append(hint)
    return tuple(shortest)


def hints(kind: str) -> tuple[str, ...]:
    """Return strings, one of which is in every line with an error of this kind."""
    more = {FRAMEWORK: {*level.HINTS, *traceback.HINTS}, SLURM: {"error: ", "fatal: "}}.get(kind, set())
    own = [signature for signature in SIGNATURES if signature.kind == kind]
    return tuple(sorted({hint for signature in own for hint in signature.hints} | more))


def begins_with(kind: str) -> Callable[[Lines, int], bool]:
    """Return the ``begins`` function of the parser for a kind of error."""

    def begins(lines: Lines, at: int) -> bool:
        result = _error_at(lines, at)
        return result is not None and result[0].signature.kind == kind

    return begins


def parser_of(kind: str) -> Callable[[Lines, int], Parsed[tuple[LoggedError, ...]]]:
    """Return the ``parse_lines`` function of the parser for a kind of error.

    It reads neighbouring errors of this kind as one part, however many log lines are between them.
    """

    def parse_lines(lines: Lines, at: int) -> Parsed[tuple[LoggedError, ...]]:
        errors: list[LoggedError] = []
        gaps: list[ParseGap] = []
        end = last = at
        between = 0
        while end < len(lines) and between <= _GAP and len(errors) < MAX_ERRORS:
            result = _error_at(lines, end)
            if result is not None and result[0].signature.kind != kind:
                break
            if result is None:
                between += not level.is_log_line(lines[end].text)
                end += 1
                continue
            error, behind = result
            if (
                errors
                and error.signature.id == LOGGED.id
                and error.line - errors[-1].line <= _SAME
                and errors[-1].has_meaning
            ):
                end, last = behind, behind - 1  # the same event, reported in other words
                continue
            if error.has_meaning:
                while errors and errors[-1].signature.id == LOGGED.id and error.line - errors[-1].line <= _SAME:
                    errors.pop()
            if not error.text:
                gaps.append(ParseGap(error.line, "the traceback is truncated before its exception"))
            errors.append(error)
            between, end = 0, behind
            last = behind - 1
        return Parsed(tuple(errors), tuple(gaps), last + 1)

    return parse_lines


def with_steps(errors: Sequence[LoggedError], steps: Sequence[int]) -> tuple[LoggedError, ...]:
    """Return the errors, with status "unknown" for those that the job survived.

    ``steps`` are the line numbers of training steps, in ascending order.
    """
    return tuple(
        replace(error, signature=replace(error.signature, status="unknown"), survived=True)
        if error.signature.status == "fail" and error.signature.check in _SURVIVED
        and len(steps) - bisect_right(steps, error.line) >= _WENT_ON else error
        for error in errors
    )  # fmt: skip


def program_errors(lines: Lines) -> tuple[LoggedError, ...]:
    """Return the errors of all kinds in the lines of one writer."""
    errors: list[LoggedError] = []
    parsers = {kind: parser_of(kind) for kind in {signature.kind for signature in SIGNATURES}}
    at = 0
    while at < len(lines):
        if (first := _error_at(lines, at)) is None:
            at += 1
            continue
        parsed = parsers[first[0].signature.kind](lines, at)
        errors += parsed.value
        at = max(at + 1, parsed.end)
    return tuple(errors)


def _error_at(lines: Lines, at: int) -> tuple[LoggedError, int] | None:
    """Return the error that starts at a line and the index after it, or None."""
    text = lines[at].text[:_LONGEST]
    if traceback.begins(text) and (result := traceback.raised(lines, at)) is not None:
        logged = f"{result.type}: {result.message}"
        if _in_nccls_log(logged) and error_in(logged) is None:
            return None
        return _raised(result, lines, at), max(result.end, at + 1)
    if (hit := error_in(text)) is not None:
        return _logged(*hit, lines, at), at + 1
    if (bare := _bare_exception(lines, at)) is not None:
        return bare, at + 1
    if (unnamed := _unknown_error(text)) is not None:
        error = _logged(unnamed[0], _ANYTHING.match(unnamed[1]), lines, at)
        return replace(error, what=unnamed[1]), at + 1
    return None


_ANYTHING = re.compile("")
#: The last line of a traceback without its start.
_BARE = re.compile(
    r"(?:\[(?:rank|default)\d{1,6}\]:? ?)?"
    r"(?P<type>[A-Za-z_][\w.]{0,160}(?:Error|Exception|Interrupt|Exit|Failure|Timeout|Died|Resources"
    r"|Fault))(?:\(\w{1,60}\))?: "
    r"(?P<message>\S.*)"
)
_FRAME_ABOVE = re.compile(
    r"\s{2,12}File \"(?P<file>[^\"]{1,400})\", line (?P<line>\d{1,7})(?:, in (?P<function>.{1,200}))?"
)


def _bare_exception(lines: Lines, at: int) -> LoggedError | None:
    """Return the error of an exception line without its traceback, or None."""
    text = lines[at].text[:_LONGEST]
    match = _BARE.fullmatch(text)
    if not match or not level.is_fault(text) or _in_nccls_log(text):
        return None
    above = lines[max(0, at - 4) : at][::-1]
    frame = next((result for line in above if (result := _FRAME_ABOVE.fullmatch(line.text))), None)
    if frame is None:
        signature, place = replace(LOGGED, check=check_of(text, LOGGED.check)), ""
    else:
        place = f"{frame['file']}:{frame['line']}" + (f" in {frame['function']}" if frame["function"] else "")
        signature = RAISED
    return LoggedError(signature, lines[at].number, text[:300], what=text[:300], place=place)


def _raised(error: traceback.RaisedError, lines: Lines, at: int) -> LoggedError:
    """Return the error at the end of a traceback."""
    logged = f"{error.type}: {error.message}".rstrip(": ")
    hit = error_in(logged)
    signature = hit[0] if hit is not None else RAISED
    if error.ignored or error.cut:
        signature = replace(signature, status="unknown")
    rank = next((value for text in (lines[at].text, logged[:_WORDS]) for hit_ in _RANK.findall(text) for value in hit_
                 if value), "")  # fmt: skip
    what = logged + (f" (first: {error.cause})" if error.cause and error.cause != logged else "")
    if error.cut:
        what = "a traceback that is truncated before its exception"
    match_node = _NODE.match(lines[at].text) or _NODE_WITHIN.search(logged[:_WORDS])
    node = match_node[1] if match_node else ""
    return LoggedError(
        signature, lines[error.at].number, logged[:300], "", node, rank, what, error.frame,
        ends_of(logged, _WORDS, _WORDS * 2 // 3), error.follows, processes=processes_in(logged),
        paths=paths_in(logged),
    )  # fmt: skip


def _logged(signature: ErrorSignature, match: re.Match[str] | None, lines: Lines, at: int) -> LoggedError:
    groups = {name: value or "" for name, value in match.groupdict().items()} if match else {}
    text = lines[at].text
    if signature.id == "nvml-version-mismatch" and (below := lines[at + 1 : at + 2]):
        text += f"; {library[0]}" if (library := _LIBRARY.match(below[0].text)) else ""
    rank = groups.get("rank") or next((value for hit in _RANK.findall(text) for value in hit if value), "")
    node = groups.get("node") or (match_node[1] if (match_node := _NODE.match(text)) else "")
    if not node and "exitcode" in text:  # torchrun prints host and rank above it
        above = [line.text for line in lines[max(0, at - 4) : at]]
        node = next((host[1] for line in above if (host := _HOST.match(line))), "")
        rank = rank or next((hit[0] for line in above for hit in _RANK.findall(line) if hit[0]), "")
    return LoggedError(signature, lines[at].number, text.strip()[:300], groups.get("gpu") or groups.get("gpu2", ""),
                       node.removeprefix(_SLURMD), rank, groups.get("what", ""), words=_words(text, match),
                       processes=processes_in(text), paths=paths_in(text))  # fmt: skip


def _words(text: str, match: re.Match[str] | None) -> str:
    """Return the reported message, shortened around the match of a signature."""
    logged = level.error_text(text) or text
    place = logged.find(match[0]) if match and match[0] else -1
    begin = max(0, place - _BEFORE) if place > _WORDS - _BEFORE else 0
    begin = logged.find(" ", begin) + 1 if begin else 0
    return ("… " if begin else "") + ends_of(logged[begin:], _WORDS, _WORDS * 2 // 3)


def by_signature(errors: tuple[LoggedError, ...]) -> Iterator[tuple[ErrorSignature, list[LoggedError]]]:
    """Yield the errors with each signature and status, in order of occurrence.

    Errors without a signature are grouped by their text, without its numbers.
    """
    grouped: dict[str, list[LoggedError]] = {}
    for error in errors:
        by_text = (
            re.sub(r"\b(?:0x)?[0-9a-f]*\d[0-9a-f]*\b", "0", error.what)[:120] if error.signature.id in _BY_TEXT else ""
        )
        # an error that the job survived does not hide the one that ended it
        grouped.setdefault(f"{error.signature.id} {error.signature.status} {by_text}", []).append(error)
    for same in grouped.values():
        yield same[0].signature, same
