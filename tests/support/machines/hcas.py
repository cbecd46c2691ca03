"""RDMA devices: sysfs, device nodes, ``ibstat``, ``ibv_devinfo``."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from tests.support.machines.bus import nic_path
from tests.support.machines.machine import Machine, Nic
from tests.support.machines.records import DIRECTORY, ELSEWHERE, MISSING, Records, link, listing, ok, ran

#: Rendered rows of the GID table.
GIDS = range(8)


def verbs(machine: Machine) -> list[tuple[int, Nic]]:
    return [(number, nic) for number, nic in enumerate(nic for nic in machine.nics if nic.bound)]


def guid(machine: Machine, nic: Nic) -> str:
    """Return the GUID of a NIC, unique in a fleet."""
    low = (machine.number & 0xFFF) << 4 | nic.function
    return nic.guid or f"a088:c2{3 + (machine.number >> 12):02x}:{nic.domain:02x}{nic.bus:02x}:{low:04x}"


def system_guid(machine: Machine, nic: Nic) -> str:
    """Return the GUID shared by all ports of an adapter: that of its first function."""
    return guid(machine, replace(nic, function=0))


def lid(nic: Nic) -> int:
    """Return the LID of an InfiniBand port from the subnet manager."""
    return (nic.domain << 8 | nic.bus) if nic.lid is None else nic.lid


def render_sysfs(machine: Machine) -> Records:
    base = "/sys/class/infiniband"
    states = {"DOWN": 1, "INIT": 2, "ARMED": 3, "ACTIVE": 4}
    physical = {"Polling": 2, "Disabled": 3, "LinkUp": 5}
    bound = verbs(machine)
    records: Records = {
        f"dir:{base}": listing(
            {nic.device: link(f"{nic_path(machine, nic)[3:]}/infiniband/{nic.device}") for _, nic in bound}
        ),
        "file:/sys/class/infiniband_verbs/*/ibdev": {"status": "ok", "value": {"matches": len(bound)}},
        "dir:/dev/infiniband": listing(
            {"rdma_cm": _node("0666")} | {f"uverbs{n}": _node(nic.mode) for n, nic in bound if nic.uverbs}
        ),
    }
    for number, nic in bound:
        device, port = f"{base}/{nic.device}", f"{base}/{nic.device}/ports/1"
        netdev, roce = nic.netdev(machine.roce), nic.ethernet(machine.roce)
        records |= {
            f"file:{device}/fw_ver": ok(f"{nic.model.firmware}\n"),
            f"file:{device}/node_guid": ok(f"{guid(machine, nic)}\n"),
            f"file:{device}/sys_image_guid": ok(f"{system_guid(machine, nic)}\n"),
            f"dir:{device}/ports": listing({"1": DIRECTORY}),
            f"dir:{device}/device/net": listing({netdev: DIRECTORY} if nic.here else {}),
            f"file:{port}/state": ok(f"{states[nic.state]}: {nic.state}\n"),
            f"file:{port}/phys_state": ok(f"{physical[nic.physical]}: {nic.physical}\n"),
            f"file:{port}/rate": ok(f"{nic.rate}\n"),
            f"file:{port}/link_layer": ok("Ethernet\n" if roce else "InfiniBand\n"),
            f"file:{port}/lid": ok("0x0\n" if roce else f"0x{lid(nic):x}\n"),
            f"file:{port}/sm_lid": ok(f"0x{nic.sm_lid if not roce and nic.state == 'ACTIVE' else 0:x}\n"),
            f"file:/sys/class/infiniband_verbs/uverbs{number}/ibdev": ok(f"{nic.device}\n"),
        }
        if nic.efa:
            records |= _of_efa(machine, nic, port)
            continue
        records |= {
            f"file:{device}/hca_type": ok(f"{nic.model.hca_type}\n"),
            f"file:{device}/board_id": ok(f"{nic.model.board_id}\n"),
        }
        if roce:
            records[f"file:{port}/gid_attrs/ndevs/0"] = ok(f"{netdev}\n") if nic.here else ELSEWHERE
        keys = (*nic.pkeys, *((0,) * len(nic.pkeys)))[: max(2, len(nic.pkeys))] if not roce else (0xFFFF,)
        records |= {f"file:{port}/pkeys/{index}": ok(f"0x{key:04x}\n") for index, key in enumerate(keys)}
        for mark in _TABLE_MARKS:
            records[f"file:{port}/gids/{mark}"] = ok("0000:" * 7 + "0000\n")
        for index, gid, kind in _gids(machine, nic):
            records[f"file:{port}/gids/{index}"] = ok(f"{gid}\n")
            records[f"file:{port}/gid_attrs/types/{index}"] = ok(f"{kind}\n") if kind else ELSEWHERE
    return records


def _of_efa(machine: Machine, nic: Nic, port: str) -> Records:
    """Render the differences of the efa driver: no interface, model or manager; one GID, one partition."""
    return {
        f"dir:/sys/class/infiniband/{nic.device}/device/net": MISSING,
        f"file:/sys/class/infiniband/{nic.device}/sys_image_guid": ok("0000:0000:0000:0000\n"),
        f"file:{port}/link_layer": ok("Unknown\n"),
        f"file:{port}/lid": ok("0x0\n"),
        f"file:{port}/sm_lid": ok("0x0\n"),
        f"file:{port}/gids/0": ok(f"{_gid(0xFE80 << 112 | int(guid(machine, nic).replace(':', ''), 16))}\n"),
        f"file:{port}/gid_attrs/types/0": ok("IB/RoCE v1\n"),
        f"file:{port}/pkeys/0": ok("0xffff\n"),
    }


#: Rows that show the length of the table: mlx5 makes one of 256.
_TABLE_MARKS = (15, 31, 63, 127, 255)


def _gids(machine: Machine, nic: Nic) -> Iterator[tuple[int, str, str]]:
    """Yield the first rows of the GID table: index, GID, type; a row that is empty, or not ours, has no type.

    Under RoCE the link-local address and each IP address have two rows, v1 and v2; rows before them are those of
    other network namespaces.
    """
    interface = int(guid(machine, nic).replace(":", ""), 16)
    if not nic.ethernet(machine.roce):
        yield 0, _gid(nic.prefix << 64 | interface), "IB/RoCE v1"
        yield from ((row, _gid(0), "") for row in GIDS[1:])
        return
    before = max(nic.gid_index - 3, 0)
    rows = [(0xFE80 << 112 | interface + row + 1, "") for row in range(before)]
    addresses = [0xFE80 << 112 | interface] if nic.here else []
    if nic.here and (ip := address(machine, nic)):
        addresses.append(0xFFFF << 32 | int(ipaddress.IPv4Interface(ip).ip))
    rows += [(one, kind) for one in addresses for kind in ("IB/RoCE v1", "RoCE v2")]
    rows += [(0, "")] * (len(GIDS) - len(rows))
    yield from ((index, _gid(number), kind) for index, (number, kind) in enumerate(rows[: len(GIDS)]))


def _gid(number: int) -> str:
    """Write a GID as sysfs does: eight groups, none shortened."""
    return ipaddress.IPv6Address(number).exploded


def address(machine: Machine, nic: Nic) -> str:
    """Return the IP address of a NIC's interface; rail i has 10.i.0.0/31. Empty: none."""
    rails = [one for _, one in verbs(machine) if one.here and one.gpu is not None and one.ethernet(machine.roce)]
    if nic.ip is None and nic in rails:
        return f"{ipaddress.IPv4Address(f'10.{rails.index(nic)}.0.1') + 2 * machine.number}/31"
    return nic.ip or ""


