"""Facts of a sweep without a simulator: parsers, tiers, hops, growth, the picture, who may sweep."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from preflight.checks import registry
from preflight.collect.options import CollectOptions, plans, sweeper
from preflight.collect.sudoers import sudoers
from preflight.evidence.document import from_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import ClusterFileError, from_data, load
from preflight.expectations.fabric_table import FabricSite, FabricTable
from preflight.facts.fabric.compare import difference, growth, mixed, slow
from preflight.facts.fabric.graph import Graph, place
from preflight.judge import judge
from preflight.model import Check
from preflight.parsers.infiniband import iblinkinfo, ibnetdiscover, ibqueryerrors, sminfo_saquery
from preflight.plugin_fixture import record
from preflight.probes.node import PROBES
from preflight.probes.probe import OUTPUT_CAP
from preflight.probes.sweep import sweep
from preflight.reports import fabric_svg
from preflight.terminal import UsageError
from tests.checks import test_pages
from tests.support import paths
from tests.support.fabric.ibsim import fat_tree, hca, leaf, spine
from tests.support.fixture import FIXTURES, cases, evidence, whole_node

DATA = paths.DATA / "fabric"
CHECKS = [check for check in registry().checks if check.sweep]


def net(topology: str) -> ibnetdiscover.Net:
    return ibnetdiscover.parse(topology)


def guid(name: str) -> str:
    return name[2:]


# --- parsers -----------------------------------------------------------------------------------------


def test_a_topology_has_each_link_once() -> None:
    found = net(fat_tree(32, aggregation=True, ports=41))
    assert (len(found.switches), len(found.hcas), len(found.devices)) == (4, 32, 4 + 32 + 4)
    assert len(found.links) == 32 + 2 * 2 * 8 + 4
    assert {(link.speed, link.gbps, link.seen_by) for link in found.links} == {("4xHDR", 200.0, 2)}


def test_a_description_may_hold_anything() -> None:
    found = net('Ca\t1 "H-0000000000000001"\t\t# "a "b" lid 9 4xSDR"\n'
                '[1](1) \t"S-0000000000000002"[3]\t\t# lid 1 lmc 0 "x "4xQDR" lid 5" lid 2 2xNDR\n')  # fmt: skip
    assert found.devices["0000000000000001"].name == 'a "b" lid 9 4xSDR'
    assert found.devices["0000000000000002"].name == 'x "4xQDR" lid 5'
    assert [(link.speed, link.gbps, link.seen_by) for link in found.links] == [("2xNDR", 200.0, 1)]


@pytest.mark.parametrize(
    "text",
    ["", "# Topology file: generated\n", "ibwarn: nothing\n", '[1]\t"S-0000000000000002"[3]\t# lid 1\n',
     'Switch\t40 "S-00'],
)  # fmt: skip
def test_what_is_no_topology_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"unexpected line|contains neither"):
        net(text)


def test_a_speed_of_tomorrow_is_not_guessed() -> None:
    (link,) = net(
        'Ca\t1 "H-0000000000000001"\t# "a"\n[1](1) "S-0000000000000002"[3]\t# lid 1 lmc 0 "x" lid 2 4xGDR\n'
    ).links
    assert (link.speed, link.gbps) == ("4xGDR", None)


def test_a_quantum_switch_and_its_aggregation_node() -> None:
    """Re-made in the format of iblinkinfo on hardware, from a public post on installing SHARP (February 2022)."""
    states = iblinkinfo.parse((DATA / "iblinkinfo_quantum.txt").read_text())
    assert [(one.name, one.number, one.state, one.physical) for one in states[1:5]] == [
        ("Mellanox Technologies Aggregation Node", 1, "Active", "LinkUp"),
        ("Quantum Mellanox Technologies", 4, "Active", "LinkUp"),
        ("Quantum Mellanox Technologies", 5, "Down", "Polling"),
        ("Quantum Mellanox Technologies", 40, "Active", "LinkUp"),
    ]
    assert {(one.lane_gbps, one.width) for one in states if one.state == "Active"} == {(53.125, 4)}
    assert {one.guid for one in states[2:6]} == {"0c42a103006f17b4"}


def test_what_a_tool_lost() -> None:
    noise = 'ibwarn: [7] sim_connect: attached as client 1 at node "H-b8cef60300000000"\n'
    assert sminfo_saquery.lost(noise) is None
    line = "./libibnetdisc/query_smp.c:186; umad (DR path slid 0; dlid 0; 0,1,3 Attr 0x11:0) bad status 110; "
    lost = sminfo_saquery.lost(noise + 2 * (line + "Connection timed out\n"))
    assert lost is not None
    assert (lost.count, lost.routes) == (2, ((0, 1, 3),))


def test_a_service_record() -> None:
    dump = (
        "ServiceRecord dump:\n\t\tServiceID...............0x1\n\t\tServiceName.............SHArP.AggregationManager\n"
    )
    assert sminfo_saquery.parse_services(dump) == ("SHArP.AggregationManager",)
    assert sminfo_saquery.parse_services("") == ()
    with pytest.raises(ValueError, match="no service record"):
        sminfo_saquery.parse_services("saquery: iberror\n")


# --- the graph ---------------------------------------------------------------------------------------


def test_tiers_and_leaves() -> None:
    graph = Graph(net(fat_tree(32)))
    assert [[switch.name for switch in tier] for tier in graph.tiers] == [["leaf00", "leaf01"], ["spine00", "spine01"]]
    assert [(one.hosts, one.uplinks, one.ratio) for one in graph.leaves] == [(16, 16, 1.0)] * 2


def test_the_managers_node_makes_no_leaf_of_a_spine() -> None:
    topology = fat_tree(32)
    topology += (
        f'Ca\t1 "H-00000000000000aa"\t# "ufm01"\n[1](aa) "{spine(0)}"[40]\t# lid 1 lmc 0 "spine00" lid 2 4xHDR\n'
    )
    graph = Graph(net(topology))
    assert [one.switch.name for one in graph.leaves] == ["leaf00", "leaf01"]
    assert len(graph.tiers) == 2


def three_tiers() -> ibnetdiscover.Net:
    """Two pods, each of two leaves of two hosts below one spine, below one core."""
    lines = []

    def cable(a: str, a_port: int, b: str, b_port: int) -> None:
        for one, port, other, far in ((a, a_port, b, b_port), (b, b_port, a, a_port)):
            lines.append(f'{"Ca" if one[0] == "H" else "Switch"}\t8 "{one}"\t# "{one}"')
            lines.append(f'[{port}] "{other}"[{far}]\t# "{other}" lid 1 4xHDR\n')

    for number in range(4):
        for host in range(2):
            cable(hca(number * 2 + host), 1, leaf(number), host + 1)
        cable(leaf(number), 5, spine(number // 2), number % 2 + 1)
    for number in range(2):
        cable(spine(number), 5, spine(9), number + 1)
    return net("\n".join(lines))


def job(*hosts: int) -> dict[str, dict[str, str]]:
    return {"mlx5_0": {f"gpu{host}": guid(hca(host)) for host in hosts}}


@pytest.mark.parametrize(
    ("hosts", "pairs", "needed", "far"),
    [
        ((0, 1), {1: 1}, 1, ()),
        ((0, 2), {3: 1}, 1, ()),
        ((0, 1, 2, 3), {1: 2, 3: 4}, 3, ()),
        ((0, 1, 2, 7), {1: 1, 3: 2, 5: 3}, 3, ("gpu7",)),
        ((0, 1, 2, 3, 4), {1: 2, 3: 4, 5: 4}, 5, ()),
    ],
)
def test_hops(hosts: tuple[int, ...], pairs: dict[int, int], needed: int, far: tuple[str, ...]) -> None:
    placement = place(Graph(three_tiers()), job(*hosts))
    assert (placement.pairs, placement.needed, placement.far) == (pairs, needed, far)


def test_rails_that_share_leaves_need_more_of_them() -> None:
    """Eight nodes of two HCAs fill two leaves of eight: using both is not a fault of the placement."""
    graph = Graph(net(fat_tree(16, down=8, spines=2, rails=2)))
    rails = {f"mlx5_{rail}": {f"gpu{n}": guid(hca(2 * n + rail)) for n in range(8)} for rail in range(2)}
    placement = place(graph, rails)
    assert (placement.needed, placement.far) == (3, ())


def test_a_route_is_walked() -> None:
    found = net("# Initiated from node b8cef60300000000 port b8cef60300000001\n\n" + fat_tree(4, down=2, spines=2))
    assert Graph(found).along((0, 1, 3, 2)) == "spine00 port 2"
    assert Graph(found).along((0, 1, 39, 2)) == ""


def test_hcas_of_another_kind_are_no_peers() -> None:
    slower = {(leaf(0), 1): "4xEDR"}
    assert [one.link.speed for one in slow(net(fat_tree(4, slow=slower)))] == ["4xEDR"]
    assert slow(net(fat_tree(4, slow=slower).replace("devid=0x101b", "devid=0x1019", 1))) == ()
    assert slow(net(fat_tree(2, slow=slower))) == (), "two that differ: nobody knows which is wrong"


def test_a_wrong_majority_of_links() -> None:
    """Three of five links to HCAs run at half speed: no speed is called right, except that of a reference."""
    complete = net(fat_tree(5))
    half = net(fat_tree(5, slow={(leaf(0), port): "4xEDR" for port in (1, 2, 3)}))
    assert slow(half) == ()
    assert sorted({link.speed for link in mixed(half)}) == ["4xEDR", "4xHDR"]
    assert [one.link.speed for one in slow(half, complete)] == ["4xEDR"] * 3
    assert mixed(half, complete) == ()
    assert slow(half, half) == (), "meant so"
    assert mixed(half, half) == ()
    one_odd = net(fat_tree(5, slow={(leaf(0), 1): "4xEDR"}))
    assert slow(one_odd, one_odd) == (), "slower than most, and as in the reference"
    assert mixed(one_odd) == mixed(complete) == ()


def test_a_cable_in_another_port_is_moved_not_missing() -> None:
    before = fat_tree(4, ports=8)
    after = before.replace(f'"{leaf(0)}"[4]', f'"{leaf(0)}"[7]').replace(f'[4] \t"{hca(3)}"', f'[7] \t"{hca(3)}"')
    changed = difference(net(before), net(after))
    assert (len(changed.moved), changed.missing, changed.gone, changed.new_links) == (1, (), (), ())


def report(*lines: str, thresholds: str = "") -> ibqueryerrors.Errors:
    return ibqueryerrors.parse("\n".join(
        ['Errors for 0x1 "leaf"', *(f"   GUID 0x1 port {line}" for line in lines),
         "## Summary: 2 nodes checked, 1 bad nodes found", f"## Thresholds: {thresholds}", ""]))  # fmt: skip


def test_growth() -> None:
    before = report("1: [SymbolErrorCounter == 5]", thresholds="[PortRcvErrors = 10]")
    now = report("ALL: [SymbolErrorCounter == 9]", "1: [SymbolErrorCounter == 9] [PortRcvErrors == 25]",
                 "2: [LinkDownedCounter == 1]", thresholds="[PortRcvErrors = 10]")  # fmt: skip
    assert [(one.port[1], one.counter, one.by) for one in growth(before, now)] == [
        (1, "PortRcvErrors", 15), (1, "SymbolErrorCounter", 4), (2, "LinkDownedCounter", 1),
    ]  # fmt: skip
    (reset,) = growth(report("1: [SymbolErrorCounter == 5]"), report())
    assert reset.by == -5
    (full,) = growth(report("1: [LinkDownedCounter == 255]"), report("1: [LinkDownedCounter == 255]"))
    assert full.full


def test_a_report_without_its_end_is_none() -> None:
    with pytest.raises(ValueError, match="without a summary"):
        ibqueryerrors.parse('Errors for 0x1 "leaf"\n   GUID 0x1 port 1: [SymbolErrorCounter == 5]\n')
    with pytest.raises(ValueError, match="no subnet manager answered"):
        ibqueryerrors.parse("")


# --- who sweeps --------------------------------------------------------------------------------------

FOUR = ("gpu1", "gpu2.cluster", "gpu3", "gpu4")


def sweeping_from(name: str | None) -> Cluster:
    return Cluster(fabric=FabricSite("cluster.toml", FabricTable(sweep_from=name, device="mlx5_4")))


def test_one_node_sweeps_and_only_on_request() -> None:
    for options, cluster, expected in (
        (CollectOptions(), sweeping_from("gpu2"), []),
        (CollectOptions(fabric=True), sweeping_from("gpu2"), ["gpu2.cluster"]),
    ):
        plan_for = plans(PROBES, cluster, options, sweeper(FOUR, cluster, options))
        made = {node: plan_for(node, 60) for node in FOUR}
        assert [n for n in FOUR if any("ibnetdiscover" in p["key"] for p in made[n]["probes"])] == expected
        assert [n for n in FOUR if made[n]["output_cap"] > OUTPUT_CAP] == expected
    commands = [probe["argv"] for probe in made["gpu2.cluster"]["probes"] if probe["key"].startswith("cmd:ibnetd")]
    assert commands == [["ibnetdiscover", "-C", "mlx5_4"]]


@pytest.mark.parametrize(
    ("cluster", "words"), [(sweeping_from(None), "declare which node"), (sweeping_from("login1"), "not among")]
)
def test_no_node_is_chosen_by_chance(cluster: Cluster, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        sweeper(FOUR, cluster, CollectOptions(fabric=True))
    assert sweeper(["gpu1"], sweeping_from(None), CollectOptions(fabric=True)) == "gpu1"


def test_a_sweep_only_reads() -> None:
    """No counter is reset (-k, -K), no manager's state is set (-s of sminfo), no file is written."""
    commands = {tuple(probe.target.split()) for probe in sweep("mlx5_0", window=True)}
    commands |= {tuple(probe.listed[0].split()) for probe in sweep() if probe.listed}
    assert {(words[0], *(word for word in words[1:] if word not in ("-C", "mlx5_0"))) for words in commands} == {
        ("ibnetdiscover",), ("iblinkinfo", "-l"), ("ibqueryerrors",), ("sminfo",), ("sminfo", "{}"), ("saquery", "-s"),
        ("saquery", "SR"), ("ibqueryerrors", "--counters", "--switch"),
    }  # fmt: skip


