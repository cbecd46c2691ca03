"""Check of NCCL_IB_HCA against the ports of the node and their roles."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from preflight import facts
from preflight.checks.applicability import RDMA_CLASS, is_efa_node, no_rdma
from preflight.checks.nccl.settings_scope import as_set, nccl_versions, nearest_of, unread
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.nccl_environment import PROCESS, RAILS, Selection, Setting
from preflight.facts.node import TOPO, NodeFacts
from preflight.facts.rdma_ports import Port, natural
from preflight.model import Finding, Status, check, failed, passed, skipped, some_of, warned

GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"


def no_port_to_select(node: NodeFacts, site: Site) -> Finding | None:
    """Return the finding of ``no_rdma`` if NCCL_IB_HCA is set, else None."""
    if node.nccl_env.get("NCCL_IB_HCA") is None or node.nccl_env.hca_selection is None:
        return None
    absent = no_rdma(node, site)
    return absent and absent.about(*_answers(site))


@check(
    "nccl.ib-hca",
    title="NCCL_IB_HCA selects the active ports of the compute fabric",
    fault="NCCL_IB_HCA selects ports other than the active compute ports",
    impact="slows-job",
    explains=(("nccl.ib-hca", "node", "NCCL_IB_HCA", "*:*"), ("nccl.transport", "log"), ("nccl.failures", "log")),
    source=f"{GUIDE}#nccl-ib-hca; grammar as in NCCL 2.30 src/misc/socket.cc",
    fix="List the compute ports by exact name: NCCL_IB_HCA==mlx5_0,mlx5_3 (the second `=` makes names exact).",
    action="fix-job",
    answers=("NT-ENV-3", "PA-15", "NT-ROL-1"),
    unless=(no_port_to_select,),
)
def ib_hca(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the ports that NCCL_IB_HCA selects with the node's ports and roles.

    The value is parsed as in NCCL.

    ## Why it matters
    NCCL silently ignores names that do not exist: a wrong name costs a rail, and a list that selects no port disables
    RDMA. A storage port in the list gets the job's traffic.

    ## Verdicts
    Names are prefixes: ``mlx5_1`` includes mlx5_10, which only warns. If the value begins with ``=``, all of its names
    are exact. A port that is down fails if the list names its device, and warns if only a prefix matches it;
    rdma.port-state judges those of `ports.compute`. The cluster file declares roles; without declared compute ports, a
    list that omits the NIC close to a GPU warns, and so does a bond among single ports. Rails and planes are supported
    as in NCCL 2.30.7. Without a list, NCCL uses every active port, which warns if one has the role storage or
    management, or is not in `ports.compute`. nccl.hca-roles reads the selected ports from a job's log. The checklist
    item on compute ports is answered only if the cluster file lists `ports.compute`.

    ## False alarms
    A prefix that matches a port that is down; that only warns, and NCCL ignores the port. A job script that sets the
    list, which is not visible on the node; set it in /etc/nccl.conf.
    """
    for finding in _ib_hca(node, site):
        unproved = finding.status is Status.PASS and site.members.ports.compute is None
        yield finding.about(*(() if unproved else _answers(site)))


def _answers(site: Site) -> tuple[str, ...]:
    """Return the checklist items; those about roles only if roles are declared."""
    declared = site.members.ports
    roles = declared.compute is not None or declared.storage or declared.management
    return ("NT-ENV-3", "PA-15", *(("NT-ROL-1",) if roles else ()))


def _ib_hca(node: NodeFacts, site: Site) -> Iterator[Finding]:
    setting, selection = node.nccl_env.get("NCCL_IB_HCA"), node.nccl_env.hca_selection
    if setting is None or selection is None:
        missing = list(unread(node, "NCCL_IB_HCA"))
        yield from missing or _unset(node, site)
        return
    if is_efa_node(node):
        yield passed(f"{setting.text} in {setting.where} has no effect: NCCL uses EFA devices through a plug-in",
                     subject=setting.name, evidence=[setting.source, RDMA_CLASS])  # fmt: skip
        return
    versions = nccl_versions(node)
    if versions and max(versions) < RAILS:
        selection = Selection.parse(setting.value, empty_port_is_any=False)
    chosen = [port for port in node.rdma_ports if selection.matches(port.device, port.number)]
    if not chosen:
        near = "" if selection.exclude else nearest_of(selection.items[0].name, node.rdma_devices)
        yield failed(
            f"{setting.text} in {setting.where} selects no port of this node{near}",
            subject=setting.name,
            found="nothing",
            expected=f"one or more of {', '.join(node.rdma_devices)}",
            evidence=[setting.source, RDMA_CLASS],
            quote=as_set(setting),
        )
        return
    faults = [
        *_unmatched(node, selection, setting),
        *_ambiguous(node, selection, setting),
        *_inactive(selection, chosen, setting, site.members.ports.compute or ()),
        *_mixed(chosen, setting),
        *_roles(node, site, chosen, setting),
        *_unlike(node, site, selection, chosen, setting),
    ]
    yield from faults
    if not faults:
        names = ", ".join(port.name for port in chosen)
        yield passed(
            f"{setting.text} in {setting.where} selects {some_of(len(chosen), len(node.rdma_ports), 'port')}"
            + (
                ", all active"
                if all(port.active for port in chosen)
                else "; a port that is down is not a fault of the list"
            ),
            subject=setting.name,
            found=names,
            evidence=[setting.source, RDMA_CLASS],
        )


