"""``lspci -Dnvv``: what of a PCI function's configuration sysfs does not show.

Source: pciutils, ls-caps.c and ls-ecaps.c. Capabilities are readable by root only; for an ordinary
user lspci prints ``Capabilities: <access denied>``, which is unknown, not absent. Texts that people
paste (``lspci -vvv``, with names and without domains) read the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight._startup.lightclass import dataclass, replace
from preflight.facts.pci import address
from preflight.textprep.plain_text import normalize_text

LSPCI = "cmd:lspci -Dnvv"

#: ACS controls that send a request or completion between two devices up to the root complex.
REDIRECTS = frozenset({"ReqRedir", "CmpltRedir", "UpstreamFwd"})

_HEADER = re.compile(r"((?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]) \S")
_FLAG = re.compile(r"\b([A-Za-z]{1,20})([+-])(?=\s|$)")


@dataclass(frozen=True)
class Function:
    """The configuration of one PCI function; None where lspci did not print it."""

    address: str
    denied: bool = False  # its capabilities may be read by root only
    acs: frozenset[str] | None = None  # ACSCtl: the controls that are on; None without the capability
    max_read_request_bytes: int | None = None  # DevCtl: MaxReadReq
    relaxed_ordering: bool | None = None  # DevCtl: RlxdOrd

    @property
    def redirects(self) -> frozenset[str]:
        """The ACS controls that are on and redirect peer-to-peer traffic."""
        return (self.acs or frozenset()) & REDIRECTS


def parse(text: str) -> dict[str, Function]:
    """Read the whole output by address; raises ValueError if it describes no function."""
    found: dict[str, Function] = {}
    for head, body in _blocks(normalize_text(text)):
        name = address(head)
        function = Function(name)
        control = ""
        for line in body:
            words = line.strip()
            if words.startswith("Capabilities: <access denied>"):
                function = replace(function, denied=True)
            elif words.startswith("ACSCtl:"):
                function = replace(function, acs=frozenset(n for n, sign in _FLAG.findall(words) if sign == "+"))
            # DevCtl goes on over lines of its own, which begin with no label
            if words.startswith("DevCtl:"):
                control = words
            elif control and not re.match(r"[A-Z][A-Za-z0-9]{2,12}:", words):
                control += " " + words
            elif control:
                function, control = _device_control(function, control), ""
        found[name] = _device_control(function, control) if control else function
    if not found:
        first = next((line.strip() for line in normalize_text(text).split("\n") if line.strip()), "")
        raise ValueError(f"there is no PCI function in it; it begins {first[:80]!r}")
    return found


def _blocks(text: str) -> Iterator[tuple[str, list[str]]]:
    head, body = "", list[str]()
    for line in text.split("\n"):
        if match := _HEADER.match(line):
            if head:
                yield head, body
            head, body = match[1], []
        else:
            body.append(line)
    if head:
        yield head, body


def _device_control(function: Function, text: str) -> Function:
    flags = dict(_FLAG.findall(text))
    size = re.search(r"MaxReadReq (\d{3,4}) bytes", text)
    return replace(
        function,
        max_read_request_bytes=int(size[1]) if size else None,
        relaxed_ordering=flags["RlxdOrd"] == "+" if "RlxdOrd" in flags else None,
    )
