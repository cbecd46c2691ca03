"""The Ethernet fabric: switches, and the cables between them and the hosts.

Cables are found with LLDP (IEEE 802.1AB), from both ends. Names are compared in full, never by prefix: a switch is
identified by its name, with or without domain, or by its chassis address; a port by its name, its alias, or the short
form of either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import Port
from preflight.facts.switch import eos, junos, linux, nxos, sonic
from preflight.facts.switch.model import SwitchFacts, SwitchPort, went_back
from preflight.facts.unique_ids import HOSTNAME
from preflight.parsers.network import lldp

#: The node name of findings on switches; no host can have it.
SWITCHES = "@switches"

Compute = Callable[[NodeFacts], Sequence[Port]]

#: Adapter of each platform.
_ADAPTERS: Mapping[str, Callable[[Evidence], SwitchFacts]] = {
    "sonic": sonic.facts,
    "eos": eos.facts,
    "nxos": nxos.facts,
    "junos": junos.facts,
    "linux": linux.facts,
}

_SHORT = re.compile(r"(?:ethernet|eth|et)([0-9]+(?:/[0-9]+)+)")


@dataclass(frozen=True)
class CableEnd:
    """One end of a cable: a device and its port."""

    device: str
    port: str
    is_switch: bool

    def __str__(self) -> str:
        return f"{self.device} {self.port}"


@dataclass(frozen=True)
class EthernetCable:
    """A cable; the first end is a switch, the second a switch or a host.

    ``heard`` are the ends that announce the other one: both, or only one.
    """

    near: CableEnd
    other: CableEnd
    heard: tuple[CableEnd, ...]

    @property
    def ends(self) -> tuple[CableEnd, CableEnd]:
        """Both ends."""
        return self.near, self.other

    def __str__(self) -> str:
        return f"{self.near} - {self.other}"

    @property
    def note(self) -> str:
        """Note on a cable that only one end shows; empty for other cables."""
        return "" if len(self.heard) == 2 else f" (only {self.heard[0].device} shows this cable)"


@dataclass(frozen=True)
class Contradiction:
    """Two ends of a cable that name different neighbours."""

    end: CableEnd
    names: str
    far: CableEnd
    far_names: str
    stranger: bool  # whether ``far_names`` is an unknown device


@dataclass(frozen=True)
class HostPort:
    """A RoCE port of a host, and its LLDP neighbour."""

    node: NodeFacts
    port: Port
    netdev: str
    heard: lldp.Neighbour | None
    why: str = ""  # why it has no neighbour


class Ethernet:
    """Facts of all switches, and of the hosts connected to them."""

    NAME = SWITCHES

    def __init__(self, read: Sequence[Callable[[], Evidence]], nodes: Sequence[NodeFacts], compute: Compute) -> None:
        """Read each switch; ``compute`` returns the job's ports of a node."""
        self._nodes, self._compute = nodes, compute
        self._sources: dict[str, Callable[[], Evidence]] = {}
        self.switches: list[SwitchFacts] = []
        self.silent: dict[str, str] = {}  # switches without an answer, with the reason
        self.collected_at = ""
        for source in read:
            evidence = source()
            self._sources[evidence.node] = source
            self.collected_at = max(self.collected_at, evidence.collected_at)
            adapter = _ADAPTERS.get(evidence.platform)
            if evidence.no_answer is not None:
                self.silent[evidence.node] = evidence.no_answer.get("reason", "")
            elif adapter is None:
                hint = "; name it in [switches] linux" if evidence.platform == "cumulus" else ""
                self.silent[evidence.node] = f"the platform {evidence.platform!r} is not read in this way{hint}"
            else:
                self.switches.append(adapter(evidence))
        self.by_name = {switch.name: switch for switch in self.switches}

    @property
    def windowed(self) -> bool:
        """Whether the counters of any switch were read twice."""
        return any(switch.second is not None for switch in self.switches)

    @cached_property
    def cleared(self) -> frozenset[str]:
        """The switches with a counter that decreased within the window."""
        pairs = ((switch.name, switch.first, switch.second) for switch in self.switches)
        return frozenset(name for name, first, second in pairs if second and went_back(first, second))

    @cached_property
    def evidence(self) -> Evidence:
        """The records of all devices, as one document.

        A key begins with the device's name: ``leaf1 redis:CONFIG_DB PORT``.
        """
        hosts = {node.node: (lambda node=node: node.evidence) for node in self._nodes}
        return Evidence(SWITCHES, self.collected_at, _Records({**hosts, **self._sources}))

    def priorities(self, port: SwitchPort, declared: int | None) -> frozenset[int]:
        """Return the lossless priorities of a port: only the declared one, or else all."""
        return port.pfc if declared is None else port.pfc & {declared}  # type: ignore[return-value,operator]

    # --- cables ---

    @cached_property
    def hosts(self) -> tuple[HostPort, ...]:
        """The RoCE ports that jobs use, without hosts whose ports are unknown."""
        ports: list[HostPort] = []
        for node in self._nodes:
            try:
                roce = [(port, port.netdev) for port in self._compute(node) if port.roce and port.netdev]
            except EvidenceError:
                continue
            heard: Mapping[str, lldp.Neighbour] = {}
            why = ""
            try:
                heard = node.parsed(lldp.LLDP, lldp.parse) if roce else {}
            except EvidenceError as error:
                why = error.why
            ports += [HostPort(node, port, netdev, heard.get(netdev), why) for port, netdev in roce]
        return tuple(ports)

    def host(self, end: CableEnd) -> HostPort | None:
        """Return the host's port at an end of a cable, or None."""
        return self._host_ports.get((end.device, end.port))

    def port(self, end: CableEnd) -> SwitchPort | None:
        """Return the switch's port at an end of a cable, or None."""
        switch = self.by_name.get(end.device)
        return switch.ports.get(end.port) if switch and end.is_switch else None

    @cached_property
    def _host_ports(self) -> dict[tuple[str, str], HostPort]:
        return {(host.node.node, host.netdev): host for host in self.hosts}

    @cached_property
    def _switch_names(self) -> dict[str, set[str]]:
        by_form: dict[str, set[str]] = {}
        for switch in self.switches:
            for name in {*_names(switch.name), *_names(switch.system_name), _mac(switch.chassis)} - {""}:
                by_form.setdefault(name, set()).add(switch.name)
        return by_form

    @cached_property
    def _host_names(self) -> dict[str, set[str]]:
        by_form: dict[str, set[str]] = {}
        for node in self._nodes:
            for name in {*_names(node.node), *_names(_hostname(node))}:
                by_form.setdefault(name, set()).add(node.node)
        return by_form

    def _switch(self, *names: str) -> SwitchFacts | None:
        """Return the switch of the first unambiguous name or address, or None."""
        for name in names:
            switches = set().union(
                *(self._switch_names.get(form, set()) for form in {*_names(name), _mac(name)} - {""})
            )
            if len(switches) == 1:
                return self.by_name[switches.pop()]
        return None

    def _host_name(self, name: str) -> str | None:
        hosts = set().union(*(self._host_names.get(form, set()) for form in _names(name)))
        return hosts.pop() if len(hosts) == 1 else None

    @cached_property
    def _announced(self) -> dict[CableEnd, CableEnd]:
        """The other end of each port, according to the port's own LLDP neighbour."""
        announced: dict[CableEnd, CableEnd] = {}
        for switch in self.switches:
            for port in switch.ports.values():
                if far := self._far(switch, port):
                    announced[CableEnd(switch.name, port.name, True)] = far
        for host in self.hosts:
            if far := self._switch_heard(host):
                announced[CableEnd(host.node.node, host.netdev, False)] = far
        return announced

    def _switch_heard(self, host: HostPort) -> CableEnd | None:
        """Return the switch and port that LLDP shows on a host's port, or None."""
        switch = self._switch(host.heard.switch) if host.heard else None
        name = self._port_named(switch, host.heard.port) if switch and host.heard else ""
        return CableEnd(switch.name, name, True) if switch and name else None

    def _far(self, switch: SwitchFacts, port: SwitchPort) -> CableEnd | None:
        heard = port.heard
        if heard is None:
            return None
        if far := self._switch(heard.system_name, heard.chassis):
            name = self._port_named(far, heard.port) or self._port_named(far, heard.description)
            return CableEnd(far.name, name, True) if name else None
        host = self._host_name(heard.system_name)
        if host is None:
            return None
        for name in (heard.port, heard.description):
            if (host, name) in self._host_ports:
                return CableEnd(host, name, False)
        # The switch shows an address instead of the interface, so the host's record decides.
        here = [
            port_here
            for port_here in self._of_host[host]
            if self._switch_heard(port_here) == CableEnd(switch.name, port.name, True)
        ]
        return CableEnd(host, here[0].netdev, False) if len(here) == 1 else None

    @cached_property
    def _of_host(self) -> Mapping[str, Sequence[HostPort]]:
        by_host: dict[str, list[HostPort]] = {node.node: [] for node in self._nodes}
        for host in self.hosts:
            by_host[host.node.node].append(host)
        return by_host

    @cached_property
    def _port_names(self) -> dict[str, dict[str, set[str]]]:
        by_switch: dict[str, dict[str, set[str]]] = {}
        for switch in self.switches:
            names = by_switch.setdefault(switch.name, {})
            for port in switch.ports.values():
                for name in port.names:
                    names.setdefault(_short(name), set()).add(port.name)
        return by_switch

    def _port_named(self, switch: SwitchFacts, name: str) -> str:
        """Return the port with this name or alias; empty if there is none, or several."""
        if name in switch.ports:
            return name
        ports = self._port_names[switch.name].get(_short(name), set())
        return next(iter(ports)) if len(ports) == 1 else ""

    @cached_property
    def cables(self) -> tuple[EthernetCable, ...]:
        """The cables whose ends do not contradict each other, sorted."""
        announced, wrong = (
            self._announced,
            {end for contradiction in self.contradictions for end in (contradiction.end, contradiction.far)},
        )
        heard_by: dict[frozenset[CableEnd], list[CableEnd]] = {}
        for end, far in announced.items():
            if end not in wrong and far not in wrong:
                heard_by.setdefault(frozenset((end, far)), []).append(end)
        cables = []
        for pair, heard in heard_by.items():
            if len(pair) == 2:
                near, other = sorted(pair, key=lambda end: (not end.is_switch, end.device, end.port))
                cables.append(EthernetCable(near, other, tuple(sorted(heard, key=str))))
        return tuple(sorted(cables, key=str))

    @cached_property
    def contradictions(self) -> tuple[Contradiction, ...]:
        """Ends whose far end names a different neighbour, each pair once."""
        pairs: dict[frozenset[CableEnd], Contradiction] = {}
        for end, far in self._announced.items():
            back = self._announced.get(far)
            names = str(back) if back else self._stranger(far)
            if names and back != end:
                wrong = Contradiction(end, str(far), far, names, stranger=back is None)
                pairs.setdefault(frozenset((end, far)), wrong)
        return tuple(pairs[pair] for pair in sorted(pairs, key=lambda pair: sorted(map(str, pair))))

    def _stranger(self, end: CableEnd) -> str:
        """Return the unknown neighbour of a switch port; empty if there is none.

        It is named like the known devices: other names may be those of a DPU in a host.
        """
        port = self.port(end)
        if not port or not port.heard or _form(port.heard.system_name) not in set().union(*self._forms):
            return ""
        if _names(port.heard.system_name) & (self._switch_names.keys() | self._host_names.keys()):
            return ""
        return f"{port.heard.system_name} {port.heard.port}"

    def is_like_hosts(self, name: str) -> bool:
        """Return whether only its numbers distinguish a name from a host's."""
        return _form(name) in self._forms[0] - self._forms[1]

    @cached_property
    def _forms(self) -> tuple[set[str], set[str]]:
        """The forms of the hosts' names and of the switches'."""
        return {_form(host.node.node) for host in self.hosts}, {_form(switch) for switch in self.by_name}

    @cached_property
    def far_ends(self) -> Mapping[CableEnd, CableEnd]:
        """Each end of a cable -> the other end."""
        return {end: far for cable in self.cables for end, far in (cable.ends, cable.ends[::-1])}

    def unjoined(self) -> Iterator[HostPort]:
        """Yield the hosts' RoCE ports that have no cable to a known switch."""
        for host in self.hosts:
            if CableEnd(host.node.node, host.netdev, False) not in self.far_ends:
                yield host


