"""NCCL's environment: settings that were left over, and names that mean nothing on this node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from preflight import facts
from preflight.checks.presence import PCI_BUS, RDMA_CLASS, no_rdma
from preflight.cluster import Site
from preflight.evidence import EvidenceError
from preflight.facts import NodeFacts
from preflight.facts.nccl_env import PROCESS, Selection, Setting, strtoll
from preflight.facts.net import ROOT as NET
from preflight.facts.node import TOPO
from preflight.facts.rdma import Port, natural
from preflight.model import Finding, Status, check, failed, passed, unknown, warned

GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"


def _unread(node: NodeFacts, names: str) -> Iterator[Finding]:
    """Yield *unknown* for each file that could not be read and might set what is unset elsewhere."""
    for key, why in node.nccl_env.unreadable.items():
        path = key.partition(":")[2]
        yield unknown(f"{path} could not be read and may set {names}: {why}", subject=path, evidence=[key])


def _as_set(setting: Setting) -> str:
    """Return the line that sets a variable, and nothing else of the environment, for quoting."""
    return f"{setting.line}: {setting.text}" if setting.line else setting.text


def _nearest(name: str, names: Iterable[str]) -> str:
    """Return ``, nearest: X`` for the name that was probably meant."""
    from difflib import get_close_matches

    known = {candidate.casefold(): candidate for candidate in names}
    found = get_close_matches(name.strip().casefold(), known, n=1, cutoff=0.5)
    return f", nearest: {known[found[0]]}" if found else ""


# --- left-over switches ----------------------------------------------------------------------------


def _rdma(node: NodeFacts, site: Site) -> bool:
    return bool(node.rdma_devices)


def _nvlink(node: NodeFacts, site: Site) -> bool:
    if site.part is not None and site.part.nvswitch:
        return True
    codes = {code for row in node.topology.links.values() for code in row.values()}
    return any(code.startswith("NV") for code in codes)


def _nvls(node: NodeFacts, site: Site) -> bool:
    # NVLink SHARP came with the third-generation NVSwitch of Hopper (NCCL 2.17 release notes)
    return site.part is not None and site.part.nvswitch and "A100" not in site.part.gpu.name


def _multi_node_nvlink(node: NodeFacts, site: Site) -> bool:
    return any(gpu.fabric is not None and gpu.fabric.multi_node for gpu in node.gpu_health.gpus)


def _grace(node: NodeFacts, site: Site) -> bool:
    return site.part is not None and site.part.nic_on_cpu and bool(node.rdma_devices)


def _gpus(node: NodeFacts, site: Site) -> bool:
    return len(node.gpus_on_bus) > 1


def _nonzero(value: str) -> bool:
    return bool(strtoll(value))


def _one(value: str) -> bool:
    return strtoll(value) == 1


def _zero(value: str) -> bool:
    return strtoll(value) == 0


def _loc(value: str) -> bool:
    return value == "LOC" or (value[0].isdigit() and strtoll(value) == 0)


@dataclass(frozen=True)
class Leftover:
    """A switch that is good for finding a fault and bad for everything after."""

    variable: str
    on: Callable[[str], bool]  # whether NCCL takes this (not empty) value as switching
    effect: str
    bites: Callable[[NodeFacts, Site], bool]  # whether this node has what it switches off
    harmless: str  # why it has no effect where it does not bite
    status: Status
    evidence: str  # record that shows whether it bites
    otherwise: Status = Status.PASS  # where it does not bite
    answers: tuple[str, ...] = ()  # the checklist items that ask for it


#: Which value switches is NCCL's own rule (src/transport/*.cc, src/graph/paths.cc, 2.30): P2P_DISABLE and
#: SHM_DISABLE act only at 1, IB_DISABLE at anything but 0, a level at LOC or, in the old numbering, 0.
LEFTOVERS = (
    Leftover("NCCL_IB_DISABLE", _nonzero, "switches InfiniBand and RoCE off", _rdma,
             "the kernel has no RDMA device", Status.FAIL, RDMA_CLASS, answers=("NT-ENV-4",)),
    Leftover("NCCL_NET", lambda value: value.casefold() == "socket", "forces TCP", _rdma,
             "the kernel has no RDMA device", Status.FAIL, RDMA_CLASS),
    Leftover("NCCL_P2P_DISABLE", _one, "switches GPU peer-to-peer off", _nvlink,
             "no NVLink between the GPUs", Status.FAIL, TOPO, Status.WARN, ("NT-ENV-5", "NT-LENS-4")),
    Leftover("NCCL_P2P_LEVEL", _loc, "switches GPU peer-to-peer off", _nvlink,
             "no NVLink between the GPUs", Status.FAIL, TOPO, Status.WARN, ("NT-LENS-4",)),
    Leftover("NCCL_SHM_DISABLE", _one, "switches shared memory off", _gpus,
             "fewer than two GPUs on the PCI bus", Status.WARN, PCI_BUS, answers=("NT-ENV-6", "NT-LENS-5")),
    Leftover("NCCL_NET_GDR_LEVEL", _loc, "switches GPUDirect RDMA off", _rdma,
             "the kernel has no RDMA device", Status.WARN, RDMA_CLASS),
    Leftover("NCCL_NET_GDR_READ", _zero, "stages every send through host memory", _rdma,
             "the kernel has no RDMA device", Status.WARN, RDMA_CLASS),
    Leftover("NCCL_NET_GDR_C2C", _zero, "switches GPUDirect RDMA off for NICs on the processor", _grace,
             "no Grace processor is recognised", Status.WARN, PCI_BUS),
    Leftover("NCCL_MNNVL_ENABLE", _zero, "switches NVLink between nodes off", _multi_node_nvlink,
             "the NVLink fabric, if any, ends in this node", Status.FAIL, facts.gpu.NVML),
    Leftover("NCCL_NVLS_ENABLE", _zero, "switches NVLink SHARP off", _nvls,
             "no board with NVLink SHARP is recognised", Status.WARN, PCI_BUS),
)  # fmt: skip


ITEMS = ("NT-ENV-4", "NT-ENV-5", "NT-ENV-6", "NT-LENS-4", "NT-LENS-5")


@check(
    "nccl.left-over-disables",
    title="No NCCL transport is left switched off",
    source=f"{GUIDE}; values as in NCCL 2.30 src/misc/param.cc",
    fix="Remove it where it is set (environment, /etc/nccl.conf, ~/.nccl.conf); if it hides a fault, find that fault.",
    answers=ITEMS,
    reads=("nvml:gpus",),
)
def left_over_disables(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the NCCL variables in force with the values that switch a transport off.

    Such a switch is set for one experiment and stays: the job still runs, over TCP or through host
    memory, at a tenth of its bandwidth, and nothing says why.

    Values are read as NCCL reads them: ``true`` is 0 and switches nothing. RDMA switches fail on a node with
    RDMA devices, peer-to-peer ones on a node with NVLink (without it they warn), NVLink between nodes on a
    fabric that spans them; shared memory, GPUDirect RDMA and NVLink SHARP warn.

    A false alarm: an image built for one kind of node and used on another; give that kind a file /etc/nccl.conf
    of its own.
    """
    on = []
    for leftover in LEFTOVERS:
        setting = node.nccl_env.get(leftover.variable)
        value = node.nccl_env.text(leftover.variable)
        if setting is None or not value:
            continue
        if leftover.on(value):
            on.append(leftover)
            yield _left_over(node, site, leftover, setting).about(*leftover.answers)
        elif leftover.variable.endswith("_DISABLE") and value.casefold() in ("true", "yes", "on"):
            yield warned(
                f"{setting.text} in {setting.where} is read as 0",
                subject=setting.name,
                found=value,
                expected="a number, or unset",
                evidence=[setting.source],
                quote=_as_set(setting),
            )
    unread = list(_unread(node, "one of these switches"))
    yield from unread
    if not unread:
        told = {item for leftover in on for item in leftover.answers}
        others = "none" if not on else "no other"
        finding = passed(f"{others} of {len(LEFTOVERS)} switches is on", evidence=[PROCESS])
        yield finding.about(*(item for item in ITEMS if item not in told)) if on else finding


