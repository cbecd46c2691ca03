"""Errors of UCX and Open MPI with ports, devices and memory."""

from __future__ import annotations

import re
from typing import Any

from preflight._startup.lightclass import dataclass, replace
from preflight.parsers.parsed import Parsed
from preflight.textprep.agreement import counted
from preflight.textprep.lines import Lines

HINTS = ("UCX", ".c:", "OpenFabrics", "InfiniBand retry", "Open MPI", "queue pair")

_UCX = re.compile(r"(?:\[\d{9,11}\.\d{1,9}\]\s*)?(?:\[([\w.-]{1,64}):\d{1,9}(?::\d{1,5})?\s*:?\d{0,5}\]\s*)?"
             r"(?:\S{0,80}:\d{1,6}\s+)?UCX\s+(ERROR|WARN|FATAL|DIAG)\s+(\S.{0,2000})")  # fmt: skip
#: A failure as UCX's handler of fatal errors prints it.
_FATAL = re.compile(r"\[([\w.-]{1,64}):\d{1,9}\s{0,4}(?::\d{1,9}){0,3}\]\s+\S{1,80}\.c:\d{1,6}\s+(\S.{0,2000})")
_RULE = re.compile(r"\s*-{40,}\s*")
_FIELD = re.compile(r"\s+(Local host|Local device|Local port|Peer host|Device name|Host)\s*:\s*(\S{1,128})\s*")
_DEVICE = re.compile(
    r"\b((?:mlx[45]|bnxt_re|irdma|rocep?|rdma|efa|ib|mlx5_bond|cxgb4|hns|ionic)\w*_?\w*?)(?::(\d{1,2}))(?=\W|$)"
)

#: (name, pattern, check for the same fault, meaning). The first match is used.
SIGNATURES = (
    ("retries-exceeded", r"[Tt]ransport retry count exceeded|InfiniBand retry count between two MPI processes",
     "counters.loss", "retry count exceeded: packets are not acknowledged, or the peer is gone"),
    ("receiver-not-ready", r"(?i)\bRNR retry count exceeded|receiver not ready retry count", "counters.receiver",
     "the receiver had no buffer ready"),
    ("shared-memory", r"Not enough memory to write|/dev/shm", "host.shm", "shared memory (/dev/shm) is full"),
    ("memlock", r"registering part of your physical memory|max locked memory|ulimit -l|registered memory"
     r"|allocate some locked memory|memlock limits are set too low"
     r"|(?:ibv_reg_mr|ibv_create_(?:cq|qp)|mlx5dv?_devx_umem_reg).{0,200}(?:Cannot allocate memory|failed)",
     "host.memlock", "max locked memory is too small to register memory"),
    ("device-not-available", r"network device '([^']{1,64})' is not available"
     r"|network devices ('[^']{1,64}'(?:,\s?'[^']{1,64}'){0,63}) are not available", "rdma.device-count",
     "the device named by the job does not exist"),
    ("no-active-port", r"no active ports detected", "rdma.port-state", "no active ports detected"),
    ("device-open", r"error initializing an OpenFabrics device|ibv_open_device.{0,80}failed"
     r"|Failed to open .{0,60}device|failed to create a queue pair", "rdma.device-nodes",
     "the device cannot be opened"),
    ("gid", r"(?i)(?:invalid|failed to (?:get|query)|no) gid\b.{0,80}|gid index .{0,40}(?:invalid|not found)",
     "roce.chain", "the GID named by the job does not exist"),
    ("no-transport", r"no (?:active messages?|auxiliary|remote registered memory access|usable) transports?",
     "rdma.device-nodes", "no transport can reach the peer"),
    ("unreachable", r"ucp_ep_create\([^)]{0,40}\) failed|Destination is unreachable", "job.errors",
     "no connection to a peer: the transports or devices of both sides differ, or no network reaches it"),
)  # fmt: skip
_COMPILED = tuple((what, re.compile(words), check, meaning) for what, words, check, meaning in SIGNATURES)