def test_sudoers_of_a_sweep() -> None:
    """It allows no file written by ibnetdiscover as root, no ``ibqueryerrors -k`` and no ``sminfo 1 --state 0``."""
    allowed = sudoers(sweep(window=True))[1].split(" = ")[1].split(", ")
    assert {command.removeprefix("/usr/sbin/") for command in allowed} == {
        'ibnetdiscover ""', "iblinkinfo -l", 'ibqueryerrors ""', 'sminfo ""', "saquery -s", "saquery SR",
        "ibqueryerrors --counters --switch",
        *("sminfo " + "[0-9]" * digits for digits in range(1, 6)),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"reference": "gone.ref"}, "cannot be read"),
        ({"reference": "cut.ref"}, "is not a reference: is incomplete"),
        ({"reference": "log.ref"}, "is not a reference: unexpected line"),
        ({"reference": "evidence.ref"}, "has no sweep"),
        ({"reference": "."}, "not a regular file"),
        ({"device": "mlx5_0; reboot"}, "takes the name of an RDMA device"),
        ({"sweep-from": "gpu1"}, "did you mean sweep_from"),
        ({"oversubscription": "2:1"}, "takes a number"),
    ],
)
def test_an_error_is_found_before_any_query(body: dict[str, Any], words: str, tmp_path: Path) -> None:
    complete = fat_tree(4)
    (tmp_path / "cut.ref").write_text(complete[: complete.index("Switch\t")])
    (tmp_path / "log.ref").write_text("nothing of that\n")
    (tmp_path / "evidence.ref").write_text(
        json.dumps({"schema": "preflight.evidence/1", "node": "n", "collected_at": "", "records": {}})
    )
    with pytest.raises(ClusterFileError, match=words):
        from_data({"fabric": body}, str(tmp_path / "cluster.toml"))


