"""Parts of tool output: ``name: value`` blocks, prompts, JSON values, numbers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from preflight.evidence import json_limits
from preflight.textprep.lines import Line, Lines
from preflight.textprep.numbered_text import left_out

#: A shell prompt with a command, which ends the output before it.
_PROMPT = re.compile(
    r"\s{0,8}(?:\([\w.-]{1,40}\)\s{0,4})?"
    r"(?:[\w.-]{1,64}@[\w.-]{1,128}(?::|\s)?[^\s#$>]{0,200}|\[[^\]]{1,200}\]|[~/][\w./~-]{0,200}|[\w.-]{1,64}:[~/][^\s#$]{0,200})?"
    r"\s{0,2}[#$%>❯]\s{1,3}(?P<command>[a-z./~].*)"
)
#: Separator that ``grep -A`` and similar print between matches.
_GREP = "--"
_TOOLS = frozenset(
    ("nvidia-smi", "ibstat", "ibstatus", "ibv_devinfo", "rdma", "ibdev2netdev", "show_gids", "perfquery", "ethtool",
     "mlnx_qos", "dcb", "dmesg", "journalctl", "lspci", "numactl", "lscpu", "cat", "ls", "sudo", "grep", "for", "ip",
     "kubectl", "docker", "ssh", "pdsh", "clush", "srun", "mpirun", "env", "export", "uname", "watch", "ibnetdiscover",
     "iblinkinfo", "sminfo", "ifconfig", "mst", "mlxlink", "mlxconfig", "lsmod", "modinfo", "nvcc", "python", "python3",
     "echo", "cd")
)  # fmt: skip

_FIELD = re.compile(r"\s*([A-Za-z][\w ()/.-]{0,60}?)\s*:\s*(.*)")


#: The host in a prompt: ``root@gx07:~#``, ``[ops@gx07 ~]$``.
_PROMPT_HOST = re.compile(
    r"\s{0,8}(?:\([\w.-]{1,40}\)\s{0,4})?\[?[\w.-]{1,64}@(?P<host>[\w.-]{1,128})"
    r"(?:[: ][^\s#$>\]]{0,200})?\]?\s{0,2}[#$%>❯](?:\s|$)"
)


def prompt_host(text: str) -> str:
    """Return the host in a shell prompt; empty without one."""
    match = _PROMPT_HOST.match(text) if "@" in text[:200] else None
    return match["host"] if match else ""


def is_prompt(text: str) -> bool:
    """Return whether a line is a shell prompt with a command of a known tool."""
    if not (match := _PROMPT.match(text)):
        return False
    return match["command"].split()[0].rpartition("/")[2] in _TOOLS


#: Placeholders for masked values.
_WITHHELD = re.compile(
    r"(?i)\.{2,}|…|\*{2,}|x{3,}|[<\[(](?:redacted|masked|hidden|removed|omitted|snip\w*|\.{2,}|…)[>\])]"
)


def field(text: str) -> tuple[str, str] | None:
    """Split a ``name: value`` line; return None for any other line."""
    return (match[1], match[2].strip()) if (match := _FIELD.fullmatch(text)) else None


def value_or_none(value: str | None) -> str | None:
    """Return a value; None if it is missing or masked."""
    return None if not value or _WITHHELD.fullmatch(value) else value


#: A comment between two lines of output.
_COMMENT = re.compile(r"\s+#\s|#\s*[^\x00-\x7f]")


def block(
    lines: Lines,
    at: int,
    belongs: Callable[[str], bool],
    *,
    blanks: int = 2,
    again: Callable[[str], bool] = lambda text: False,
) -> tuple[int, list[Line]]:
    """Return the index after a block that starts at ``at``, and its non-blank lines.

    The block continues while lines belong to it, across at most ``blanks`` consecutive blank lines. A prompt, or a line
    that starts the same output ``again``, ends it. Comments and marks of omitted lines are skipped.
    """
    taken, end, empty = [lines[at]], at + 1, 0
    for index in range(at + 1, len(lines)):
        text = lines[index].text
        if not text.strip():
            empty += 1
            if empty > blanks:
                break
            continue
        if (_COMMENT.match(text) or left_out(text) or text.strip() == _GREP) and not is_prompt(text):
            continue
        if is_prompt(text) or not belongs(text) or again(text):
            break
        taken.append(lines[index])
        end, empty = index + 1, 0
    return end, taken


def fields_from(lines: Lines, at: int, belongs: Callable[[str], bool]) -> tuple[int, dict[str, str]]:
    """Return the index after a block of ``name: value`` lines, and the fields.

    If a name is repeated, its first value is used.
    """
    end, taken = block(lines, at, belongs, blanks=0)
    fields: dict[str, str] = {}
    for name, value in filter(None, (field(line.text) for line in taken)):
        fields.setdefault(name, value)
    return end, fields


def printed(fields: Mapping[str, str]) -> dict[str, str | None]:
    """Return the fields, with None for a missing or masked value."""
    return {name: value_or_none(value) for name, value in fields.items()}


def switch(text: str | None) -> bool | None:
    """Parse ``on`` and ``off``; return None for any other text."""
    return {"on": True, "off": False}.get(text.lower()) if text else None


_NAME_BEGUN = re.compile(r"(\s+)[\w\[][\w ()/.,\[\]-]{0,70}:?\s*")


def broken_off(lines: Lines, end: int) -> bool:
    """Return whether the text after a list ends with an incomplete entry of it.

    Such a line is indented like the list, and has no value.
    """
    if not 0 < len(lines) - end <= 2 or any(line.text.strip() for line in lines[end + 1 :]):
        return False
    begun = _NAME_BEGUN.fullmatch(lines[end].text)
    above = lines[end - 1].text
    return bool(begun and above[: len(begun[1])] == begun[1] and not above[len(begun[1])].isspace())


def stops_in(lines: Lines, end: int, head: re.Pattern[str]) -> bool:
    """Return whether only the first line of another entry follows a list."""
    if len(lines) - end > 4:
        return False
    rest = [line.text for line in lines[end:] if line.text.strip()]
    return len(rest) == 1 and head.match(rest[0]) is not None


def follows_command(lines: Lines, at: int, command: str) -> bool:
    """Return whether the nearest non-blank of the two lines above names a command."""
    return re.search(rf"(?<![\w-]){command}(?![\w-])", _before(lines, at)) is not None


def queried_device(lines: Lines, at: int, command: str) -> str | None:
    """Return the device of the command on the nearest line above, or None."""
    match = re.search(rf"(?<![\w-]){command}(?:\s+-[a-ce-z])*\s+(?:-d[ =]?)?({_DEVICE})(?![\w.-])", _before(lines, at))
    return match[1] if match else None


#: A device name of a driver or udev, which contains a digit.
_DEVICE = r"[A-Za-z][A-Za-z_]{0,20}\d[\w.-]{0,40}"


def _before(lines: Lines, at: int) -> str:
    return next((line.text for line in lines[max(0, at - 2) : at][::-1] if line.text.strip()), "")


def number(text: str | None) -> int | None:
    """Return the number, decimal or hexadecimal, at the start of a string, or None."""
    if text is None:
        return None
    if match := re.fullmatch(r"\s*(0x[0-9a-fA-F]{1,32}|-?\d{1,30})\b.*", text):
        return int(match[1], 0) if match[1].startswith("0x") else int(match[1])
    return None


def decimal(text: str) -> float | None:
    """Return the number in a text, or None for any other text."""
    try:
        return float(text)
    except ValueError:
        return None


def cpu_ids(text: str) -> list[int] | None:
    """Read a list of CPUs: ``0-3,8`` or ``0 1 2 3 8``; None for any other text."""
    found: list[int] = []
    for item in filter(None, re.split(r"[\s,]+", text)):
        match = re.fullmatch(r"(\d{1,5})(?:-(\d{1,5}))?", item)
        if not match or len(found) > 65_536:
            return None
        found += range(int(match[1]), int(match[2] or match[1]) + 1)
    return found


#: Number of lines that are first searched for the end of a JSON value; few, because every line may start one.
_FIRST_LINES = 64


def json_head(lines: Lines, at: int) -> str:
    """Return the first lines of a JSON value, up to an unindented brace or blank line."""
    texts = [lines[at].text[:_HEAD_CHARACTERS]]
    for line in lines[at + 1 : at + _HEAD_LINES]:
        if not line.text or line.text[0] in "{[":
            break
        texts.append(line.text[:200])
    return "\n".join(texts)


#: Maximum number of lines examined to identify a JSON value, and maximum number of characters of its first line.
_HEAD_LINES, _HEAD_CHARACTERS = 4000, 200_000


def json_at(lines: Lines, at: int, most: int = 200_000) -> tuple[int, Any] | None:
    """Return the index of the line after a JSON value, and the value.

    None if it is incomplete or invalid.
    """
    end, size = min(at + most, len(lines)), _FIRST_LINES
    while True:
        text = "\n".join(line.text for line in lines[at : min(at + size, end)])
        start = len(text) - len(text.lstrip())
        try:
            value, stop = json_limits.begun(text, start)
        except (ValueError, RecursionError) as error:
            # if only the end is missing, more lines may complete the value, since tokens contain no newline
            if at + size >= end or getattr(error, "pos", 0) + 2 < len(text.rstrip()):
                return None
            size *= 8
        else:
            return at + text.count("\n", 0, stop) + 1, value
