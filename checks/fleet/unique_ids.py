"""Checks of values that must be unique: GUIDs, addresses, LIDs, serial numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence

from preflight.checks.comparison.electorate import failing
from preflight.checks.comparison.values import compute
from preflight.checks.kubernetes import container
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.majority import shared
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import ROOT
from preflight.facts.unique_ids import KINDS, Identifier, guid, of_node
from preflight.model import Finding, check, failed, passed, unknown, warned

#: Identifiers whose duplicates break no job: a cloned image, GPUs of one tray.
_HARMLESS = {"machine id", "GPU serial number"}

_NO_GUID = "assign a GUID to a virtual function with `ip link set PF vf N node_guid GUID`; otherwise run `flint q`"

_WHAT_NOW = {
    "boot id": "check whether one machine was collected under several names, or a virtual machine was cloned while it "
    "ran",
    "machine id": "empty /etc/machine-id in the image from which the nodes were cloned: systemd creates a new one at "
    "the next boot",
    "host name": "give each node its own name: `hostnamectl set-hostname`",
    "node GUID": "run `flint q` on both nodes: find out whether an adapter was programmed manually, or two virtual "
    "functions got the same GUID",
    "LID": "run `sminfo` and `ibnetdiscover` to find out whether two subnet managers assigned LIDs in one subnet",
    "IP address": "find the node that answers with `arping -D`, and correct the address of the other",
    "MAC": "run `ip link show` on both nodes: look for a cloned configuration, or virtual functions",
    "GPU UUID": "check whether one node's evidence was saved under two names; otherwise run `nvidia-smi -L` on "
    "both. A GPU assigned to two virtual machines belongs to only one of them",
    "GPU serial number": "check whether one node's evidence was saved under two names; otherwise compare "
    "`nvidia-smi -q` on both. GPUs of one board or tray may share the number",
}

#: Identifiers that exist on one machine only: those of a GPU, and of an adapter or the installed system.
_GPU, _BESIDE = "GPU UUID", {"machine id", "node GUID", "system image GUID", "port GUID", "MAC"}

_ONE_MACHINE = (
    "check whether one node's evidence was saved, or one machine listed, under two names: compare `hostname` "
    "and `nvidia-smi -L` on both, and collect again. Otherwise the machines were cloned"
)


@check(
    "fleet.identity",
    title="No two nodes have the same GUID, address, LID, UUID or host name",
    fault="Two nodes share an identity",
    impact="blocks-job",
    source="InfiniBand architecture specification (GUID, LID), RFC 5227 (IPv4), IEEE 802 (MAC), machine-id(5)",
    fix="Run `ibstat`, `ip -br addr` and `hostname` on both to find the rightful owner; correct the other.",
    action="fix-site",
    answers=("NT-FAB-4",),
    scope="fleet",
)
def identity(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Look for identifiers that several nodes share, and for GUIDs of zero.

    ## Why it matters
    If two nodes have the same address or LID, packets for one reach the other, and connections time out at random. If
    two adapters have the same GUID, the subnet manager ignores one. If two nodes report the same GPU, one node's
    evidence belongs to another.

    ## Verdicts
    The check compares GUIDs of devices, systems and ports, LIDs, IP and MAC addresses of RDMA ports and of the default
    route, host names, UUIDs and serial numbers of GPUs, machine ids and boot ids. A duplicate serial number or machine
    id warns, because trays and clones share them; any other duplicate fails. An all-zero GUID means that none is set,
    and fails on a compute device that is up. Two names with the same boot id are one machine; only that is reported.
    Nodes that share GPUs and also adapters or the machine id get one finding.

    ## False alarms
    One machine that was checked under two names on purpose. Containers on one machine are recognised and not reported.
    """
    identifiers = {node.node: node.remember_for_fleet("identifiers", _identifiers, node) for node in nodes}
    odd: set[str] = set()
    for finding in (*_twice(identifiers, {node.node: node for node in nodes}), *_zero(nodes, sites)):
        odd.update(finding.nodes)
        yield finding
    silent = [name for name, text in identifiers.items() if not text and name not in odd]
    if silent:
        yield unknown("no identifier of these nodes was read", evidence=[f"file:{ROOT}/*/node_guid"],
                      fix="collect again with this version of preflight").on(silent)  # fmt: skip
    if good := [name for name, text in identifiers.items() if text and name not in odd]:
        kinds = [kind for number, kind in enumerate(KINDS) if any(_of_kind(identifiers[name], number) for name in good)]
        yield passed(f"no {_or(kinds)} occurs twice", found=", ".join(kinds),
                     evidence=[f"file:{ROOT}/*/node_guid"]).on(good)  # fmt: skip


def _identifiers(node: NodeFacts) -> str:
    """Return the identifiers of a node as lines of text.

    A line has the kind's number, the owner, the scope of uniqueness and the value. A single text saves memory for ten
    thousand nodes.
    """
    return "\n".join(f"{KINDS.index(one.kind)}\t{one.of}\t{one.within}\t{one.value}" for one in of_node(node))


