"""Terminal sessions with a switch: prompts, commands and answers.

A prompt is the host name, a mode in parentheses, and ``#`` or ``>``; a time or a supervisor may be between them. That
of a Linux shell is ``user@host:directory$``, with the VRF before the directory; that of Junos is ``user@host>``.
Sources: EOS user manual (command-line interface), NX-OS fundamentals guide, Cumulus Linux user guide, Junos CLI guide.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.parsers.switch import eos_answers, junos_answers, linux_answers, nxos_answers, sonic_commands
from preflight.parsers.switch.show_commands import ShowCommand

Record = dict[str, Any]

#: A line that begins with a prompt: first of a switch, then of a shell, then of Junos.
_PROMPT = re.compile(
    r"^(?:([A-Za-z0-9][A-Za-z0-9_-]{0,62}(?:\.[A-Za-z][A-Za-z0-9_-]{0,62}){0,6})"
    r"(?:\.[0-9]{2}:[0-9]{2}:[0-9]{2})?(?:\([A-Za-z0-9_-]{1,60}\)){0,2}[#>] ?(.*)"
    r"|[a-z_][a-z0-9_-]{0,31}@([A-Za-z0-9][A-Za-z0-9_-]{0,62}):(?:[a-z0-9_-]{1,32}:)?[~/][^\s$#]{0,200}[$#] ?(.*)"
    r"|[A-Za-z_][A-Za-z0-9_.-]{0,31}@([A-Za-z0-9][A-Za-z0-9_-]{0,62})[>#] ?(.*))$",
    re.MULTILINE,
)
#: Text that a terminal adds: escape sequences and erased characters, then the pager.
_TERMINAL = re.compile(r"\x1b\[[0-9;?]{0,20}[A-Za-z]|[^\n]\x08|[\x08\x07]")
_PAGER = re.compile(r"^ *--More--(?:\([0-9]{1,3}%\))? *\r?", re.MULTILINE)


@dataclass(frozen=True)
class SwitchSession:
    """The name of a switch, and its answers in the order of the session."""

    name: str
    answers: Sequence[tuple[str, str]]  # command and text
    first: int  # line number of the first command
    unread: Sequence[tuple[int, str]]  # line numbers and show commands whose output is not read


@dataclass(frozen=True)
class CommandLine:
    """A switch platform, and the functions that read its sessions.

    ``commands`` is the closed list of those that preflight sends; ``load`` returns the load of the control plane by the
    records of their answers.
    """

    name: str  # as in documents: eos, nxos, junos, linux, sonic
    title: str
    question: Callable[[str], str | None]
    record: Callable[[str, str], Record]
    records: Callable[[Iterable[tuple[str, Record]]], dict[str, Record]]
    commands: Mapping[str, ShowCommand] = field(default_factory=dict)
    load: Callable[[Mapping[str, Record]], float | None] = lambda answers: None
    sent: Callable[[str], str] = "{} | json".format

    def command(self, question: str) -> str:
        """Return a command that is in the list; raises ValueError for any other text."""
        if question not in self.commands:
            raise ValueError(f"{question[:80]!r} is not one of the commands for {self.title} switches")
        return question


def _platform(name: str, title: str, module: Any, **more: Callable[[str], str]) -> CommandLine:
    return CommandLine(
        name, title, module.question, module.record, module.records, module.COMMANDS, module.load, **more
    )


EOS = _platform("eos", "Arista EOS", eos_answers)
#: The platforms whose commands preflight sends.
COMMANDED = {
    "eos": EOS,
    "nxos": _platform("nxos", "Cisco NX-OS", nxos_answers),
    "junos": _platform("junos", "Juniper Junos", junos_answers, sent=junos_answers.sent),
    "linux": _platform("linux", "Linux", linux_answers, sent=linux_answers.sent),
}
PLATFORMS = (
    *COMMANDED.values(),
    CommandLine("sonic", "SONiC", sonic_commands.question, sonic_commands.record, sonic_commands.records),
)


def recorded(text: str) -> tuple[CommandLine, SwitchSession, list[tuple[str, Record]]] | None:
    """Return a session and the records of its answers.

    The platform is the one that reads most of them; None if no platform does.
    """
    readings = []
    for platform in PLATFORMS:
        if session := parse(text, platform.question):
            answers = [(command, platform.record(command, answer)) for command, answer in session.answers]
            readings.append((platform, session, answers))
    return max(readings, key=lambda reading: sum(record["status"] == "ok" for _, record in reading[2]), default=None)


def parse(text: str, question_of: Callable[[str], str | None] = eos_answers.question) -> SwitchSession | None:
    """Parse a session; None if it contains none of the commands of a platform."""
    name, first, line, at, begin = "", 0, 1, 0, 0
    answers: list[tuple[str, str]] = []
    unread: list[tuple[int, str]] = []
    question: str | None = None
    plain = _PAGER.sub("", _TERMINAL.sub("", text)).replace("\r", "")
    for match in _PROMPT.finditer(plain):
        named = match[1] or match[3] or match[5]
        command = match[2] or match[4] or match[6] or ""
        if name and named != name:
            continue
        if question is not None:
            answers.append((question, plain[begin : max(begin, match.start() - 1)]))
        line += plain.count("\n", at, match.start())
        at, begin, question = match.start(), match.end() + 1, question_of(command)
        if question and not name:
            name, first = named, line
        elif name and question is None and command.startswith("sh"):
            unread.append((line, command.strip()))
    if question is not None:
        answers.append((question, plain[begin:]))
    return SwitchSession(name, answers, first, unread) if answers else None
