"""Recorder of the fabric checks' fixtures on a simulated fabric: ``python -m tests.support.fabric.record [CHECK…]``.

Each case is a fabric, a fault, and the expected report; the records are output of the real tools. Parts that no
simulator has (a SHARP aggregation manager, a node's sysfs) are made by hand, as the fixture's origin states.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

from preflight.evidence.document import Evidence, dump
from tests.support.fabric.ibsim import HOST, IbSim, fat_tree, hca, leaf, spine
from tests.support.fixture import FIXTURES

ORIGIN = "recorded from ibsim 0.10 with opensm 3.3.23 and infiniband-diags 44.0 on Debian 12: {}"
#: Four HCAs on two leaves below two spines.
SMALL = fat_tree(4, down=2, spines=2, ports=6)
NET, LINKS, ERRORS = "cmd:ibnetdiscover", "cmd:iblinkinfo -l", "cmd:ibqueryerrors"
TRAFFIC = "cmd:ibqueryerrors --counters --switch"
MANAGER = ("cmd:sminfo", "cmd:sminfo *", "cmd:saquery -s", NET)

Finding = Mapping[str, str]


@dataclass(frozen=True)
class FabricCase:
    """One fixture: how to create the fault, and the expected report."""

    what: str  # of the origin
    findings: tuple[Finding, ...]
    keys: tuple[str, ...]  # records included in the fixture
    topology: str = SMALL
    fault: Callable[[IbSim], None] = lambda sim: None
    opensm: bool = True
    host: str = ""
    fabric: Mapping[str, Any] = field(default_factory=dict)  # of the cluster file
    records: Mapping[str, Any] = field(default_factory=dict)  # made by hand, in addition
    nodes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # further queried nodes, made by hand
    window_s: float | None = None
    meanwhile: tuple[str, ...] = ()


def want(status: str, message: str, subject: str = "") -> Finding:
    """Return an expected finding of a fixture."""
    return {"status": status, "subject": subject, "message": message}


def node(guid: int, device: str = "mlx5_0", layer: str = "InfiniBand") -> dict[str, Any]:
    """Return the sysfs of a node with one port, as far as the fabric checks read it."""
    text = f"{guid:016x}"
    base = f"file:/sys/class/infiniband/{device}"
    return {
        "dir:/sys/class/infiniband": [device],
        f"dir:/sys/class/infiniband/{device}/ports": ["1"],
        f"{base}/ports/1/state": "4: ACTIVE\n",
        f"{base}/ports/1/phys_state": "5: LinkUp\n",
        f"{base}/ports/1/rate": "200 Gb/sec (4X HDR)\n",
        f"{base}/ports/1/link_layer": f"{layer}\n",
        f"{base}/node_guid": ":".join(text[place : place + 4] for place in range(0, 16, 4)) + "\n",
    }


def console(*lines: str) -> Callable[[IbSim], None]:
    return lambda sim: sim.console(*lines)


def killed(sim: IbSim) -> None:
    assert sim.manager is not None
    sim.stop(sim.manager)


def second(options: str) -> Callable[[IbSim], None]:
    return lambda sim: void(sim.start_manager(hca(3), options))


def void(value: object) -> None:
    """Do nothing with a value."""


def counter(place: str, port: int, name: str, value: int) -> str:
    return f'PerformanceSet "{place}"[{port}] PortCounters.{name}={value}'


def carried(place: str, **words: int) -> tuple[str, ...]:
    """Return the commands that set the traffic of a switch's ports: ``sent3=…``, in words of four bytes."""
    counters = {"sent": "PortXmitData", "received": "PortRcvData"}
    return tuple(f'PerformanceSet "{place}"[{name[-1]}] PortCountersExtended.{counters[name[:-1]]}={number}'
                 for name, number in words.items())  # fmt: skip


#: Words carried by 4xHDR in a window of three seconds.
FULL_HDR = 3 * 6_250_000_000