@dataclass(frozen=True)
class TransportMessage:
    """One message that reports a known error; a value that it lacks is None."""

    what: str  # name of its signature
    line: int
    text: str
    host: str | None
    device: str | None
    port: int | None
    peer: str | None
    check: str  # ID of the check for the same fault
    meaning: str
    is_error: bool = False  # as the program states; a warning may be harmless


def begins(lines: Lines, at: int) -> bool:
    """Return whether a message that reports a known error begins at a line."""
    return _message(lines, at) is not None


def parse_lines(lines: Lines, at: int) -> Parsed[tuple[TransportMessage, ...]]:
    """Read the messages starting at a line; consecutive equal ones count once."""
    result: list[TransportMessage] = []
    index = end = at
    while index < len(lines):
        if message := _message(lines, index):
            end, error = message
            if not result or (error.what, error.device, error.host) != (
                result[-1].what,
                result[-1].device,
                result[-1].host,
            ):
                result.append(error)
            index = end
        elif _UCX.fullmatch(lines[index].text.strip()) or _RULE.fullmatch(lines[index].text):
            index += 1
        else:
            break
    return Parsed(tuple(result), (), end)


def _message(lines: Lines, at: int) -> tuple[int, TransportMessage] | None:
    """Return the index after the message at a line, and the message, or None."""
    text = lines[at].text.strip()
    head = _UCX.fullmatch(text) or _FATAL.fullmatch(text)
    if head:
        words = head[head.lastindex or 1]
        result = _signature(words, head[1], lines[at].number)
        is_error = head.re is _FATAL or head[2] in ("ERROR", "FATAL")
        return (at + 1, replace(result, is_error=is_error)) if result else None
    paragraph, end = _paragraph(lines, at)
    result = _signature(" ".join(paragraph), None, lines[at].number) if paragraph else None
    if result is None:
        return None
    fields = dict[str, str]()
    for index in range(at, min(at + 30, len(lines))):
        if match := _FIELD.fullmatch(lines[index].text):
            fields.setdefault(match[1], match[2])
            end = index + 1
        elif _RULE.fullmatch(lines[index].text):
            break
    device = fields.get("Local device") or fields.get("Device name") or result.device
    return end, TransportMessage(
        result.what, result.line, result.text, fields.get("Local host") or fields.get("Host"), device, result.port,
        fields.get("Peer host"), result.check, result.meaning, not paragraph[0].startswith("WARNING"),
    )  # fmt: skip


#: The start of a paragraph that Open MPI prints, and its maximum lines.
_PARAGRAPH = re.compile(r"\s*(?:WARNING: There (?:is|was)|The InfiniBand retry count|A process failed to create|"
                   r"The OpenFabrics|WARNING: It appears that your OpenFabrics|Open MPI failed).*")  # fmt: skip
_LINES = 8


def _paragraph(lines: Lines, at: int) -> tuple[list[str], int]:
    if not _PARAGRAPH.fullmatch(lines[at].text):
        return [], at
    end = at
    while end < min(at + _LINES, len(lines)) and lines[end].text.strip() and not _RULE.fullmatch(lines[end].text):
        end += 1
    return [line.text.strip() for line in lines[at:end]], end


def _signature(words: str, host: str | None, line: int) -> TransportMessage | None:
    for what, pattern, check, meaning in _COMPILED:
        if match := pattern.search(words):
            named = next(filter(None, match.groups()), words)
            device = _DEVICE.search(named + " ")
            return TransportMessage(what, line, words[:300], host, device[1] if device else None,
                                  int(device[2]) if device else None, None, check, meaning)  # fmt: skip
    return None


def facts(errors: tuple[TransportMessage, ...]) -> dict[str, Any]:
    """Return the messages as `preflight read --json` prints them."""
    return {
        "errors": [
            {"what": error.what, "line": error.line, "host": error.host, "device": error.device, "port": error.port,
             "peer": error.peer, "text": error.text}
            for error in errors
        ]
    }  # fmt: skip


def summary(errors: tuple[TransportMessage, ...]) -> str:
    """Return a one-line summary of the messages."""
    return f"{counted(len(errors), 'message')}: {', '.join(sorted({error.what for error in errors}))}"
