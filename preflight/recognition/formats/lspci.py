"""``lspci -vv``: the link, the access control and the read requests of each device."""

from __future__ import annotations

import re
from typing import Any

from preflight.recognition.detector import OutputFormat, ParsedPart, TextGap
from preflight.recognition.formats import lspci_tree
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Lines

#: ``81:00.0 Infiniband controller: Mellanox …``; with ``-n`` and ``-nn`` the class is, or has, a number.
_DEVICE = re.compile(
    r"\s{0,12}((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) "
    r"([A-Z0-9][^:\[\]]{2,60}(?: \[[0-9a-f]{4}\])?|[0-9a-f]{4}): (\S.*)"
)
#: The command that asked for one device.
_COMMAND = re.compile(
    r"\blspci\s[^|]{0,80}?-s\s?[\"']?((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])\b[^#$]{0,200}$"
)
#: Lines of what somebody pasted.
_MOST_LINES = 5000
_DEVICE_STUMP = re.compile(r"\s{0,4}(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7](?: [A-Z][^:]{0,60})?")
_LINK = re.compile(r"\s*Lnk(Cap|Sta):\s.*?Speed ([\w./]+)(?: \((\w+)\))?, Width (x\d{1,2})(?!\d)(?: \((\w+)\))?.*")
_ACS = re.compile(r"\s*ACSCtl:\s*(.*)")
_DEVCTL = re.compile(r"\s*(?:DevCtl:.*|.*MaxPayload (\d{2,4}) bytes, MaxReadReq (\d{3,4}) bytes.*)")


#: What a device's details begin with, by which they are told where the indentation or the device's line is lost.
_DETAIL = re.compile(
    r"\s*(?:(?:Lnk|Dev|Slt|Root|ACS|AER|UE|CE)(?:Cap|Ctl|Sta|Msk|Svrt)\d?|Capabilities|Subsystem|Control|Status|Latency"
    r"|Interrupt|NUMA node|Region \d|Physical Slot|IOMMU group|Bus|Kernel (?:driver in use|modules)|Flags|BIST"
    r"|(?:\[virtual\] )?Expansion ROM at .*|Memory at [0-9a-f]{4,16}|I/O ports at [0-9a-f]{2,8}"
    r"|Secondary status|BridgeCtl|(?:Memory|I/O|Prefetchable memory) behind bridge"
    # extended capabilities
    r"|(?:IOV|ARI|PASID|PTM|TPH|ATS|PR|L1Sub|DPC|Phy\d{1,2}|AtomicOps|DOE|CXL)\w{0,6}(?:Cap|Ctl|Sta|Ctrl)\d?"
    r"|Initial VFs|VF (?:offset|Migration)|Supported Page Size|HeaderLog|First Error Pointer|Max (?:no )?snoop latency"
    r"|LaneErrStat|PBA|Vector table|Arb|Ctrl|Caps|VC\d|RootCmd|ErrorSrc"
    # what a card's maker says of it
    r"|Product Name|\[[A-Z][A-Z0-9]\] [A-Z][\w ()-]{2,40})\s?:?\s.*"
    r"|\s*(?:Read(?:-only|/write) fields:|End)"
)
#: A name of which the rest was cut off, or a flag that lost its sign.
_STUMP = re.compile(r"\s*[A-Z][A-Za-z]{0,11}|.*\s[A-Za-z0-9]{1,20}[+-] [A-Za-z]\w{0,14}")
#: A line of flags, of a slot or of a payload: what a register's line goes on with.
_FLAGS = re.compile(r"[A-Za-z][\w/-]{1,24}[+-](?:[\s,;].*)?|(?:Slot #\d|MaxPayload \d|Address: |Vector table: ).*")
#: Registers that only PCI Express functions have: what is left where the line that names the device is cut off.
_REGISTER = re.compile(
    r"\s*(?:Lnk(?:Cap|Ctl|Sta)|Dev(?:Cap|Ctl|Sta)|ACS(?:Cap|Ctl)|Slt(?:Cap|Ctl|Sta))2?:\s.*[+-](?:\s.*)?"
)
#: What stands in the name of a register that a line tells by itself.
_REGISTERS = ("Lnk", "ACS", "Dev", "Slt", "MaxReadReq")


#: How the outputs begin that people ask for next.
_NEXT = re.compile(
    r"(?:CA:? '|hca_id:|Infiniband device '|link \S+/\d|driver:|NIC statistics:|Settings for |[A-Z][A-Za-z]+:\s*$).*"
)
#: Characters that a mail breaks off a line at most.
_BROKEN_OFF = 60


