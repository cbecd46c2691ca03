"""A switch with Linux and FRRouting made by hand, instead of a leaf of ``tests.support.clos``.

The answers have the shape of those that iproute2, lldpd and FRRouting gave in ``tests/integration/fabric``; names,
numbers and addresses are invented.
"""

from __future__ import annotations

import json
from typing import Any

from preflight.parsers.switch.linux_answers import BGP, CPUS, LINK, LOAD, NEIGHBOURS, SPEED, UPTIME
from tests.support.clos import Clos
from tests.support.eos import NAME, EosLeaf


class LinuxLeaf:
    """A leaf of a Clos, with Linux; ``ports`` are its ports by name, ``peers`` its BGP sessions."""

    def __init__(self, clos: Clos | None = None, name: str = NAME) -> None:
        leaf = EosLeaf(clos, name)
        self.clos, self.name = leaf.clos, name
        self.ports: dict[str, dict[str, Any]] = {}
        self.peers: dict[str, dict[str, Any]] = {}
        self.load = "0.34"
        for host, (switch, alias) in self.clos.heard.items():
            if switch == name:
                self.clos.heard[host] = name, _own(alias)
        self.clos.rename_at_spines(name, _own)
        for port, entry in leaf.now["show lldp neighbors detail"]["lldpNeighbors"].items():
            for neighbour in entry["lldpNeighborInfo"]:
                far = neighbour["neighborInterfaceInfo"]
                system, description = neighbour["systemName"], far.get("interfaceDescription", "")
                self.ports[_own(port)] = {
                    "mtu": 9216, "state": "UP", "mbps": 400_000, "errors": 0, "system": system,
                    "port": far["interfaceId"].strip('"'), "description": description,
                }  # fmt: skip
                if not description:  # a spine
                    self.peers[_own(port)] = {"hostname": system, "remoteAs": 65100, "state": "Established",
                                              "peerState": "OK", "idType": "interface"}  # fmt: skip

    def texts(self, later: bool = False) -> dict[str, str]:
        """Return the text of each command."""
        links = [{
            "ifindex": 3 + place, "ifname": name, "flags": ["BROADCAST", "MULTICAST", "UP", "LOWER_UP"],
            "mtu": port["mtu"], "operstate": port["state"], "link_type": "ether", "address": "02:5e:00:00:00:99",
            "stats64": {way: {"bytes": 7000 + later * 10**12, "packets": 7, "errors": later * port["errors"],
                              "dropped": 0} for way in ("rx", "tx")},
        } for place, (name, port) in enumerate(self.ports.items())]  # fmt: skip
        neighbours = [{
            "name": name, "via": "LLDP", "rid": "1", "age": "0 day, 01:00:00",
            "chassis": [{"id": [{"type": "mac", "value": "02:5e:00:00:00:aa"}], "name": [{"value": port["system"]}]}],
            "port": [{"id": [{"type": "ifname", "value": port["port"]}], "descr": [{"value": port["description"]}]}],
        } for name, port in self.ports.items()]  # fmt: skip
        loopback = {"ifname": "lo", "flags": ["LOOPBACK", "UP"], "mtu": 65536, "operstate": "UNKNOWN"}
        return {
            CPUS: "4\n",
            LOAD: f"{self.load} 0.40 0.42 1/345 6789\n",
            UPTIME: f"{600_060 if later else 600_000}.25 7000.10",
            LINK: json.dumps([loopback, *links]),
            SPEED: "".join(f"/sys/class/net/{name}/speed:{port['mbps']}\n" for name, port in self.ports.items()),
            NEIGHBOURS: json.dumps({"lldp": [{"interface": neighbours}]}),
            BGP: json.dumps({
                "ipv4Unicast": {"routerId": "192.0.2.4", "as": 65004, "peerCount": 4, "peers": self.peers},
                "l2VpnEvpn": {"routerId": "192.0.2.4", "as": 65004, "peers": self.peers},
            }),
        }  # fmt: skip

    def session(self) -> str:
        """Return a terminal session with both readings."""
        text = ""
        for later in (False, True):
            for command, answer in list(self.texts(later).items())[2:]:  # without the load
                text += f"cumulus@{self.name}:mgmt:~$ sudo {command}\n{answer}\n"
        return f"{text}cumulus@{self.name}:mgmt:~$ exit\n"


def _own(port: str) -> str:
    return f"swp{port.removeprefix('Ethernet').removesuffix('/1')}"
