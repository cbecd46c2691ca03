"""An Arista EOS switch made by hand, instead of a leaf of ``tests.support.clos``.

The answers have the shape of real ones (``show … | json``); names, numbers and addresses are invented. A fault is a
change of an answer, so that a session, an eAPI server and a saved file show the same switch.
"""

from __future__ import annotations

import json
from copy import deepcopy
from typing import Any

from preflight.evidence.document import Evidence
from tests.support.clos import HOSTS_OF_LEAF, Clos

NAME = "leaf4"
_START, _WINDOW_S = 1_795_000_000.25, 60.0


class EosLeaf:
    """A leaf of a Clos, with EOS; ``now`` and ``later`` are its answers by question."""

    def __init__(self, clos: Clos | None = None, name: str = NAME) -> None:
        self.clos, self.name = (clos or Clos()).without(name), name
        tables = self.clos.databases[name]
        rows = tables["APPL_DB"]
        self.now: dict[str, Any] = {
            "show processes top once": {
                "cpuInfo": {"%Cpu(s)": {"idle": 91.5, "user": 6.0, "system": 2.5}}, "processes": {"1": {"cmd": "init"}},
            },
            "show version": {
                "modelName": "DCS-7060X6-64PE", "version": "4.33.1F",
                "systemMacAddress": tables["CONFIG_DB"]["DEVICE_METADATA|localhost"]["mac"],
                "serialNumber": "SER00000001", "uptime": 86_400.5, "memTotal": 32_000_000,
            },
            "show hostname": {"hostname": name, "fqdn": f"{name}.example.net"},
            "show interfaces": {"interfaces": {"Management1": {"mtu": 1500, "lineProtocolStatus": "up"}}},
            "show interfaces phy detail": {"interfacePhyStatuses": {}},
            "show interfaces transceiver dom thresholds": {"interfaces": {}},
            "show lldp neighbors detail": {"lldpNeighbors": {"Management1": {"lldpNeighborInfo": []}}},
        }  # fmt: skip
        for place in range(8):
            port, row = f"Ethernet{place + 1}/1", rows[f"LLDP_ENTRY_TABLE:Ethernet{place * 8}"]
            self._add(port, row["lldp_rem_sys_name"], row["lldp_rem_port_id"], row["lldp_rem_port_desc"])
        self.later = deepcopy(self.now)
        for row in self.later["show interfaces"]["interfaces"].values():
            if counters := row.get("interfaceCounters"):
                counters["counterRefreshTime"] += _WINDOW_S
                counters["inOctets"] += 10**12
                counters["outOctets"] += 10**12
        for host, (switch, alias) in self.clos.heard.items():
            if switch == name:
                self.clos.heard[host] = name, f"Ethernet{alias.removeprefix('etp')}/1"
        for spine in range(2):
            for link in range(2):
                port = f"Ethernet{((int(name[-1]) - 1) * 2 + link) * 8}"
                own = f"Ethernet{HOSTS_OF_LEAF + spine * 2 + link + 1}/1"
                self.clos.set(f"spine{spine + 1}", "APPL_DB", f"LLDP_ENTRY_TABLE:{port}", lldp_rem_port_id=own)
                self.clos.set(f"spine{spine + 1}", "APPL_DB", f"PORT_TABLE:{port}", mtu="9214")  # the maximum in EOS

    def _add(self, port: str, system: str, port_id: str, description: str) -> None:
        self.now["show interfaces"]["interfaces"][port] = {
            "name": port, "interfaceStatus": "connected", "lineProtocolStatus": "up", "mtu": 9214,
            "hardware": "ethernet", "bandwidth": 400_000_000_000, "duplex": "duplexFull", "lanes": 8,
            "description": f"to {system}",
            "interfaceCounters": {
                "inOctets": 7000, "outOctets": 7000, "totalInErrors": 0, "totalOutErrors": 0, "inDiscards": 0,
                "outDiscards": 0, "linkStatusChanges": 3, "counterRefreshTime": _START,
                "inputErrorsDetail": {"symbolErrors": 0, "rxPause": 0},
            },
        }  # fmt: skip
        self.now["show interfaces phy detail"]["interfacePhyStatuses"][port] = {
            "phyStatuses": [
                {"description": {"phyChipName": "CHIP-A", "location": "system"},
                 "fec": {"correctedCodewords": {"value": 5}, "uncorrectedCodewords": {"value": 0}}},
                {"description": {"phyChipName": "CHIP-B"}},
                {"description": {"phyChipName": "CHIP-B", "location": "line"},
                 "fec": {"correctedCodewords": {"value": 4100, "changes": 12, "lastChange": _START},
                         "uncorrectedCodewords": {"value": 2, "changes": 1, "lastChange": 0.0}},
                 "preFecBer": {"value": 3.1e-9}},
            ],
            "interfaceState": {},
        }  # fmt: skip
        self.now["show interfaces transceiver dom thresholds"]["interfaces"][port] = {
            "displayName": port, "vendorSn": "SER00000002", "mediaType": "400GBASE-DR4", "parameters": {"rxPower": {
                "unit": "dBm", "channels": {"1": -1.25, "2": -1.5, "3": -1, "4": -1.75},
                "threshold": {"lowAlarm": -9.5, "lowAlarmOverridden": False, "lowWarn": -6.25},
            }},
        }  # fmt: skip
        far: dict[str, Any] = {"interfaceIdType": "interfaceName", "interfaceId": f'"{port_id}"', "maxFrameSize": 9236}
        if description:
            far = {
                "interfaceIdType": "macAddress",
                "interfaceId": _dotted(port_id),
                "interfaceDescription": description,
            }
        self.now["show lldp neighbors detail"]["lldpNeighbors"][port] = {"lldpNeighborInfo": [{
            "systemName": system, "chassisId": "025e.0000.00aa", "ttl": 120, "neighborInterfaceInfo": far,
        }]}  # fmt: skip

    def port(self, name: str, question: str = "show interfaces", *, later: bool | None = None) -> list[dict[str, Any]]:
        """Return an interface's object in both readings, or in one of them."""
        readings = [self.now, self.later] if later is None else [self.later if later else self.now]
        return [next(iter(reading[question].values()))[name] for reading in readings]

    def change(self, name: str, **fields: object) -> EosLeaf:
        """Change fields of an interface."""
        for row in self.port(name):
            row.update(fields)
        return self

    def texts(self, later: bool = False) -> dict[str, str]:
        """Return the text of each command."""
        return {name: json.dumps(answer, indent=4) for name, answer in (self.later if later else self.now).items()}

    def session(self) -> str:
        """Return a terminal session with both readings."""
        text = (
            f"Last login: Sat Nov 21 02:58:11 2026 from 192.0.2.9\n{self.name}>enable\n{self.name}#terminal length 0\n"
        )
        for later in (False, True):
            for question, answer in list(self.texts(later).items())[1:]:  # without the load
                text += f"{self.name}#{question} | json\n{answer}\n"
        return f"{text}{self.name}#exit\n"

    def evidences(self, leaf: Evidence) -> list[Evidence]:
        """Return the documents of the fabric with this leaf."""
        return [*self.clos.evidences(), leaf]


def _dotted(address: str) -> str:
    digits = address.replace(":", "")
    return ".".join(digits[at : at + 4] for at in (0, 4, 8))
