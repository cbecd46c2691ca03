"""Host names in lists, and in prefixes and headings of pdsh and clush."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator

from preflight.redact.name_places import NUMBERED
from preflight.redact.public_words import vocabulary

#: The key of a host list and the list's items, in brackets or on separate lines.
_LISTED = re.compile(
    r"(?<![A-Za-z0-9.-])(?:[Hh]osts|HOSTS|[Nn]odes|NODES|hostnames|node_?[Nn]ames|[Ww]orkers|[Ss]ervers)(?:\\?[\"'])?"
    r"[ \t]{0,3}[:=][ \t]{0,3}(?P<items>\[[^][{}=\n]{3,100000}\]"
    r"|\r?\n(?:[ \t]{0,40}-[ ][^\s:]{1,255}[ \t\r]{0,8}(?:\n|\Z)){1,100000})"
)
_ITEM = re.compile(r"(?<![\w.-])[A-Za-z][\w.-]{0,252}(?![\w.-])")

#: Variables of LSF: `LSB_HOSTS="gpu01 gpu01 gpu02"`, `LSB_MCPU_HOSTS="gpu01 8 gpu02 8"`.
_LSF = re.compile(
    r"\bLSB_(?:MCPU_|DJOB_|BIND_)?HOSTS(?:\\?[\"'])?[ ]{0,3}[:=][ ]{0,3}(?:\\?[\"'])?"
    r"(?P<items>[A-Za-z][\w.-]{0,252}(?: [A-Za-z][\w.-]{0,252}| \d{1,6}){0,20000})"
)

#: Lines of dashes above and below the hosts whose output is the same, as printed by clush and dshbak.
_RULED = re.compile(
    r"(?m)^-{5,}[ \t\r]*\n(?P<names>[A-Za-z][\w.-]{0,100}(?:\[\d[\w.,\[\]-]{0,2000}|\d[\w.,\[\]-]{0,2000}(?= \()))"
    r"(?: \(\d{1,6}\))?[ \t\r]*\n-{5,}[ \t\r]*$"
)

#: The host name that pdsh and clush print before a line, and their messages about a host.
_HEAD = re.compile(
    r"(?m)^(?P<name>[A-Za-z](?:[A-Za-z_-]{0,60}[A-Za-z-])?)(?P<number>\d{1,5})"
    r"(?P<rest>(?:[.-](?=[\w-])(?:[\w-]|\.(?=[\w-])){1,500})?): "
)
_ABOUT = re.compile(
    r"(?m)^(?:pdsh@|clush: |dshbak: )(?P<name>[^\W_][\w.-]{0,252}): (?:(?P<other>[^\W_][\w.-]{0,252}): )?"
)

#: Words with numbers at the start of a line that are not hosts.
_NO_HOSTS = frozenset(re.findall("[a-z]+", """
    rank layer step epoch iter iteration batch block shard part page chapter line test case trial fold sample slot bay
    disk drive port lane link core thread socket fan temp psu in out power curr dimm channel stage phase round
    cpu card device dev nic ib md sd loop tty ata scsi level item section figure table note
    option attempt try group pass process proc pid stream queue ring irq bus zone cluster run job task loss
    expert head tensor data model param var x y z v p q l r n i j k a b c d e f g h m s t u w error warning err row col
    eth ens eno enp ibs mlx bond vlan veth docker br wlan wlp tun tap nvme dm cuda vdev
"""))  # fmt: skip
#: Names that denote hosts only with a leading zero or at least three digits: `gpu0` is a device, `gpu001` is not.
_DEVICES = frozenset(("node", "gpu", "worker", "host"))

#: Minimum number of different names at the start of lines for these to be hosts; fewer suffice with leading zeros.
_LEAST, _LEAST_WITH_ZEROS = 3, 2


def items(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the kind, start and end of each host name in a list, in order."""
    found = {*_in_keys(text), *_heads(text)}
    for pattern, group in ((_RULED, "names"), (_ABOUT, "name"), (_ABOUT, "other")):
        found |= {match.span(group) for match in pattern.finditer(text) if match[group]}
    yield from (("host", start, end) for start, end in sorted(found))


def _in_keys(text: str) -> Iterator[tuple[int, int]]:
    for match in _LISTED.finditer(text):
        for item in _ITEM.finditer(match["items"]):
            if NUMBERED.fullmatch(item[0]):
                yield match.start("items") + item.start(), match.start("items") + item.end()
    if "LSB_" in text:
        for match in _LSF.finditer(text):
            for item in _ITEM.finditer(match["items"]):
                yield match.start("items") + item.start(), match.start("items") + item.end()


def _heads(text: str) -> Iterator[tuple[int, int]]:
    """Yield the start and end of the names before lines that are numbered like hosts."""
    series: defaultdict[tuple[str, str], list[re.Match[str]]] = defaultdict(list)
    for match in _HEAD.finditer(text):
        series[match["name"].lower(), match["rest"]].append(match)
    for (name, _), matches in series.items():
        numbers = {match["number"] for match in matches}
        zeros = any(number[0] == "0" and len(number) > 1 for number in numbers)
        if len(numbers) >= (_LEAST_WITH_ZEROS if zeros else _LEAST) and _names_hosts(name, zeros, numbers):
            for match in matches:
                yield match.start("name"), match.end("rest")


def _names_hosts(name: str, zeros: bool, numbers: set[str]) -> bool:
    stem = name.rstrip("-_")
    if stem in _NO_HOSTS:
        return False
    if stem in _DEVICES or stem in vocabulary():
        return zeros or min(map(len, numbers)) > 2
    return len(stem) > 1
