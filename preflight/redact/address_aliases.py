"""Aliases of addresses: keyed permutations that preserve what checks compare.

A keyed hash of the preceding bits decides whether a bit is flipped (prefix-preserving anonymisation; Xu, Fan, Ammar,
Moon: "Prefix-preserving IP address anonymization", 2002). The aliases of two addresses therefore share as many leading
bits as the addresses do, so subnets remain subnets. The last bit that may change always does, so no address is its own
alias.
"""

from __future__ import annotations

import ipaddress
import secrets
from hashlib import blake2b

#: Blocks of private (RFC 1918) and shared (RFC 6598) IPv4 addresses. The alias of an address is in the same block.
_STAYS_IN = tuple(map(ipaddress.IPv4Network, (
    "10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10",
)))  # fmt: skip

#: Addresses that do not identify a host: this network, loopback, link-local, multicast, broadcast and masks.
_NOT_IDENTIFYING = tuple(map(ipaddress.IPv4Network, (
    "0.0.0.0/8", "127.0.0.0/8", "169.254.0.0/16", "224.0.0.0/3",
)))  # fmt: skip

#: Low bits of an IPv4 address that are preserved, and with them host numbers, network and broadcast addresses.
_HOST_BITS = 8

#: Low bits of a MAC address or GUID that are preserved, because the ports of a device have consecutive numbers.
_PORT_BITS = 4


class Keyed:
    """Permutations with one key, which is never written."""

    def __init__(self, key: bytes | None = None) -> None:
        """Set the key, of up to 64 bytes; the default is a random key."""
        self._key = secrets.token_bytes(32) if key is None else key
        self._known: dict[tuple[str, object], int] = {}

    def digest(self, what: str, value: str) -> str:
        """Return the keyed hash of a value of kind ``what``: 128 hexadecimal digits."""
        return blake2b(f"{what}\0{value}".encode("utf-8", "surrogatepass"), key=self._key).hexdigest()

    def _flips(self, what: str, value: int, width: int, first: int, last: int) -> int:
        """Return ``value`` with bits flipped, from ``first`` up to ``last`` exclusive.

        Bits are counted from the left.
        """
        if (known := self._known.get((what, value))) is not None:
            return known
        flips = 0
        for place in range(first, last):
            shift = width - 1 - place
            if place == last - 1 or self._chance(f"{what} {place} {value >> (shift + 1):x}"):
                flips |= 1 << shift
        self._known[what, value] = value ^ flips
        return value ^ flips

    def _chance(self, before: str) -> bool:
        return bool(blake2b(before.encode(), key=self._key, digest_size=1).digest()[0] & 1)

    def ipv4(self, address: ipaddress.IPv4Address) -> ipaddress.IPv4Address:
        """Return the alias of an IPv4 address; a private one remains private.

        Addresses that do not identify a host, such as masks and loopback, are unchanged.
        """
        number = int(address)
        mask = ~number & 0xFFFFFFFF
        if mask & (mask + 1) == 0 or any(address in block for block in _NOT_IDENTIFYING):
            return address
        for block in _STAYS_IN:
            if address == block.network_address:  # the network address of the block itself
                return address
            if address in block:
                return ipaddress.IPv4Address(self._flips("ipv4", number, 32, block.prefixlen, 32 - _HOST_BITS))
        # preserve the first octet, or two if a neighbouring block is special, so that public addresses remain public
        first = 16 if number >> 24 in (100, 169, 172, 192) else 8
        return ipaddress.IPv4Address(self._flips("ipv4", number, 32, first, 32 - _HOST_BITS))

    def ipv6(self, address: ipaddress.IPv6Address) -> ipaddress.IPv6Address:
        """Return the alias of an IPv6 address or GID, and of what is embedded in it."""
        number = int(address)
        if address.ipv4_mapped is not None:
            return ipaddress.IPv6Address(number >> 32 << 32 | int(self.ipv4(address.ipv4_mapped)))
        inverse = ~number & (1 << 128) - 1
        if number <= 1 or address.is_multicast or inverse & (inverse + 1) == 0:
            return address
        high, low = number >> 64, number & (1 << 64) - 1
        if address.is_link_local or high == 0:
            pass  # among them, InfiniBand's default subnet prefix
        elif high >> 57 == 0xFC >> 1:
            high = self._flips("ipv6", high, 64, 8, 64)
        else:
            high = self._flips("ipv6", high, 64, 3, 64)
        return ipaddress.IPv6Address(high << 64 | (low if low < 1 << 16 else self.guid(low)))

    def mac(self, number: int) -> int:
        """Return the alias of a MAC address, with the same vendor.

        Group addresses and zero are unchanged.
        """
        if number in (0, (1 << 48) - 1) or number >> 40 & 1:
            return number
        return number >> 24 << 24 | self._low(number >> 24, number & 0xFFFFFF)

    def guid(self, number: int) -> int:
        """Return the alias of a 64-bit GUID; an embedded MAC gets the MAC's alias."""
        if number in (0, (1 << 64) - 1) or number >> 16 == 0xFE80 << 32:
            return number
        maker = number >> 40
        if number >> 24 & 0xFFFF == 0xFFFE:
            maker ^= 0x020000  # the bit that marks uniqueness (RFC 4291, appendix A)
        return number >> 24 << 24 | self._low(maker, number & 0xFFFFFF)

    def _low(self, maker: int, number: int) -> int:
        return self._flips(f"eui {maker:x}", number, 24, 0, 24 - _PORT_BITS)

    def lid(self, number: int) -> int:
        """Return the alias of a LID, with the same three low bits.

        Zero and multicast LIDs are unchanged.
        """
        if not 0 < number < 0xC000:
            return number
        found = self._flips("lid", number, 16, 2, 13)
        return found or self._flips("lid", found, 16, 2, 13)

    def alike(self, what: str, text: str) -> str:
        """Return an alias with digits for digits, and letters for letters."""
        digest = self.digest(what, text)
        while len(digest) < 2 * len(text):
            digest += self.digest(what, digest)
        made = []
        for place, sign in enumerate(text):
            chance = int(digest[2 * place : 2 * place + 2], 16)
            if sign.isdigit():
                sign = "0123456789"[chance % 10]
            elif "A" <= sign <= "Z":
                sign = chr(ord("A") + chance % 26)
            elif "a" <= sign <= "z":
                sign = chr(ord("a") + chance % 26)
            made.append(sign)
        return "".join(made)

    def hexadecimal(self, what: str, text: str) -> str:
        """Return other hexadecimal digits in the same places; zeros alone are unchanged."""
        if not text.strip("0-"):
            return text
        digest = iter(self.digest(what, text.lower()) * (len(text) // 128 + 1))
        made = "".join(next(digest) if sign != "-" else sign for sign in text)
        return made.upper() if text.upper() == text else made
