"""RDMA devices and ports: ``ibstat``, ``ibstatus``, ``ibv_devinfo``, ``rdma link``, ``ibdev2netdev``, ``show_gids``."""

from __future__ import annotations

import json
import re
from typing import Any

from preflight.reading.blocks import block, field, number, told
from preflight.reading.lines import Lines
from preflight.reading.parts import Cut, Kind, Taken

#: What every port has; what the text does not say stays None.
_PORT = dict.fromkeys(
    ("device", "port", "state", "physical_state", "rate_gbps", "link_layer", "lid", "sm_lid", "active_mtu", "netdev",
     "guid")
)  # fmt: skip

_RATE = re.compile(r"(\d{1,4}(?:\.\d{1,3})?)\s*(?:G[bB](?:it)?(?:/s(?:ec)?|ps)?)?\b.*")


def _port(device: str | None, port: int | None) -> dict[str, Any]:
    return {**_PORT, "device": device, "port": port}


def _rate(text: str | None) -> float | None:
    match = _RATE.fullmatch(text.strip()) if text else None
    return float(match[1]) if match else None


def _summary(ports: list[dict[str, Any]]) -> str:
    up = sum(str(port["state"] or "").upper().endswith("ACTIVE") for port in ports)
    rates = sorted({f"{port['rate_gbps']:g} Gb/s" for port in ports if port["rate_gbps"]})
    layers = sorted({port["link_layer"] for port in ports if port["link_layer"]})
    said = ", ".join([f"{len(ports)} ports, {up} active", *layers, *rates[:4]])
    return said


# --- ibstat ------------------------------------------------------------------------------------------

_CA = re.compile(r"\s*CA '([^'\s]{1,64})'\s*")
_CA_FIELDS = frozenset(
    ("CA type", "Number of ports", "Firmware version", "Hardware version", "Node GUID", "System image GUID", "State",
     "Physical state", "Rate", "Base lid", "LMC", "SM lid", "Capability mask", "Port GUID", "Link layer")
)  # fmt: skip
_PORT_LINE = re.compile(r"\s*Port (\d{1,3}):\s*")


def _begins_ibstat(lines: Lines, at: int) -> bool:
    if _CA.fullmatch(lines[at].text):
        return True
    # The head is cut off: a port's first lines are enough
    return bool(_PORT_LINE.fullmatch(lines[at].text)) and any(
        (found := field(line.text)) and found[0] in ("State", "Physical state") for line in lines[at + 1 : at + 3]
    )


def _take_ibstat(lines: Lines, at: int) -> Taken:
    ports: list[dict[str, Any]] = []
    devices: dict[str, dict[str, str]] = {}
    device, cut = "", list[Cut]()
    fields: dict[str, str] = {}
    counts: dict[str, int] = {}

    def belongs(text: str) -> bool:
        found = field(text)
        return bool(
            _CA.fullmatch(text) or _PORT_LINE.fullmatch(text) or (found and found[0] in _CA_FIELDS)
            or re.match(r"\s*ib(?:panic|warn)\s*:", text)
        )  # fmt: skip

    end, taken = block(lines, at, belongs)
    for line in taken:
        if match := _CA.fullmatch(line.text):
            device = match[1]
            fields = devices.setdefault(device, {})
        elif match := _PORT_LINE.fullmatch(line.text):
            ports.append(_port(device or None, int(match[1])))
            fields = {}
            ports[-1]["fields"] = fields
            counts[device] = counts.get(device, 0) + 1
            ports[-1]["line"] = line.number
        elif re.match(r"\s*ibpanic", line.text):
            cut.append(Cut(line.number, f"the list is incomplete: {line.text.strip()[:160]}"))
        elif found := field(line.text):
            fields[found[0]] = found[1]
    last = taken[-1].number
    for port in ports:
        said, begun = port.pop("fields"), port.pop("line")
        port.update(
            state=said.get("State"), physical_state=said.get("Physical state"), rate_gbps=_rate(said.get("Rate")),
            link_layer=said.get("Link layer") or None, lid=number(said.get("Base lid")),
            sm_lid=number(said.get("SM lid")), guid=_guid(said.get("Port GUID")),
        )  # fmt: skip
        if port["device"] is None:
            cut.append(Cut(begun, "the line that names the device is missing"))
        # Old releases print no link layer; then the port's last line is its GUID
        expected = ("State", "Physical state", "Rate", "Port GUID" if "Port GUID" in said else "Link layer")
        missing = [name for name in expected if not said.get(name)]
        if told(said.get("Port GUID")) and not _guid(said.get("Port GUID")):
            missing.append("the rest of the Port GUID")
        if missing:
            where = f"{port['device']} port {port['port']}"
            cut.append(Cut(last, f"of {where} is missing: {', '.join(missing)}"))
    for name, said in devices.items():
        promised = number(said.get("Number of ports"))
        if promised is None or counts.get(name, 0) < promised:
            cut.append(Cut(last, f"the ports of {name} are missing"))
    for port in ports:
        said = devices.get(port["device"], {})
        port.update(firmware=told(said.get("Firmware version")), ca_type=told(said.get("CA type")),
                    node_guid=told(said.get("Node GUID")))  # fmt: skip
    facts = {"ports": ports, "devices": list(devices)}
    return Taken(end, facts, _summary(ports), cut)


