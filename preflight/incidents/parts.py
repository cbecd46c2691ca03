"""Parts of a node and their aliases.

For example, GPU6 is also 0000:d1:00.0; mlx5_5:1 is a port of mlx5_5, whose network interface is enp79s0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any

from preflight._startup.lightclass import dataclass

#: A subject that is a device on any node: a port, a GPU, a PCI address, a network interface, a disk.
_DEVICE = re.compile(
    r"[a-z]+\d*_[a-z]*_?\d+(?::\d+)?|GPU\d+|[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]|(?:en|eth|ib|wl)\w*\d\w*"
    r"|Ethernet\d+|(?:rdmap|rocep|ibp|rxe|irdma)\w*\d\w*(?::\d+)?|nvme\d\w*|sd[a-z]\d*|nvidia-nvswitch\d+"
)

#: Separator of the two ends of a cable in a subject.
CABLE = " - "

#: Possible names of devices and ports in a finding about switches.
_NAME = re.compile(r"[^\s,;:()]+")
_PORT = re.compile(r"(.+):\d{1,3}")
_PCI = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")

#: A pair of parts, as gpudirect.path names them.
_PAIR = re.compile(r"(GPU\d+)-(\S+)")

#: Possible device names in a message.
_WORD = re.compile(r"(?<![\w.:-])[a-zA-Z0-9][\w-]*(?:[.:]\w+)*")

#: A figure in a message, with its unit: it differs between runs and nodes.
_FIGURE = re.compile(r"0x[0-9a-f]+|\d+(?:[.,:/_-]\d+)*(?:\s?(?:[KMGTP]i?B?|[kMGT]?b/s|[kMG]?Hz|°?C|ms|s|min|h|W|%)\b)?")

#: A list of figures or devices; some messages name only the first and last of many ports.
_LIST = re.compile(r"(?P<one>[#*])(?:, (?P=one))+(?: and # more)?|# ports \((?P<two>\*) to \*\)")


def is_device(subject: str) -> bool:
    """Return whether a subject is a device rather than a setting."""
    return bool(_DEVICE.fullmatch(subject) or _PAIR.fullmatch(subject))


def names_device(message: str) -> bool:
    """Return whether a message names a device."""
    return any(_DEVICE.fullmatch(word[0]) for word in _WORD.finditer(message))


def signature(message: str, subject: str, *, named: bool = False) -> str:
    """Return a message with its figures and device names replaced by ``#`` and ``*``.

    With ``named``, the subject consists of names, such as those of switches, hosts and ranks; they are replaced too.
    """
    if named:
        names = {name for name in _NAME.findall(subject) if not name.isdigit()}  # the number of a rank is a figure
        message = _NAME.sub(lambda name: "*" if name[0] in names else name[0], message)
    elif is_device(subject):
        message = message.replace(subject, "*").replace(_PORT.sub(r"\1", subject), "*")
    message = _WORD.sub(lambda word: "*" if _DEVICE.fullmatch(word[0]) else word[0], message)
    return _LIST.sub(lambda several: several["one"] or several["two"], _FIGURE.sub("#", message))


@dataclass(frozen=True)
class Parts:
    """The parts of a node, as shown in its report."""

    names: Mapping[str, str]  # alias of a part -> its name
    gpus: frozenset[str]  # addresses of GPUs on the bus
    leaves: Mapping[str, str]  # an RDMA device -> the switch at the other end of its cable
    compute: int = 0  # number of NICs of the compute fabric
    compute_leaves: frozenset[str] = frozenset()  # leaves of these NICs

    @classmethod
    def of(cls, node: Mapping[str, Any]) -> Parts:
        """Return the parts of a node of the report; none without a topology."""
        names: dict[str, str] = {}
        gpus, leaves = set(), {}
        for gpu in devices(node, "gpus"):
            names[gpu["name"]] = gpu["address"]
            gpus.add(gpu["address"])
        for nic in devices(node, "nics"):
            for name in (nic["address"], nic.get("netdev", "")):
                if name:
                    names[name] = nic["name"]
            if leaf := nic.get("leaf"):
                leaves[nic["name"]] = leaf
        compute = [nic["name"] for nic in devices(node, "nics") if nic.get("compute")]
        of_compute = frozenset(leaves[name] for name in compute if name in leaves)
        return cls(names, frozenset(gpus), leaves, len(compute), of_compute)

    def of_subject(self, subject: str) -> frozenset[str]:
        """Return the parts that a subject names, and the devices of its ports."""
        pair = _PAIR.fullmatch(subject)
        parts = {self.names.get(name, name) for name in (pair.groups() if pair else (subject,)) if name}
        return frozenset(parts | {self.names.get(match[1], match[1]) for name in parts if (match := _port(name))})

    def same(self, subject: str, other: str) -> bool:
        """Return whether two subjects are the same part, or a device and its port."""
        mine, theirs = self.of_subject(subject), self.of_subject(other)
        if not mine & theirs:
            return False
        ports = [{name for name in names if _port(name)} for names in (mine, theirs)]
        return not (all(ports) and not ports[0] & ports[1])

    def lacks(self, subject: str) -> bool:
        """Return whether a subject is the address of a GPU that is not on the bus."""
        return bool(_PCI.fullmatch(subject)) and bool(self.gpus) and subject not in self.gpus

    def ends(self, node: str, subject: str) -> Iterator[str]:
        """Yield the names under which a switch may report this end of a cable.

        These are the node, the leaf, and the node with each alias of the part; for a setting, with the aliases of all
        parts.
        """
        parts = self.of_subject(subject)
        yield node
        if leaf := self.leaf(subject):
            yield leaf
        for alias, name in self.names.items():
            if name in parts or not is_device(subject):
                yield f"{node} {alias}"

    def leaf(self, subject: str) -> str:
        """Return the switch at the other end of a port's cable; empty if unknown."""
        return next((self.leaves[name] for name in self.of_subject(subject) if name in self.leaves), "")

    def leaf_of_all(self) -> str:
        """Return the switch to which all ports are connected; empty if unknown."""
        leaves = set(self.leaves.values())
        return leaves.pop() if len(leaves) == 1 and len(self.leaves) == self.compute else ""


