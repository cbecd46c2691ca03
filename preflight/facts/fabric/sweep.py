"""A sweep of the InfiniBand fabric, and the job's nodes in it.

The records of a sweep are in the document of the node that made it; they describe the entire cluster.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TypeVar

from preflight.evidence.document import EvidenceError
from preflight.facts.fabric import compare
from preflight.facts.fabric import graph as fabric_graph
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import ROOT, Port
from preflight.parsers.infiniband import iblinkinfo, ibnetdiscover, ibqueryerrors, ibqueryerrors_data, sminfo_saquery

T = TypeVar("T")

#: The node name of a sweep's findings; no host can have it.
FABRIC = "@fabric"

_SWEPT = re.compile(r"cmd:ibnetdiscover( -C \S{1,64})?")

Compute = Callable[[NodeFacts], Sequence[Port]]


class FabricFacts:
    """Facts from one sweep.

    ``of`` is the device option of its commands, ``" -C mlx5_0"`` or empty.
    """

    def __init__(self, sweeper: NodeFacts, of: str, nodes: Sequence[NodeFacts], compute: Compute) -> None:
        self.sweeper = sweeper
        self.evidence = sweeper.evidence
        self.nodes = nodes
        self._compute = compute
        self.net_key = f"cmd:ibnetdiscover{of}"
        self.links_key = f"cmd:iblinkinfo -l{of}"
        self.errors_key = f"cmd:ibqueryerrors{of}"
        self.traffic_key = f"cmd:ibqueryerrors --counters --switch{of}"
        self.master_key = f"cmd:sminfo{of}"
        self.managers_key = f"cmd:saquery -s{of}"
        self.services_key = f"cmd:saquery SR{of}"

    def _parsed(self, key: str, parse: Callable[[str], T], allow_rc: tuple[int, ...] = (0,)) -> T:
        text = self.evidence.text(key, allow_rc)
        try:
            return parse(text)
        except ValueError as error:
            raise EvidenceError(key, f"cannot be parsed: {error}") from None

    @cached_property
    def net(self) -> ibnetdiscover.Net:
        """Switches, HCAs and links.

        Raises EvidenceError if the sweep contains only the node's own port.
        """
        net = self._parsed(self.net_key, ibnetdiscover.parse)
        if not net.links:
            raise EvidenceError(self.net_key, "lists no link: the port that sweeps the fabric has no neighbour")
        return net

    @cached_property
    def graph(self) -> fabric_graph.Graph:
        """The graph of the links."""
        return fabric_graph.Graph(self.net)

    @cached_property
    def port_states(self) -> tuple[iblinkinfo.PortState, ...]:
        """The state of every port."""
        return self._parsed(self.links_key, iblinkinfo.parse)

    @cached_property
    def errors(self) -> ibqueryerrors.Errors:
        """The error counters of every port."""
        return self._parsed(self.errors_key, ibqueryerrors.parse, allow_rc=(0, 1))  # 1: there are errors

    @cached_property
    def window(self) -> tuple[ibqueryerrors.Errors, ibqueryerrors.Errors, float] | None:
        """The counters at both ends of a window, and its length in hours.

        None if they were read only once. Raises EvidenceError.
        """
        if self.evidence.complete_record(self.errors_key).again is None:
            return None
        latest, seconds = self._second(self.errors_key, ibqueryerrors.parse)
        return self.errors, latest, seconds / 3600

    @cached_property
    def rates(self) -> Mapping[ibnetdiscover.End, ibqueryerrors_data.Rate]:
        """The traffic of each switch port in a window.

        Raises EvidenceError, also without a window.
        """
        before = self._parsed(self.traffic_key, ibqueryerrors_data.parse)
        after, seconds = self._second(self.traffic_key, ibqueryerrors_data.parse)
        return ibqueryerrors_data.rates(before, after, seconds)

    def _second(self, key: str, parse: Callable[[str], T]) -> tuple[T, float]:
        """Return the second reading of a record, and the seconds in between.

        Raises EvidenceError.
        """
        first = self.evidence.complete_record(key)
        if (second := first.again) is None:
            raise EvidenceError(key, "was read once")
        if not second.ok or second.rc not in (0, 1):  # 1: ibqueryerrors has found errors
            raise EvidenceError(key, f"the second reading {second.describe() or f'ended with {second.rc}'}")
        try:
            latest = parse(second.out)
        except ValueError as error:
            raise EvidenceError(key, f"the second reading cannot be parsed: {error}") from None
        if first.at_s is None or second.at_s is None or second.at_s <= first.at_s:
            raise EvidenceError(key, "has no time of reading")
        return latest, second.at_s - first.at_s

    @cached_property
    def services(self) -> tuple[str, ...]:
        """Names of the services that are registered with the subnet manager."""
        return self._parsed(self.services_key, sminfo_saquery.parse_services)

    @cached_property
    def slow_links(self) -> tuple[compare.Slow, ...]:
        """Links below the speed of their peers."""
        return compare.slow(self.net)

    # --- completeness ---

    @cached_property
    def lost(self) -> Mapping[str, sminfo_saquery.Lost]:
        """The queries that got no answer, by the record of the tool that sent them."""
        found = {}
        for key in (self.net_key, self.links_key, self.errors_key):
            try:
                lost = sminfo_saquery.lost(self.evidence.complete_record(key).err)
            except EvidenceError:
                continue
            if lost and (lost.routes or key != self.errors_key):  # otherwise a query to the manager, or of counters
                found[key] = lost
        return found

    @cached_property
    def crashed(self) -> Mapping[str, int]:
        """Record key -> signal that ended the tool, whose queries are therefore lost."""
        records = self.evidence.records
        ended = {key: records[key].get("rc") for key in (self.links_key, self.errors_key) if key in records}
        return {key: -rc for key, rc in ended.items() if isinstance(rc, int) and rc < 0}

    @property
    def partial(self) -> str:
        """Why the sweep is incomplete; empty if it is complete."""
        if lost := self.lost.get(self.net_key):
            queries = "query" if lost.count == 1 else "queries"
            return f"the sweep is partial: {lost.count} {queries} got no answer"
        halves = [link for link in self.net.links if link.seen_by == 1 or not link.speed]
        if halves:
            links = "link was" if len(halves) == 1 else "links were"
            return f"the sweep is partial: {len(halves)} {links} reported by only one end, or without a speed"
        return ""

    def silent_places(self) -> Iterator[str]:
        """Yield the locations of lost queries whose routes can be followed."""
        routes = dict.fromkeys(route for lost in self.lost.values() for route in lost.routes)
        yield from dict.fromkeys(filter(None, (self.graph.along(route) for route in routes)))

    # --- subnet manager ---

    @cached_property
    def master(self) -> sminfo_saquery.Manager | None:
        """The manager that answers this node; None if none answered the query."""
        return self._parsed(self.master_key, sminfo_saquery.parse_sminfo, allow_rc=(0, 255))

    @cached_property
    def managers(self) -> Mapping[int, sminfo_saquery.Manager | None]:
        """The answer of each subnet manager's port by LID; None without an answer."""
        found: dict[int, sminfo_saquery.Manager | None] = {}
        for key in sorted(self.evidence.records):
            if key.startswith(f"{self.master_key} ") and (lid := key[len(self.master_key) + 1 :]).isdecimal():
                found[int(lid)] = self._parsed(key, sminfo_saquery.parse_sminfo, allow_rc=(0, 255))
        self.evidence.text(self.managers_key)  # raises unless the list is complete: a missing manager may be a master
        if not found:
            raise EvidenceError(self.managers_key, "lists no port that runs a subnet manager")
        return found

    def device_of(self, port_guid: str) -> str:
        """Return the device of a port GUID, or the GUID if the sweep lacks it."""
        try:
            end = self.net.end_of(port_guid, 0)
        except EvidenceError:
            end = None
        return self.net.devices[end[0]].label if end else f"0x{port_guid}"

    def states_of(self, link: ibnetdiscover.FabricLink) -> tuple[iblinkinfo.PortState, ...]:
        """Return the states of a link's ports, as far as they were read."""
        try:
            states = self._states
        except EvidenceError:
            return ()
        return tuple(states[end] for end in link.ends if end in states)

    @cached_property
    def _states(self) -> Mapping[ibnetdiscover.End, iblinkinfo.PortState]:
        named = ((self.net.end_of(one.guid, one.number), one) for one in self.port_states)
        return {end: one for end, one in named if end}

    # --- the job's nodes ---

    @cached_property
    def rails(self) -> Mapping[str, Mapping[str, str]]:
        """HCAs of the collected nodes by RDMA device name; unread ones are left out.

        Each maps a node to the GUID of its HCA.
        """
        rails: dict[str, dict[str, str]] = {}
        for node in self.nodes:
            for device, guid in active_guids(node, self._compute).items():
                rails.setdefault(device, {})[node.node] = guid
        return rails

    def here(self) -> Mapping[str, Mapping[str, str]]:
        """Return the rails' HCAs that are in the sweep."""
        seen = {
            rail: {n: g for n, g in members.items() if g in self.net.devices} for rail, members in self.rails.items()
        }
        return {rail: members for rail, members in seen.items() if members}

    def elsewhere(self) -> Mapping[str, tuple[str, ...]]:
        """Return the nodes' active compute HCAs that the sweep lacks, by rail."""
        absent = {
            rail: tuple(sorted(n for n, g in members.items() if g not in self.net.devices))
            for rail, members in self.rails.items()
        }
        return {rail: names for rail, names in absent.items() if names}

    @property
    def foreign(self) -> tuple[str, ...]:
        """The sweeping node's compute devices, if the sweep has none of them.

        The sweep then covers another fabric. By default the tools use the first active port; on HGX B200 that is a
        bridge of the NVSwitches.
        """
        own = {rail: members[self.sweeper.node] for rail, members in self.rails.items() if self.sweeper.node in members}
        return () if any(guid in self.net.devices for guid in own.values()) else tuple(own)

    @property
    def not_infiniband(self) -> tuple[str, ...]:
        """The records that show that no compute port of the node is InfiniBand.

        Empty if any port is, or if that is unknown.
        """
        try:
            ports = self._compute(self.sweeper)
        except EvidenceError:
            return ()
        if not ports or any(port.infiniband for port in ports):
            return ()
        return tuple(f"file:{ROOT}/{port.device}/ports/{port.number}/link_layer" for port in ports)


def active_guids(node: NodeFacts, compute: Compute) -> dict[str, str]:
    """Return the known GUIDs of a node's active InfiniBand HCAs, by device."""
    guids: dict[str, str] = {}
    try:
        for port in compute(node):
            if port.active and port.infiniband:
                text = node.evidence.text(f"file:{ROOT}/{port.device}/node_guid").strip().replace(":", "")
                if re.fullmatch("[0-9a-fA-F]{16}", text):
                    guids[port.device] = text.lower()
    except EvidenceError:
        pass
    return guids


def sweeps(nodes: Sequence[NodeFacts], compute: Compute) -> Iterator[FabricFacts]:
    """Yield the sweeps among the records of the nodes."""
    for node in nodes:
        for key in sorted(node.evidence.records):
            if match := _SWEPT.fullmatch(key):
                yield FabricFacts(node, match[1] or "", nodes, compute)