def _guid(text: str | None) -> str | None:
    """Return a GUID that is whole; digits may be blotted out."""
    return text if text and re.fullmatch(r"0x[0-9a-fA-FxX*]{16}", text) else None


# --- ibstatus ----------------------------------------------------------------------------------------

_IBSTATUS = re.compile(r"\s*Infiniband device '([^']{1,64})' port (\d{1,3}) status:\s*", re.IGNORECASE)
_IBSTATUS_FIELDS = frozenset(("default gid", "base lid", "sm lid", "state", "phys state", "rate", "link_layer"))


#: A port's lines, two of which are enough where the head is cut off.
_IBSTATUS_OWN = re.compile(
    r"\s*(?:default gid:\s+[0-9a-fA-F:]{6,}|(?:base|sm) lid:\s+0x[0-9a-f]+|(?:phys )?state:\s+\d: \w+"
    r"|rate:\s+\d+ Gb/sec .*|link_layer:\s+\w+)\s*"
)


def _begins_ibstatus(lines: Lines, at: int) -> bool:
    if _IBSTATUS.fullmatch(lines[at].text):
        return True
    return len(lines) > at + 1 and all(_IBSTATUS_OWN.fullmatch(line.text) for line in lines[at : at + 2])


def _take_ibstatus(lines: Lines, at: int) -> Taken:
    ports: list[dict[str, Any]] = []
    said: list[dict[str, str]] = []
    cut = list[Cut]()
    if not _IBSTATUS.fullmatch(lines[at].text):
        ports.append(_port(None, None))
        said.append({})
        cut.append(Cut(lines[at].number, "the line that names the device is missing"))

    def belongs(text: str) -> bool:
        found = field(text)
        return bool(_IBSTATUS.fullmatch(text) or (found and found[0] in _IBSTATUS_FIELDS))

    end, taken = block(lines, at, belongs)
    for line in taken:
        if match := _IBSTATUS.fullmatch(line.text):
            ports.append(_port(match[1], int(match[2])))
            said.append({})
        elif found := field(line.text):
            said[-1][found[0]] = found[1]
    for port, fields in zip(ports, said, strict=True):
        port.update(
            state=_word(fields.get("state")), physical_state=_word(fields.get("phys state")),
            rate_gbps=_rate(fields.get("rate")), link_layer=fields.get("link_layer"),
            lid=number(fields.get("base lid")), sm_lid=number(fields.get("sm lid")),
            gid=told(fields.get("default gid")),
        )  # fmt: skip
        if missing := [name for name in ("state", "phys state", "rate") if name not in fields]:
            cut.append(Cut(taken[-1].number, f"of {port['device']} is missing: {', '.join(missing)}"))
    return Taken(end, {"ports": ports}, _summary(ports), cut)


def _word(text: str | None) -> str | None:
    """Take the number off ``4: ACTIVE``."""
    return text.partition(":")[2].strip() or text if text else None


# --- ibv_devinfo -------------------------------------------------------------------------------------