def ends_of(finding: Mapping[str, Any]) -> Iterator[str]:
    """Yield possible names of cable ends in a finding about switches.

    These are the ends in the subject, the parts, and each pair of adjacent words in the message.
    """
    yield from finding["subject"].split(CABLE)
    yield from finding.get("parts", ())
    words = _NAME.findall(finding["message"])
    for device, port in pairwise(words):
        yield f"{device} {port}"


def device_of(finding: Mapping[str, Any]) -> str:
    """Return the switch or host in the subject of a finding about switches."""
    return str(finding["subject"]).partition(" ")[0]


def ports_of(finding: Mapping[str, Any]) -> Iterator[str]:
    """Yield possible port names in a finding about switches.

    These are the ends in the subject, and each word of the message as a port of the same device.
    """
    yield from finding["subject"].split(CABLE)
    for word in _NAME.findall(finding["message"]):
        yield f"{device_of(finding)} {word}"


def session_ends(finding: Mapping[str, Any]) -> list[str]:
    """Return the two switches of a session; empty for a finding about anything else."""
    ends = next(iter(finding.get("parts", ())), "").partition(", ")[0].split(CABLE)
    return ends if len(ends) == 2 else []


def _port(name: str) -> re.Match[str] | None:
    return None if _PCI.fullmatch(name) else _PORT.fullmatch(name)


def switches(node: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the PCIe switches of a node's topology in the report."""
    for numa in (node.get("topology") or {}).get("numa", ()):
        yield from numa["switches"]


def devices(node: Mapping[str, Any], kind: str) -> Iterator[Mapping[str, Any]]:
    """Yield the ``gpus`` or ``nics`` of a node's topology in the report."""
    for switch in switches(node):
        yield from switch[kind]
