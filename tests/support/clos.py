"""A Clos of SONiC switches and RoCE hosts, made by hand.

It has four leaves, two spines and sixteen hosts of one or two rails.

The databases have the shape of ``sonic-db-dump``; names, numbers and addresses are invented. A fault is a change of one
field, so that every reader of the database sees the same switch.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache
from typing import Any

from preflight.evidence.document import SWITCH, Evidence, from_document
from preflight.parsers.network.lldp import LLDP
from preflight.parsers.switch import sonic_tables
from tests.support import machines
from tests.support.machines import Gpu, Machine, Nic, one_pair, with_nic

Database = dict[str, dict[str, str]]

LEAVES, SPINES, HOSTS_OF_LEAF, UPLINKS = 4, 2, 4, 2
COLLECTED_AT = "2026-11-21T03:00:00Z"
WINDOW_S = 60.0
#: Number of each switch in its addresses.
BGP = {"leaf1": 0x10, "leaf2": 0x11, "leaf3": 0x12, "leaf4": 0x13, "spine1": 0x20, "spine2": 0x21}
#: The host's RoCE interface, and the one of its second rail.
NETDEV, NETDEV_2 = "enp24s0", "enp64s0"

_DSCP = {str(dscp): "3" if dscp == 26 else "6" if dscp == 48 else "0" for dscp in range(64)}
_ONE_TO_ONE = {str(number): str(number) for number in range(8)}


class Clos:
    """Databases by switch, and the LLDP neighbour of each host."""

    def __init__(self, *, hosts: bool = True, uplinks: int = UPLINKS, rails: int = 1) -> None:
        """Connect rail i of each host to leaf i of its pod.

        A pod has as many leaves as a host has rails.
        """
        self.databases: dict[str, dict[str, Database]] = {}
        self.later: dict[str, Database] = {}  # counters at the end of the window
        self.heard: dict[str, tuple[str, str]] = {}  # host -> switch, alias of its port
        self.heard_2: dict[str, tuple[str, str]] = {}  # the same of its second rail
        self.gone: set[str] = set()  # switches without evidence
        self.nics: dict[str, dict[str, Any]] = {}  # host -> what differs at its NIC
        self.dcbx: dict[str, int] = {}  # host -> the only PFC priority that its switch announces
        self.flapped: dict[tuple[str, str], int] = {}  # switch and port -> link changes within the window
        leaves = [f"leaf{number}" for number in range(1, LEAVES + 1)]
        spines = [f"spine{number}" for number in range(1, SPINES + 1)]
        of_leaf = HOSTS_OF_LEAF * rails
        for place, leaf in enumerate(leaves):
            ports = []
            pod, rail = divmod(place, rails)
            netdev, heard = ((NETDEV, self.heard), (NETDEV_2, self.heard_2))[rail]
            for slot in range(of_leaf):
                host = f"gpu{pod * of_leaf + slot + 1:03}"
                ports.append((host, f"02:00:00:00:{place:02x}:{slot:02x}", netdev))
                if hosts:
                    heard[host] = leaf, f"etp{slot + 1}"
            for spine in spines:
                for link in range(uplinks):
                    ports.append((spine, f"etp{place * uplinks + link + 1}", ""))
            self._add(leaf, 0x10 + place, ports)
        for number, spine in enumerate(spines):
            ports = [
                (leaf, f"etp{of_leaf + number * uplinks + link + 1}", "")
                for leaf in leaves for link in range(uplinks)
            ]  # fmt: skip
            self._add(spine, 0x20 + number, ports)

    def _add(self, name: str, number: int, ports: list[tuple[str, str, str]]) -> None:
        config: Database = {
            "DEVICE_METADATA|localhost": {
                "hostname": name, "hwsku": "ACS-SN5600", "mac": f"02:5e:00:00:00:{number:02x}", "type": "LeafRouter",
                "platform": "x86_64-nvidia_sn5600-r0",
            },
            "DSCP_TO_TC_MAP|ROCE": dict(_DSCP),
            "TC_TO_QUEUE_MAP|ROCE": dict(_ONE_TO_ONE),
            "TC_TO_PRIORITY_GROUP_MAP|ROCE": {tc: "3" if tc == "3" else "0" for tc in _ONE_TO_ONE},
            "MAP_PFC_PRIORITY_TO_QUEUE|ROCE": dict(_ONE_TO_ONE),
            "WRED_PROFILE|ROCE": {
                "ecn": "ecn_all", "green_min_threshold": "1000000", "green_max_threshold": "2000000",
                "green_drop_probability": "5",
            },
            "BUFFER_POOL|ingress_lossless_pool": {"type": "ingress", "mode": "dynamic", "size": "120000000"},
            "BUFFER_PROFILE|pg_lossless_400000_40m_profile": {
                "pool": "ingress_lossless_pool", "xon": "19456", "xoff": "283648", "size": "303104", "dynamic_th": "0",
            },
            "CABLE_LENGTH|AZURE": {},
            "PFC_WD|GLOBAL": {"POLL_INTERVAL": "200"},
            **{f"FLEX_COUNTER_TABLE|{group}": {"FLEX_COUNTER_STATUS": "enable", "POLL_INTERVAL": interval}
               for group, interval in (("PORT", "1000"), ("QUEUE", "10000"), ("PG_DROP", "10000"),
                                       ("WRED_ECN_QUEUE", "10000"))},
        }  # fmt: skip
        seed = "25" if name.startswith("spine") else "0"
        applied: Database = {"SWITCH_TABLE:switch": {"ecmp_hash_seed": seed, "fdb_aging_time": "600"}}
        state: Database = {"QUEUE_COUNTER_CAPABILITIES|WRED_ECN_QUEUE_ECN_MARKED_PKT_COUNTER": {"isSupported": "true"}}
        counters: Database = {
            "COUNTERS_PORT_NAME_MAP": {}, "COUNTERS_QUEUE_NAME_MAP": {}, "COUNTERS_PG_NAME_MAP": {},
        }  # fmt: skip
        for place, (system, port_id, description) in enumerate(ports):
            port, alias = f"Ethernet{place * 8}", f"etp{place + 1}"
            config[f"PORT|{port}"] = {"alias": alias, "speed": "400000", "mtu": "9216", "fec": "rs",
                                      "admin_status": "up"}  # fmt: skip
            config[f"PORT_QOS_MAP|{port}"] = {
                "pfc_enable": "3", "dscp_to_tc_map": "ROCE", "tc_to_queue_map": "ROCE", "tc_to_pg_map": "ROCE",
                "pfc_to_queue_map": "ROCE",
            }  # fmt: skip
            config[f"QUEUE|{port}|3"] = {"wred_profile": "ROCE"}
            config[f"BUFFER_PG|{port}|3"] = {"profile": "pg_lossless_400000_40m_profile"}
            config[f"PFC_WD|{port}"] = {"action": "drop", "detection_time": "200", "restoration_time": "200"}
            config["CABLE_LENGTH|AZURE"][port] = "40m"
            if not description:
                address = f"10.{min(number, BGP[system])}.{max(number, BGP[system])}.{place}"
                config[f"BGP_NEIGHBOR|{address}"] = {"name": system, "asn": "65100", "admin_status": "up"}
                state[f"NEIGH_STATE_TABLE|{address}"] = {"state": "Established"}
            applied[f"PORT_TABLE:{port}"] = {"alias": alias, "speed": "400000", "mtu": "9216", "fec": "rs",
                                             "oper_status": "up", "admin_status": "up", "flap_count": "1"}  # fmt: skip
            applied[f"LLDP_ENTRY_TABLE:{port}"] = {
                "lldp_rem_sys_name": system, "lldp_rem_port_id": port_id, "lldp_rem_port_desc": description,
                "lldp_rem_chassis_id": "", "lldp_rem_port_id_subtype": "3",
            }  # fmt: skip
            state[f"PORT_TABLE|{port}"] = {"speed": "400000", "fec": "rs"}
            state[f"TRANSCEIVER_DOM_SENSOR|{port}"] = {"temperature": "41.0", **{f"rx{n}power": "-1.2"
                                                                                for n in range(1, 9)}}  # fmt: skip
            state[f"TRANSCEIVER_DOM_THRESHOLD|{port}"] = {
                "rxpowerlowalarm": "-9.0", "rxpowerlowwarning": "-6.0", "rxpowerhighalarm": "5.0",
                "rxpowerhighwarning": "4.0", "temphighalarm": "75.0", "temphighwarning": "70.0",
            }  # fmt: skip
            oid = f"oid:0x1000000{number:03x}{place:03x}"
            counters["COUNTERS_PORT_NAME_MAP"][port] = oid
            counters[f"COUNTERS:{oid}"] = _port_counters()
            for what, kind in (("QUEUE", "15"), ("PG", "1a")):
                for index in range(8):
                    oid = f"oid:0x{kind}00000{number:03x}{place:03x}{index}"
                    counters[f"COUNTERS_{what}_NAME_MAP"][f"{port}:{index}"] = oid
                    counters[f"COUNTERS:{oid}"] = _queue_counters() if what == "QUEUE" else _group_counters()
        self.databases[name] = {"CONFIG_DB": config, "APPL_DB": applied, "STATE_DB": state, "COUNTERS_DB": counters}
        self.later[name] = deepcopy(counters)
        for port in counters["COUNTERS_PORT_NAME_MAP"]:
            self.grow(name, port, SAI_PORT_STAT_IF_IN_OCTETS=10**12, SAI_PORT_STAT_IF_OUT_OCTETS=10**12)
            self.grow(name, f"{port}:3", SAI_QUEUE_STAT_PACKETS=250_000_000, SAI_QUEUE_STAT_BYTES=10**12)

    # --- faults ---

    def set(self, switch: str, database: str, key: str, **fields: str | None) -> Clos:
        """Change fields of a hash; None removes one."""
        row = self.databases[switch][database].setdefault(key, {})
        for field, value in fields.items():
            row.pop(field, None)
            if value is not None:
                row[field] = value
        return self

    def drop(self, switch: str, database: str, key: str) -> Clos:
        """Remove a hash."""
        del self.databases[switch][database][key]
        return self

    def counters(self, switch: str, name: str, *, later: bool = False) -> dict[str, str]:
        """Return the counters of a port (``Ethernet0``), a queue or a group (``Ethernet0:3``, ``Ethernet0:pg3``)."""
        counters = self.later[switch] if later else self.databases[switch]["COUNTERS_DB"]
        kind = "PG" if ":pg" in name else "QUEUE" if ":" in name else "PORT"
        return counters[f"COUNTERS:{counters[f'COUNTERS_{kind}_NAME_MAP'][name.replace(':pg', ':')]}"]

    def grow(self, switch: str, name: str, **by: int) -> Clos:
        """Make counters grow within the window."""
        row = self.counters(switch, name, later=True)
        for field, number in by.items():
            row[field] = str(int(row.get(field, "0")) + number)
        return self

    def flap(self, switch: str, port: str, changes: int = 2) -> Clos:
        """Let a port lose its link and get it back."""
        self.flapped[switch, port] = changes
        return self

    def nic(self, host: str, **changes: Any) -> Clos:
        """Change the NIC of a host."""
        self.nics[host] = changes
        return self

    def rename_at_spines(self, leaf: str, own: Callable[[str], str]) -> None:
        """Let the spines receive the leaf's own port names, and use MTU 9216 on these cables."""
        for spine in ("spine1", "spine2"):
            tables = self.databases[spine]["APPL_DB"]
            for key, row in tables.items():
                if key.startswith("LLDP_ENTRY_TABLE:") and row["lldp_rem_sys_name"] == leaf:
                    row["lldp_rem_port_id"] = own(row["lldp_rem_port_id"])
                    tables[key.replace("LLDP_ENTRY_TABLE", "PORT_TABLE")]["mtu"] = "9216"

    def without(self, switch: str) -> Clos:
        """Leave out the evidence of a switch."""
        self.gone.add(switch)
        return self

    def grow_before(self, switch: str, name: str, field: str, by: int) -> Clos:
        """Add to a counter before the window."""
        for later in (False, True):
            row = self.counters(switch, name, later=later)
            row[field] = str(int(row.get(field, "0")) + by)
        return self

    def pause(self, switch: str, port: str, share: float, priority: int = 3) -> Clos:
        """Pause a port for a share of the window."""
        frames = int(share * 1_000_000)
        return self.grow(switch, port, **{
            f"SAI_PORT_STAT_PFC_{priority}_RX_PKTS": frames,
            f"SAI_PORT_STAT_PFC_{priority}_RX_PAUSE_DURATION_US": int(share * WINDOW_S * 1e6),
        })  # fmt: skip

    def load(self, switch: str, port: str, share: float) -> Clos:
        """Make a port send a share of its rate in the window."""
        octets = int(share * 400e9 / 8 * WINDOW_S)
        before = int(self.counters(switch, port)["SAI_PORT_STAT_IF_OUT_OCTETS"])
        self.counters(switch, port, later=True)["SAI_PORT_STAT_IF_OUT_OCTETS"] = str(before + octets)
        heard = self.databases[switch]["APPL_DB"][f"LLDP_ENTRY_TABLE:{port}"]
        if (far := heard["lldp_rem_sys_name"]) in self.databases:
            far_port = _port_of(heard["lldp_rem_port_id"])
            begin = int(self.counters(far, far_port)["SAI_PORT_STAT_IF_IN_OCTETS"])
            self.counters(far, far_port, later=True)["SAI_PORT_STAT_IF_IN_OCTETS"] = str(begin + octets)
        return self

    def rail(self, leaf: str, interface: str) -> Clos:
        """Connect the hosts of a leaf by another interface, so that the leaf has one rail."""
        for slot, host in enumerate(host for host, (switch, _) in self.heard.items() if switch == leaf):
            self.nics[host] = {**self.nics.get(host, {}), "interface": interface}
            self.set(leaf, "APPL_DB", f"LLDP_ENTRY_TABLE:Ethernet{slot * 8}", lldp_rem_port_desc=interface)
        return self

    def swap(self, host: str) -> Clos:
        """Exchange the cables of a host's two rails at their leaves."""
        ends = self.heard[host], self.heard_2[host]
        rows = [self.databases[leaf]["APPL_DB"][f"LLDP_ENTRY_TABLE:{_port_of(alias)}"] for leaf, alias in ends]
        for field in ("lldp_rem_port_id", "lldp_rem_port_desc"):
            rows[0][field], rows[1][field] = rows[1][field], rows[0][field]
        self.heard_2[host], self.heard[host] = ends
        return self

    # --- documents ---

    def switches(self, window_s: float | None = WINDOW_S) -> list[Evidence]:
        """Return the documents of the switches with evidence."""
        return [self.switch(name, window_s) for name in self.databases if name not in self.gone]

    def switch(self, name: str, window_s: float | None = WINDOW_S) -> Evidence:
        """Return the document of one switch; without a window its counters were read once."""
        records: dict[str, Any] = {}
        for database, hashes in self.databases[name].items():
            for key, value in sonic_tables.records(database, hashes):
                records[key] = {"status": "ok", "value": deepcopy(value)}
        if window_s is not None:
            ports = records["redis:APPL_DB PORT_TABLE"]
            later = deepcopy(ports["value"])
            for (switch, port), changes in self.flapped.items():
                if switch == name:
                    later[port]["flap_count"] = str(int(later[port]["flap_count"]) + changes)
            ports |= {"at_s": 100.0, "again": {"status": "ok", "value": later, "at_s": 100.0 + window_s}}
            for key, value in sonic_tables.records("COUNTERS_DB", self.later[name]):
                records[key]["at_s"] = 100.0
                records[key]["again"] = {"status": "ok", "value": value, "at_s": 100.0 + window_s}
        return Evidence(name, COLLECTED_AT, records, {"via": "ssh", "notes": []}, kind=SWITCH, platform="sonic",
                        origin="made by hand: a Clos of SONiC switches")  # fmt: skip

    def hosts(self, records: Mapping[str, Mapping[str, Any]] | None = None) -> list[Evidence]:
        """Return the documents of the hosts; ``records`` replaces some by host."""
        return [self.host(name, (records or {}).get(name, {})) for name in self.heard]

    def host(self, name: str, records: Mapping[str, Any]) -> Evidence:
        """Return the document of one host."""
        second = name in self.heard_2
        machine = with_nic(_machine(name, second), "mlx5_0", **self.nics.get(name, {}))
        document = machines.evidence(machine) if name in self.nics else _healthy(name, second)
        ends = {self.nics.get(name, {}).get("interface", NETDEV): self.heard[name]}
        if second:
            ends[NETDEV_2] = self.heard_2[name]
        heard: dict[str, Any] = {LLDP: {"status": "ok", "rc": 0, "out": lldpcli(ends, self.dcbx.get(name))}}
        for netdev, (switch, alias) in ends.items():
            heard |= self.host_traffic(document["records"], switch, alias, netdev)
        return from_document({**document, "records": {**document["records"], **heard, **records}}, name)

    def host_traffic(self, records: Mapping[str, Any], switch: str, alias: str, netdev: str = NETDEV) -> dict[str, Any]:
        """Return the host's counters of bytes, which agree with those of its switch port."""
        if not alias.startswith("etp"):  # the switch is replaced by one of another platform
            return {}
        port = _port_of(alias)
        before, after = (self.counters(switch, port, later=later) for later in (False, True))
        record = records[f"cmd:ethtool -S {netdev}"]
        text = record["again"]["out"]
        for name, field in (("rx", "SAI_PORT_STAT_IF_OUT_OCTETS"), ("tx", "SAI_PORT_STAT_IF_IN_OCTETS")):
            if field in before:
                grown = int(after[field]) - int(before[field])
                text = re.sub(rf"({name}_bytes_phy): \d+", rf"\1: {7_300_000_000_000 + grown}", text)
        return {f"cmd:ethtool -S {netdev}": {**record, "again": {**record["again"], "out": text}}}

    def evidences(self, window_s: float | None = WINDOW_S) -> list[Evidence]:
        """Return all documents."""
        return [*self.hosts(), *self.switches(window_s)]

    def dumps(self, name: str) -> Iterator[tuple[str, str]]:
        """Yield file name and text of a switch's dumps, in the format of techsupport."""

        def dumped(hashes: Database) -> str:
            return json.dumps({key: {"type": "hash", "ttl": -0.001, "value": row} for key, row in hashes.items()})

        for database, hashes in self.databases[name].items():
            yield (f"{database}_1.json" if database == "COUNTERS_DB" else f"{database}.json"), dumped(hashes)
        yield "COUNTERS_DB_2.json", dumped(self.later[name])
        yield "date.counter_1", "Sat Nov 21 03:00:00 UTC 2026\n"
        yield "date.counter_2", "Sat Nov 21 03:01:00 UTC 2026\n"