def _form(device: str) -> str:
    """Return a device's name without its domain and the values of its numbers."""
    return re.sub(r"[0-9]+", "#", device.lower().partition(".")[0])


def _hostname(node: NodeFacts) -> str:
    """Return a host's own name, which may not be that of its document, or empty."""
    try:
        return node.evidence.text(HOSTNAME).strip()
    except EvidenceError:
        return ""


def _names(name: str) -> set[str]:
    """Return a device's name in lower case, with and without its domain."""
    folded = name.strip().lower()
    if not folded or re.fullmatch(r"[0-9.:a-f]+", folded):
        return {folded} - {""}
    return {folded, folded.partition(".")[0]}


def _mac(text: str) -> str:
    """Return ``mac`` and the digits of an Ethernet address; empty for other text."""
    digits = re.sub(r"[.:-]", "", text.strip().lower())
    return f"mac {digits}" if re.fullmatch(r"[0-9a-f]{12}", digits) else ""


def _short(port: str) -> str:
    """Return a port's name in its short form: ``Ethernet12/1`` is ``et12/1``."""
    folded = port.strip().strip('"').lower()
    match = _SHORT.fullmatch(folded)
    return f"et{match[1]}" if match else folded


class _Records(Mapping[str, Any]):
    """Records of several documents, by key; each key begins with the device's name."""

    def __init__(self, sources: Mapping[str, Callable[[], Evidence]]) -> None:
        self._sources = sources
        self._last: tuple[str, Evidence] | None = None

    def __getitem__(self, key: str) -> Any:
        device, _, record = key.partition(" ")
        if device not in self._sources:
            raise KeyError(key)
        if self._last is None or self._last[0] != device:
            self._last = device, self._sources[device]()
        return self._last[1].records[record]

    def __contains__(self, key: object) -> bool:
        try:
            self[str(key)]
        except KeyError:
            return False
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())  # no reader lists the records of an entire fabric

    def __len__(self) -> int:
        return len(self._sources)
