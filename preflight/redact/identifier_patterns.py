"""Identifiers with a fixed shape, such as addresses; aliases preserve the shape."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator

from preflight.redact.address_aliases import Keyed

_HEX = "[0-9A-Fa-f]"
_BEFORE, _AFTER = "(?<![0-9A-Za-z_])", "(?![0-9A-Za-z_])"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"

#: Identifiers by kind. All repetitions are bounded, so that matching takes linear time.
SHAPES = re.compile(
    rf"""(?P<uuid>(?<![0-9A-Za-z]){_HEX}{{8}}(?:-{_HEX}{{4}}){{3}}-{_HEX}{{12}}{_AFTER})
    |(?P<colons>{_BEFORE}(?:{_HEX}{{1,8}})?(?::{_HEX}{{0,8}}){{2,19}}(?:(?:\.[0-9]{{1,3}}){{3}})?{_AFTER})
    |(?P<ipv4>{_BEFORE}(?<!\.){_OCTET}(?:\.{_OCTET}){{3}}(?![0-9A-Za-z_]|\.[0-9]))
    |(?P<dashes>{_BEFORE}{_HEX}{{2}}(?:-{_HEX}{{2}}){{5}}(?:(?:-{_HEX}{{2}}){{2}})?{_AFTER})
    |(?P<dots>{_BEFORE}{_HEX}{{4}}\.{_HEX}{{4}}\.{_HEX}{{4}}{_AFTER})
    |(?P<prefixed>(?<![0-9A-Za-z])0[xX]{_HEX}{{13,16}}{_AFTER})
    |(?P<bare>(?<![0-9A-Za-z]){_HEX}{{16}}{_AFTER})
    |(?P<enx>{_BEFORE}enx{_HEX}{{12}}{_AFTER})
    """,
    re.X | re.A,
)

_VERSION_BEFORE = re.compile(
    r"(?i)(?:\b(?:version|vers?|release|firmware|fw|driver|vbios|bios|rev|build)\b[\w \t\"':=(]{0,16}|[0-9]\.[0-9]+-)$"
)
#: Text before 16 hexadecimal digits that are a register, a machine check's status or a commit, not a GUID.
_NO_GUID_BEFORE = re.compile(
    r"\b(?:R[A-D]X|R[SD]I|R[BSI]P|R\d\d|[CD]R\d|[DEFGS]S|knlGS|EFLAGS|ORIG_RAX|Bank \d{1,3}|STATUS|ADDR|MISC|TSC|SYND|"
    r"IPID|[Cc]ommit|[Cc]ode)(?::[ ]?(?:0000:)?|[ ])(?:0x)?$"
)
_ADDRESS_DASH = re.compile(rf"(?<![0-9.]){_OCTET}(?:\.{_OCTET}){{3}}-$")

#: An address with its prefix length, as text or in the output of ``ip -j addr``.
_NETWORK = re.compile(r"([0-9A-Fa-f.:]{3,39})(?:/|\\?\",\s?\\?\"prefixlen\\?\":\s?)([0-9]{1,3})(?![0-9.])", re.A)

#: A GUID in an unambiguous form.
_SURE = re.compile(
    rf"(?:\b[SHR]-|0[xX])({_HEX}{{16}})(?![0-9A-Za-z_])|{_BEFORE}(?<!:)({_HEX}{{4}}(?::{_HEX}{{4}}){{3}})(?![0-9A-Za-z_:])",
    re.A,
)


def _line_before(match: re.Match[str], before: str) -> str:
    """Return the text before a match on its line, at most 40 characters.

    ``before`` is the text before the string that was searched.
    """
    return (before + match.string[max(0, match.start() - 40) : match.start()])[-40:].rpartition("\n")[2]


class Shapes:
    """Replacement of identifiers with a fixed shape, with their counts."""

    def __init__(self, keyed: Keyed, found: Counter[str]) -> None:
        self.keyed = keyed
        self._found = found
        self._seen: dict[tuple[str, str], str] = {}
        #: GUIDs that occurred in an unambiguous form, as numbers.
        self.guids: set[int] = set()
        #: Network or broadcast address of a known network -> its prefix length.
        self.networks: dict[ipaddress.IPv4Address | ipaddress.IPv6Address, int] = {}

    def replace(self, match: re.Match[str], before: str = "") -> str:
        """Return the replacement for a match of ``SHAPES``; look-alikes are unchanged.

        ``before`` is the text before the string that was searched.
        """
        kind, text = match.lastgroup or "", match[0]
        if kind == "uuid":
            return self._count("UUID", text, self.keyed.hexadecimal("uuid", text))
        if kind == "ipv4":
            return text if self._is_version(match, before) else self.ipv4(text)
        if kind == "colons":
            return self._colons(text)
        if kind in ("dashes", "dots", "enx"):
            return self._separated(text)
        digits = text[2:] if kind == "prefixed" else text
        named_otherwise = digits.isdigit() or _NO_GUID_BEFORE.search(_line_before(match, before))
        if kind == "bare" and named_otherwise and int(digits, 16) not in self.guids:
            return text
        return text[: len(text) - len(digits)] + self.guid(digits)

    @staticmethod
    def _is_version(match: re.Match[str], before: str) -> bool:
        line = _line_before(match, before)
        return bool(_VERSION_BEFORE.search(line)) and not _ADDRESS_DASH.search(line)

    def ipv4(self, text: str) -> str:
        """Return the alias of an IPv4 address in dotted form."""
        address = ipaddress.IPv4Address(text)
        alias = self.keyed.ipv4(address)
        if (length := self.networks.get(address)) is not None:
            rest = (1 << (32 - length)) - 1
            alias = ipaddress.IPv4Address(int(alias) & ~rest | int(address) & rest)
        return self._count("IPv4 address", text, str(alias))

    def ipv4_number(self, number: int) -> int:
        """Return the alias of an IPv4 address; both are numbers."""
        return int(ipaddress.IPv4Address(self.ipv4(str(ipaddress.IPv4Address(number)))))

    def guid(self, digits: str) -> str:
        """Return the alias of a GUID, with the same number of hexadecimal digits."""
        number = int(digits, 16)
        alias = f"{self.keyed.guid(number):0{len(digits)}x}"
        return self._count("GUID", digits, alias.upper() if digits.upper() == digits else alias)

    def _separated(self, text: str) -> str:
        """Return the alias of a MAC, GUID or IPoIB address with the same separators."""
        digits = re.sub("[^0-9A-Fa-f]", "", text.removeprefix("enx"))
        number = int(digits, 16)
        if len(digits) == 12:
            kind, alias = "MAC address", f"{self.keyed.mac(number):012x}"
        elif len(digits) == 16:
            kind, alias = "GUID", f"{self.keyed.guid(number):016x}"
        else:  # the address of IPoIB: queue pair, subnet prefix, port GUID (RFC 4391, 9.1.1)
            gid = self.keyed.ipv6(ipaddress.IPv6Address(number & (1 << 128) - 1))
            kind, alias = "GUID", f"{number >> 128:08x}{int(gid):032x}"
        signs = iter(alias.upper() if re.search("[A-F]", text) and not re.search("[a-f]", text) else alias)
        start = 3 if text.startswith("enx") else 0
        made = "".join(next(signs) if sign in "0123456789abcdefABCDEF" else sign for sign in text[start:])
        return self._count(kind, text, text[:start] + made)

    def _colons(self, text: str) -> str:
        """Return the alias of an address with colons; any other text is unchanged."""
        ending = ":" if text.endswith(":") and not text.endswith("::") else ""
        body = text.removesuffix(":") if ending else text
        groups = body.split(":")
        if len(groups) in (6, 8, 20) and all(len(group) == 2 for group in groups):
            return self._separated(body) + ending
        if len(groups) == 4 and all(len(group) == 4 for group in groups):
            alias = self.guid("".join(groups))
            return ":".join(alias[at : at + 4] for at in range(0, 16, 4)) + ending
        if "::" not in body and len(groups) < 7:
            return text
        try:
            address = ipaddress.IPv6Address(body)
        except ValueError:
            return text
        return self.ipv6(address, body) + ending

    def ipv6(self, address: ipaddress.IPv6Address, text: str) -> str:
        """Return the alias of an IPv6 address, in the same form as ``text``."""
        exploded = [len(group) for group in text.split(":")] == [4] * 8
        known = address.is_link_local or address.is_global or address.is_private or address.is_site_local
        if not (exploded or known):
            return text
        alias = self.keyed.ipv6(address)
        if (length := self.networks.get(address)) is not None:
            alias = ipaddress.IPv6Address(int(alias) >> (128 - length) << (128 - length))
        if exploded:
            shown = alias.exploded
        elif "." in text:
            shown = f"{text.rpartition(':')[0]}:{alias.ipv4_mapped}" if alias.ipv4_mapped else str(alias)
        else:
            shown = str(alias)
        upper = re.search("[A-F]", text) and not re.search("[a-f]", text)
        return self._count("IPv6 address or GID", text, shown.upper() if upper else shown)

    def _count(self, kind: str, text: str, alias: str) -> str:
        if alias.lower() != text.lower() and (kind, text) not in self._seen:
            self._seen[kind, text] = alias
            self._found[kind] += 1
        return alias

    def aliases(self) -> Iterator[tuple[str, str]]:
        """Yield the replaced identifiers with their aliases."""
        yield from ((text, alias) for (_, text), alias in self._seen.items())

    # --- learning ----------------------------------------------------------------------------------

    def learn(self, text: str) -> None:
        """Learn GUIDs and networks, to recognise them where their context is missing."""
        if "." in text or ":" in text:
            for match in _NETWORK.finditer(text):
                self.learn_network(match[1], int(match[2]))
        for match in _SURE.finditer(text):
            self.guids.add(int((match[1] or match[2]).replace(":", ""), 16))

    def learn_network(self, address: str, length: int) -> None:
        """Learn the network of an address with its prefix length.

        The network's own address and its broadcast address are recognised later.
        """
        try:
            network = ipaddress.ip_interface(f"{address}/{length}").network
        except ValueError:
            return
        if isinstance(network, ipaddress.IPv6Network):
            if 0 < length < 64:
                self.networks[network.network_address] = length
        elif 0 < length < 24:  # longer prefixes need no special treatment, because the last octet is preserved
            self.networks[network.network_address] = self.networks[network.broadcast_address] = length