_HCA = re.compile(r"\s*hca_id:\s*(\S{1,64})\s*")
_DEVINFO_PORT = re.compile(r"\s*port:\s*(\d{1,3})\s*")
_DEVINFO_FIELD = re.compile(r"\s*([a-z][a-zA-Z0-9_]{2,60}(?:\[\s*\d+\])?):\s*(.*)")
_DEVINFO_LIST = re.compile(
    r"\s*(?:[A-Z][A-Z0-9_]{2,60}(?: [A-Z]{2,12})?|Unknown flags: .*|\*{0,2}(?:GID|P_Key)\[\s*\d+\]:.*|0x[0-9a-fA-F]+"
    r"|[\w ]{4,40}\(mask\)\s+0x[0-9a-fA-F]+|[A-Z][\w ]{2,40}:|tag matching .{0,60}|maximum available .{0,60}"
    r"|.{0,40}(?:caps|capabilities|_attr|supported).{0,40})\s*"
)


#: Lines of a port, two of which are enough where the head is cut off: its first, and those near its end with -v.
_DEVINFO_HEADLESS = re.compile(
    r"\s*(?:port:\s*\d{1,3}|state:\s*PORT_\w+ .*|(?:max|active)_mtu:\s*\d{3,4} \(\d\)"
    r"|active_width:\s*\d{1,2}X \(\d{1,2}\)|active_speed:\s*\d{1,3}\.\d Gbps \(\d{1,3}\)"
    r"|phys_state:\s*[A-Z_]{4,32} \(\d\))\s*"
)


def _begins_devinfo(lines: Lines, at: int) -> bool:
    if _HCA.fullmatch(lines[at].text):
        return True
    return len(lines) > at + 1 and all(_DEVINFO_HEADLESS.fullmatch(line.text) for line in lines[at : at + 2])


def _take_devinfo(lines: Lines, at: int) -> Taken:
    ports: list[dict[str, Any]] = []
    fields: dict[str, str] = {}
    devices: dict[str, dict[str, str]] = {}
    every: list[tuple[dict[str, Any], dict[str, str]]] = []
    device, cut = "", list[Cut]()
    if not (_HCA.fullmatch(lines[at].text) or _DEVINFO_PORT.fullmatch(lines[at].text)):
        ports.append(_port(None, None))
        every.append((ports[-1], fields))
    if not _HCA.fullmatch(lines[at].text):
        cut.append(Cut(lines[at].number, "the line that names the device is missing"))

    def belongs(text: str) -> bool:
        return bool(_HCA.fullmatch(text) or _DEVINFO_FIELD.fullmatch(text) or _DEVINFO_LIST.fullmatch(text))

    end, taken = block(lines, at, belongs)
    for line in taken:
        if match := _HCA.fullmatch(line.text):
            device = match[1]
            fields = devices.setdefault(device, {})
        elif match := _DEVINFO_PORT.fullmatch(line.text):
            ports.append(_port(device or None, int(match[1])))
            fields = {}
            every.append((ports[-1], fields))
        elif match := re.fullmatch(r"\s*(GID\[\s*\d+\]):\s*(.*)", line.text):
            fields.setdefault("gids", line.text.strip())
        elif match := _DEVINFO_FIELD.fullmatch(line.text):
            fields[match[1]] = match[2].strip()
    last = taken[-1].number
    for port, said in every:
        whole = devices.get(port["device"], {})
        state = said.get("state", "").split(" ")[0].removeprefix("PORT_")
        width, speed = _rate_of(said.get("active_width"), r"(\d{1,2})X"), _rate(said.get("active_speed"))
        port.update(
            state=state or None, physical_state=(said.get("phys_state") or "").split(" ")[0] or None,
            active_mtu=number(said.get("active_mtu")), max_mtu=number(said.get("max_mtu")),
            lid=number(said.get("port_lid")), sm_lid=number(said.get("sm_lid")),
            link_layer=said.get("link_layer") or None, guid=told(whole.get("node_guid")),
            rate_gbps=round(width * speed, 3) if width and speed else None,
            firmware=told(whole.get("fw_ver")), board_id=told(whole.get("board_id")),
        )  # fmt: skip
        if missing := [name for name in ("state", "active_mtu", "port_lid") if name not in said]:
            cut.append(Cut(last, f"of {port['device']} port {port['port']} is missing: {', '.join(missing)}"))
    for name, said in devices.items():
        promised = number(said.get("phys_port_cnt"))
        if promised is None or sum(port["device"] == name for port in ports) < promised:
            cut.append(Cut(last, f"the ports of {name} are missing"))
    facts = {"ports": ports, "devices": list(devices)}
    return Taken(end, facts, _summary(ports), cut)