def test_a_text_of_ibnetdiscover_is_a_reference(tmp_path: Path) -> None:
    (tmp_path / "fabric.ref").write_text(fat_tree(4))
    (tmp_path / "cluster.toml").write_text('[fabric]\nreference = "fabric.ref"\n')
    reference = load(tmp_path / "cluster.toml").fabric.reference
    assert reference is not None
    assert (len(reference.net.links), reference.errors) == (4, None)


# --- judged, reported, drawn -------------------------------------------------------------------------


def case(check: str, name: str) -> Any:
    return next(one for one in cases(check) if one.path.stem == name)


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_the_page_of_a_check(check: Check) -> None:
    test_pages.test_the_page_has_its_headings(check)
    test_pages.test_explain_shows_all_of_it(check)


@pytest.mark.parametrize("swept", ["mlx5_4", "mlx5_0"])
def test_the_bridges_of_nvswitches_are_no_rails(swept: str) -> None:
    """HGX B200: active InfiniBand ports of the NVSwitches' bridges do not count for the compute fabric.

    They come first, so a tool sweeps their fabric by default: that is reported, and nothing is judged by it.
    """
    node = whole_node("hgx-b200")
    guids = {device: node["records"][f"file:/sys/class/infiniband/{device}/node_guid"]["out"].strip().replace(":", "")
             for device in ("mlx5_0", "mlx5_4", "mlx5_7", "mlx5_8", "mlx5_9", "mlx5_10", "mlx5_13", "mlx5_14",
                            "mlx5_15")}  # fmt: skip
    here = [guids.pop("mlx5_0")] if swept == "mlx5_0" else [g for device, g in guids.items() if device != "mlx5_0"]
    text = fat_tree(8, down=8)
    for number, one in enumerate(here):
        text = text.replace(guid(hca(number)), one).replace(f"caguid=0x{guid(hca(number))}", f"caguid=0x{one}")
    document = from_document(dict(node, records={**node["records"], "cmd:ibnetdiscover": record("cmd:x", text)}), "n")
    site = load(FIXTURES / "nodes" / "hgx-b200.toml")
    report = judge([document], [check for check in CHECKS if check.id in ("fabric.sweep", "fabric.link-speed")], site)
    reported = {(f["status"], f["check"]) for f in report["findings"]}
    expected = "pass" if swept == "mlx5_4" else "unknown"
    assert reported == {(expected, "fabric.sweep"), (expected, "fabric.link-speed")}