def _records(node: NodeFacts) -> tuple[str, ...]:
    """Return the record of each identifier of a node, in the order of the lines."""
    return tuple(identifier.key for identifier in of_node(node))


def _with_records(text: str, records: Sequence[str], kind: int, labels: Collection[str]) -> Iterator[Identifier]:
    """Yield the identifiers of one kind with some values, with their records."""
    for line, key in zip(text.split("\n"), records, strict=False):
        number, of, within, value = f"{line}\t\t\t".split("\t")[:4]
        if number == str(kind) and f"{within}\t{value}" in labels:
            yield Identifier(KINDS[kind], value, of, key, within)


def _of_kind(text: str, kind: int) -> list[str]:
    """Return the lines of one kind of identifier."""
    return [line for line in text.split("\n") if line.startswith(f"{kind}\t")]


def _or(kinds: Sequence[str]) -> str:
    return f"{', '.join(kinds[:-1])} or {kinds[-1]}" if len(kinds) > 1 else kinds[0]


def _twice(identifiers: Mapping[str, str], nodes: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """Report duplicate identifiers, grouped by the nodes that share them."""
    machine: dict[str, str] = {}  # node -> the first name of its machine
    containers = {
        name for name, text in identifiers.items() if any("\tcontainer\t" in line for line in _of_kind(text, 0))
    }
    same: dict[tuple[str, ...], dict[str, list[Identifier]]] = defaultdict(dict)
    for number, kind in enumerate(KINDS):
        holders = shared((name, line.partition("\t")[2].partition("\t")[2]) for name, text in identifiers.items()
                         for line in _of_kind(text, number))  # fmt: skip
        together: dict[tuple[str, ...], set[str]] = defaultdict(set)
        for label, names in holders.items():
            if kind == "boot id":
                machine.update(dict.fromkeys(names, names[0]))
            if (kind == "boot id" and not containers & set(names)) or len(
                {machine.get(name, name) for name in names}
            ) > 1:
                together[names].add(label)
        for names, labels in together.items():
            first = nodes[names[0]]
            records = first.remember_for_fleet("records of identifiers", _records, first)
            same[names][kind] = list(_with_records(identifiers[first.node], records, number, labels))
    for names, kinds in same.items():
        if _GPU in kinds and _BESIDE & set(kinds):
            yield _one_machine(names, kinds)
        else:
            yield from (_finding(kind, names, found) for kind, found in kinds.items())


def _one_machine(names: Sequence[str], kinds: Mapping[str, Sequence[Identifier]]) -> Finding:
    """Return the finding for nodes that look like one machine.

    The first identifier of each kind is the example.
    """
    some = [f"{kind} {found[0].value}" + (f" and {len(found) - 1} more" if len(found) > 1 else "")
            for kind, found in kinds.items()]  # fmt: skip
    return failed(
        f"{len(names)} nodes look like one machine: {_few(names, 4)} have the same {', '.join(kinds)}",
        subject="machine",
        found="; ".join(some), expected="a different one on each node",
        evidence=[found[0].key for found in kinds.values()], fix=_ONE_MACHINE,
    ).on(names)  # fmt: skip


def _few(words: Sequence[str], most: int) -> str:
    return ", ".join(words[:most]) + (f" and {len(words) - most} more" if len(words) > most else "")


def _finding(kind: str, names: Sequence[str], found: Sequence[Identifier]) -> Finding:
    report = warned if kind in _HARMLESS else failed
    values = [f"{one.value} ({one.of})" if one.of else one.value for one in found]
    listed = _few(values, 3)
    return report(
        f"{len(names)} nodes have the same {kind}: {listed}, on {_few(names, 4)}", subject=kind, found=listed,
        expected="a different one on each node", evidence=[found[0].key], fix=_WHAT_NOW.get(kind, ""),
    ).on(names)  # fmt: skip


def _zero(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    for node in nodes:
        try:
            without = node.remember_for_fleet("GUIDs that are zero", _without_guid, node, sites[node.node])
        except EvidenceError:
            continue
        for name, empty in without.items():
            if name != "node_guid" or not failing((container.rdma_address,), node, sites[node.node]):
                message = f"{name} of {', '.join(empty[:4])} is all zeros: no GUID was assigned"
                yield failed(message, subject=name,
                             found="0000:0000:0000:0000", expected="a unique GUID",
                             evidence=[f"file:{ROOT}/{empty[0]}/{name}"], fix=_NO_GUID).on([node.node])  # fmt: skip


def _without_guid(node: NodeFacts, site: Site) -> dict[str, list[str]]:
    """Return compute devices with an all-zero GUID, by the file that shows it.

    EFA devices may lack a GUID on healthy nodes.
    """
    devices = list(dict.fromkeys(port.device for port in compute(node, site) if not port.efa))
    zero = {name: [one for one in devices if _is_zero(node, one, name)] for name in ("node_guid", "sys_image_guid")}
    return {name: found for name, found in zero.items() if found}


def _is_zero(node: NodeFacts, device: str, name: str) -> bool:
    try:
        return guid(node.evidence.text(f"file:{ROOT}/{device}/{name}")) == 0
    except (EvidenceError, ValueError):
        return False
