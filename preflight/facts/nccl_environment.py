"""NCCL's environment: the variables in force on a node, and their sources.

Sources: NCCL user guide, "Environment Variables"; NCCL source (src/misc/param.cc, src/misc/socket.cc,
src/misc/utils.cc). The process environment overrides the user's file, which overrides /etc/nccl.conf.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError

PROCESS = "env:process"
USER_FILE = "file:~/.nccl.conf"
SYSTEM_FILE = "file:/etc/nccl.conf"

#: Maximum length of a value in a message, in characters; a list of 32 HCAs with ports has 400.
LONGEST_SHOWN = 600

#: Placeholder for a value that must not leave the node.
REDACTED = "[redacted]"

#: Name prefixes of interfaces that lead to no other node; NCCL uses them only as a last resort.
LOCAL_INTERFACES = ("lo", "docker", "virbr", "cni", "veth", "br-")

#: First release in which a list of HCAs may name rails and planes, so an empty port means any.
RAILS = (2, 30, 7)


@dataclass(frozen=True)
class Setting:
    """One variable in force, and where it is set."""

    name: str
    value: str
    source: str  # record key
    line: int | None = None  # from 1, in a file
    holder: str = ""  # owner of the environment, if not the collecting process

    @property
    def where(self) -> str:
        """The location to edit: ``the environment`` or ``/etc/nccl.conf line 3``.

        For a running rank, ``the environment of process 4711``.
        """
        if self.line is None:
            return self.holder or "the environment"
        return f"{self.source.partition(':')[2]} line {self.line}"

    @property
    def text(self) -> str:
        """``NAME=VALUE``; hidden blanks and control characters are made visible.

        A long value is shortened.
        """
        plain = self.value.isprintable() and self.value == self.value.strip()
        shown = self.value if plain else repr(self.value)
        return f"{self.name}={shown if len(shown) <= LONGEST_SHOWN else shown[:LONGEST_SHOWN] + '…'}"


@dataclass(frozen=True)
class SelectionItem:
    """One item in a list of HCAs or interfaces."""

    name: str
    port: int | None = None  # None: any

    def __str__(self) -> str:
        """Return the item as written."""
        return self.name if self.port is None else f"{self.name}:{self.port}"


@dataclass(frozen=True)
class Selection:
    """NCCL's list grammar, shared by NCCL_IB_HCA and NCCL_SOCKET_IFNAME.

    ``["^"] ["="] item *("," item)`` with ``item = name [":" port [":" rail [":" plane]]]``; ``^`` and ``=`` apply to
    every item. Without ``=`` a name is a prefix. Blanks are not trimmed, and case is significant.
    """

    items: tuple[SelectionItem, ...]
    exclude: bool = False
    exact: bool = False

    @classmethod
    def parse(cls, value: str, *, empty_port_is_any: bool = True) -> Selection:
        """Parse a list as NCCL does.

        ``empty_port_is_any`` is true from 2.30.7 on, which supports rails.
        """
        exclude = value.startswith("^")
        rest = value[1:] if exclude else value
        exact = rest.startswith("=")
        items = []
        for text in (rest[1:] if exact else rest).split(","):
            name, colon, tail = text.partition(":")
            if name:
                items.append(SelectionItem(name, _port(tail, empty_port_is_any) if colon else None))
        return cls(tuple(items), exclude, exact)

    def names(self, item: SelectionItem, name: str) -> bool:
        """Return whether an item names this device, ignoring port and ``^``."""
        return name == item.name if self.exact else name.startswith(item.name)

    def matches(self, device: str, port: int) -> bool:
        """Return whether an RDMA port is selected."""
        listed = any(self.names(item, device) and item.port in (None, port) for item in self.items)
        return (listed or not self.items) != self.exclude

    def matches_name(self, name: str) -> bool:
        """Return whether an interface is selected; ports in the list are ignored."""
        return (any(self.names(item, name) for item in self.items) or not self.items) != self.exclude


def _port(text: str, empty_is_any: bool) -> int | None:
    """Parse a port as atoi does: text is 0, which matches no port; -1 means any."""
    if empty_is_any and not text.partition(":")[0]:
        return None
    match = re.match(r"[ \t\n\v\f\r]*([+-]?[0-9]{1,9})", text)
    port = int(match[1]) if match else 0
    return None if port == -1 else port


_STRTOLL = re.compile(r"[ \t\n\v\f\r]*([+-]?)(?:0[xX]([0-9a-fA-F]+)|0([0-7]*)|([1-9][0-9]*))")


def strtoll(text: str) -> int | None:
    """Parse a number as C's ``strtoll(…, 0)``; None if it overflows.

    ``true`` is 0, ``4M`` 4, ``010`` 8.
    """
    if not (match := _STRTOLL.match(text)):
        return 0
    sign, hexadecimal, octal, decimal = match.groups()
    digits, base = (hexadecimal, 16) if hexadecimal else (decimal, 10) if decimal else (octal or "0", 8)
    if len(digits) > 70:
        return None
    number = int(digits, base) * (-1 if sign == "-" else 1)
    return number if -(2**63) <= number < 2**63 else None


@dataclass(frozen=True)
class NcclEnvironment:
    """The variables in force, and the sources that could not be read."""

    settings: tuple[Setting, ...]
    unreadable: Mapping[str, str]  # unreadable record -> reason; it may set a variable

    def get(self, name: str) -> Setting | None:
        """Return the effective setting, or None if no readable source has one."""
        return next((setting for setting in self.settings if setting.name == name), None)

    def text(self, name: str) -> str | None:
        """Return a value, None if unset; raises EvidenceError if it was redacted."""
        setting = self.get(name)
        if setting is not None and setting.value == REDACTED:
            raise EvidenceError(setting.source, f"the value of {name} was redacted")
        return setting.value if setting else None

    def integer(self, name: str) -> int | None:
        """Return a number as NCCL parses it; None if NCCL uses its default.

        NCCL does so for an unset or empty variable, and on overflow.
        """
        return strtoll(value) if (value := self.text(name)) else None

    @property
    def hca_selection(self) -> Selection | None:
        """NCCL_IB_HCA; None if it selects everything (unset, empty, ``=``)."""
        selection = Selection.parse(self.text("NCCL_IB_HCA") or "")
        return selection if selection.items or selection.exclude else None

    @property
    def socket_selection(self) -> Selection | None:
        """NCCL_SOCKET_IFNAME; None if NCCL chooses.

        A value of one character counts as unset.
        """
        value = self.text("NCCL_SOCKET_IFNAME") or ""
        return Selection.parse(value) if len(value) > 1 else None


def read(evidence: Evidence) -> NcclEnvironment:
    """Merge environment and files as NCCL does.

    From 2.23 on NCCL_CONF_FILE replaces the user's file. Raises EvidenceError if the environment was not read.
    """
    environment = evidence.value(PROCESS)
    if not isinstance(environment, Mapping):
        raise EvidenceError(PROCESS, f"contains a {type(environment).__name__}, not names and values")
    holder = "the container's environment" if evidence.collector.get("where") == "container" else ""
    in_force: dict[str, Setting] = {}
    for name, value in environment.items():
        if not isinstance(value, str):
            raise EvidenceError(PROCESS, f"the value of {name!r} is a {type(value).__name__}, not text")
        in_force[name] = Setting(name, value, PROCESS, holder=holder)
    unreadable: dict[str, str] = {}
    instead = environment.get("NCCL_CONF_FILE")
    for key in (f"file:{instead}" if instead else USER_FILE, SYSTEM_FILE):
        try:
            if instead and key != SYSTEM_FILE and key not in evidence:
                content = _conf_file(evidence, instead)
            else:
                content = evidence.text(key) if evidence.exists(key) else ""
        except EvidenceError as error:
            unreadable[key] = error.why
            continue
        for setting in parse_file(content, key):
            in_force.setdefault(setting.name, setting)
    return NcclEnvironment(tuple(in_force.values()), unreadable)


def _conf_file(evidence: Evidence, path: str) -> str:
    """Return the content of NCCL_CONF_FILE; empty if the file does not exist."""
    from preflight.facts.nccl_settings import named_files  # rarely needed, and its package imports this module

    named = named_files.named(evidence).get("NCCL_CONF_FILE")
    if named is None or named.path != path:
        raise EvidenceError(f"file:{path}", "was not collected from this node")
    if named.missing:
        return ""
    if named.text is None:
        raise EvidenceError(named_files.FILES, named.why or "its content was not read")
    return named.text


def parse_file(text: str, key: str) -> Iterator[Setting]:
    """Yield the settings of one file, without quoting or trimming.

    ``#`` begins a comment only as the first character. Up to 2.29, blanks and a CR at the end of a line become part of
    the value.
    """
    for number, line in enumerate(text.split("\n"), 1):
        name, equals, value = line.partition("=")
        if equals and name and not line.startswith("#"):
            yield Setting(name, value, key, number)
