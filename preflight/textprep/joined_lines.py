"""Output joined on one line: a page, chat or table cell lost its line ends."""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass


@dataclass(frozen=True)
class _Tool:
    """A tool whose lines may be joined.

    A line that contains all ``keywords`` is split wherever ``begins`` matches.
    """

    keywords: tuple[str, ...]
    begins: re.Pattern[str]
    least: int = 4  # minimum matches of ``begins``


#: The start of a line of a kernel log: its time.
_KERNEL = re.compile(
    r"(?:[A-Z][a-z]{2} {1,2}\d{1,2} |\d{4}-\d\d-\d\d[T ])\d\d:\d\d:\d\d(?:[.,]\d{1,9})?(?:Z|[+-]\d\d:?\d\d)?"
    r" (?:\S{1,64} )?kernel: (?=\S)"
    r"|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}(?:Z|[+-]\d\d:?\d\d) (?=\S)"
    r"|(?<!kernel: )\[ {0,5}\d{1,7}\.\d{6}\] (?=\S)"
    r"|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}\] (?=\S)"
    # without a time: the log's name, or a driver and its device
    r"|(?:^|(?<=\s))kernel: (?=\S)"
    r"|(?:^|(?<=\s)(?<![\]:] )(?<!\d[+-]\d\d:\d\d )(?<!\d[+-]\d{4} )(?<!\dZ ))"
    r"(?!from |at )[a-z][\w-]{1,30} [0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]: (?=\S)"
)
_COUNTERS = re.compile(
    r"NIC statistics:"
    r"|(?:(?<=[\s\d])[\w.\[\]-]{1,24}: )?(?:(?<=[\s\d])|(?<=: ))[a-zA-Z\[][\w.\[\]-]{1,60}:(?=\s*\d)"
)
_LSCPU = re.compile(
    r"Architecture:|CPU op-mode\(s\):|Byte Order:|Address sizes:|On-line CPU\(s\) list:"
    r"|NUMA node\d{1,4} CPU\(s\):|CPU\(s\):|Thread\(s\) per core:|Core\(s\) per socket:|Socket\(s\):"
    r"|NUMA node\(s\):|Vendor ID:|CPU family:"
    r"|Model(?: name)?:|Stepping:|CPU (?:max |min )?MHz:|BogoMIPS:|Virtualization(?: type)?:|Hypervisor vendor:"
    r"|L\d[di]? cache:|Vulnerability |Flags:"
)
_TOOLS = (
    _Tool(
        ("PFC configuration:", "priority"),
        re.compile(
            r"DCBX mode:|Priority trust state:|dscp2prio mapping:|prio:\d\s+dscp:|default priority:|Receive buffer size"
            r"|Cable len:|PFC configuration:|priority(?=\s+0\s+1\s)|(?:enabled|buffer)(?=(?:\s+\d){8})"
            r"|tc:\s*\d\s+ratelimit|priority:(?=\s+\d)"
        ),
        3,
    ),
    _Tool(
        ("Port", ":....", "Select"),
        re.compile(
            r"# Port (?:extended )?counters:|(?:Port|CounterSelect|Symbol|Link|Local|Excessive|VL15|QP1|Xmt|Xmit|Rcv)"
            r"[A-Za-z0-9]{0,40}:(?=\.{2,})"
        ),
    ),
    _Tool(
        ("Identifier", "Vendor", " : "),
        re.compile(
            r"(?:Identifier|Extended identifier|Connector|Transceiver|Encoding|BR,? |Rate identifier|Length \("
            r"|Transmitter technology|Passive Cu |Active Cu |Laser |Transmit avg |Rcvr signal |Receiver signal |Option"
            r"|Vendor |Date code|Revision Compliance|Module |Optical diagnostics|Alarm/warning flags|Power class"
            r"|Max power|Cable assembly|[TR]x )(?=[^:]{0,60}\s:\s)"
        ),
    ),
    _Tool(
        ("Settings for ", "Link detected:"),
        re.compile(
            r"Settings for (?=\S{1,64}:)|Supported (?:ports|link modes|pause frame use|FEC modes):"
            r"|Supports auto-negotiation:|(?<!partner )[Aa]dvertised (?:link modes|pause frame use|auto-negotiation"
            r"|FEC modes):|Link partner advertised (?:link modes|pause frame use|auto-negotiation|FEC modes):|Speed:"
            r"|Duplex:|Port:|PHYAD:|Transceiver:|Auto-negotiation:|MDI-X:|Supports Wake-on:|(?<!Supports )Wake-on:"
            r"|Current message level:|Link detected:"
        ),
    ),
    _Tool(
        ("driver:", "firmware-version:"),
        re.compile(
            r"driver:|(?<!firmware-)(?<!rom-)version:|firmware-version:|expansion-rom-version:|bus-info:"
            r"|supports-[a-z-]{4,16}:"
        ),
    ),
    _Tool(
        ("Pause parameters for", "Autonegotiate"),
        re.compile(r"Pause parameters for|Autonegotiate\s?:|[RT]X(?: negotiated)?:"),
    ),
    _Tool(("NIC statistics:",), _COUNTERS),
    _Tool(("ethtool -S ", " | grep "), _COUNTERS),
    _Tool(
        ("available:", "cpus:"),
        re.compile(r"available:(?=\s*\d)|node \d{1,4} (?:cpus|size|free):|node distances:"),
    ),
    _Tool(("Socket(s):", "CPU(s):"), _LSCPU),
    _Tool(("NUMA node(s):", "NUMA node0 CPU(s):"), _LSCPU, 2),
    _Tool(
        ("Physical state:", "Rate:"),
        re.compile(
            r"CA '|CA type:|Number of ports:|(?:Firmware|Hardware) version:|(?:Node|System image|Port) GUID:"
            r"|Port \d{1,3}:|State:|Physical state:|Rate:|Base lid:|LMC:|SM lid:|Capability mask:|Link layer:"
        ),
    ),
    _Tool(
        ("Infiniband device '", "state:"),
        re.compile(
            r"Infiniband device '|default gid:|(?:base|sm) lid:|(?<!phys )state:(?=\s*\d:)|phys state:|rate:"
            r"|link_layer:"
        ),
    ),
    _Tool(
        ("state:", "PORT_", "port_lid:"),
        re.compile(
            r"hca_id:|transport:|fw_ver:|(?:node|sys_image)_guid:|vendor_(?:part_)?id:|hw_ver:|board_id:|phys_port_cnt:"
            r"|Device ports:|port:|phys_state:|state:|(?:max|active)_mtu:|sm_lid:|port_lid:|port_lmc:|link_layer:"
        ),
    ),
    _Tool(
        ("physical_state", "link "),
        re.compile(r"link (?=[A-Za-z][\w.-]{0,63}/\d{1,3}:? (?:state|subnet_prefix) )"),
        2,
    ),
    _Tool(
        ("==>", " port "),
        re.compile(r"(?:(?<=\))[A-Za-z][\w.-]{0,63}|mlx\d_[a-z_]{0,6}\d{1,3}) port (?=\d{1,3} ==>)"),
        2,
    ),
    _Tool(("Link 0:", "(UUID:"), re.compile(r"GPU \d{1,3}: (?=[A-Z])|Link \d{1,2}: (?=[\d<])"), 3),
    _Tool(
        (" X ", "CPU Affinity"),
        re.compile(
            r"(?<=\s)(?:GPU|NIC|mlx5_)\d{1,3}(?=\s+(?:X|NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC)\s(?!\s*= ))"
            r"|(?<=\s)(?:NIC )?Legend:|(?<=\s)(?:X|SOC|SYS|NODE|PHB|PXB|PIX|NV#)(?=\s+= )|(?<=\s)NIC\d{1,3}: (?=[a-z])"
        ),
        2,
    ),
    _Tool(
        ("Lnk", "Speed "),
        re.compile(
            r"(?:^|(?<=\s))(?:(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] (?=[A-Z0-9][^:]{2,60}: )"
            r"|(?:Subsystem|Control|Status|Latency|Interrupt|NUMA node|Kernel driver in use|Kernel modules"
            r"|(?:Lnk|Dev)(?:Cap|Ctl|Sta)2?|ACS(?:Cap|Ctl)|Region \d|Capabilities):\s"
            r"|MaxPayload (?=\d{2,4} bytes, MaxReadReq ))"
        ),
    ),
    _Tool(("NVRM: ",), _KERNEL, 2),
    _Tool((" 0000:",), _KERNEL, 2),
    _Tool(
        ("INDEX", "GID"),
        re.compile(
            r"DEV(?=\s+PORT\s)|---(?=\s+----\s)|n_gids_found="
            r"|mlx\d_[a-z_]{0,6}\d{1,3}(?=\s+\d{1,3}\s+\d{1,4}\s+[0-9a-f]{4}:)"
        ),
    ),
)
#: A prompt in the middle of a line, which the next command follows.
_PROMPT = re.compile(r"(?<=\S)(?=\[[\w.-]{1,40}@[\w.-]{1,64} [^\]\s]{1,80}\][#$] )")

