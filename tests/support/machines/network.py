"""Network interfaces and RoCE QoS: sysfs, dcb(8), mlnx_qos, ethtool."""

from __future__ import annotations

import json
from typing import Any

from preflight.facts.congestion import DEFAULTS
from tests.support.machines.hcas import verbs
from tests.support.machines.machine import Machine, Nic
from tests.support.machines.records import Records, ok, ran

_NOT_SUPPORTED = ran("\n", 1, "Attribute read: Operation not supported\n")


def render(machine: Machine) -> Records:
    records: Records = {}
    interfaces: list[tuple[str, int, str]] = [("lo", 65536, "unknown"), (machine.management, 1500, "up")]
    for _, nic in verbs(machine):
        if not nic.here:
            continue
        up = nic.link or ("up" if nic.state == "ACTIVE" else "down")
        interfaces.append((nic.netdev(machine.roce), nic.netdev_mtu if nic.ethernet(machine.roce) else 4092, up))
    for name, mtu, state in interfaces:
        records[f"file:/sys/class/net/{name}/mtu"] = ok(f"{mtu}\n")
        records[f"file:/sys/class/net/{name}/operstate"] = ok(f"{state}\n")
    shown = [nic for _, nic in verbs(machine) if nic.ethernet(machine.roce) and nic.qos.vendor_driver and nic.qos.shown]
    records["file:/sys/class/infiniband/*/tc/*/traffic_class"] = {"status": "ok", "value": {"matches": len(shown)}}
    for nic in shown:
        text = "" if nic.qos.traffic_class is None else f"Global tclass={nic.qos.traffic_class}\n"
        records[f"file:/sys/class/infiniband/{nic.device}/tc/1/traffic_class"] = ok(text)
    for _, nic in verbs(machine):
        if nic.here and nic.ethernet(machine.roce):
            name = nic.netdev(machine.roce)
            records |= _tools(name, nic) if nic.qos.shown else _hidden(name)
            if nic.qos.shown:
                records |= _debugfs(nic)
            if nic.qos.shown and nic.qos.vendor_driver:
                records |= _vendor_driver(name, nic)
    return records


def _priorities(nic: Nic) -> list[int]:
    """Return the priority of each DSCP."""
    changed = dict(nic.qos.dscp_priority)
    return [changed.get(dscp, dscp // 8) for dscp in range(64)]


def _buffers(nic: Nic) -> tuple[int, ...]:
    return nic.qos.buffers or tuple(int(priority in nic.pfc) for priority in range(8))


def _tools(name: str, nic: Nic) -> Records:
    qos, priorities = nic.qos, _priorities(nic)
    bits = [priority in nic.pfc for priority in range(8)]
    app = {"dscp_prio": [[dscp, priority] for dscp, priority in enumerate(priorities)]} if qos.trust == "dscp" else {}
    sizes = list(qos.buffer_bytes)
    answers: dict[str, Any] = {
        "pfc": {"pfc_cap": 8, "macsec_bypass": False, "delay": 0, "prio_pfc": bits},
        "app": app,
        "buffer": {"prio_buffer": list(_buffers(nic)), "buffer_size": sizes, "total_size": 262016},
        "dcbx": {"host": True, "ieee": True} if qos.dcbx == "OS" else {"ieee": True},
    }
    on = ["on" if one else "off" for one in qos.pause]
    return {
        **{f"cmd:dcb -j {object} show dev {name}": ran(json.dumps(answer)) for object, answer in answers.items()},
        f"cmd:mlnx_qos -i {name}": ran(_mlnx_qos(nic, priorities)),
        f"cmd:ethtool -a {name}": ran(
            f"Pause parameters for {name}:\nAutonegotiate:\toff\nRX:\t\t{on[0]}\nTX:\t\t{on[1]}\n\n"
        ),
    }  # fmt: skip


def _mlnx_qos(nic: Nic, priorities: list[int]) -> str:
    lines = [f"DCBX mode: {nic.qos.dcbx} controlled", f"Priority trust state: {nic.qos.trust}"]
    if nic.qos.trust == "dscp":
        lines.append("dscp2prio mapping:")
        for priority in range(8):
            dscps = [f"{dscp:02}" for dscp in reversed(range(64)) if priorities[dscp] == priority]
            lines += [f"\tprio:{priority} dscp:{','.join(dscps[at : at + 8])}," for at in range(0, len(dscps), 8)]
    else:
        lines.append("default priority:")
    row = "   ".join
    lines += [
        f"Receive buffer size (bytes): {','.join(map(str, nic.qos.buffer_bytes))},max_buffer_size=262016",
        "Cable len: 7",
        "PFC configuration:",
        "\tpriority    0   1   2   3   4   5   6   7",
        f"\tenabled     {row('1' if priority in nic.pfc else '0' for priority in range(8))}   ",
        f"\tbuffer      {row(map(str, _buffers(nic)))}   ",
        *(f"tc: {tc} ratelimit: unlimited, tsa: vendor\n\t priority:  {tc}" for tc in range(8)),
    ]
    return "\n".join(lines) + "\n"


def _hidden(name: str) -> Records:
    """Return the tools' output on a virtual function, whose host makes all settings."""
    return {
        **{f"cmd:dcb -j {object} show dev {name}": _NOT_SUPPORTED for object in ("pfc", "app", "buffer", "dcbx")},
        f"cmd:mlnx_qos -i {name}": ran("", 1, "Netlink error: Operation not supported\n"),
        f"cmd:ethtool -a {name}": ran("", 1, "netlink error: Operation not supported\n"),
    }


def _debugfs(nic: Nic) -> Records:
    """Return what upstream's debugfs shows to root: four of some twenty files."""
    base, values = f"file:/sys/kernel/debug/mlx5/{nic.address}/cc_params", {**DEFAULTS, **dict(nic.qos.dcqcn)}
    found = {"np_cnp_dscp": nic.qos.cnp_dscp, "rp_ai_rate": values["ai_rate"], "rp_gd": values["gd"],
             "np_min_time_between_cnps": values["min_time_between_cnps"]}  # fmt: skip
    return {f"{base}/{name}": ok(f"{value}\n") for name, value in found.items()}


def _vendor_driver(name: str, nic: Nic) -> Records:
    base, qos = f"file:/sys/class/net/{name}", nic.qos
    records = {f"{base}/qos/trust": ok(f"{qos.trust}\n")}
    for role, part in (("np", nic.ecn), ("rp", nic.ecn and qos.reaction_point)):
        for priority in range(8):
            on = part and (qos.ecn_priorities is None or priority in qos.ecn_priorities)
            records[f"{base}/ecn/roce_{role}/enable/{priority}"] = ok(f"{int(on)}\n")
    records |= {
        f"{base}/ecn/roce_np/cnp_dscp": ok(f"{qos.cnp_dscp}\n"),
        f"{base}/ecn/roce_np/cnp_802p_prio": ok("6\n"),
        f"{base}/ecn/roce_np/min_time_between_cnps": ok("4\n"),
    }
    for parameter, value in {**DEFAULTS, **dict(qos.dcqcn)}.items():
        of_driver = f"rpg_{parameter}" if parameter in _RPG else parameter
        if parameter != "min_time_between_cnps":
            records[f"{base}/ecn/roce_rp/{of_driver}"] = ok(f"{value}\n")
    return records


#: Parameters in files that begin with ``rpg_``.
_RPG = {"ai_rate", "hai_rate", "time_reset", "byte_reset", "gd", "min_rate", "min_dec_fac", "threshold", "max_rate"}
