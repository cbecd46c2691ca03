"""Network interfaces and RoCE QoS: sysfs, dcb(8), mlnx_qos."""

from __future__ import annotations

import json

from tests.machines.hcas import verbs
from tests.machines.machine import Machine
from tests.machines.records import Records, ok, ran


def render(machine: Machine) -> Records:
    records: Records = {}
    interfaces: list[tuple[str, int, str]] = [("lo", 65536, "unknown"), (machine.management, 1500, "up")]
    for _, nic in verbs(machine):
        if not nic.here:
            continue
        up = "up" if nic.state == "ACTIVE" else "down"
        interfaces.append((nic.netdev(machine.roce), nic.netdev_mtu if nic.ethernet(machine.roce) else 4092, up))
    for name, mtu, state in interfaces:
        records[f"file:/sys/class/net/{name}/mtu"] = ok(f"{mtu}\n")
        records[f"file:/sys/class/net/{name}/operstate"] = ok(f"{state}\n")
    for _, nic in verbs(machine):
        if not nic.here or not nic.ethernet(machine.roce):
            continue
        name = nic.netdev(machine.roce)
        bits = [priority in nic.pfc for priority in range(8)]
        pfc = {"pfc_cap": 8, "macsec_bypass": False, "delay": 0, "prio_pfc": bits}
        records[f"cmd:dcb -j pfc show dev {name}"] = ran(json.dumps(pfc))
        enabled = "   ".join("1" if bit else "0" for bit in bits)
        records[f"cmd:mlnx_qos -i {name}"] = ran(
            "DCBX mode: OS controlled\nPriority trust state: dscp\nCable len: 7\nPFC configuration:\n"
            f"\tpriority    0   1   2   3   4   5   6   7\n\tenabled     {enabled}   \n"
        )
        for role in ("np", "rp"):
            for priority in range(8):
                on = nic.ecn and priority == 3
                records[f"file:/sys/class/net/{name}/ecn/roce_{role}/enable/{priority}"] = ok(f"{int(on)}\n")
    return records
