"""The host's own: ``lspci -vv``, ``numactl -H``, and Multus's ``network-status``."""

from __future__ import annotations

import json
import re
from typing import Any

from preflight.reading.blocks import block, cpu_ids, is_prompt
from preflight.reading.kinds.verbs import json_at
from preflight.reading.lines import Lines
from preflight.reading.parts import Cut, Kind, Taken

# --- lspci -------------------------------------------------------------------------------------------

#: ``81:00.0 Infiniband controller: Mellanox …``; with ``-n`` and ``-nn`` the class is, or has, a number.
_DEVICE = re.compile(
    r"\s{0,4}((?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]) "
    r"([A-Z0-9][^:\[\]]{2,60}(?: \[[0-9a-f]{4}\])?|[0-9a-f]{4}): (\S.*)"
)
_LINK = re.compile(r"\s*Lnk(Cap|Sta):\s.*?Speed ([\w./]+)(?: \((\w+)\))?, Width (x\d{1,2})(?: \((\w+)\))?.*")
_ACS = re.compile(r"\s*ACSCtl:\s*(.*)")
_DEVCTL = re.compile(r"\s*(?:DevCtl:.*|.*MaxPayload (\d{2,4}) bytes, MaxReadReq (\d{3,4}) bytes.*)")


#: What a device's details begin with, by which they are told where the indentation or the device's line is lost.
_DETAIL = re.compile(
    r"\s*(?:(?:Lnk|Dev|Slt|Root|ACS|AER|UE|CE)(?:Cap|Ctl|Sta|Msk|Svrt)\d?|Capabilities|Subsystem|Control|Status|Latency"
    r"|Interrupt|NUMA node|Region \d|Physical Slot|IOMMU group|Bus|Kernel (?:driver in use|modules)|Flags|BIST"
    r"|Expansion ROM at .*|Secondary status|BridgeCtl|(?:Memory|I/O|Prefetchable memory) behind bridge)\s?:?\s.*"
)
#: A name of which the rest was cut off, or a flag that lost its sign.
_STUMP = re.compile(r"\s*[A-Z][A-Za-z]{0,11}|.*\s[A-Za-z0-9]{1,20}[+-] [A-Za-z]\w{0,14}")
#: A line of flags, of a slot or of a payload: what a register's line goes on with.
_FLAGS = re.compile(r"[A-Za-z][\w/-]{1,24}[+-](?:[\s,;].*)?|(?:Slot #\d|MaxPayload \d|Address: |Vector table: ).*")
#: Registers that only PCI Express functions have: what is left where the line that names the device is cut off.
_REGISTER = re.compile(
    r"\s*(?:Lnk(?:Cap|Ctl|Sta)|Dev(?:Cap|Ctl|Sta)|ACS(?:Cap|Ctl)|Slt(?:Cap|Ctl|Sta))2?:\s.*[+-](?:\s.*)?"
)


#: Characters that a mail breaks off a line at most.
_BROKEN_OFF = 60