#: Between a command in backquotes and its output in backquotes: ``ethtool -i `eth0``driver: ena``.
_BACKTICKS = re.compile(r"(?<=\w)``(?=[A-Za-z])")
_COMMAND = re.compile(r".{0,100}(?:[$#]|(?<=\S)>)`? \S.{0,200}")

#: Minimum characters of a line that may contain several lines.
_LONG = 60


def apart(text: str) -> list[str]:
    """Split a line into the lines joined in it; a single line is returned unchanged."""
    if "``" in text and len(pieces := _BACKTICKS.split(text, 1)) > 1 and _COMMAND.fullmatch(pieces[0]):
        return [pieces[0], *_of_line(pieces[1])]
    return _of_line(text)


def _of_line(text: str) -> list[str]:
    if len(text) < _LONG:
        return [text]
    bare = text.strip().removesuffix(",")
    if bare[:1] == bare[-1:] == '"' and len(found := _of_tools(bare[1:-1])) > 1:
        return found
    return _of_tools(text)


def _of_tools(text: str) -> list[str]:
    return [one for piece in (_PROMPT.split(text) if "@" in text else [text]) for one in _of_one_tool(piece)]


def _of_one_tool(text: str) -> list[str]:
    for tool in _TOOLS:
        if tool.keywords[0] in text and all(word in text for word in tool.keywords):
            places = [match.start() for match in tool.begins.finditer(text)]
            if len(places) >= tool.least:
                ends = [*places[1:], len(text)]
                pieces = [text[: places[0]], *(text[place:end] for place, end in zip(places, ends, strict=True))]
                found = [piece.rstrip().removesuffix("\\n") for piece in pieces if piece.strip()]
                # another tool's output may precede and follow
                return [*_of_one_tool(found[0]), *found[1:-1], *_of_one_tool(found[-1])]
    return [text]