def test_two_sweeps_are_judged_separately() -> None:
    """Rails that are separate fabrics: one sweep for each, with separate findings."""
    healthy = case("fabric.sweep", "healthy").body["records"]
    lost = case("fabric.sweep", "lost-queries").body["records"]
    second = {key.replace("ibnetdiscover", "ibnetdiscover -C mlx5_1"): value for key, value in lost.items()
              if key.startswith("cmd:ibnetdiscover")}  # fmt: skip
    report = judge(
        [evidence("gpu1", {"records": healthy | second})], [check for check in CHECKS if check.id == "fabric.sweep"]
    )
    assert {(f["status"], tuple(f["nodes"])) for f in report["findings"]} == {
        ("pass", ("@fabric ibnetdiscover on gpu1",)), ("unknown", ("@fabric ibnetdiscover -C mlx5_1 on gpu1",)),
    }  # fmt: skip
    assert report["coverage"]["planned"] == 2


GARBAGE = (None, {"status": "ok", "out": "\x00<script>", "rc": 0}, {"status": "timeout"},
           {"status": "ok", "out": "", "rc": 0}, {"status": "cut", "out": "Switch"})  # fmt: skip


@pytest.mark.parametrize("garbage", GARBAGE, ids=str)
def test_garbage_is_never_a_pass(garbage: Any, caplog: pytest.LogCaptureFixture) -> None:
    keys = ("ibnetdiscover", "iblinkinfo -l", "ibqueryerrors", "sminfo", "sminfo 1", "saquery -s", "saquery SR")
    document = from_document({"schema": "preflight.evidence/1", "node": "n", "collected_at": "",
                              "records": {f"cmd:{key}": garbage for key in keys}}, "n")  # fmt: skip
    report = judge([document], CHECKS)
    assert not caplog.records
    reported = {(f["status"], f["check"]) for f in report["findings"]}
    alone = ("fabric.hops", "fabric.fan-in")  # one node has no path, and no sender
    assert reported == {("skip" if check.id in alone else "unknown", check.id) for check in CHECKS if not check.window}


