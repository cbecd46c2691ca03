"""Checks of values that must be unique: GUIDs, addresses, LIDs, serial numbers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

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

#: Identifiers that break no job where they stand twice: a cloned image, GPUs of one tray.
_HARMLESS = {"machine id", "GPU serial number"}

_NO_GUID = "virtual function: `ip link set PF vf N node_guid …`; else `flint q`"

_WHAT_NOW = {
    "boot id": "the same machine was collected under several names, or a virtual machine was cloned while it ran",
    "machine id": "nodes were cloned with it: empty /etc/machine-id in the image, and it is made anew at the next boot",
    "host name": "give each node a name of its own: `hostnamectl set-hostname`",
    "node GUID": "an adapter was programmed by hand: `mlxfwmanager`, `flint q`; or a virtual function got a GUID twice",
    "LID": "two subnet managers gave LIDs in one subnet: `sminfo`, `ibnetdiscover`",
    "IP address": "correct the address of one of them; `arping -D` shows who answers",
    "MAC": "a cloned configuration, or virtual functions: `ip link show`",
    "GPU UUID": "one node's evidence saved under two names? Else `nvidia-smi -L` on both; a GPU handed to two virtual "
    "machines belongs to one of them",
    "GPU serial number": "one node's evidence saved under two names? Else compare `nvidia-smi -q` on both; GPUs of one "
    "board or tray may share the number",
}

#: What is in one machine only: a GPU, and beside it an adapter or the installed system.
_GPU, _BESIDE = "GPU UUID", {"machine id", "node GUID", "system image GUID", "port GUID", "MAC"}

_ONE_MACHINE = (
    "one node's evidence saved under two names, or one machine listed by two? Compare `hostname` and `nvidia-smi -L` "
    "on both, and collect again; else cloned machines"
)


@check(
    "fleet.identity",
    title="No two nodes have the same GUID, address, LID, UUID or host name",
    fault="Two nodes share an identity",
    impact="blocks-job",
    source="InfiniBand architecture specification (GUID, LID), RFC 5227 (IPv4), IEEE 802 (MAC), machine-id(5)",
    fix="`ibstat`, `ip -br addr` and `hostname` on both show who has it by right; correct the other.",
    action="fix-site",
    answers=("NT-FAB-4",),
    scope="fleet",
)
def identity(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Look for identifiers that several nodes share, and for GUIDs of zero.

    ## Why it matters
    With one address or LID on two nodes, packets for one reach the other: connections time out, now here, now there. Of
    two adapters with one GUID the subnet manager leaves one out. One GPU on two nodes: one node's evidence is not its
    own.

    ## Verdicts
    Looked at: GUIDs of devices, systems and ports, LIDs, IP and MAC addresses of RDMA ports and of the default route,
    host names, UUIDs and serial numbers of GPUs, machine id, boot id. A serial number or machine id that stands
    twice warns, as trays and clones share them; everything else fails. An all-zero GUID is none, and fails on a port
    that is up. With the same boot id two names are one machine: that alone is reported then. Nodes that share GPUs
    and, beside them, adapters or the machine id have one finding for all of it.

    ## False alarms
    One machine that was checked under two names on purpose. Containers of one machine are known as such.
    """
    identifiers = {node.node: node.remember_for_fleet("identifiers", _identifiers, node) for node in nodes}
    odd: set[str] = set()
    for finding in (*_twice(identifiers, {node.node: node for node in nodes}), *_zero(nodes, sites)):
        odd.update(finding.nodes)
        yield finding
    silent = [name for name, text in identifiers.items() if not text and name not in odd]
    if silent:
        yield unknown("nothing that identifies these nodes was read", evidence=[f"file:{ROOT}/*/node_guid"],
                      fix="collect again with this version of preflight").on(silent)  # fmt: skip
    if good := [name for name, text in identifiers.items() if text and name not in odd]:
        kinds = [kind for number, kind in enumerate(KINDS) if any(_of_kind(identifiers[name], number) for name in good)]
        yield passed(f"no {_or(kinds)} stands twice", found=", ".join(kinds),
                     evidence=[f"file:{ROOT}/*/node_guid"]).on(good)  # fmt: skip


def _identifiers(node: NodeFacts) -> str:
    """Return the identifiers of a node as lines of text.

    A line has the number of the kind, the owner, the scope in which it must be unique, and the value. One text is
    compact: ten thousand nodes are compared at once.
    """
    return "\n".join(f"{KINDS.index(one.kind)}\t{one.of}\t{one.within}\t{one.value}" for one in of_node(node))


def _of_kind(text: str, kind: int) -> list[str]:
    """Return the lines of one kind."""
    return [line for line in text.split("\n") if line.startswith(f"{kind}\t")]


def _or(kinds: Sequence[str]) -> str:
    return f"{', '.join(kinds[:-1])} or {kinds[-1]}" if len(kinds) > 1 else kinds[0]


def _twice(identifiers: Mapping[str, str], nodes: Mapping[str, NodeFacts]) -> Iterator[Finding]:
    """Yield identifiers of several nodes, those of the same nodes together."""
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
            same[names][kind] = [
                one for one in of_node(nodes[names[0]]) if one.kind == kind and f"{one.within}\t{one.value}" in labels
            ]
    for names, kinds in same.items():
        if _GPU in kinds and _BESIDE & set(kinds):
            yield _one_machine(names, kinds)
        else:
            yield from (_finding(kind, names, found) for kind, found in kinds.items())


def _one_machine(names: Sequence[str], kinds: Mapping[str, Sequence[Identifier]]) -> Finding:
    """Return the finding of nodes that look like one machine.

    The first identifier of each kind is the example.
    """
    some = [f"{kind} {found[0].value}" + (f" and {len(found) - 1} more" if len(found) > 1 else "")
            for kind, found in kinds.items()]  # fmt: skip
    return failed(
        f"{len(names)} nodes look like one machine: {_few(names, 4)} have the same {', '.join(kinds)}",
        subject="machine",
        found="; ".join(some), expected="one of its own on each node",
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
        expected="one of its own on each node", evidence=[found[0].key], fix=_WHAT_NOW.get(kind, ""),
    ).on(names)  # fmt: skip


def _zero(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    for node in nodes:
        try:
            without = node.remember_for_fleet("GUIDs that are zero", _without_guid, node, sites[node.node])
        except EvidenceError:
            continue
        for name, empty in without.items():
            if name != "node_guid" or not failing((container.rdma_address,), node, sites[node.node]):
                message = f"{name} of {', '.join(empty[:4])} is all zero: no GUID was given"
                yield failed(message, subject=name,
                             found="0000:0000:0000:0000", expected="a GUID of its own",
                             evidence=[f"file:{ROOT}/{empty[0]}/{name}"], fix=_NO_GUID).on([node.node])  # fmt: skip


def _without_guid(node: NodeFacts, site: Site) -> dict[str, list[str]]:
    """Return compute devices with a GUID of zero, by the file that shows it.

    EFA devices may have none on healthy nodes.
    """
    devices = list(dict.fromkeys(port.device for port in compute(node, site) if not port.efa))
    zero = {name: [one for one in devices if _is_zero(node, one, name)] for name in ("node_guid", "sys_image_guid")}
    return {name: found for name, found in zero.items() if found}


def _is_zero(node: NodeFacts, device: str, name: str) -> bool:
    try:
        return guid(node.evidence.text(f"file:{ROOT}/{device}/{name}")) == 0
    except (EvidenceError, ValueError):
        return False
