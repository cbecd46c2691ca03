"""A Cisco NX-OS switch made by hand, instead of a leaf of ``tests.support.clos``.

The answers have the shape of real ones, as text and as JSON (``show … | json``); names, numbers and addresses are
invented. A fault is a change of a port.
"""

from __future__ import annotations

import json
from typing import Any

from preflight.evidence.document import Evidence
from tests.support.clos import Clos
from tests.support.eos import NAME, EosLeaf

_INTERFACES = "show interface"
_DOM = "show interface transceiver details"
_LLDP = "show lldp neighbors detail"
_LEVELS = ("alrm_hi", "alrm_lo", "warn_hi", "warn_lo")


class NxosLeaf:
    """A leaf of a Clos, with NX-OS; ``ports`` are its ports by name."""

    def __init__(self, clos: Clos | None = None, name: str = NAME, *, model: str = "Nexus9000 C9364D-GX2A") -> None:
        leaf = EosLeaf(clos, name)
        self.clos, self.name, self.model = leaf.clos, name, model
        for host, (switch, alias) in self.clos.heard.items():
            if switch == name:
                self.clos.heard[host] = name, _own(alias)
        self.clos.rename_at_spines(name, _own)
        self.ports: dict[str, dict[str, Any]] = {}
        self.idle = "91.50"
        for port, entry in leaf.now[_LLDP]["lldpNeighbors"].items():
            for neighbour in entry["lldpNeighborInfo"]:
                far = neighbour["neighborInterfaceInfo"]
                self.ports[_own(port)] = {
                    "state": "up", "admin": "up", "mtu": 9216, "speed": "400 Gb/s", "bytes": 7000, "rx": [-1.25] * 4,
                    "chassis": neighbour["chassisId"], "system": neighbour["systemName"],
                    "port": far["interfaceId"].strip('"'), "description": far.get("interfaceDescription", ""),
                }  # fmt: skip

    # --- as JSON ---

    def rows(self, later: bool = False) -> dict[str, Any]:
        """Return the JSON of each command; several rows are lists."""
        number = 600_060 if later else 600_000
        interfaces = [{
            "interface": name, "state": port["state"], "admin_state": port["admin"], "share_state": "Dedicated",
            "eth_hw_addr": "02c0.0000.0001", "eth_mtu": str(port["mtu"]), "eth_bw": 400_000_000,
            "eth_duplex": "full", "eth_speed": port["speed"], "eth_link_flapped": "2week(s) 1day(s)",
            "eth_inpkts": "7", "eth_inbytes": str(port["bytes"] + later * 10**12), "eth_outpkts": 7,
            "eth_outbytes": port["bytes"] + later * 10**12, "eth_inerr": "0", "eth_outerr": "0",
            "eth_indiscard": "0", "eth_outdiscard": "0",
        } for name, port in self.ports.items()]  # fmt: skip
        modules = [{
            "interface": name, "sfp": "present", "serialnum": "SER00000003",
            "TABLE_lane": {"ROW_lane": [{"lane_number": number + 1, **_lane(power)}
                                        for number, power in enumerate(port["rx"])]},
        } for name, port in self.ports.items()]  # fmt: skip
        neighbours = [{
            "chassis_type": "Mac Address", "chassis_id": port["chassis"], "port_type": "Interface Name",
            "port_id": port["port"], "l_port_id": name.replace("Ethernet", "Eth"),
            "port_desc": port["description"] or "null", "sys_name": port["system"], "ttl": 100,
        } for name, port in self.ports.items()]  # fmt: skip
        return {
            "show system resources": {
                "load_avg_1min": "0.34", "processes_total": "901", "cpu_state_user": "2.10", "cpu_state_kernel": "6.40",
                "cpu_state_idle": self.idle,
            },
            "show version": {
                "host_name": self.name, "chassis_id": f"{self.model} Chassis", "nxos_ver_str": "10.4(3)",
                "proc_board_id": "SER00000004", "kern_uptm_days": number // 86_400,
                "kern_uptm_hrs": number % 86_400 // 3600, "kern_uptm_mins": number % 3600 // 60,
                "kern_uptm_secs": number % 60,
            },
            _INTERFACES: {"TABLE_interface": {"ROW_interface": [{"interface": "mgmt0", "state": "up"}, *interfaces]}},
            _DOM: {"TABLE_interface": {"ROW_interface": modules}},
            _LLDP: {"TABLE_nbor_detail": {"ROW_nbor_detail": neighbours}, "neigh_count": len(neighbours)},
        }  # fmt: skip

    # --- as text ---

    def texts(self, later: bool = False) -> dict[str, str]:
        """Return the text of each command."""
        rows = self.rows(later)
        version = rows["show version"]
        interfaces = "".join(
            f"{row['interface']} is {row['state']}{' (Administratively down)' * (row['admin_state'] == 'down')}\n"
            f"admin state is {row['admin_state']}, Dedicated Interface\n"
            f"  Hardware: 400000 Ethernet, address: {row['eth_hw_addr']} (bia {row['eth_hw_addr']})\n"
            f"  MTU {row['eth_mtu']} bytes, BW {row['eth_bw']} Kbit, DLY 10 usec\n"
            f"  full-duplex, {row['eth_speed']}, media type is 400G\n  Last link flapped {row['eth_link_flapped']}\n"
            f"  RX\n    7 unicast packets  0 multicast packets  0 broadcast packets\n"
            f"    {row['eth_inpkts']} input packets  {row['eth_inbytes']} bytes\n"
            f"    {row['eth_inerr']} input error  0 short frame  0 overrun   0 underrun  0 ignored\n"
            f"    0 input with dribble  {row['eth_indiscard']} input discard\n    0 Rx pause\n"
            f"  TX\n    {row['eth_outpkts']} output packets  {row['eth_outbytes']} bytes\n"
            f"    {row['eth_outerr']} output error  0 collision  0 deferred  0 late collision\n"
            f"    0 lost carrier  0 no carrier  0 babble  {row['eth_outdiscard']} output discard\n    0 Tx pause\n\n"
            for row in rows[_INTERFACES]["TABLE_interface"]["ROW_interface"][1:]
        )
        modules = "".join(
            f"{row['interface']}\n    transceiver is present\n    serial number is SER00000003\n"
            + "".join(f"    Lane Number:{lane['lane_number']} Network Lane\n{_table(lane)}\n" for lane in
                      row["TABLE_lane"]["ROW_lane"])
            for row in rows[_DOM]["TABLE_interface"]["ROW_interface"]
        )  # fmt: skip
        neighbours = "".join(
            f"Chassis id: {row['chassis_id']}\nPort id: {row['port_id']}\nLocal Port id: {row['l_port_id']}\n"
            f"Port Description: {row['port_desc']}\nSystem Name: {row['sys_name']}\n"
            "System Description: a switch: Version 1\nTime remaining: 100 seconds\nManagement Address: 192.0.2.7\n\n"
            for row in rows[_LLDP]["TABLE_nbor_detail"]["ROW_nbor_detail"]
        )
        return {
            "show system resources": (
                "Load average:   1 minute: 0.34   5 minutes: 0.40   15 minutes: 0.40\n"
                "Processes   :   901 total, 2 running\n"
                f"CPU states  :   2.10% user,   6.40% kernel,   {self.idle}% idle\n"
                f"        CPU0 states  :   3.00% user,   7.00% kernel,   90.00% idle\n"
            ),
            "show version": (
                "Cisco Nexus Operating System (NX-OS) Software\n\nSoftware\n  BIOS: version 01.10\n"
                f" NXOS: version {version['nxos_ver_str']}\n\nHardware\n  cisco {version['chassis_id']}\n"
                f"  Processor Board ID SER00000004\n\n  Device name: {self.name}\n"
                f"Kernel uptime is {version['kern_uptm_days']} day(s), {version['kern_uptm_hrs']} hour(s), "
                f"{version['kern_uptm_mins']} minute(s), {version['kern_uptm_secs']} second(s)\n"
            ),
            _INTERFACES: f"mgmt0 is up\nadmin state is up,\n  MTU 1500 bytes, BW 1000000 Kbit\n\n{interfaces}",
            _DOM: modules,
            _LLDP: f"Capability codes:\n  (R) Router, (B) Bridge\n\n{neighbours}Total entries displayed: 8\n",
        }

    def session(self, *, as_json: bool) -> str:
        """Return a terminal session with both readings."""
        text = f"User Access Verification\n{self.name}# terminal length 0\n"
        for later in (False, True):
            shown = self.rows(later) if as_json else self.texts(later)
            for command, answer in list(shown.items())[1:]:  # without the load
                pipe = " | json" if as_json else ""
                text += f"{self.name}# {command}{pipe}\n{json.dumps(answer) if as_json else answer}\n"
        return f"{text}{self.name}# exit\n"

    def evidences(self, leaf: Evidence) -> list[Evidence]:
        """Return the documents of the fabric with this leaf."""
        return [*self.clos.evidences(), leaf]


def _own(port: str) -> str:
    return f"Ethernet1/{port.removeprefix('Ethernet').removesuffix('/1')}"


def _lane(power: float | None) -> dict[str, str]:
    light = ("7.00 dBm", "-9.90 dBm", "4.00 dBm", "-5.90 dBm")
    limits = {"temp": ("75.00 C", "-5.00 C", "70.00 C", "0.00 C"), "tx_pwr": light, "rx_pwr": light}
    return {
        "temperature": "41.50 C", "tx_pwr": "1.50 dBm", "rx_pwr": "N/A" if power is None else f"{power:.2f} dBm",
        **{f"{name}_{level}": value for name, values in limits.items()
           for level, value in zip(_LEVELS, values, strict=True)},
    }  # fmt: skip


def _table(lane: dict[str, Any]) -> str:
    return "\n".join(
        f"  {words:<12} {lane[key]:>12}    {'  '.join(lane[f'{limit}_{level}'].rjust(10) for level in _LEVELS)}"
        for words, key, limit in (("Temperature", "temperature", "temp"), ("Tx Power", "tx_pwr", "tx_pwr"),
                                  ("Rx Power", "rx_pwr", "rx_pwr"))
    )  # fmt: skip