def _left_over(node: NodeFacts, site: Site, leftover: Leftover, setting: Setting) -> Finding:
    message = f"{setting.text} in {setting.where} {leftover.effect}"
    try:
        bites = leftover.bites(node, site)
    except EvidenceError as error:
        return unknown(f"{message}, if the node has that: {error}", subject=setting.name, evidence=[error.key])
    keys = [setting.source, leftover.evidence]
    status = leftover.status if bites else leftover.otherwise
    if status is Status.PASS:
        return passed(f"{message}; no effect here: {leftover.harmless}", subject=setting.name, evidence=keys)
    say = failed if status is Status.FAIL else warned
    return say(
        f"{message}, expected unset",
        subject=setting.name,
        found=setting.value,
        expected="unset",
        evidence=keys,
        quote=_as_set(setting),
    )


# --- interfaces ------------------------------------------------------------------------------------

#: Interfaces that lead to no other node; NCCL takes them only where nothing else is left.
_LOCAL = ("lo", "docker", "virbr", "cni", "veth", "br-")


@check(
    "nccl.socket-ifname",
    title="NCCL_SOCKET_IFNAME names an interface that is here and up",
    source=f"{GUIDE}#nccl-socket-ifname",
    fix="Name an interface that every node has (`ip -br addr`), or unset it; a per-node value goes to /etc/nccl.conf.",
    answers=("NT-ENV-2", "PA-15"),
)
def socket_ifname(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare what NCCL_SOCKET_IFNAME selects, by NCCL's grammar, with the node's interfaces.

    Ranks find each other over this interface whatever the data takes later: with a name that is not
    here the job dies at its start ("no socket interface found"), with loopback it waits for nobody.

    Without ``=`` a name is a prefix; ``^`` excludes. A value of one character counts as unset. An operational
    state of "unknown" (virtual interfaces) counts as up. A value that selects no interface, or only such as
    are down, fails.

    A false alarm: a list for several kinds of node names interfaces that are not here; it is fine as long as one
    is.
    """
    setting, selection = node.nccl_env.get("NCCL_SOCKET_IFNAME"), node.nccl_env.socket_selection
    if setting is None or selection is None:
        unread = list(_unread(node, "NCCL_SOCKET_IFNAME"))
        yield from unread or [passed("NCCL_SOCKET_IFNAME is unset: NCCL chooses", evidence=[PROCESS])]
        return
    here = node.netdevs
    chosen = sorted((name for name in here if selection.matches_name(name)), key=natural)
    useful = [name for name in chosen if not name.startswith(_LOCAL)]
    up = [name for name in useful if here[name].operstate in ("up", "unknown")]
    keys = [setting.source, *(f"file:{NET}/{name}/operstate" for name in (useful or chosen or sorted(here))[:3])]
    message = f"{setting.text} in {setting.where} selects "
    if up:
        yield passed(message + ", ".join(up), subject=setting.name, found=", ".join(up), evidence=keys)
        return
    if useful:
        message += f"only interfaces that are down: {', '.join(useful)}"
    elif chosen:
        message += f"only interfaces that lead to no other node: {', '.join(chosen)}"
    else:
        near = "" if selection.exclude or not selection.items else _nearest(selection.items[0].name, here)
        message += f"no interface of this node{near}"
    yield failed(
        message,
        subject=setting.name,
        found=", ".join(chosen) or "nothing",
        expected=f"an interface that is up, of {', '.join(sorted(here, key=natural))}",
        evidence=keys,
        quote=_as_set(setting),
    )


# --- HCAs ------------------------------------------------------------------------------------------


@check(
    "nccl.ib-hca",
    title="NCCL_IB_HCA selects the active ports of the compute fabric",
    source=f"{GUIDE}#nccl-ib-hca; grammar as in NCCL 2.30 src/misc/socket.cc",
    fix="List the compute ports by whole name: NCCL_IB_HCA==mlx5_0,mlx5_3 (the second `=` makes names exact).",
    answers=("NT-ENV-3", "PA-15", "NT-ROL-1"),
)
def ib_hca(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the ports that NCCL_IB_HCA selects, by NCCL's grammar, with the node's ports and their roles.

    NCCL leaves out what it does not find without a word: a wrong name costs a rail, a list that
    selects nothing costs RDMA altogether, and a storage port in the list gets the job's traffic.

    Names are prefixes unless the value begins with ``=``, which then holds for all of them: ``mlx5_1``
    takes in mlx5_10, and that only warns. A port that is down fails if the list names its device, and
    warns if a prefix happens to cover it. Roles are compared only where the cluster file names them.

    A false alarm: a prefix that happens to cover a port which is down; that only warns, and NCCL leaves the port
    out.
    """
    setting, selection = node.nccl_env.get("NCCL_IB_HCA"), node.nccl_env.hca_selection
    if setting is None or selection is None:
        unread = list(_unread(node, "NCCL_IB_HCA"))
        yield from unread or _unset(node, site)
        return
    if absent := no_rdma(node, site):
        yield absent
        return
    chosen = [port for port in node.rdma_ports if selection.matches(port.device, port.number)]
    if not chosen:
        near = "" if selection.exclude else _nearest(selection.items[0].name, node.rdma_devices)
        yield failed(
            f"{setting.text} in {setting.where} selects no port of this node{near}",
            subject=setting.name,
            found="nothing",
            expected=f"ports of {', '.join(node.rdma_devices)}",
            evidence=[setting.source, RDMA_CLASS],
            quote=_as_set(setting),
        )
        return
    faults = [
        *_unmatched(node, selection, setting),
        *_ambiguous(node, selection, setting),
        *_inactive(selection, chosen, setting),
        *_mixed(chosen, setting),
        *_roles(node, site, chosen, setting),
    ]
    yield from faults
    if not faults:
        names = ", ".join(port.name for port in chosen)
        yield passed(
            f"{setting.text} in {setting.where} selects {len(chosen)} of {len(node.rdma_ports)} ports, all active",
            subject=setting.name,
            found=names,
            evidence=[setting.source, RDMA_CLASS],
        )


def _unset(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Without a list NCCL takes every active port; say so where the site keeps some for other traffic."""
    aside = {*(site.members.ports.storage or ()), *(site.members.ports.management or ())}
    taken = [port.name for port in node.rdma_ports if port.device in aside and port.active] if aside else []
    too = f", also {', '.join(taken)}, kept for other traffic" if taken else ""
    yield passed(f"NCCL_IB_HCA is unset: NCCL may use every active port{too}", evidence=[PROCESS])


def _unmatched(node: NodeFacts, selection: Selection, setting: Setting) -> Iterator[Finding]:
    """An item that means nothing here; what an exclusion does not find harms nobody."""
    for item in () if selection.exclude else selection.items:
        if any(selection.names(item, port.device) and item.port in (None, port.number) for port in node.rdma_ports):
            continue
        why = ""
        if item.name != item.name.strip():
            why = " (NCCL does not trim blanks)"
        elif selection.exact and any(device.startswith(item.name) for device in node.rdma_devices):
            why = " (the `=` holds for every item)"
        yield failed(
            f"{setting.name} item {str(item)!r} in {setting.where} matches no port"
            f"{_nearest(item.name, node.rdma_devices)}{why}",
            subject=setting.name,
            found=setting.value,
            expected=f"names of {', '.join(node.rdma_devices)}",
            evidence=[setting.source, RDMA_CLASS],
            quote=_as_set(setting),
        )


def _ambiguous(node: NodeFacts, selection: Selection, setting: Setting) -> Iterator[Finding]:
    """A name that ends in a number is a prefix of others: mlx5_1 of mlx5_10."""
    for item in () if selection.exact else selection.items:
        more = [d for d in node.rdma_devices if d.startswith(item.name) and d[len(item.name) :][:1].isdigit()]
        if more and item.name[-1].isdigit():
            yield warned(
                f"{setting.name} item {item.name} in {setting.where} also means {', '.join(more)}",
                subject=setting.name,
                found=setting.value,
                expected="whole names: a value that begins with `=`",
                evidence=[setting.source, RDMA_CLASS],
                quote=_as_set(setting),
            )


def _inactive(selection: Selection, chosen: list[Port], setting: Setting) -> Iterator[Finding]:
    down = [port for port in chosen if not port.active]
    for port in down:
        named = not selection.exclude and any(item.name == port.device for item in selection.items)
        say = failed if named or len(down) == len(chosen) else warned
        yield say(
            f"{port.name} is {port.state}/{port.physical_state}, but {setting.text} selects it",
            subject=port.name,
            found=f"{port.state}/{port.physical_state}",
            expected="ACTIVE/LinkUp, or not in the list",
            evidence=[*port.evidence[:2], setting.source],
        )


def _mixed(chosen: list[Port], setting: Setting) -> Iterator[Finding]:
    layers = {port.link_layer for port in chosen if port.active}
    if len(layers) > 1:
        yield warned(
            f"{setting.text} in {setting.where} selects InfiniBand and RoCE ports at once",
            subject=setting.name,
            found=", ".join(f"{port.name} {port.link_layer}" for port in chosen if port.active),
            expected="one link layer",
            evidence=[setting.source, *chosen[0].evidence[:1]],
            quote=_as_set(setting),
        )


def _roles(node: NodeFacts, site: Site, chosen: list[Port], setting: Setting) -> Iterator[Finding]:
    """Compare with the roles that the cluster file gives; nothing to compare where it gives none."""
    ports = site.members.ports
    devices = list(dict.fromkeys(port.device for port in chosen))
    keys = [setting.source, RDMA_CLASS]
    details: dict[str, Any] = {"subject": setting.name, "found": ", ".join(devices), "evidence": keys}
    details["quote"] = _as_set(setting)
    compute = ports.compute
    if compute is not None:
        wanted = f"{', '.join(compute)} (cluster file: class.{site.class_name}.ports.compute)"
        if missed := [d for d in compute if d in node.rdma_devices and d not in devices]:
            message = f"{setting.text} in {setting.where} leaves out the compute port {', '.join(missed)}"
            yield failed(message, expected=wanted, **details)
    for role, members in (("storage", ports.storage or ()), ("management", ports.management or ())):
        if wrong := [device for device in devices if device in members]:
            message = f"{setting.text} in {setting.where} takes in the {role} port {', '.join(wrong)}"
            yield failed(message, expected=f"no {role} port", **details)
    aside = {*(ports.storage or ()), *(ports.management or ())}
    if compute is not None and (other := [d for d in devices if d not in compute and d not in aside]):
        message = f"{setting.text} in {setting.where} takes in {', '.join(other)}, which the site does not call compute"
        yield warned(message, expected=wanted, **details)
