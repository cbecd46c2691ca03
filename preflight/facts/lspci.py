"""``lspci -Dnvv``: PCI configuration that sysfs does not show.

Source: pciutils, ls-caps.c and ls-ecaps.c. Capabilities are readable by root only; for an ordinary user lspci prints
``Capabilities: <access denied>``, which is unknown, not absent.
"""

from __future__ import annotations

from preflight._startup.lightclass import replace
from preflight.facts.pci import address
from preflight.parsers.pci import lspci
from preflight.parsers.pci.lspci import PciFunction
from preflight.parsers.record import parse_complete

LSPCI = "cmd:lspci -Dnvv"


def parse(text: str) -> dict[str, PciFunction]:
    """Read the functions by address; raises ValueError."""
    found = parse_complete(text, lspci.begins, lspci.parse_lines)
    named = [replace(function, address=address(function.address)) for function in found if function.address]
    return {str(function.address): function for function in named}