def _begins_lspci(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if _DEVICE.fullmatch(text) or lspci_tree.begins(text):
        return True
    if not any(name in text for name in _REGISTERS):
        return False
    if _LINK.fullmatch(text) or (text.lstrip().startswith("ACSCtl:") and _REGISTER.fullmatch(text)):
        return True
    if not (_REGISTER.fullmatch(text) or _DEVCTL.fullmatch(text)):
        return False
    if at and re.search(r"\blspci\b.*grep", lines[at - 1].text):
        return True
    return any(_REGISTER.fullmatch(line.text) or _LINK.fullmatch(line.text) for line in lines[at + 1 : at + 5])


def _device(match: re.Match[str] | None) -> dict[str, Any]:
    return {
        "address": match[1] if match else None, "class": match[2] if match else None,
        "name": match[3] if match else None, "acs_ctl": None,
        "link": {"speed": None, "width": None, "downgraded": None, "max_speed": None, "max_width": None},
        "max_read_request": None, "max_payload": None,
    }  # fmt: skip


def _take_lspci(lines: Lines, at: int) -> ParsedPart:
    if lspci_tree.begins(lines[at].text):
        return lspci_tree.take(lines, at, _device(None))
    devices: list[dict[str, Any]] = []
    end, last, empty, acs = at, at, 0, False
    cut = list[TextGap]()
    marks_downgrades = any("(downgraded)" in line.text or "(ok)" in line.text for line in lines[:_MOST_LINES])
    if not _DEVICE.fullmatch(lines[at].text):
        devices.append(_device(None) | {"address": _queried_device(lines, at)})
        cut.append(TextGap(lines[at].number, "the line that names the device is missing"))
    while end < len(lines):
        text = lines[end].text
        if match := _DEVICE.fullmatch(text):
            devices.append(_device(match))
            empty = 0
        elif not text.strip():
            empty += 1
            if empty > 2:
                break
        elif is_prompt(text) or not (text[:1].isspace() or _detailed(text) or _rest(lines, end)):
            break
        else:
            if _is_repeated(devices[-1], text):
                devices.append(_device(None))  # one register of each device, as grep leaves them
            if (
                acs and devices[-1]["acs_ctl"] and _FLAGS.fullmatch(text.lstrip())
            ):  # the rest of a line that a mail broke
                devices[-1]["acs_ctl"].update(_flags(text))
            _detail(devices[-1], text, marks_downgrades)
            empty, acs = 0, text.lstrip().startswith("ACSCtl:")
        last = end if text.strip() else last
        end += 1
    rest = [line for line in lines[end:] if line.text.strip()] if end > len(lines) - 4 else []
    if len(rest) == 1 and _DEVICE_STUMP.fullmatch(rest[0].text):
        last = end
        cut.append(TextGap(lines[end].number, "the line of the next device breaks off"))
    elif _STUMP.fullmatch(lines[last].text):
        cut.append(TextGap(lines[last].number, "the line breaks off"))
    down = [str(device["address"]) for device in devices if device["link"]["downgraded"]]
    summary = f"{len(devices)} devices, links below their capability: {', '.join(down[:8]) or 'none shown'}"
    return ParsedPart(last + 1, {"devices": devices}, summary, cut)


def _queried_device(lines: Lines, at: int) -> str | None:
    """Return the device that the command before a line names; None if none."""
    before = " ".join(line.text for line in lines[max(0, at - 2) : at])
    match = _COMMAND.search(before)
    return match[1] if match else None


def _detailed(text: str) -> bool:
    return bool(_DETAIL.fullmatch(text) or _FLAGS.fullmatch(text))


def _rest(lines: Lines, at: int) -> bool:
    """Tell whether a line is the rest of the one before it, which a mail broke: the next one goes on."""
    text = lines[at].text
    if len(text) >= _BROKEN_OFF or _NEXT.match(text):
        return False
    for line in lines[at + 1 : at + 3]:  # two breaks in one line at most
        if _DETAIL.fullmatch(line.text) or _FLAGS.fullmatch(line.text.lstrip()):
            return True
        if line.text[:1].isspace() and lines[at - 1].text.strip():
            return True
        if not line.text or len(line.text) >= _BROKEN_OFF or _NEXT.match(line.text):
            break
    return False


def _flags(text: str) -> dict[str, bool]:
    return {flag[:-1]: flag[-1] == "+" for flag in text.split() if flag[-1:] in "+-"}


def _is_repeated(device: dict[str, Any], text: str) -> bool:
    """Return whether a register that a device has once is there already."""
    if match := _LINK.fullmatch(text):
        return device["link"]["max_speed" if match[1] == "Cap" else "speed"] is not None
    if _ACS.fullmatch(text):
        return device["acs_ctl"] is not None
    return "MaxReadReq" in text and device["max_read_request"] is not None


def _detail(device: dict[str, Any], text: str, marks_downgrades: bool) -> None:
    if match := _LINK.fullmatch(text):
        if match[1] == "Cap":
            device["link"].update(max_speed=match[2], max_width=match[4])
        else:
            downgraded = "downgraded" in (match[3], match[5])
            if match[3] is None and match[5] is None and device["link"]["max_speed"] and not marks_downgrades:
                # lspci before 3.6 does not print it; later ones print it for all but ports
                downgraded = (match[2], match[4]) != (device["link"]["max_speed"], device["link"]["max_width"])
            device["link"].update(speed=match[2], width=match[4], downgraded=downgraded)
    elif match := _ACS.fullmatch(text):
        device["acs_ctl"] = _flags(match[1])
    elif (match := _DEVCTL.fullmatch(text)) and match[2]:
        device.update(max_payload=int(match[1]), max_read_request=int(match[2]))


KINDS = (OutputFormat("lspci", _begins_lspci, _take_lspci, hints=(":", "]-", *_REGISTERS)),)