def sonic_session(name: str, files: Mapping[str, str]) -> str:
    """Return a terminal session in which the dumps of a switch are printed."""
    prompt = f"admin@{name}:~$ "
    text = ""
    for database in ("CONFIG_DB", "APPL_DB", "STATE_DB"):
        text += f"{prompt}sonic-db-dump -n {database} -y\n{files[f'{database}.json']}\n"
    for number in "12":
        text += f"{prompt}date\n{files[f'date.counter_{number}']}"
        text += f"{prompt}sudo sonic-db-dump -n COUNTERS_DB -y\n{files[f'COUNTERS_DB_{number}.json']}\n"
    return f"{text}{prompt}exit\n"


@cache
def _healthy(name: str, second: bool) -> dict[str, Any]:
    """Return the document of a healthy host, which no test changes."""
    return machines.evidence(_machine(name, second))


def _machine(name: str, second: bool) -> Machine:
    machine = replace(one_pair(name), roce=True)
    if not second:
        return machine
    return replace(machine, gpus=(*machine.gpus, Gpu(0x43, 0)), nics=(*machine.nics, Nic("mlx5_1", 0x40, gpu=1)))


def _port_counters() -> dict[str, str]:
    zero = [f"SAI_PORT_STAT_IF_{way}_{what}" for way in ("IN", "OUT") for what in ("ERRORS", "DISCARDS")]
    zero += [f"SAI_PORT_STAT_PFC_{priority}_{way}_PKTS" for priority in range(8) for way in ("RX", "TX")]
    zero += [f"SAI_PORT_STAT_PFC_{priority}_RX_PAUSE_DURATION_US" for priority in range(8)]
    zero += ["SAI_PORT_STAT_IF_IN_FEC_CORRECTABLE_FRAMES", "SAI_PORT_STAT_IF_IN_FEC_NOT_CORRECTABLE_FRAMES"]
    zero += [f"SAI_PORT_STAT_IF_IN_FEC_CODEWORD_ERRORS_S{symbols}" for symbols in range(16)]
    return {"SAI_PORT_STAT_IF_IN_OCTETS": "7000", "SAI_PORT_STAT_IF_OUT_OCTETS": "7000", **dict.fromkeys(zero, "0")}