def _begins_lspci(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if _DEVICE.fullmatch(text):
        return True
    if not re.search("Lnk|ACS|Dev|Slt|MaxReadReq", text):
        return False
    if _LINK.fullmatch(text) or (text.lstrip().startswith("ACSCtl:") and _REGISTER.fullmatch(text)):
        return True
    if not (_REGISTER.fullmatch(text) or _DEVCTL.fullmatch(text)):
        return False
    return any(_REGISTER.fullmatch(line.text) or _LINK.fullmatch(line.text) for line in lines[at + 1 : at + 5])


def _device(match: re.Match[str] | None) -> dict[str, Any]:
    return {
        "address": match[1] if match else None, "class": match[2] if match else None,
        "name": match[3] if match else None, "acs_ctl": None,
        "link": {"speed": None, "width": None, "downgraded": None, "max_speed": None, "max_width": None},
        "max_read_request": None, "max_payload": None,
    }  # fmt: skip


def _take_lspci(lines: Lines, at: int) -> Taken:
    devices: list[dict[str, Any]] = []
    end, last, empty, acs = at, at, 0, False
    cut = list[Cut]()
    if not _DEVICE.fullmatch(lines[at].text):
        devices.append(_device(None))
        cut.append(Cut(lines[at].number, "the line that names the device is missing"))
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
            if _said(devices[-1], text):
                devices.append(_device(None))  # one register of each device, as grep leaves them
            if acs and devices[-1]["acs_ctl"] and _FLAGS.fullmatch(text):  # the rest of a line that a mail broke
                devices[-1]["acs_ctl"].update(_flags(text))
            _detail(devices[-1], text)
            empty, acs = 0, text.lstrip().startswith("ACSCtl:")
        last = end if text.strip() else last
        end += 1
    if _STUMP.fullmatch(lines[last].text):
        cut.append(Cut(lines[last].number, "the line breaks off"))
    down = [str(device["address"]) for device in devices if device["link"]["downgraded"]]
    summary = f"{len(devices)} devices, links below their capability: {', '.join(down[:8]) or 'none shown'}"
    return Taken(last + 1, {"devices": devices}, summary, cut)


def _detailed(text: str) -> bool:
    return bool(_DETAIL.fullmatch(text) or _FLAGS.fullmatch(text))


def _rest(lines: Lines, at: int) -> bool:
    """Tell whether a line is the rest of the one before it, which a mail broke: the next one goes on."""
    after = lines[at + 1].text if at + 1 < len(lines) else ""
    return len(lines[at].text) < _BROKEN_OFF and bool(_DETAIL.fullmatch(after) or _FLAGS.fullmatch(after))


def _flags(text: str) -> dict[str, bool]:
    return {flag[:-1]: flag[-1] == "+" for flag in text.split() if flag[-1:] in "+-"}


def _said(device: dict[str, Any], text: str) -> bool:
    """Tell whether a register comes a second time, which no device has twice."""
    if match := _LINK.fullmatch(text):
        return device["link"]["max_speed" if match[1] == "Cap" else "speed"] is not None
    if _ACS.fullmatch(text):
        return device["acs_ctl"] is not None
    return "MaxReadReq" in text and device["max_read_request"] is not None


def _detail(device: dict[str, Any], text: str) -> None:
    if match := _LINK.fullmatch(text):
        if match[1] == "Cap":
            device["link"].update(max_speed=match[2], max_width=match[4])
        else:
            downgraded = "downgraded" in (match[3], match[5])
            if match[3] is None and match[5] is None and device["link"]["max_speed"]:
                # lspci before 3.6 does not say it in words
                downgraded = (match[2], match[4]) != (device["link"]["max_speed"], device["link"]["max_width"])
            device["link"].update(speed=match[2], width=match[4], downgraded=downgraded)
    elif match := _ACS.fullmatch(text):
        device["acs_ctl"] = _flags(match[1])
    elif (match := _DEVCTL.fullmatch(text)) and match[2]:
        device.update(max_payload=int(match[1]), max_read_request=int(match[2]))


# --- numactl -H --------------------------------------------------------------------------------------

_AVAILABLE = re.compile(r"\s*available:\s*(\d{1,4}) nodes?\b.*")
#: With ``--cpu-compress`` ranges, and behind them how many CPUs they are.
_NODE_CPUS = re.compile(r"\s*node (\d{1,4}) cpus:\s*([\d\s,-]*?)\s*(?:\(\d{1,5}\))?\s*")
#: The rest of a node's CPUs, where the line was broken.
_MORE_CPUS = re.compile(r"\s*\d{1,5}(?:\s+\d{1,5})*\s*")
_NODE_SIZE = re.compile(r"\s*node (\d{1,4}) (size|free):\s*(\d{1,12}) ([KMG]B)\s*")
_UNIT = {"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30}


def _begins_numactl(lines: Lines, at: int) -> bool:
    return bool(_AVAILABLE.fullmatch(lines[at].text) or _NODE_CPUS.fullmatch(lines[at].text))


def _take_numactl(lines: Lines, at: int) -> Taken:
    def belongs(text: str) -> bool:
        return bool(
            _AVAILABLE.fullmatch(text) or _NODE_CPUS.fullmatch(text) or _NODE_SIZE.fullmatch(text)
            or re.fullmatch(r"\s*node distances:\s*|\s*node(?:\s+\d{1,4})+\s*|\s*\d{1,4}:(?:\s+\d{1,4})+\s*", text)
            or _MORE_CPUS.fullmatch(text)
        )  # fmt: skip

    end, taken = block(lines, at, belongs, blanks=1)
    nodes: dict[str, dict[str, Any]] = {}
    promised = None
    told: dict[str, list[str]] = {}
    open_node = ""
    for line in taken:
        if open_node and _MORE_CPUS.fullmatch(line.text):
            told[open_node][-1:] = joined_cpus(told[open_node][-1], line.text)
            continue
        open_node = ""
        if match := _AVAILABLE.fullmatch(line.text):
            promised = int(match[1])
        elif match := _NODE_CPUS.fullmatch(line.text):
            nodes.setdefault(match[1], {"cpus": None, "memory_bytes": None})
            told[match[1]], open_node = [match[2]], match[1]
        elif (match := _NODE_SIZE.fullmatch(line.text)) and match[2] == "size":
            node = nodes.setdefault(match[1], {"cpus": None, "memory_bytes": None})
            node["memory_bytes"] = int(match[3]) * _UNIT[match[4]]
    for name, texts in told.items():
        nodes[name]["cpus"] = cpu_ids(" ".join(texts))
    cut = []
    if promised is not None and promised != len(nodes):
        cut.append(Cut(taken[-1].number, f"{promised} nodes are available and {len(nodes)} are shown"))
    cut += [Cut(taken[-1].number, f"the size of node {name} is missing")
            for name, node in nodes.items() if node["memory_bytes"] is None]  # fmt: skip
    return Taken(end, {"numa_nodes": nodes}, f"{len(nodes)} NUMA nodes", cut)


def joined_cpus(text: str, more: str) -> list[str]:
    """Put a list of CPUs together that was broken, between two numbers or within one: whole ones go up."""
    numbers = [int(number) for number in re.findall(r"\d{1,5}", text[-24:])][-2:]
    cut = numbers[-1:] <= numbers[-2:-1] or [int(more.split()[0])] <= numbers[-1:]
    return [text + more] if cut and numbers and not more[:1].isspace() else [text, more]


# --- network-status ----------------------------------------------------------------------------------


#: Where one network's entry ends and the next begins.
_NEXT_NETWORK = re.compile(r"\s*},\s*{\s*")


def _begins_status(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if _NEXT_NETWORK.fullmatch(text):  # the head was cut off
        near = " ".join(line.text[:4000] for line in lines[at + 1 : at + 6])
        return '"name"' in near and ('"interface"' in near or '"ips"' in near)
    if "network-status" in text:
        return any("[" in line.text or "{" in line.text for line in lines[at : at + 3])
    if not text.lstrip().startswith("["):
        return False
    near = " ".join(line.text[:4000] for line in lines[at : at + 8])
    return '"name"' in near and ('"interface"' in near or '"ips"' in near or '"dns"' in near)


def _take_status(lines: Lines, at: int) -> Taken:
    networks: list[dict[str, Any]] = []
    cut = list[Cut]()
    told = None if _NEXT_NETWORK.fullmatch(lines[at].text) else _status(lines, at)
    if told is None:
        told = _cut_status(lines, at)
        cut.append(Cut(lines[told[0] - 1].number, "the JSON of the network status is not whole"))
    end, value = told
    for entry in value:
        info = entry.get("device-info")
        details = list(info.values()) if isinstance(info, dict) else []
        rdma = next((one["rdma-device"] for one in details if isinstance(one, dict) and "rdma-device" in one), None)
        networks.append({
            "name": entry.get("name"), "interface": entry.get("interface"), "ips": entry.get("ips") or [],
            "mac": entry.get("mac"), "rdma_device": rdma, "default": entry.get("default"), "mtu": entry.get("mtu"),
        })  # fmt: skip
    return Taken(end, {"networks": networks}, f"{len(networks)} networks", cut)


def _cut_status(lines: Lines, at: int) -> tuple[int, list[dict[str, Any]]]:
    """Return the networks that are whole in a list that is not, and where what may be part of it ends."""
    headless = _NEXT_NETWORK.fullmatch(lines[at].text)
    begun = next((index for index in range(at, min(at + 3, len(lines))) if "[" in lines[index].text), at)
    begun = at if headless else begun
    end = begun + 1
    while end < len(lines) and re.fullmatch(r"\s*(?:[\]\[{}\",].*)?", lines[end].text) and lines[end].text.strip():
        end += 1
    first = "{" if headless else lines[begun].text.partition("[")[2]
    text = "\n".join([first, *(line.text for line in lines[begun + 1 : end])])
    found: list[dict[str, Any]] = []
    decoder, place = json.JSONDecoder(), 0
    while (match := re.compile(r"[\s,]*").match(text, place)) and text[match.end() : match.end() + 1] == "{":
        try:
            value, place = decoder.raw_decode(text, match.end())
        except (ValueError, RecursionError):
            break
        if _is_status([value]):
            found.append(value)
    return end, found


def _status(lines: Lines, at: int) -> tuple[int, list[dict[str, Any]]] | None:
    """Find the list, which may stand alone, behind its annotation's name, or quoted in one line."""
    text = lines[at].text
    start = text.find("[")
    quoted = re.search(r"""["'](\[.*\])["']\s*,?\s*$""", text)
    if quoted and '\\"' in quoted[1]:
        try:
            value = json.loads(quoted[1].replace("\\n", " ").replace('\\"', '"'))
        except (ValueError, RecursionError):
            return None
        return (at + 1, value) if _is_status(value) else None
    if start < 0:
        start, at = 0, at + 1
    rest = [type(lines[at])(lines[at].number, text[start:] if start else lines[at].text), *lines[at + 1 : at + 2000]]
    # `kubectl describe` goes on over lines that begin with blanks
    found = json_at(rest, 0)
    return (at + found[0], found[1]) if found and _is_status(found[1]) else None


def _is_status(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and all(isinstance(entry, dict) and "name" in entry for entry in value)
    )


KINDS = (
    Kind("network-status", _begins_status, _take_status),
    Kind("lspci", _begins_lspci, _take_lspci),
    Kind("numactl", _begins_numactl, _take_numactl),
)
