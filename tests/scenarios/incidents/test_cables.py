"""Faults of Ethernet switches and of the hosts at their cables: one incident for each cause.

Without a declaration, each host is compared with its peers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

import pytest

from preflight.checks import registry
from preflight.evidence.document import Evidence, from_document
from preflight.expectations.cluster_file import from_data
from preflight.judge import judge
from preflight.parsers.network.lldp import LLDP
from tests.scenarios.incidents.test_situations import named
from tests.scenarios.test_switches import FAULTS as of_switch
from tests.scenarios.test_switches import SITE
from tests.support import machines
from tests.support.clos import NETDEV, Clos, lldpcli
from tests.support.machines import one_pair
from tests.support.machines.fleet import member
from tests.support.whole_nodes import Fault, nic

#: The only NIC of each host.
NIC = "mlx5_0"

HALF, PFC_OFF, DIRTY = nic(NIC, rate="200 Gb/sec (2X HDR)"), nic(NIC, pfc=()), nic(NIC, grows={"symbol_error": 60})
NARROW = nic(NIC, lanes=8)

Plant = Callable[[Clos], object]


@dataclass(frozen=True)
class CableFault:
    """Faults of switches and hosts, and the incidents: check of the cause, nodes, owner, impact."""

    of_switches: Plant
    incidents: list[str]
    of_hosts: Mapping[str, Fault] = field(default_factory=dict)
    title: str = ""  # start of the first one's title
    declared: bool = False  # whether the cluster file declares rate, MTU and PFC of the hosts
    cost: str | None = None  # of the first one


def healthy(clos: Clos) -> None:
    """Change nothing."""


def ports(switches: Iterable[int], places: Iterable[int], database: str, key: str, **values: str | None) -> Plant:
    """Change a field of several ports of several leaves."""

    def plant(clos: Clos) -> None:
        for leaf in switches:
            for place in places:
                clos.set(f"leaf{leaf}", database, key.format(place * 8), **values)

    return plant


def dark(*where: tuple[int, int]) -> Plant:
    """Reduce the received light of a lane at this leaf and position."""

    def plant(clos: Clos) -> None:
        for leaf, place in where:
            ports([leaf], [place], "STATE_DB", "TRANSCEIVER_DOM_SENSOR|Ethernet{}", rx3power="-11.5")(clos)

    return plant


def several(*plants: Plant) -> Plant:
    def plant(clos: Clos) -> None:
        for part in plants:
            part(clos)

    return plant


def drops(switch: str, port: str) -> Plant:
    return lambda clos: clos.grow(switch, f"{port}:3", SAI_QUEUE_STAT_DROPPED_PACKETS=900)


def fired(switch: str, port: str) -> Plant:
    return lambda clos: clos.grow(switch, f"{port}:3", PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED=1)


def headroom(switch: str, size: int) -> Plant:
    return lambda clos: clos.set(switch, "CONFIG_DB", "BUFFER_PROFILE|pg_lossless_400000_40m_profile", xoff=str(size))


def short_buffer(switch: str, place: int) -> Plant:
    """Give one port too little headroom."""
    return several(
        lambda clos: clos.set(switch, "CONFIG_DB", "BUFFER_PROFILE|short", pool="ingress_lossless_pool", xon="19456",
                              xoff="18432", size="37888", dynamic_th="0"),
        lambda clos: clos.set(switch, "CONFIG_DB", f"BUFFER_PG|Ethernet{place}|3", profile="short"),
    )  # fmt: skip


def port_down(*where: tuple[str, int]) -> Plant:
    """Let ports lose their link and their neighbour."""

    def plant(clos: Clos) -> None:
        for switch, place in where:
            clos.set(switch, "APPL_DB", f"PORT_TABLE:Ethernet{place}", oper_status="down")
            clos.drop(switch, "APPL_DB", f"LLDP_ENTRY_TABLE:Ethernet{place}")

    return plant


def sessions_down(*where: tuple[str, str]) -> Plant:
    """Let sessions end: (switch, start of the neighbour's address)."""

    def plant(clos: Clos) -> None:
        for switch, start in where:
            for key in list(clos.databases[switch]["STATE_DB"]):
                if key.startswith(f"NEIGH_STATE_TABLE|{start}"):
                    clos.set(switch, "STATE_DB", key, state="Active")

    return plant


def over_ipv6(clos: Clos) -> None:
    """Add sessions over IPv6, of which one is down."""
    for address, state in (("fd00::4", "Active"), ("fd00::5", "Established")):
        clos.set("leaf1", "CONFIG_DB", f"BGP_NEIGHBOR|{address}", name="spine1", admin_status="up")
        clos.set("leaf1", "STATE_DB", f"NEIGH_STATE_TABLE|{address}", state=state)
    clos.set("leaf1", "APPL_DB", "PORT_TABLE:Ethernet512", alias="etp65", oper_status="down", admin_status="up")


def spine_off(clos: Clos) -> None:
    """Switch off a spine."""
    clos.without("spine1")
    sessions_down(*((f"leaf{number}", f"10.{number + 15}.32") for number in range(1, 5)))(clos)
    port_down(*((f"leaf{number}", place) for number in range(1, 5) for place in (32, 40)))(clos)


PAUSED = nic(NIC, grows={"rx_prio3_pause": 10**6})
FULL, STORM = of_switch["headroom that was nearly full"][0], of_switch["storm of a NIC"][0]
ECN_OFF, BGP_DOWN = of_switch["ECN off"][0], of_switch["a session that is down on a link that is up"][0]

DECLARED = from_data(
    {"class": {"all": {"nodes": "gpu[001-016]", "ports": {"rate_gbps": 400, "netdev_mtu": 9000},
                       "qos": {"lossless": True, "pfc_priority": 3}}},
     "switches": {"roce_priority": 3, "roce_dscp": 26, "dcqcn": True, "oversubscription": 1, "flows": 16}},
    "cluster.toml",
)  # fmt: skip

PFC, QUEUE, APPLIED = "PORT_QOS_MAP|Ethernet{}", "QUEUE|Ethernet{}|3", "PORT_TABLE:Ethernet{}"

TABLE: Mapping[str, CableFault] = {
    # one setting, for any number of ports
    "PFC on another priority at all ports of a leaf": CableFault(
        ports([1], range(8), "CONFIG_DB", PFC, pfc_enable="4"), ["link.pfc @the switches network slows-job"],
        title="leaf1 Ethernet0 has PFC on priority 4, but gpu001 enp24s0 has PFC on priority 3; 7 others likewise",
    ),
    "PFC on another priority at all host ports": CableFault(
        ports(range(1, 5), range(4), "CONFIG_DB", PFC, pfc_enable="4"), ["link.pfc @the switches network slows-job"],
    ),
    "ECN off on all leaves": CableFault(
        ports(range(1, 5), range(8), "CONFIG_DB", QUEUE, wred_profile=None),
        ["switch.ecn @the switches network slows-job"], title="leaf1 (and 3 others): ECN is off",
    ),
    "no watchdog on two leaves, ECN off on a third": CableFault(
        several(lambda clos: [clos.drop(f"leaf{leaf}", "CONFIG_DB", f"PFC_WD|Ethernet{place * 8}")
                              for leaf in (1, 2) for place in range(8)],
                ports([3], range(8), "CONFIG_DB", QUEUE, wred_profile=None)),
        ["switch.ecn @the switches network slows-job", "switch.watchdog @the switches network loses-redundancy"],
    ),
    # cables: one incident each
    "dark lanes at three leaves": CableFault(
        dark((1, 1), (2, 1), (3, 1)), ["optics.switch-end @the switches network slows-job"] * 3,
    ),
    "dark lanes at three ports of a leaf": CableFault(
        dark((1, 0), (1, 1), (1, 2)), ["optics.switch-end @the switches network slows-job"],
        title="all on leaf1: leaf1 Ethernet0 (and 2 others): lane 3 receives -11.5 dBm",
    ),
    "two watchdogs fired at two leaves": CableFault(
        lambda clos: [clos.grow(leaf, "Ethernet8:3", PFC_WD_QUEUE_STATS_DEADLOCK_DETECTED=1)
                      for leaf in ("leaf1", "leaf3")],
        ["switch.watchdog-fired @the switches network slows-job"] * 2,
    ),
    # both ends of a cable
    "a dirty fibre, seen at both ends": CableFault(
        several(dark((1, 1)), lambda clos: clos.grow("leaf1", "Ethernet8",
                                                     SAI_PORT_STAT_IF_IN_FEC_NOT_CORRECTABLE_FRAMES=3)),
        ["optics.switch-end @gpu002, the switches network slows-job"], {"gpu002": DIRTY},
    ),
    "the same on two cables": CableFault(
        dark((1, 1)),
        ["counters.link-quality @gpu003 network slows-job", "optics.switch-end @the switches network slows-job"],
        {"gpu003": DIRTY},
    ),
    "PFC off on three hosts": CableFault(
        healthy, ["fleet.roce-ports @gpu[002,007,010] site slows-job"],
        dict.fromkeys(("gpu002", "gpu007", "gpu010"), PFC_OFF),
    ),
    "PFC off on a host, and wrong at another port": CableFault(
        ports([3], [1], "CONFIG_DB", PFC, pfc_enable="4"),
        ["fleet.roce-ports @gpu002 site slows-job", "link.pfc @the switches network slows-job"], {"gpu002": PFC_OFF},
    ),
    "a port of a host at half rate": CableFault(
        healthy, ["fleet.rails @gpu002 network slows-job"], {"gpu002": HALF},
        cost="1 of 16 GPUs; all-reduce between nodes at about 50%",
    ),
    "both ends of a cable at half rate": CableFault(
        several(ports([1], [1], "APPL_DB", APPLIED, speed="200000"),
                ports([1], [1], "STATE_DB", "PORT_TABLE|Ethernet{}", speed="200000")),
        ["fleet.rails @gpu002 network slows-job"], {"gpu002": HALF},
        cost="1 of 16 GPUs; all-reduce between nodes at about 50%",
    ),
    "MTU of a leaf's port too small for its host": CableFault(
        ports([1], [1], "APPL_DB", APPLIED, mtu="1500"), ["link.mtu @the switches network blocks-job"],
        {"gpu002": nic(NIC, switch_frame=1522)},
    ),
    "a host that receives slowly, and another cable": CableFault(
        several(lambda clos: clos.pause("leaf3", "Ethernet8", 0.3), dark((1, 1))),
        ["fabric.pause-root @the switches node slows-job", "optics.switch-end @the switches network slows-job"],
    ),
    # a wrong setting, and what its switch counts
    "PFC on another priority, and the host has no buffer left": CableFault(
        ports([1], [1], "CONFIG_DB", PFC, pfc_enable="4"), ["link.pfc @gpu002, the switches network slows-job"],
        {"gpu002": nic(NIC, grows={"rx_discards_phy": 1200, "rx_prio3_discards": 1200})},
    ),
    "PFC on another priority, and drops at another leaf": CableFault(
        several(ports([1], [1], "CONFIG_DB", PFC, pfc_enable="4"), drops("leaf2", "Ethernet16")),
        ["link.pfc @the switches network slows-job", "switch.lossless-drops @the switches network slows-job"],
    ),
    "too little headroom, drops": CableFault(
        several(headroom("spine1", 18432), drops("spine1", "Ethernet0")),
        ["switch.headroom @the switches network slows-job"],
    ),
    "too little headroom, drops at another switch": CableFault(
        several(headroom("spine1", 18432), drops("leaf2", "Ethernet16")),
        ["switch.headroom @the switches network slows-job", "switch.lossless-drops @the switches network slows-job"],
    ),
    "too little headroom at many ports, drops at the last": CableFault(
        several(headroom("spine1", 18432), drops("spine1", "Ethernet56")),
        ["switch.headroom @the switches network slows-job"],
    ),
    "too little headroom at a port, drops there": CableFault(
        several(short_buffer("leaf2", 16), drops("leaf2", "Ethernet16")),
        ["switch.headroom @the switches network slows-job"],
    ),
    "too little headroom at a port, drops at another": CableFault(
        several(short_buffer("leaf2", 16), drops("leaf2", "Ethernet8")),
        ["switch.headroom @the switches network slows-job", "switch.lossless-drops @the switches network slows-job"],
    ),
    "too little headroom at a port, nearly full at another": CableFault(
        several(short_buffer("leaf2", 8), FULL),
        ["switch.headroom @the switches network slows-job", "switch.queue-depth @the switches network slows-job"],
    ),
    "too little headroom, nearly full": CableFault(
        several(headroom("leaf2", 80000), FULL), ["switch.headroom @the switches network slows-job"],
    ),
    "too little headroom, nearly full at another switch": CableFault(
        several(headroom("leaf1", 80000), FULL),
        ["switch.headroom @the switches network slows-job", "switch.queue-depth @the switches network slows-job"],
    ),
    "ECN off on a leaf that pauses": CableFault(
        several(ECN_OFF, lambda clos: clos.grow("leaf3", "Ethernet0", SAI_PORT_STAT_PFC_3_TX_PKTS=10**6)),
        ["switch.ecn @the switches network slows-job"], {"gpu009": PAUSED},
    ),
    "ECN off on a leaf, and another one pauses": CableFault(
        several(ECN_OFF, lambda clos: clos.grow("leaf2", "Ethernet0", SAI_PORT_STAT_PFC_3_TX_PKTS=10**6)),
        ["fabric.pause-root @the switches network slows-job", "switch.ecn @the switches network slows-job"],
        {"gpu005": PAUSED},
    ),
    # a host that pauses, and the watchdog of a port
    "a host that receives slowly, and its watchdog": CableFault(
        several(lambda clos: clos.pause("leaf3", "Ethernet8", 0.3), fired("leaf3", "Ethernet8")),
        ["fabric.pause-root @the switches node slows-job"],
    ),
    "a host that receives slowly, and the watchdog of another": CableFault(
        several(lambda clos: clos.pause("leaf3", "Ethernet8", 0.3), fired("leaf1", "Ethernet8")),
        ["fabric.pause-root @the switches node slows-job", "switch.watchdog-fired @the switches network slows-job"],
    ),
    "a storm of a NIC, its watchdog, and the drops of that": CableFault(
        several(STORM, fired("leaf3", "Ethernet8"), drops("leaf3", "Ethernet8")),
        ["fabric.host-storm @the switches node slows-job"],
    ),
    "a storm of a NIC, and the watchdog of another": CableFault(
        several(STORM, fired("leaf1", "Ethernet8")),
        ["fabric.host-storm @the switches node slows-job", "switch.watchdog-fired @the switches network slows-job"],
    ),
    "half the PCIe lanes, pauses, and the watchdog": CableFault(
        several(lambda clos: clos.pause("leaf1", "Ethernet8", 0.3), fired("leaf1", "Ethernet8")),
        ["pcie.nic-link @gpu002 node slows-job"], {"gpu002": NARROW},
        cost="1 of 16 GPUs; all-reduce between nodes at about 63%",
    ),
    # an uplink
    "an uplink that flaps, and its BGP session": CableFault(
        several(lambda clos: clos.flap("spine1", "Ethernet0"), BGP_DOWN),
        ["link.flaps @the switches network blocks-job"],
    ),
    "an uplink that flaps, and the BGP session of another": CableFault(
        several(lambda clos: clos.flap("spine2", "Ethernet0"), BGP_DOWN),
        ["link.flaps @the switches network blocks-job", "switch.bgp @the switches network loses-redundancy"],
    ),
    "both ends of a session, its cable up": CableFault(
        sessions_down(("leaf1", "10.16.32.4"), ("spine1", "10.16.32.0")),
        ["switch.bgp @the switches network loses-redundancy"],
    ),
    "two sessions of two leaves": CableFault(
        sessions_down(("leaf1", "10.16.32.4"), ("leaf2", "10.17.33.6")),
        ["switch.bgp @the switches network loses-redundancy"] * 2,
    ),
    "an uplink that is down, and its session": CableFault(
        several(port_down(("leaf1", 32), ("spine1", 0)),
                sessions_down(("leaf1", "10.16.32.4"), ("spine1", "10.16.32.0"))),
        ["ethernet.oversubscription @the switches network slows-job"],
    ),
    "an uplink that is down, and the session of another": CableFault(
        several(port_down(("leaf1", 32), ("spine1", 0)), sessions_down(("leaf1", "10.16.33.6"))),
        ["ethernet.oversubscription @the switches network slows-job",
         "switch.bgp @the switches network loses-redundancy"],
    ),
    "an uplink that is down, and the session of another leaf": CableFault(
        several(port_down(("leaf1", 32), ("spine1", 0)), sessions_down(("leaf2", "10.17.32.4"))),
        ["ethernet.oversubscription @the switches network slows-job",
         "switch.bgp @the switches network loses-redundancy"],
    ),
    "a session over IPv6 whose cable is up, beside an unused port": CableFault(
        over_ipv6, ["switch.bgp @the switches network loses-redundancy"],
        title="leaf1: the BGP session with spine1 (fd00::4) is Active, but its cable is up",
    ),
    "a spine that is off": CableFault(
        spine_off, ["ethernet.oversubscription @the switches network slows-job"], title="leaf1 (and 3 others)",
    ),
    "all sessions of a leaf": CableFault(
        sessions_down(("leaf2", "10."), ("spine1", "10.17"), ("spine2", "10.17")),
        ["switch.bgp @the switches network loses-redundancy"], title="all with leaf2: leaf2: the BGP session with",
    ),
    "a cable that flaps, seen by its switch, its host and its queue pairs": CableFault(
        lambda clos: clos.flap("leaf1", "Ethernet8"), ["link.flaps @gpu002, the switches network blocks-job"],
        {"gpu002": nic(NIC, grows={"link_downed": 1, "req_transport_retries_exceeded": 2})},
    ),
    # with declarations in the cluster file
    "PFC off on a host where it is declared": CableFault(
        healthy, ["roce.chain @gpu002 site slows-job"], {"gpu002": PFC_OFF}, declared=True,
    ),
    "half rate where the rate is declared": CableFault(
        healthy, ["rdma.port-rate @gpu002 network slows-job"], {"gpu002": HALF}, declared=True, title="mlx5_0:1: rate",
        cost="1 of 16 GPUs; all-reduce between nodes at about 50%",
    ),
    "a host that receives slowly through half its PCIe lanes": CableFault(
        lambda clos: clos.pause("leaf1", "Ethernet8", 0.3), ["pcie.nic-link @gpu002 node slows-job"],
        {"gpu002": NARROW}, declared=True, cost="1 of 16 GPUs; all-reduce between nodes at about 63%",
    ),
    "half the PCIe lanes of one host, slow receiving of another": CableFault(
        lambda clos: clos.pause("leaf3", "Ethernet8", 0.3),
        ["fabric.pause-root @the switches node slows-job", "pcie.nic-link @gpu002 node slows-job"],
        {"gpu002": NARROW}, declared=True, cost="1 of 16 GPUs; all-reduce between nodes at about 63%",
    ),
    # healthy twins
    "healthy, declared": CableFault(healthy, [], declared=True),
    "healthy": CableFault(healthy, []),
    "all switches with the same small headroom, of short cables": CableFault(
        several(*(ports([leaf], range(8), "CONFIG_DB", "CABLE_LENGTH|AZURE") for leaf in range(1, 5))), [],
    ),
    "marks at many ports": CableFault(
        lambda clos: [clos.grow(f"leaf{leaf}", "Ethernet32:3", SAI_QUEUE_STAT_WRED_ECN_MARKED_PACKETS=10**6)
                      for leaf in range(1, 5)], [],
    ),
}  # fmt: skip


def documents(row: CableFault) -> list[Evidence]:
    """Return the documents of the hosts with their faults, and of the switches."""
    clos = Clos()
    row.of_switches(clos)
    hosts = []
    for number, (name, (switch, alias)) in enumerate(clos.heard.items(), start=1):
        host = member(replace(one_pair(name), roce=True), name, number, len(clos.heard), 7)
        document = machines.evidence(row.of_hosts[name](host) if name in row.of_hosts else host)
        document["records"][LLDP] = {"status": "ok", "rc": 0, "out": lldpcli({NETDEV: (switch, alias)})}
        document["records"] |= clos.host_traffic(document["records"], switch, alias)
        hosts.append(from_document(document, name))
    return [*hosts, *clos.switches()]


def test_failed_queue_pair_of_a_host_belongs_to_its_cable() -> None:
    row = TABLE["a cable that flaps, seen by its switch, its host and its queue pairs"]
    lines = "".join(
        f"gpu{number:03d}:7:7 [0] {line}\n" for number in (1, 2) for line in (
            "NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eno1:192.0.2.1<0>", "NCCL INFO Using network IB",
            f"NCCL INFO comm 0x5 rank {number - 1} nRanks 2 nNodes 2 localRanks 1 localRank 0 MNNVL 0",
        )
    )  # fmt: skip
    failed = "NET/IB: Got completion from peer 192.0.2.1<41000> with status=12 opcode=0 len=0 vendor err 129 (Send)"
    log = f"{lines}gpu002:7:7 [0] transport/net_ib.cc:1295 NCCL WARN {failed} hca mlx5_0\n"
    run = Evidence("@run", "", {"log:job.log": {"status": "ok", "out": log}})
    assert named(judge(documents(row), registry().checks, SITE, run=run)) == row.incidents


@pytest.mark.parametrize("name", TABLE)
def test_causes_at_cables(name: str) -> None:
    row = TABLE[name]
    report = judge(documents(row), registry().checks, DECLARED if row.declared else SITE)
    assert sorted(named(report)) == sorted(row.incidents), report["incidents"]
    assert not row.title or report["incidents"][0]["title"].startswith(row.title)
    assert [incident["cost"] for incident in report["incidents"][:1]] == [row.cost][: len(row.incidents)]
    loud = {number for number, finding in enumerate(report["findings"]) if finding["status"] in ("fail", "warn")}
    assert loud <= {number for incident in report["incidents"] for number in incident["findings"]}