def _queue_counters() -> dict[str, str]:
    zero = ("PACKETS", "BYTES", "DROPPED_PACKETS", "SHARED_WATERMARK_BYTES", "WRED_ECN_MARKED_PACKETS",
            "WRED_DROPPED_PACKETS")  # fmt: skip
    watchdog = {"PFC_WD_STATUS": "operational", "PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED": "0",
                "PFC_WD_QUEUE_STATS_DEADLOCK_RESTORED": "0"}  # fmt: skip
    return {**{f"SAI_QUEUE_STAT_{what}": "0" for what in zero}, **watchdog}


def _group_counters() -> dict[str, str]:
    head = "SAI_INGRESS_PRIORITY_GROUP_STAT_"
    return {f"{head}DROPPED_PACKETS": "0", f"{head}XOFF_ROOM_WATERMARK_BYTES": "0"}


def _port_of(alias: str) -> str:
    return f"Ethernet{int(alias.removeprefix('etp')) * 8 - 8}"


def lldpcli(ends: Mapping[str, tuple[str, str]], pfc: int | None = None) -> str:
    """Return the output of lldpcli on a host, as of lldpd 1.0.

    ``ends`` has switch and port of each interface; ``pfc`` is a priority that DCBX announces.
    """
    tlv = {"oui": "00,80,C2", "subtype": "11", "len": "2", "value": f"08,{1 << (pfc or 0):02X}"}
    announced = {} if pfc is None else {"unknown-tlvs": [{"unknown-tlv": [tlv]}]}
    entries = [{
        "name": netdev, "via": "LLDP", "rid": "1", "age": "1 day, 02:11:40",
        "chassis": [{"id": [{"type": "mac", "value": "02:5e:00:00:00:10"}], "name": [{"value": switch}]}],
        "port": [{"id": [{"type": "local", "value": port}], "descr": [{"value": f"to {netdev}"}],
                  "ttl": [{"value": "120"}]}],
        **announced,
    } for netdev, (switch, port) in ends.items()]  # fmt: skip
    return json.dumps({"lldp": [{"interface": entries}]})


