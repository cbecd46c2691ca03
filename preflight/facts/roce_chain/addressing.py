"""First links of the RoCE chain: interface, IP address, MTU, GID."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts import gids
from preflight.facts.interfaces import ROOT
from preflight.facts.rdma_ports import DEVINFO, Port
from preflight.facts.roce_chain.model import ChainLink, Place, State

#: Bytes of headers around an RDMA packet (kernel, iboe_get_mtu).
HEADERS = 96
#: Interface states of RFC 2863 as the kernel writes them (Documentation/networking/operstates.rst).
OPERSTATES = ("unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up")


def interface(at: Place, name: str) -> ChainLink:
    """Check that the interface is up."""
    key = f"file:{ROOT}/{at.netdev}/operstate"
    state = at.evidence.text(key).strip()
    if state not in OPERSTATES:
        raise EvidenceError(key, f"contains {state[:60]!r}, not a state of an interface")
    if state in ("up", "unknown"):  # unknown: a driver that does not report it; the port above it is active
        return ChainLink(name, State.OK, f"{at.netdev} {state}", evidence=(key,))
    return ChainLink(name, State.BROKEN, f"{at.netdev} {state}", f"the interface is {state}", "up", (key,),
                fix=f"run `ip link set {at.netdev} up`, then check its cable and switch port")  # fmt: skip


def address(at: Place, name: str) -> ChainLink:
    """Look for an IP address that another node can reach."""
    known = at.node.addresses
    if found := known.routable(at.netdev):
        return ChainLink(name, State.OK, str(found[0]), evidence=(known.evidence,))
    if above := _of_gid_table(at):  # a VLAN or macvlan on top of the interface has the address
        key = gids.keys(at.port.device, at.port.number, above.index)[0]
        return ChainLink(name, State.OK, f"{above.shown}, above {at.netdev}", evidence=(key,))
    return ChainLink(name, State.BROKEN, "none", "no IP address, so only a link-local GID",
                "an IPv4 or IPv6 address for each rail", (known.evidence,),
                fix="Configure an address for the rail; in a pod, in the IPAM of the secondary network.")  # fmt: skip


def mtu(at: Place, name: str) -> ChainLink:
    """Compare the Ethernet MTU with the site's, or with the RDMA MTU plus headers."""
    key = f"file:{ROOT}/{at.netdev}/mtu"
    netdev, wanted = at.node.netdevs.get(at.netdev), at.policy.netdev_mtu
    if netdev is None:
        raise EvidenceError(key, "was not recorded")
    room = (at.policy.mtu.value or 4096) + HEADERS
    if netdev.mtu == wanted.value or (wanted.value is None and netdev.mtu >= room):
        return ChainLink(name, State.OK, f"{netdev.mtu}", evidence=(key,))
    bound = f"{wanted.value}" if wanted.value else f"at least {room}"
    why = wanted.source or f"room for an RDMA MTU of {room - HEADERS}"
    return ChainLink(name, State.BROKEN, f"{netdev.mtu} bytes", f"the interface has MTU {netdev.mtu}, expected {bound}",
                f"{bound} bytes ({why})", (key,),
                fix=f"`ip link set {at.netdev} mtu 9000` and the same (or 9216) on the switch port")  # fmt: skip


def active_mtu(at: Place, name: str) -> ChainLink:
    """Compare the active RDMA MTU with the site's, or with 4096 bytes."""
    found, wanted = at.port.active_mtu, at.policy.mtu
    if found is None:
        at.evidence.text(DEVINFO)  # raises with the reason, if the tool did not answer
        raise EvidenceError(DEVINFO, "does not list the port; see rdma.device-nodes: it lists only devices it can open")
    expected = wanted.value or 4096
    if found == expected or (wanted.value is None and found > expected):
        return ChainLink(name, State.OK, f"{found}", evidence=(DEVINFO,))
    return ChainLink(name, State.BROKEN, f"{found} bytes", f"the active MTU is {found}, expected {expected}",
                f"{expected} bytes ({wanted.source or 'usual on training fabrics'})", (DEVINFO,),
                fix="set the interface down and up, so that the RDMA port uses its MTU")  # fmt: skip


def gid(at: Place, name: str) -> ChainLink:
    """Look for a RoCE v2 entry with an IP address in the GID table."""
    rows = _rows(at.evidence, at.port)
    best = best_row(rows)
    key = gids.keys(at.port.device, at.port.number, best.index if best else 0)
    if best is not None:
        return ChainLink(name, State.OK, f"index {best.index}: {best.shown}", evidence=key)
    mine = ", ".join(row.shown for row in rows if not row.empty)
    what = "has no RoCE v2 entry with an IP address" if mine else "holds no address"
    expected = "RoCE v2, of an IPv4 or IPv6 address"
    return ChainLink(
        name,
        State.BROKEN,
        mine or "empty",
        f"the GID table {what}",
        expected,
        key[:1],
        fix="run `show_gids`; if the interface has an address, reload the RDMA driver, or set RoCE "
        "mode 2 (`cma_roce_mode`)",
    )


def _of_gid_table(at: Place) -> gids.Gid | None:
    try:
        return routable(at.evidence, at.port)
    except EvidenceError:
        return None


def routable(evidence: Evidence, port: Port) -> gids.Gid | None:
    """Return the GID that RoCE v2 connections use; None if there is none.

    Raises EvidenceError if the table was not read.
    """
    return best_row(_rows(evidence, port))


def _rows(evidence: Evidence, port: Port) -> list[gids.Gid]:
    rows: list[gids.Gid] = []
    for index in gids.COLLECTED_INDEXES:
        if index and evidence.record(gids.keys(port.device, port.number, index)[0]).status == "missing":
            return rows  # the table ends here
        rows.append(gids.gid(evidence, port.device, port.number, index))
    if best_row(rows) is None and all(int(row.address) for row in rows):
        key = gids.keys(port.device, port.number, 0)[0]
        raise EvidenceError(key, f"no RoCE v2 address in rows 0 to {rows[-1].index}, but the table is longer")
    return rows


def best_row(rows: Sequence[gids.Gid]) -> gids.Gid | None:
    """Return the row that NCCL 2.21 and newer selects.

    It is a RoCE v2 entry with an IPv4 address, else with a routable IPv6 address; None without either.
    """
    usable = [row for row in rows if not row.empty and "v2" in row.type and not row.address.is_link_local]
    return next((row for row in usable if row.address.ipv4_mapped), usable[0] if usable else None)
