"""A Juniper Junos switch made by hand, instead of a leaf of ``tests.support.clos``.

The answers have the shape of real ones (``show … | display json``); names, numbers and addresses are invented. A fault
is a change of a port.
"""

from __future__ import annotations

import json
from typing import Any

from tests.support.clos import Clos
from tests.support.eos import NAME, EosLeaf


class JunosLeaf:
    """A leaf of a Clos, with Junos; ``ports`` are its ports by name."""

    def __init__(self, clos: Clos | None = None, name: str = NAME) -> None:
        leaf = EosLeaf(clos, name)
        self.clos, self.name, self.idle = leaf.clos, name, "91"
        self.ports: dict[str, dict[str, Any]] = {}
        for place, (port, entry) in enumerate(
            item for item in leaf.now["show lldp neighbors detail"]["lldpNeighbors"].items() if "/" in item[0]
        ):
            (neighbour,) = entry["lldpNeighborInfo"]
            far = neighbour["neighborInterfaceInfo"]
            self.ports[_own(port)] = {
                "state": "up", "mtu": 9230, "speed": "400Gbps", "index": str(517 + place),
                "system": neighbour["systemName"], "port": _colons(far["interfaceId"].strip('"')),
                "description": far.get("interfaceDescription", ""),
            }  # fmt: skip
        for host, (switch, alias) in self.clos.heard.items():
            if switch == name:
                self.clos.heard[host] = name, self.ports[_own(alias)]["index"]
        self.clos.rename_at_spines(name, _own)

    def texts(self, later: bool = False) -> dict[str, str]:
        """Return the text of each command; a second reading is the same."""
        ports = [{
            "name": name, "admin-status": "up", "oper-status": port["state"], "snmp-index": port["index"],
            "mtu": str(port["mtu"]), "speed": port["speed"], "hardware-physical-address": "02:5e:00:00:00:99",
        } for name, port in self.ports.items()]  # fmt: skip
        neighbours = [{
            "lldp-local-port-id": name, "lldp-local-parent-interface-name": "-",
            "lldp-remote-chassis-id-subtype": "Mac address", "lldp-remote-chassis-id": "02:5e:00:00:00:aa",
            "lldp-remote-port-id": port["port"], "lldp-remote-port-description": port["description"],
            "lldp-remote-system-name": port["system"],
        } for name, port in self.ports.items()]  # fmt: skip
        version = {"host-name": self.name, "product-model": "qfx5240-64od", "junos-version": "23.4X100-D20"}
        answers: dict[str, dict[str, Any]] = {
            "show chassis routing-engine": {"route-engine-information": [
                {"route-engine": _rows([{"mastership-state": "master", "cpu-idle": self.idle}])}]},
            "show version": {"multi-routing-engine-results": [{"multi-routing-engine-item": [
                {"re-name": [{"data": "fpc0"}], "software-information": _rows([version])}]}]},
            "show interfaces": {"interface-information": [
                {"attributes": {"junos:style": "normal"}, "physical-interface": _rows([{"name": "lo0"}, *ports])}]},
            "show lldp neighbors": {"lldp-neighbors-information": [
                {"attributes": {"junos:style": "brief"}, "lldp-neighbor-information": _rows(neighbours)}]},
        }  # fmt: skip
        return {command: json.dumps(answer, indent=4) for command, answer in answers.items()}

    def session(self) -> str:
        """Return a terminal session."""
        text = "Last login: Sat Nov 21 02:58:11 2026 from 192.0.2.9\n--- JUNOS 23.4 Kernel 64-bit\n{master:0}\n"
        for command, answer in list(self.texts().items())[1:]:  # without the load
            text += f"reader@{self.name}> {command} | display json | no-more\n{answer}\n\n{{master:0}}\n"
        return f"{text}reader@{self.name}> exit\n"


def _own(port: str) -> str:
    return f"et-0/0/{port.removeprefix('Ethernet').removesuffix('/1')}"


def _colons(text: str) -> str:
    """Write an address such as 0200.5e10.0001 with colons; leave any other text."""
    digits = text.replace(".", "")
    return ":".join(digits[at : at + 2] for at in range(0, 12, 2)) if text.count(".") == 2 else text


def _rows(rows: list[dict[str, str]]) -> list[dict[str, list[dict[str, str]]]]:
    """Write each value as Junos does: a list of one object with ``data``."""
    return [{name: [{"data": value}] for name, value in row.items()} for row in rows]