def from_case(changes: Mapping[str, Any]) -> list[Evidence]:
    """Return the documents of a Clos as changed by a fixture.

    ``set`` has rows of switch, database, key and fields (null: without the key); ``grow`` rows of switch, name of a
    port or a queue, and what its counters grow by; ``pause`` and ``load`` rows of switch, port and share; ``gone``
    switches without evidence; ``lack`` rows of switch and record; ``flap`` rows of switch, port and link changes;
    ``before`` rows of switch, name, field and what is added to it in both readings; ``keep`` the hosts with evidence;
    ``nics`` the changes of hosts' NICs; ``rails`` the interface of the hosts at each leaf; ``window_s`` the window,
    null for one reading.
    """
    clos = Clos()
    for switch, database, key, fields in changes.get("set", ()):
        if fields is None:
            clos.drop(switch, database, key)
        else:
            clos.set(switch, database, key, **fields)
    for switch, name, by in changes.get("grow", ()):
        clos.grow(switch, name, **by)
    for change, apply in (("pause", clos.pause), ("load", clos.load)):
        for switch, port, share in changes.get(change, ()):
            apply(switch, port, share)
    for switch, name, field, by in changes.get("before", ()):
        clos.grow_before(switch, name, field, by)
    for switch, port, number in changes.get("flap", ()):
        clos.flap(switch, port, number)
    for leaf, interface in changes.get("rails", {}).items():
        clos.rail(leaf, interface)
    if heard := changes.get("keep"):
        clos.heard = {host: clos.heard[host] for host in heard}
    clos.nics.update(changes.get("nics", {}))
    for switch in changes.get("gone", ()):
        clos.without(switch)
    documents = clos.evidences(changes.get("window_s", WINDOW_S))
    for switch, key in changes.get("lack", ()):
        of = {document.node: document for document in documents}[switch]
        of.records[key] = {"status": "error", "why": "the file is cut"}  # type: ignore[index]
    return documents