def management_address(machine: Machine) -> str:
    """Return the address for ssh: from the documentation block, in a large fleet from the benchmark block."""
    if machine.number < 200:
        return f"192.0.2.{1 + machine.number}/24"
    return f"{ipaddress.IPv4Address('198.18.0.1') + machine.number}/15"


def _node(mode: str) -> dict[str, Any]:
    access = {"6": "rw", "4": "r", "0": ""}[mode[-1]]
    return {"type": "char", "mode": mode, "uid": 0, "gid": 0, "access": access}


def active_mtu(machine: Machine, nic: Nic) -> int:
    """Return the RDMA MTU: under RoCE, the largest that fits in the interface's MTU less 96 bytes."""
    if not nic.ethernet(machine.roce):
        return nic.partition_mtu
    return max((step for step in (256, 512, 1024, 2048, 4096) if step <= nic.netdev_mtu - 96), default=256)


_IBSTAT_STATE = {"ACTIVE": "Active", "DOWN": "Down", "INIT": "Initializing", "ARMED": "Armed"}


def render_tools(machine: Machine) -> Records:
    ibstat, devinfo = "", ""
    for _, nic in verbs(machine):
        if nic.efa:
            devinfo += _efa_devinfo(machine, nic) if nic.uverbs else ""
            continue
        roce = nic.ethernet(machine.roce)
        layer = "Ethernet" if roce else "InfiniBand"
        own, base = guid(machine, nic), 0 if roce else lid(nic)
        sm_lid = nic.sm_lid if not roce and nic.state == "ACTIVE" else 0
        plain = "0x" + own.replace(":", "")
        system = "0x" + system_guid(machine, nic).replace(":", "")
        ibstat += (
            f"CA '{nic.device}'\n\tCA type: {nic.model.hca_type}\n\tNumber of ports: 1\n"
            f"\tFirmware version: {nic.model.firmware}\n"
            f"\tHardware version: 0\n\tNode GUID: {plain}\n\tSystem image GUID: {system}\n\tPort 1:\n"
            f"\t\tState: {_IBSTAT_STATE[nic.state]}\n\t\tPhysical state: {nic.physical}\n"
            f"\t\tRate: {nic.rate.split()[0]}\n\t\tBase lid: {base}\n\t\tLMC: 0\n\t\tSM lid: {sm_lid}\n"
            f"\t\tCapability mask: 0xa651e848\n\t\tPort GUID: {plain}\n\t\tLink layer: {layer}\n"
        )
        mtu = active_mtu(machine, nic)
        codes = {256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
        state = {"ACTIVE": "PORT_ACTIVE (4)", "DOWN": "PORT_DOWN (1)", "INIT": "PORT_INIT (2)"}[nic.state]
        if nic.uverbs:
            devinfo += (
                f"hca_id:\t{nic.device}\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t{nic.model.firmware}\n"
                f"\tnode_guid:\t\t\t{own}\n\tvendor_part_id:\t\t\t{nic.model.part_id}\n\tphys_port_cnt:\t\t\t1\n"
                f"\t\tport:\t1\n\t\t\tstate:\t\t\t{state}\n\t\t\tmax_mtu:\t\t4096 (5)\n"
                f"\t\t\tactive_mtu:\t\t{mtu} ({codes[mtu]})\n\t\t\tsm_lid:\t\t\t{sm_lid}\n"
                f"\t\t\tport_lid:\t\t{base}\n\t\t\tport_lmc:\t\t0x00\n\t\t\tlink_layer:\t\t{layer}\n\n"
            )
    if any(nic.efa for nic in machine.nics):  # EFA's software brings no infiniband-diags
        return {"cmd:ibstat": MISSING, "cmd:ibv_devinfo": ran(devinfo)}
    if not devinfo:
        return {"cmd:ibstat": ran(ibstat), "cmd:ibv_devinfo": ran("", 255, "No IB devices found\n")}
    return {"cmd:ibstat": ran(ibstat), "cmd:ibv_devinfo": ran(devinfo)}


def _efa_devinfo(machine: Machine, nic: Nic) -> str:
    state = {"ACTIVE": "PORT_ACTIVE (4)", "DOWN": "PORT_DOWN (1)"}[nic.state]
    return (
        f"hca_id:\t{nic.device}\n\ttransport:\t\t\tunspecified (4)\n\tfw_ver:\t\t\t\t{nic.model.firmware}\n"
        f"\tnode_guid:\t\t\t{guid(machine, nic)}\n\tsys_image_guid:\t\t\t0000:0000:0000:0000\n"
        f"\tvendor_id:\t\t\t0x1d0f\n\tvendor_part_id:\t\t\t{nic.model.part_id}\n"
        f"\thw_ver:\t\t\t\t0x{nic.model.part_id:X}\n\tphys_port_cnt:\t\t\t1\n\t\tport:\t1\n"
        f"\t\t\tstate:\t\t\t{state}\n\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tactive_mtu:\t\t4096 (5)\n"
        "\t\t\tsm_lid:\t\t\t0\n\t\t\tport_lid:\t\t0\n\t\t\tport_lmc:\t\t0x01\n"
        "\t\t\tlink_layer:\t\tUnspecified\n\n"
    )