def _unset(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Judge the ports that NCCL uses if NCCL_IB_HCA is unset: all active ones."""
    if is_efa_node(node):
        yield skipped("NCCL_IB_HCA is unset, and has no effect on EFA devices", evidence=[PROCESS])
        return
    if off := _off(node):
        yield skipped(f"NCCL_IB_HCA is unset, and {off.text} disables all HCAs for NCCL", evidence=[off.source])
        return
    ports = site.members.ports
    aside = {device: role for role, devices in (("storage", ports.storage), ("management", ports.management))
             for device in devices or ()}  # fmt: skip
    if ports.compute is not None:
        aside = {**dict.fromkeys(set(node.rdma_devices) - set(ports.compute), "not declared as compute"), **aside}
    taken = [port for port in node.rdma_ports if port.device in aside and port.active] if aside else []
    if not taken:
        yield passed("NCCL_IB_HCA is unset, so NCCL may use every active port", evidence=[PROCESS])
        return
    named = ", ".join(f"{port.name} ({aside[port.device]})" for port in taken)
    compute = ",".join(ports.compute) if ports.compute else "the compute ports"
    yield warned(
        f"NCCL_IB_HCA is unset, so NCCL may use every active port, including {named}",
        subject="NCCL_IB_HCA",
        found="unset",
        expected=f"NCCL_IB_HCA=={compute}",
        evidence=[PROCESS, *dict.fromkeys(key for port in taken for key in port.evidence[:1])],
    )


def _off(node: NodeFacts) -> Setting | None:
    """Return the setting that disables all HCAs for NCCL, or None."""
    disable, network = node.nccl_env.get("NCCL_IB_DISABLE"), node.nccl_env.get("NCCL_NET")
    if disable is not None and node.nccl_env.integer("NCCL_IB_DISABLE"):
        return disable
    return network if network is not None and network.value.casefold() == "socket" else None


def _unmatched(node: NodeFacts, selection: Selection, setting: Setting) -> Iterator[Finding]:
    """Report items that match no port; unmatched exclusions are harmless."""
    for item in () if selection.exclude else selection.items:
        if any(selection.names(item, port.device) and item.port in (None, port.number) for port in node.rdma_ports):
            continue
        why = ""
        if item.name != item.name.strip():
            why = " (NCCL does not trim blanks)"
        elif selection.exact and any(device.startswith(item.name) for device in node.rdma_devices):
            why = " (the `=` applies to every item)"
        yield failed(
            f"{setting.name} item {str(item)!r} in {setting.where} matches no port"
            f"{nearest_of(item.name, node.rdma_devices)}{why}",
            subject=setting.name,
            found=setting.value,
            expected=f"one or more of {', '.join(node.rdma_devices)}",
            evidence=[setting.source, RDMA_CLASS],
            quote=as_set(setting),
        )


def _ambiguous(node: NodeFacts, selection: Selection, setting: Setting) -> Iterator[Finding]:
    """Report names that are prefixes of other devices, as mlx5_1 is of mlx5_10."""
    for item in () if selection.exact else selection.items:
        more = [d for d in node.rdma_devices if d.startswith(item.name) and d[len(item.name) :][:1].isdigit()]
        if more and item.name[-1].isdigit():
            yield warned(
                f"{setting.name} item {item.name} in {setting.where} also matches {', '.join(more)}",
                subject=setting.name,
                found=setting.value,
                expected="exact names: a value that begins with `=`",
                evidence=[setting.source, RDMA_CLASS],
                quote=as_set(setting),
            )


def _inactive(
    selection: Selection, chosen: list[Port], setting: Setting, compute: Collection[str]
) -> Iterator[Finding]:
    """Report selected ports that are down.

    Declared compute ports are left to rdma.port-state, because the list is correct.
    """
    down = [port for port in chosen if not port.active]
    for port in (port for port in down if port.device not in compute):
        named = not selection.exclude and any(item.name == port.device for item in selection.items)
        grade = failed if named or len(down) == len(chosen) else warned
        yield grade(
            f"{port.name} is {port.state}/{port.physical_state}, but {setting.text} selects it",
            subject=port.name,
            found=f"{port.state}/{port.physical_state}",
            expected="ACTIVE/LinkUp, or not in the list",
            evidence=[*port.evidence[:2], setting.source],
        )


def _mixed(chosen: list[Port], setting: Setting) -> Iterator[Finding]:
    layers = {port.link_layer for port in chosen if port.active and not port.efa}
    if len(layers) > 1:
        yield warned(
            f"{setting.text} in {setting.where} selects InfiniBand and RoCE ports at once",
            subject=setting.name,
            found=", ".join(f"{port.name} {port.link_layer}" for port in chosen if port.active),
            expected="one link layer",
            evidence=[setting.source, *chosen[0].evidence[:1]],
            quote=as_set(setting),
        )


def _roles(node: NodeFacts, site: Site, chosen: list[Port], setting: Setting) -> Iterator[Finding]:
    """Compare the selection with the roles of the cluster file, if any."""
    ports = site.members.ports
    devices = list(dict.fromkeys(port.device for port in chosen))
    keys = [setting.source, RDMA_CLASS]
    details: dict[str, Any] = {"subject": setting.name, "found": ", ".join(devices), "evidence": keys}
    details["quote"] = as_set(setting)
    compute = ports.compute
    if compute is not None:
        wanted = f"{', '.join(compute)} (cluster file: class.{site.class_name}.ports.compute)"
        if missed := [d for d in compute if d in node.rdma_devices and d not in devices]:
            message = f"{setting.text} in {setting.where} omits the compute port {', '.join(missed)}"
            yield failed(message, expected=wanted, **details)
    for role, members in (("storage", ports.storage or ()), ("management", ports.management or ())):
        if wrong := [device for device in devices if device in members]:
            message = f"{setting.text} in {setting.where} includes the {role} port {', '.join(wrong)}"
            yield failed(message, expected=f"no {role} port", **details)
    aside = {*(ports.storage or ()), *(ports.management or ())}
    if compute is not None and (other := [d for d in devices if d not in compute and d not in aside]):
        message = f"{setting.text} in {setting.where} includes {', '.join(other)}, which is not declared as compute"
        yield warned(message, expected=wanted, **details)


def _unlike(
    node: NodeFacts, site: Site, selection: Selection, chosen: list[Port], setting: Setting
) -> Iterator[Finding]:
    """Report GPUs whose close NICs are not selected, and bonds among single ports.

    If the cluster file declares compute ports, ``_roles`` compares the selection with them instead.
    """
    if site.members.ports.compute is not None:
        return
    devices = {port.device for port in chosen}
    details: dict[str, Any] = {"subject": setting.name, "found": setting.value, "quote": as_set(setting)}
    bonds = sorted(device for device in devices if "bond" in device)
    if bonds and len(bonds) < len(devices) and not selection.exclude:
        yield warned(
            f"{setting.text} in {setting.where} includes the bond {', '.join(bonds)} in addition to single ports",
            expected="no bond, which is usually for storage or management",
            evidence=[setting.source, RDMA_CLASS],
            **details,
        )
    active = {port.device for port in node.rdma_ports if port.active}
    for gpu, near in _near(node).items():
        if near & active and not near & devices:
            yield warned(
                f"{setting.text} in {setting.where} omits "
                f"{', '.join(sorted(near, key=natural))}, the NIC close to {gpu}",
                expected="a close NIC for each GPU",
                evidence=[setting.source, TOPO],
                **details,
            )


def _near(node: NodeFacts) -> dict[str, set[str]]:
    """Return the NICs close to each GPU (PIX, PXB); empty if unknown."""
    try:
        topology = node.topology
    except EvidenceError:
        return {}
    found = {gpu: topology.nearest_nics(gpu) for gpu in topology.gpus if gpu in topology.links}
    return {gpu: set(nics) for gpu, (code, nics) in found.items() if code in facts.gpudirect.NEAR}