def test_hostile_names_in_the_picture() -> None:
    drawn = fabric_svg.draw({
        "name": "@fabric", "swept_from": "n", "hcas": 1, "partial": "",
        "tiers": [[{"guid": "1", "name": "<script>\x1b", "hosts": 2, "down_gbps": 400.0, "up_gbps": 200.0,
                    "slow_hosts": ["<b>"], "missing_hosts": ["\u202e"]}],
                  [{"guid": "2", "name": "s", "hosts": 0, "down_gbps": 0, "up_gbps": 0}]],
        "links": [{"a": "1", "b": "2", "count": 1, "gbps": 200.0, "slow": 1, "missing": 1}],
    })  # fmt: skip
    assert "<script>" not in drawn
    assert "<b>" not in drawn
    assert "\u202e" not in drawn
    assert "f-over" in drawn
    assert "f-missing" in drawn


def test_a_large_fabric_is_drawn_in_bounds() -> None:
    """Three hundred switches in a tier with all their links: omitted parts are named, and no fault is omitted."""
    switch = {"hosts": 32, "down_gbps": 1.0, "up_gbps": 1.0}
    tiers = [[dict(switch, guid=f"{tier}-{n}", name=f"{tier}-{n}") for n in range(300)] for tier in "ab"]
    links = [{"a": f"a-{a}", "b": f"b-{b}", "count": 1, "gbps": 1.0, "slow": a == b == 7, "missing": 0}
             for a in range(300) for b in range(0, 300, 10)]  # fmt: skip
    drawn = fabric_svg.draw({"name": "", "swept_from": "", "hcas": 9600, "partial": "", "tiers": tiers, "links": links})
    assert "88 switches are not drawn" in drawn
    assert "healthy bundles of links are not drawn" in drawn
    assert len(drawn) < 4_000_000


def test_nodes_are_not_excluded_for_the_fabrics_sake() -> None:
    from preflight.reports.keep_off import bad_nodes

    one = case("fabric.reference", "unplugged")
    report = judge(one.evidences(), CHECKS, one.cluster())
    assert report["exit_status"] == 1
    assert bad_nodes(report) == ""