LOST = console(f'Error "{leaf(1)}" 100')
PULLED = console(f'Unlink "{leaf(0)}"[3]', f'Unlink "{hca(3)}"[1]')
SERVICES = """ServiceRecord dump:
\t\tServiceID...............0x1000000000000001
\t\tServiceGID..............fe80::b8ce:f603:0:1
\t\tServiceP_Key............0xFFFF
\t\tServiceLease............0x3C
\t\tServiceKey..............0x00000000000000000000000000000000
\t\tServiceName.............SHArP.AggregationManager
\t\tServiceData8.1..........0x2
"""
JOB = {f"gpu{number:03d}": node(HOST + number * 16) for number in range(8)}
EIGHT = fat_tree(8, down=4, spines=2, up=2, ports=10)
SHARP = fat_tree(4, down=2, spines=2, ports=6, aggregation=True)


def some(*names: str) -> dict[str, Any]:
    return {name: JOB[name] for name in names}


CASES: dict[str, dict[str, FabricCase]] = {
    "fabric.sweep": {
        "healthy": FabricCase("a healthy fabric", (want("pass", "4 switches, 4 HCAs, 8 links"),), (NET, LINKS, ERRORS)),
        "lost-queries": FabricCase(
            "one leaf answers no query (ibsim: Error 100)",
            (
                want("unknown", r"ibnetdiscover: .* got no answer.* hangs at spine00 port 2, spine01 port 2"),
                want("unknown", r"iblinkinfo -l: .* got no answer"),
                want("unknown", r"ibqueryerrors: .* got no answer"),
            ),
            (NET, LINKS, ERRORS), fault=LOST,
        ),
        "another-subnet": FabricCase(
            "a healthy fabric; the sysfs of two nodes made by hand",
            (want("warn", "does not contain mlx5_0 of gpu777, though its port is "
                          "active", "mlx5_0"), want("pass", "4 HCAs")),
            (NET,), records=node(HOST), nodes={"gpu777": node(0x7777)},
        ),
        "another-fabric": FabricCase(
            "a healthy fabric; the sysfs of the sweeping node made by hand, with the GUID of no HCA of this fabric",
            (want("unknown", "another fabric was swept: none of the compute HCAs"),), (NET,), records=node(0x7777),
        ),
        "roce": FabricCase(
            "a healthy fabric; the sysfs of a RoCE node made by hand",
            (want("skip", "every compute port of .* is Ethernet"),),
            (NET,), records=node(HOST, layer="Ethernet"),
        ),
        "own-link-down": FabricCase(
            "the sweeping node's own cable is out", (want("unknown", "has no neighbour"),), (NET,),
            fault=console(f'Unlink "{hca(0)}"[1]'),
        ),
        "no-umad": FabricCase(
            "a healthy fabric, its answer replaced by that of a machine without ib_umad",
            (want("unknown", "exit status 255"),), (),
            records={NET: {
                "status": "ok", "rc": 255, "out": "ibnetdiscover: iberror: failed: discover failed\n\n",
                "err": "ibwarn: [1903] mad_rpc_open_port: can't open UMAD port ((null):0)\n"
                "./libibnetdisc/ibnetdisc.c:802; can't open MAD port ((null):0)\n",
            }},
        ),
    },
    "fabric.subnet-manager": {
        "one-master": FabricCase(
            "a healthy fabric", (want("pass", r"one master subnet manager, gpu000 mlx5_0 \(LID 1"),), MANAGER
        ),
        "standby": FabricCase(
            "a second opensm on another host",
            (want("pass", r"one master subnet manager, gpu000 mlx5_0.*1 other \(standby\)"),), MANAGER,
            fault=second(""),
        ),
        "two-masters": FabricCase(
            "a second opensm with another sm_key",
            (want("fail", "2 subnet managers are master: .*gpu003 mlx5_0.*"),), MANAGER, fault=second("sm_key 0x7\n"),
        ),
        "none-ever": FabricCase(
            "no subnet manager", (want("fail", "no subnet manager answers; 4 of 4 switches have no LID"),),
            ("cmd:sminfo", "cmd:saquery -s", NET), opensm=False,
        ),
        "it-died": FabricCase(
            "opensm was ended", (want("fail", "no subnet manager answers; ports keep what the last one gave them"),),
            ("cmd:sminfo", "cmd:saquery -s", NET), fault=killed,
        ),
        "the-way-to-it-is-lost": FabricCase(
            "the leaf of the sweeping host answers no query",
            (want("unknown", "no subnet manager answered, and the sweep lost queries too"),),
            ("cmd:sminfo", "cmd:saquery -s", NET, LINKS), fault=LOST, host=hca(3),
        ),
        "not-asked": FabricCase("a healthy fabric, without sminfo", (want("unknown", "cmd:sminfo"),), (NET,)),
    },
    "fabric.oversubscription": {
        "one-to-one": FabricCase("a healthy fabric", (want("pass", "2 leaves, 1.00:1"),), (NET,)),
        "uplink-pulled": FabricCase(
            "one uplink unplugged", (want("warn", "leaf00 is oversubscribed 2.00:1: 2 links", "leaf00"),), (NET,),
            fault=console(f'Unlink "{leaf(0)}"[3]'),
        ),
        "slow-uplink": FabricCase(
            "one uplink at a quarter of its speed",
            (want("warn", "leaf01 is oversubscribed 1.60:1", "leaf01"),), (NET,),
            topology=fat_tree(4, down=2, spines=2, ports=6, slow={(leaf(1), 3): "1xHDR"}),
        ),
        "two-to-one-by-design": FabricCase(
            "a fabric with half of the uplinks", (want("pass", "2.00:1 at the fullest"),), (NET,),
            topology=fat_tree(8, down=4, spines=2, ports=8, up=1), fabric={"oversubscription": 2},
        ),
        "worse-than-the-design": FabricCase(
            "a fabric with half of the uplinks, one of them unplugged",
            (want("fail", "leaf00 is oversubscribed 4.00:1: 4 links", "leaf00"),), (NET,),
            topology=fat_tree(8, down=4, spines=2, ports=8, up=1), fabric={"oversubscription": 2},
            fault=console(f'Unlink "{leaf(0)}"[5]'),
        ),
        "one-switch": FabricCase(
            "four HCAs on one switch", (want("pass", "all hosts are connected to one switch"),), (NET,),
            topology=fat_tree(4, down=4, ports=6),
        ),
        "aggregation-nodes": FabricCase(
            "switches with aggregation nodes (HCAs of device 0xcf09)", (want("pass", "2 leaves, 1.00:1"),), (NET,),
            topology=SHARP,
        ),
        "lost-queries": FabricCase(
            "one leaf answers no query", (want("unknown", "the sweep is partial"),), (NET,), fault=LOST,
        ),
    },
    "fabric.hops": {
        "one-leaf": FabricCase(
            "a healthy fabric; the nodes' sysfs made by hand",
            (want("pass", "4 nodes on 1 leaf; 6 pairs cross 1 switch"),), (NET,), topology=EIGHT,
            records=JOB["gpu000"], nodes=some("gpu001", "gpu002", "gpu003"),
        ),
        "as-near-as-they-can": FabricCase(
            "a healthy fabric; the nodes' sysfs made by hand",
            (want("pass", "6 nodes on 2 leaves; 7 pairs cross 1 switch, 8 pairs cross 3 switches"),), (NET,),
            topology=EIGHT, records=JOB["gpu000"], nodes=some("gpu001", "gpu002", "gpu003", "gpu004", "gpu005"),
        ),
        "scattered": FabricCase(
            "a healthy fabric; the nodes' sysfs made by hand",
            (want("warn", "4 nodes on 2 leaves; .*3 pairs cross 1 switch, 3 pairs cross 3 switches; "
                          "gpu007 is far from most"),), (NET,),
            topology=EIGHT, records=JOB["gpu000"], nodes=some("gpu001", "gpu002", "gpu007"),
        ),
        "not-on-this-fabric": FabricCase(
            "a healthy fabric; the nodes' sysfs made by hand",
            (want("unknown", "only one of the 2 collected nodes is in this sweep"),), (NET,),
            records=JOB["gpu000"], nodes={"gpu777": node(0x7777)},
        ),
        "one-node": FabricCase("a healthy fabric", (want("skip", "one node was collected"),), (NET,)),
        "lost-queries": FabricCase(
            "one leaf answers no query; the nodes' sysfs made by hand", (want("unknown", "the sweep is partial"),),
            (NET,), records=JOB["gpu000"], nodes=some("gpu001"), fault=LOST,
        ),
    },
    "fabric.sharp": {
        "ready": FabricCase(
            "switches with aggregation nodes (HCAs of device 0xcf09); the service record made by hand, after saquery's"
            " source and the name that NVIDIA's sharp_benchmark.sh asks for",
            (want("pass", "all 4 switches"), want("pass", "the aggregation manager is registered")), (NET,),
            topology=SHARP, records={"cmd:saquery SR": SERVICES},
        ),
        "no-manager": FabricCase(
            "switches with aggregation nodes", (want("pass", "4 of 4"), want("warn", "no SHARP aggregation manager")),
            (NET, "cmd:saquery SR"), topology=SHARP,
        ),
        "wanted-and-not-there": FabricCase(
            "switches without aggregation nodes",
            (want("fail", "none of the 4"), want("fail", "no SHARP aggregation manager")), (NET, "cmd:saquery SR"),
            fabric={"sharp": True},
        ),
        "not-there-and-not-wanted": FabricCase(
            "switches without aggregation nodes", (want("skip", "SHARP cannot be used here"),),
            (NET, "cmd:saquery SR"),
        ),
        "off-by-choice": FabricCase(
            "switches with aggregation nodes", (want("skip", "declares that SHARP is not "
            "used"),), (NET, "cmd:saquery SR"),
            topology=SHARP, fabric={"sharp": False},
        ),
        "services-unread": FabricCase(
            "no subnet manager to ask", (want("pass", "4 of 4"), want("unknown", "cmd:saquery SR: exit status")),
            (NET, "cmd:saquery SR"), topology=SHARP, opensm=False,
        ),
        "roce": FabricCase(
            "a healthy fabric; the sysfs of a RoCE node made by hand", (want("skip", "is Ethernet"),),
            (NET, "cmd:saquery SR"), records=node(HOST, layer="Ethernet"),
        ),
    },
    "fabric.link-speed": {
        "all-alike": FabricCase(
            "a healthy fabric", (want("pass", "all 8 links run at the speed of their peers: 4xHDR"),), (NET, LINKS)
        ),
        "slow-links": FabricCase(
            "an HCA's link at EDR, an uplink with one lane",
            (
                want("fail", "runs at 4xEDR", "leaf00 port 1 - gpu000 mlx5_0"),
                want("fail", "runs at 1xHDR", "leaf01 port 3 - spine00 port 2"),
            ),
            (NET, LINKS),
            topology=fat_tree(4, down=2, spines=2, ports=6, slow={(leaf(0), 1): "4xEDR", (leaf(1), 3): "1xHDR"}),
        ),
        "two-generations": FabricCase(
            "storage HCAs of another model and speed", (want("pass", "4xEDR, 4xHDR"),), (NET, LINKS),
            topology=fat_tree(4, down=2, spines=2, ports=8, extra=2,
                              slow={(leaf(0), 5): "4xEDR", (leaf(0), 6): "4xEDR"}),
        ),
        "lost-queries": FabricCase(
            "one leaf answers no query", (want("unknown", "the sweep is partial"),), (NET, LINKS), fault=LOST,
        ),
    },
    "fabric.reference": {
        "as-it-was": FabricCase(
            "a healthy fabric", (want("pass", "all 8 links of good.ibnetdiscover are there"),), (NET, LINKS),
            fabric={"reference": "good.ibnetdiscover"},
        ),
        "unplugged": FabricCase(
            "an uplink and an HCA unplugged",
            (
                want("fail", "the HCA gpu003 mlx5_0 is not there; it hung at leaf01 port 2", "gpu003 mlx5_0"),
                want("fail", "is not there; its ports are Down/Polling and Down/Polling",
                     "leaf00 port 3 - spine00 port 1"),
            ),
            (NET, LINKS), fault=PULLED, fabric={"reference": "good.ibnetdiscover"},
        ),
        "leaf-lost": FabricCase(
            "a leaf without any of its four links: its HCAs are told with it",
            (want("fail", r"the switch leaf01 is not there, and with it 2 HCAs: gpu002 mlx5_0, gpu003 mlx5_0; it hung "
                          r"at spine00 port 2, spine01 port 2$", "leaf01"),),
            (NET, LINKS), fault=console(*(f'Unlink "{leaf(1)}"[{port}]' for port in range(1, 5))),
            fabric={"reference": "good.ibnetdiscover"},
        ),
        "slower": FabricCase(
            "all links to hosts at EDR: none is slow by its peers",
            tuple(want("fail", "4xEDR, formerly 4xHDR", f"leaf{n // 2:02d} port {n % 2 + 1} - gpu{n:03d} mlx5_0")
                  for n in range(4)),
            (NET, LINKS), fabric={"reference": "good.ibnetdiscover"},
            topology=fat_tree(4, down=2, spines=2, ports=6,
                              slow={(leaf(n // 2), n % 2 + 1): "4xEDR" for n in range(4)}),
        ),
        "moved": FabricCase(
            "two uplinks of a leaf in each other's place",
            tuple(want("warn", "is now", f"leaf00 port {3 + n} - spine{n:02d} port 1") for n in range(2)),
            (NET, LINKS), fabric={"reference": "good.ibnetdiscover"},
            topology=SMALL.replace(f'[3] \t"{spine(0)}"[1]', "A").replace(f'[4] \t"{spine(1)}"[1]', "B")
            .replace("A", f'[3] \t"{spine(1)}"[1]', 1).replace("B", f'[4] \t"{spine(0)}"[1]', 1)
            .replace(f'[1] \t"{leaf(0)}"[3]', "A").replace(f'[1] \t"{leaf(0)}"[4]', f'[1] \t"{leaf(0)}"[3]')
            .replace("A", f'[1] \t"{leaf(0)}"[4]'),
        ),
        "no-reference": FabricCase("a healthy fabric", (want("unknown", "no reference for the fabric"),),
                                  (NET, LINKS)),
        "lost-queries": FabricCase(
            "one leaf answers no query", (want("unknown", "the sweep is partial.* of the reference were not seen"),),
            (NET, LINKS), fault=LOST, fabric={"reference": "good.ibnetdiscover"},
        ),
    },
    "fabric.link-errors": {
        "all-zero": FabricCase("a healthy fabric", (want("pass", "every error counter of 8 devices is zero"),),
                              (ERRORS, NET)),
        "grown": FabricCase(
            "error counters set after the reference was swept",
            (
                want("fail", "SymbolErrorCounter grew by 1234 in 1 h", "leaf00 port 1"),
                want("warn", "PortRcvErrors grew by 5", "gpu001 mlx5_0 port 1"),
            ),
            (ERRORS, NET), fabric={"reference": "before.evidence"},
            fault=console(counter(leaf(0), 1, "SymbolErrorCounter", 1234), counter(hca(1), 1, "PortRcvErrors", 5)),
        ),
        "grown-in-a-window": FabricCase(
            "a window of one second; error counters set in its middle",
            (
                want("fail", "SymbolErrorCounter grew by 1234 in [0-9]+ s", "leaf00 port 1"),
                want("warn", "LinkDownedCounter grew by 1 in [0-9]+ s", "leaf01 port 2"),
            ),
            (ERRORS, NET), window_s=1.0,
            meanwhile=(counter(leaf(0), 1, "SymbolErrorCounter", 1234), counter(leaf(1), 2, "LinkDownedCounter", 1)),
        ),
        "quiet-in-a-window": FabricCase(
            "a window of one second over counters with a past", (want("pass", "has grown in [0-9]+ s$"),),
            (ERRORS, NET), window_s=1.0, fault=console(counter(leaf(0), 1, "SymbolErrorCounter", 9000)),
        ),
        "history": FabricCase(
            "error counters of a long life, read once",
            (want("unknown", "2 ports have counted errors, at an unknown time"),),
            (ERRORS, NET),
            fault=console(counter(leaf(0), 1, "SymbolErrorCounter", 9000), counter(leaf(1), 2, "LinkDownedCounter", 7)),
        ),
        "waiting-is-no-error": FabricCase(
            "PortXmitWait and multicast loops since the reference", (want("pass", "no error counter"),), (ERRORS, NET),
            fabric={"reference": "before.evidence"},
            fault=console(counter(spine(0), 1, "PortXmitWait", 4000000000),
                          counter(leaf(0), 2, "PortRcvSwitchRelayErrors", 60)),
        ),
        "full": FabricCase(
            "a counter at its end", (want("unknown", "SymbolErrorCounter is full at 65535", "leaf00 port 1"),),
            (ERRORS, NET), window_s=1.0, fault=console(counter(leaf(0), 1, "SymbolErrorCounter", 70000)),
        ),
        "no-manager-no-answer": FabricCase(
            "no subnet manager: the tool prints nothing and ends with 0", (want("unknown", "no subnet manager"),),
            (ERRORS, NET), opensm=False,
        ),
    },
    "fabric.fan-in": {
        "all-alike": FabricCase(
            "a healthy fabric; the nodes' sysfs made by hand",
            (want("pass", "8 receivers; up to 7 nodes of a rail can send to one of them: 7 times the rate of the link "
                          "to gpu000 mlx5_0"),),
            (NET,), topology=EIGHT, records=JOB["gpu000"], nodes=some(*(f"gpu{n:03d}" for n in range(1, 8))),
        ),
        "through-few-uplinks": FabricCase(
            "one uplink to each spine; the nodes' sysfs made by hand",
            (want("pass", "8 receivers; up to 7 nodes of a rail can send to one of them: 5 times the rate of the link "
                          "to gpu000 mlx5_0"),),
            (NET,), topology=fat_tree(8, down=4, spines=2, up=1, ports=10), records=JOB["gpu000"],
            nodes=some(*(f"gpu{n:03d}" for n in range(1, 8))),
        ),
        "narrow-receiver": FabricCase(
            "an HCA's link at EDR; the nodes' sysfs made by hand",
            (want("warn", "gpu001 mlx5_0 receives at most 100 Gb/s, but each of 3 nodes can send 200", "gpu001 mlx5_0"),
             ), (NET,), topology=fat_tree(8, down=4, spines=2, up=2, ports=10, slow={(leaf(0), 2): "4xEDR"}),
            records=JOB["gpu000"], nodes=some("gpu001", "gpu004", "gpu005"),
        ),
        "waits-in-a-window": FabricCase(
            "a window of one second, PortXmitWait set in its middle; the nodes' sysfs made by hand",
            ({"status": "pass", "message": "2 receivers",
              "found": r"to leave spine01 port 1 \(\+70000000 ticks\), leaf00"},),
            (NET, ERRORS), topology=EIGHT, records=JOB["gpu000"], nodes=some("gpu004"), window_s=1.0,
            meanwhile=(counter(spine(1), 1, "PortXmitWait", 70000000), counter(leaf(0), 5, "PortXmitWait", 900)),
        ),
        "one-node": FabricCase("a healthy fabric", (want("skip", "one node was collected"),), (NET,)),
        "not-on-this-fabric": FabricCase(
            "a healthy fabric; the nodes' sysfs made by hand",
            (want("unknown", "no two of one rail are in this sweep"),), (NET,), records=JOB["gpu000"],
            nodes={"gpu777": node(0x7777)},
        ),
        "lost-queries": FabricCase(
            "one leaf answers no query; the nodes' sysfs made by hand", (want("unknown", "the sweep is partial"),),
            (NET,), records=JOB["gpu000"], nodes=some("gpu001"), fault=LOST,
        ),
    },
    "fabric.uplink-balance": {
        "alike": FabricCase(
            "a window of three seconds, traffic counters set in its middle",
            (want("pass", "of 1 leaf are balanced: at most 1.0. times an even share, the busiest at [45]. %"),),
            (NET, ERRORS, TRAFFIC), window_s=3.0,
            meanwhile=carried(leaf(0), sent3=FULL_HDR * 50 // 100, sent4=FULL_HDR * 48 // 100,
                              received1=FULL_HDR // 2, received2=FULL_HDR * 48 // 100),
        ),
        "hot-uplink": FabricCase(
            "a window of three seconds, traffic counters set in its middle: two hosts on one uplink",
            (want("warn", "leaf00 port 3 carried 1.* Gb/s up, 2.0 times an even share, while 1 of 2 uplinks",
                  "leaf00 port 3"),),
            (NET, ERRORS, TRAFFIC), window_s=3.0,
            meanwhile=carried(leaf(0), sent3=FULL_HDR * 96 // 100, received1=FULL_HDR * 48 // 100,
                              received2=FULL_HDR * 48 // 100),
        ),
        "hot-on-the-way-down": FabricCase(
            "a window of three seconds, traffic counters set in its middle: two hosts receive over one uplink",
            (want("warn", "leaf01 port 4 carried 1.* Gb/s down, 2.0 times an even share", "leaf01 port 4"),),
            (NET, ERRORS, TRAFFIC), window_s=3.0,
            meanwhile=carried(leaf(1), received4=FULL_HDR * 96 // 100, sent1=FULL_HDR * 48 // 100,
                              sent2=FULL_HDR * 48 // 100),
        ),
        "one-sender": FabricCase(
            "a window of three seconds, traffic counters set in its middle: one host sends far",
            (want("pass", "of 1 leaf are balanced: at most 1.00 times an even share, the busiest at [89]. %"),),
            (NET, ERRORS, TRAFFIC), window_s=3.0,
            meanwhile=carried(leaf(0), sent3=FULL_HDR * 90 // 100, received1=FULL_HDR * 90 // 100),
        ),
        "at-rest": FabricCase(
            "a window of three seconds, nothing but the sweep's own packets",
            (want("unknown", "no uplink carried 5% of its rate"),), (NET, ERRORS, TRAFFIC), window_s=3.0,
        ),
        "not-asked": FabricCase(
            "a window of three seconds, without the traffic counters",
            (want("unknown", "was not collected from this node"),), (NET, ERRORS), window_s=3.0,
        ),
        "one-switch": FabricCase(
            "four HCAs on one switch", (want("skip", "no leaf has several uplinks"),), (NET, ERRORS, TRAFFIC),
            topology=fat_tree(4, down=4, ports=6), window_s=3.0,
        ),
        "lost-queries": FabricCase(
            "one leaf answers no query", (want("unknown", "the sweep is partial"),), (NET, ERRORS, TRAFFIC),
            window_s=3.0, fault=LOST,
        ),
    },
}  # fmt: skip


def record(case: FabricCase) -> dict[str, Any]:
    """Create a fault in the fabric, sweep it, and return the fixture."""
    with IbSim(case.topology, opensm=case.opensm) as sim:
        case.fault(sim)
        evidence = sim.sweep(host=case.host, window_s=case.window_s, meanwhile=case.meanwhile)
    wanted = sorted(key for key in evidence.records if any(fnmatchcase(key, pattern) for pattern in case.keys))
    chosen = {key: short(evidence.records[key]) for key in wanted} | dict(case.records)
    body: dict[str, Any] = {"origin": ORIGIN.format(case.what)}
    if case.nodes:
        body["nodes"] = {"gpu000": {"records": chosen}} | {name: {"records": n} for name, n in case.nodes.items()}
    else:
        body["records"] = chosen
    return body | ({"fabric": dict(case.fabric)} if case.fabric else {}) | {"findings": list(case.findings)}


def short(raw: Mapping[str, Any]) -> Any:
    """Write a record in the short form of a fixture: only a text if nothing else is recorded."""
    if raw["status"] == "ok" and raw.get("rc") == 0 and not raw.get("err") and "again" not in raw:
        return raw.get("out", "")
    return {key: value for key, value in raw.items() if key != "seconds"}


def write(checks: Sequence[str]) -> None:
    """Write the fixtures of some checks, or all fixtures and the references that they name."""
    for check, cases in CASES.items():
        if check in checks or not checks:
            folder = FIXTURES / check
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir()
            for name, case in cases.items():
                body = record(case)
                (folder / f"{name}.json").write_text(json.dumps(body, indent=1) + "\n")
    if not checks:
        write_references()


def write_references() -> None:
    """Write the sweeps of a healthy fabric that are used as references."""
    with IbSim(SMALL) as sim:
        good = sim.sweep(at="2026-11-21T02:00:00Z")  # an hour before a fixture's time
    (FIXTURES / "fabric.reference" / "good.ibnetdiscover").write_text(good.records[NET]["out"])
    reference = Evidence("gpu000", good.collected_at, {key: good.records[key] for key in (NET, ERRORS)},
                    origin=ORIGIN.format("a healthy fabric"))  # fmt: skip
    (FIXTURES / "fabric.link-errors" / "before.evidence").write_text(dump(reference))


if __name__ == "__main__":
    write(sys.argv[1:])
