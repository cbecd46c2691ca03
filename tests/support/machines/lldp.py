"""Announcements of the switches, as printed by lldpd 1.0 (`lldpcli -f json0`): DCBX as undecoded bytes."""

from __future__ import annotations

import json
from typing import Any

from tests.support.machines.hcas import verbs
from tests.support.machines.machine import Machine, Nic
from tests.support.machines.records import Records, ran

LLDP = "cmd:lldpcli -f json0 show neighbors details"


def render(machine: Machine) -> Records:
    entries = [
        _entry(nic.netdev(machine.roce), nic, rail)
        for rail, (_, nic) in enumerate(verbs(machine))
        if nic.here and nic.ethernet(machine.roce) and nic.state == "ACTIVE" and nic.gpu is not None
    ]
    return {LLDP: ran(json.dumps({"lldp": [{"interface": entries}] if entries else [{}]}))}


def _entry(name: str, nic: Nic, rail: int) -> dict[str, Any]:
    enabled = sum(1 << priority for priority in (nic.pfc if nic.switch_pfc is None else nic.switch_pfc))
    tlvs = [
        _tlv(9, (0x00, *_nibbles(nic.traffic_priority), *nic.switch_ets, *(0,) * 6, 2, 2, *(0,) * 6)),
        _tlv(11, (0x08, enabled)),  # PFC: eight classes at once
        _tlv(12, (0x00, *(octet for dscp, priority in _dscp(nic) for octet in (priority << 5 | 5, 0, dscp)))),
    ]
    leaf = nic.leaf or f"leaf-{rail}"
    return {
        "name": name, "via": "LLDP", "rid": str(rail + 1), "age": "3 days, 02:11:40",
        "chassis": [{"id": [{"type": "mac", "value": f"94:8e:d3:00:00:{rail:02x}"}], "name": [{"value": leaf}]}],
        "port": [{
            "id": [{"type": "ifname", "value": "Ethernet1/1"}], "ttl": [{"value": "120"}],
            "mfs": [{"value": str(nic.switch_frame)}],
        }],
        "vlan": [{"vlan-id": str(nic.vlan), "pvid": True}],
        "unknown-tlvs": [{"unknown-tlv": tlvs}],
    }  # fmt: skip


def _nibbles(priority: int) -> tuple[int, ...]:
    """Return the traffic class of each priority, two in a byte: 1 for the job's, 0 for the rest."""
    classes = [int(other == priority) for other in range(8)]
    return tuple(classes[at] << 4 | classes[at + 1] for at in range(0, 8, 2))


def _dscp(nic: Nic) -> tuple[tuple[int, int], ...]:
    """Return the DSCPs that the switch announces, by default those of the NIC's map."""
    if nic.switch_dscp is not None:
        return nic.switch_dscp
    here = dict(nic.qos.dscp_priority)
    marked = {26, *here} | ({nic.qos.traffic_class >> 2} if nic.qos.traffic_class is not None else set())
    return tuple((dscp, here.get(dscp, dscp >> 3)) for dscp in sorted(marked))


def _tlv(subtype: int, value: tuple[int, ...]) -> dict[str, str]:
    octets = ",".join(f"{octet:02X}" for octet in value)
    return {"oui": "00,80,C2", "subtype": str(subtype), "len": str(len(value)), "value": octets}