def _rate_of(text: str | None, pattern: str) -> float | None:
    match = re.match(pattern, text) if text else None
    return float(match[1]) if match else None


# --- rdma link ---------------------------------------------------------------------------------------

#: States of a port; other objects of ``rdma`` have others.
_RDMA_LINK = re.compile(
    r"\s*(?:\d{1,5}(?:/\d{1,3})?:\s*)?(?:link )?([A-Za-z][\w.-]{0,63})/(\d{1,3}):?\s+"
    r"((?:\w+ \S+\s+){0,20}state (?:ACTIVE|DOWN|INIT|ARMED|NOP|DEFER|ACTIVE_DEFER|UNKNOWN)\b.*)"
)


def _begins_rdma_link(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if text.lstrip().startswith("[") and any('"ifname"' in line.text for line in lines[at : at + 5]):
        return _rdma_json(lines, at) is not None
    return bool(_RDMA_LINK.fullmatch(text))


def _rdma_json(lines: Lines, at: int) -> tuple[int, list[dict[str, Any]]] | None:
    found = json_at(lines, at)
    if found is None or not isinstance(found[1], list) or not found[1]:
        return None
    wanted = {"ifname", "port", "state"}
    return found if all(isinstance(entry, dict) and wanted <= entry.keys() for entry in found[1]) else None


def _take_rdma_link(lines: Lines, at: int) -> Taken:
    ports = []
    if whole := _rdma_json(lines, at):
        end, entries = whole
        for entry in entries:
            ports.append(_rdma_port(str(entry["ifname"]), number(str(entry["port"])), entry))
        return Taken(end, {"ports": ports}, _summary(ports))
    end, taken = block(lines, at, lambda text: bool(_RDMA_LINK.fullmatch(text)), blanks=0)
    for line in taken:
        match = _RDMA_LINK.fullmatch(line.text)
        assert match
        words = match[3].split()
        ports.append(_rdma_port(match[1], int(match[2]), dict(zip(words[::2], words[1::2], strict=False))))
    return Taken(end, {"ports": ports}, _summary(ports))


def _rdma_port(device: str, port: int | None, said: dict[str, Any]) -> dict[str, Any]:
    return {
        **_port(device, port),
        "state": said.get("state"), "physical_state": said.get("physical_state"), "netdev": said.get("netdev"),
        "lid": number(str(said["lid"])) if "lid" in said else None,
        "sm_lid": number(str(said["sm_lid"])) if "sm_lid" in said else None,
    }  # fmt: skip


def json_at(lines: Lines, at: int, most: int = 200_000) -> tuple[int, Any] | None:
    """Return where a JSON value that begins on a line ends, and the value; None if there is no whole one."""
    decoder = json.JSONDecoder()
    text = "\n".join(line.text for line in lines[at : at + most])
    start = len(text) - len(text.lstrip())
    try:
        value, stop = decoder.raw_decode(text, start)
    except (ValueError, RecursionError):
        return None
    return at + text.count("\n", 0, stop) + 1, value


# --- ibdev2netdev ------------------------------------------------------------------------------------

_IBDEV = re.compile(
    r"\s*(?:[0-9a-f]{4}:[0-9a-f:.]+\s+)?([A-Za-z][\w.-]{0,63})\s+(?:\(.*\)\s+)?.{0,200}?port\s+(\d{1,3})\s+"
    r"(?:\(\s*(\w+)\s*\)\s+)?==>\s+(\S{1,64})\s+\((\w+)\)\s*(?:#.*)?"
)


def _begins_ibdev(lines: Lines, at: int) -> bool:
    return "==>" in lines[at].text and bool(_IBDEV.fullmatch(lines[at].text))


def _take_ibdev(lines: Lines, at: int) -> Taken:
    ports = []
    end, taken = block(lines, at, lambda text: "==>" in text and bool(_IBDEV.fullmatch(text)), blanks=0)
    for line in taken:
        match = _IBDEV.fullmatch(line.text)
        assert match
        port = _port(match[1], int(match[2]))
        # (Up) is the interface's state: an InfiniBand port may work with IPoIB down
        ports.append({**port, "state": match[3], "netdev": match[4], "netdev_state": match[5]})
    down = [port["netdev"] for port in ports if port["netdev_state"] == "Down"]
    summary = f"{len(ports)} ports, interface down: {', '.join(down[:8]) if down else 'none'}"
    return Taken(end, {"ports": ports}, summary)


# --- show_gids ---------------------------------------------------------------------------------------

_GIDS_HEAD = re.compile(r"\s*DEV\s+PORT\s+INDEX\s+GID\s.*")
_GID_ROW = re.compile(
    r"\s*([A-Za-z][\w.-]{0,63})\s+(\d{1,3})\s+(\d{1,4})\s+([0-9a-fA-FxX*]{4}(?::[0-9a-fA-FxX*]{4}){7}|[0-9a-fA-F]{4}:[0-9a-fA-F:.…]{3,40})"
    r"(?:\s+(\d{1,3}(?:\.\d{1,3}){3}))?(?:\s+(v1|v2|RoCE v1|RoCE v2|IB))?(?:\s+([A-Za-z][\w.@-]{0,63}))?\s*"
)
#: The rest of a row that was broken behind the GID or the address, and that of the head.
_GID_REST = re.compile(
    r"(?:\s*(\d{1,3}(?:\.\d{1,3}){3}))?\s+(v1|v2|RoCE v1|RoCE v2|IB)(?:\s+([A-Za-z][\w.@-]{0,63}))?\s*|\s*VER\s+DEV\s*"
)
_GIDS_RULE = re.compile(r"[\s-]{3,}")
_GIDS_FOUND = re.compile(r"\s*n_gids_found=(\d{1,6})\s*")


def _gid(text: str) -> str | None:
    """Return a GID that is there to its last digit; some may be blotted out, none left out."""
    return None if "." in text or "…" in text else text.lower()


def _begins_gids(lines: Lines, at: int) -> bool:
    return bool(_GIDS_HEAD.fullmatch(lines[at].text) or _GID_ROW.fullmatch(lines[at].text))


def _take_gids(lines: Lines, at: int) -> Taken:
    gids: list[dict[str, Any]] = []
    cut, promised = list[Cut](), None

    def belongs(text: str) -> bool:
        return bool(
            _GIDS_HEAD.fullmatch(text) or _GID_ROW.fullmatch(text) or _GIDS_RULE.fullmatch(text)
            or _GIDS_FOUND.fullmatch(text) or _GID_REST.fullmatch(f" {text}")
        )  # fmt: skip

    end, taken = block(lines, at, belongs, blanks=1)
    for line in taken:
        if match := _GIDS_FOUND.fullmatch(line.text):
            promised = int(match[1])
            break
        if match := _GID_ROW.fullmatch(line.text):
            gids.append({
                "device": match[1], "port": int(match[2]), "index": int(match[3]), "gid": _gid(match[4]),
                "ipv4": match[5] or None, "version": match[6].split()[-1] if match[6] else None, "netdev": match[7],
            })  # fmt: skip
        elif gids and gids[-1]["version"] is None and (match := _GID_REST.fullmatch(f" {line.text}")) and match[2]:
            gids[-1].update(ipv4=match[1] or gids[-1]["ipv4"], version=match[2].split()[-1], netdev=match[3])
    if promised is None:
        cut.append(Cut(taken[-1].number, "the line n_gids_found=… that ends the list is missing"))
    elif promised != len(gids):
        cut.append(Cut(taken[-1].number, f"the list says {promised} GIDs and shows {len(gids)}"))
    v2 = sum(gid["version"] == "v2" and gid["ipv4"] is not None for gid in gids)
    return Taken(end, {"gids": gids}, f"{len(gids)} GIDs, {v2} of them RoCE v2 with an IPv4 address", cut)


KINDS = (
    Kind("ibstat", _begins_ibstat, _take_ibstat),
    Kind("ibstatus", _begins_ibstatus, _take_ibstatus),
    Kind("ibv_devinfo", _begins_devinfo, _take_devinfo),
    Kind("rdma link", _begins_rdma_link, _take_rdma_link),
    Kind("ibdev2netdev", _begins_ibdev, _take_ibdev),
    Kind("show_gids", _begins_gids, _take_gids),
)
