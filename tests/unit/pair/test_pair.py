"""``preflight pair`` without nodes: the selected endpoints, the commands, the judgement."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from preflight.archive.directory import save
from preflight.checks.pair.bandwidth import CHECKS
from preflight.cli import app
from preflight.commands.pair import pair
from preflight.evidence.document import Evidence, PairScope, from_document
from preflight.expectations import Cluster
from preflight.facts import gids
from preflight.facts.node import NodeFacts
from preflight.judge import judge
from preflight.model import Check
from preflight.pair import endpoints, path_mtu
from preflight.pair import tests as kinds
from preflight.pair.endpoints import End, EndpointError, Wanted
from preflight.parsers.network import listening as sockets
from preflight.parsers.network import perftest, ping
from preflight.parsers.network.perftest import PerftestError
from preflight.parsers.network.ping import Ping
from tests.support import external_texts
from tests.support.fixture import cases, whole_node

SCHEMA = json.loads((files("preflight.schemas") / "evidence-1.json").read_text())


def node(name: str) -> NodeFacts:
    return NodeFacts(from_document(whole_node(name), name))


def end(facts: NodeFacts, **wanted: Any) -> End:
    return endpoints.end(facts, Cluster().site(facts), Wanted(**wanted))


# --- output of the tools ----------------------------------------------------------------------------


def test_units_are_those_of_the_header() -> None:
    row = " 65536      200              26.75              {1}  \t\t   0.000213\n"
    table = " #bytes     #iterations    BW peak[{0}]    BW average[{0}]   MsgRate[Mpps]\n" + row
    gbits = perftest.parse_bandwidth(table.format("Gb/sec", "391.27"))
    mebibytes = perftest.parse_bandwidth(table.format("MB/sec", "46643.02"))
    assert (gbits.average_gbps, gbits.messages, gbits.size) == (391.27, 200, 65536)
    assert mebibytes.average_gbps == pytest.approx(391.27, abs=0.01)
    assert mebibytes.average_gbps == perftest.parse_bandwidth(table.format("MiB/sec", "46643.02")).average_gbps
    with pytest.raises(ValueError, match="not a known unit"):
        perftest.parse_bandwidth(table.format("furlong", "1"))


def test_a_header_without_a_row_is_no_result() -> None:
    text = external_texts.text("ib_write_bw_softroce.txt")
    with pytest.raises(ValueError, match="no table"):
        perftest.parse_bandwidth(text[: text.index(" 65536")])


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (
            " Found Incompatibility issue with GID types.\n Please Try to use a different IP version.\n",
            PerftestError.GID,
        ),
        (" Gid index should be between 0 and 64\n Parser function exited with Error\n", PerftestError.GID),
        ("IB device rxe7 not found\n Unable to find the Infiniband/RoCE device\n", PerftestError.DEVICE),
        (
            "Couldn't connect to 10.0.0.1:18515\nUnable to open file descriptor for socket connection",
            PerftestError.CONNECT,
        ),
        ("Couldn't listen to port 18515\n", PerftestError.PORT),
        ("Failed to modify QP 21 to RTR\n Unable to Connect the HCA's through the link\n", PerftestError.QUEUE),
        (" Completion with error at client\n Failed status 12: wr_id 0 syndrom 0x81\n", PerftestError.PATH),
        ("Failed status transport retry counter exceeded (12) for wr_id 2\n", PerftestError.PATH),
        ("ib_read_bw: unrecognized option '--use_cuda_bus_id=0000:07:00.0'\n", PerftestError.CUDA),
        ("ib_read_bw: unrecognized option '--use_cuda_dmabuf'\n", PerftestError.DMA_BUF),
        ("ib_read_bw: unrecognized option '--report_gbitz'\n", None),
        ("Segmentation fault\n", None),
    ],
)
def test_a_complaint_has_a_cause(text: str, cause: PerftestError | None) -> None:
    assert perftest.cause(text) is cause


# --- ends and commands -----------------------------------------------------------------------------


def test_the_end_of_a_soft_roce_node() -> None:
    document = whole_node("soft-roce")
    own = NodeFacts(from_document(document, "n")).addresses.ipv4("eth2")[0].ip
    for index, address in enumerate(("fe80::5054:ff:fe00:102", f"::ffff:{own}")):
        for key, value in zip(gids.keys("rxe0", 1, index), (address, "RoCE v2"), strict=True):
            document["records"][key] = {"status": "ok", "out": f"{value}\n"}
    found = end(NodeFacts(from_document(document, "n")))
    assert (found.name, found.roce, found.software, found.gid_index) == ("rxe0:1", True, True, 1)
    assert (found.gid, found.interface, found.interface_mtu) == (f"{own} (RoCE v2)", "eth2", 9000)


def test_the_requested_endpoint_is_used() -> None:
    facts = node("hgx-h100-roce")
    assert end(facts, device="mlx5_3").name == "mlx5_3:1"
    assert end(facts, device="mlx5_3:1", gid_index=0).gid_index == 0
    with pytest.raises(EndpointError, match="has no RDMA device mlx5_77; it has mlx5_0:1"):
        end(facts, device="mlx5_77")


def with_entries(facts: NodeFacts, key: str, *names: str) -> NodeFacts:
    records = {**facts.evidence.records, key: {"status": "ok", "entries": {name: {"type": "dir"} for name in names}}}
    return NodeFacts(from_document({**whole_node("hgx-h100-roce"), "records": records}, facts.node))


def test_the_gpu_nearest_to_the_port_is_used() -> None:
    """mlx5_3 is behind the PCIe switch of the second GPU; its node has a peer-memory module."""
    facts = node("hgx-h100-roce")
    near = endpoints.with_gpu(facts, end(facts, device="mlx5_3"))
    assert (near.gpu, near.dma_buf) == ("0000:43:00.0", False)
    bare = with_entries(facts, "dir:/sys/module", "mlx5_ib", "nvidia")
    assert endpoints.with_gpu(bare, end(facts, device="mlx5_3")).dma_buf
    with pytest.raises(EndpointError, match="no NVIDIA GPU with a PCIe path to mlx5_3"):
        endpoints.with_gpu(with_entries(facts, "dir:/sys/bus/pci/devices"), end(facts, device="mlx5_3"))


def test_commands_of_both_sides() -> None:
    one = end(node("hgx-h100-roce"), device="mlx5_0")
    call = kinds.command(kinds.KINDS["write-bw"], one, one, Wanted(mtu=4096), 18515, "10.0.0.1")
    messages = round(400e9 / 8 * kinds.TRAFFIC_S / (8 << 20))
    expected = f"stdbuf -oL ib_write_bw -d mlx5_0 -i 1 -p 18515 -s 8388608 -n {messages} -m 4096 -x {one.gid_index}"
    assert " ".join(call) == f"{expected} -F --report_gbits 10.0.0.1"
    near = kinds.command(kinds.KINDS["read-bw-gpu"], replace(one, gpu="0000:07:00.0", dma_buf=True), one, Wanted(), 1)
    assert near[-2:] == ["--use_cuda_bus_id=0000:07:00.0", "--use_cuda_dmabuf"]
    serve = kinds.command(kinds.KINDS["pingpong"], one, one, Wanted(size=64), 7000)
    assert " ".join(serve) == f"stdbuf -oL ibv_rc_pingpong -d mlx5_0 -i 1 -p 7000 -s 64 -n 200 -g {one.gid_index}"


def test_a_port_that_is_free() -> None:
    listening = "  sl  local_address rem_address   st\n" + "".join(
        f"   {number}: 00000000:{port:04X} 00000000:0000 {state} 00000000:00000000\n"
        for number, (port, state) in enumerate([(18515, "0A"), (18516, "01"), (18517, "0A")])
    )
    assert sockets.listening(listening) == {18515, 18517}
    document = whole_node("soft-roce")
    document["records"]["file:/proc/net/tcp"] = {"status": "ok", "out": listening}
    facts = NodeFacts(from_document(document, "n"))
    assert endpoints.free_port(facts, None) == 18516
    assert endpoints.free_port(facts, 18515) == 18515, "what the operator says is not argued with"


# --- the search for the path MTU -------------------------------------------------------------------


@given(st.integers(576, 9216), st.integers(576, 9216))
def test_the_search_finds_every_limit(mtu: int, limit: int) -> None:
    replies: dict[int, Ping] = {}
    following = path_mtu.first(mtu, 4)
    rounds = 0
    while following:
        rounds += 1
        assert len(following) <= path_mtu.AT_ONCE
        replies |= {size: Ping(3, 3 if size <= limit else 0, None, None, "") for size in following}
        following = list(path_mtu.following(path_mtu.bracket(replies)))
    found = path_mtu.bracket(replies)
    assert found.passes == min(mtu, limit)
    assert found.fails == (limit + 1 if limit < mtu else None)
    assert rounds <= 6


def test_a_size_that_fails_by_chance_does_not_hide_a_larger_one_that_passes() -> None:
    lost, answered = Ping(3, 0, None, None, ""), Ping(3, 3, None, None, "")
    assert path_mtu.bracket({576: answered, 1500: lost, 9000: answered}) == path_mtu.Bracket(9000, None)
    assert not path_mtu.following(path_mtu.bracket({576: lost, 9000: lost}))


# --- judging ---------------------------------------------------------------------------------------

WRITE = "stdbuf -oL ib_write_bw -d mlx5_0 -i 1 -p 18515"
TABLE = (
    " #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]\n"
    " 8388608    11921            391.90             {}              0.005\n"
)
SIDE: dict[str, Any] = {
    "device": "mlx5_0:1", "rate_gbps": 400.0, "roce": True, "software": False, "gid_index": 3,
    "gid": "10.0.0.1 (RoCE v2)", "address": "10.0.0.1", "port": 18515, "interface_mtu": 9000,
}  # fmt: skip


def status_and_message(test: str, server: dict[str, Any], client: dict[str, Any], **extra: Any) -> tuple[str, str]:
    """Judge a test by the records of its two commands; return the one finding's status and message."""
    records = []
    for role, peer, record in (("server", "b", server), ("client", "a", client)):
        value = {**SIDE, "role": role, "peer": peer, "command": f"cmd:{WRITE}", **extra}
        records.append({f"pair:{test}": {"status": "ok", "value": value}, f"cmd:{WRITE}": record})
    return judged(test, *records)


def judged(test: str, server: dict[str, Any], client: dict[str, Any]) -> tuple[str, str]:
    evidences = [Evidence(name, "2026-11-21T03:00:00Z", records) for name, records in (("a", server), ("b", client))]
    report = judge(evidences, [CHECKS[test]])
    (finding,) = report["findings"]
    assert finding["nodes"] == ["a", "b"]
    return finding["status"], finding["message"]


def ran(out: str = "", err: str = "", rc: int = 0) -> dict[str, Any]:
    return {"status": "ok", "rc": rc, "out": out, "err": err}


LATE = {"status": "timeout", "why": "no end after 30 s"}
MET = "  local address:  LID 0x0000, QPN 0x1\n  remote address: LID 0x0000, QPN 0x2\n"


@pytest.mark.parametrize(
    ("gbps", "extra", "status", "message"),
    [
        ("391.27", {}, "pass", "the bandwidth is 391.3 Gb/s, 98% of the 400 Gb/s line rate"),
        ("372.00", {}, "warn", "372 Gb/s, 93% of the 400 Gb/s line rate of a and b"),
        ("196.40", {}, "fail", "196.4 Gb/s, 49% of the 400 Gb/s line rate"),
        ("196.40", {"rate_gbps": None}, "unknown", "the rate of a port is not known"),
        ("196.40", {"at_least_gbps": 180.0}, "pass", "at least the required 180 Gb/s"),
        ("170.00", {"at_least_gbps": 180.0}, "fail", "less than the required 180 Gb/s"),
        ("0.23", {"software": True}, "unknown", "software devices"),
    ],
)
def test_bandwidth(gbps: str, extra: dict[str, Any], status: str, message: str) -> None:
    table = ran(TABLE.format(gbps))
    found = status_and_message("write-bw", table, table, **extra)
    assert found[0] == status
    assert message in found[1]


@pytest.mark.parametrize(
    ("server", "client", "status", "message"),
    [
        ({"status": "missing", "why": "there is no stdbuf"}, LATE, "unknown", "stdbuf is not installed on a"),
        (LATE, ran(err="stdbuf: failed to run command 'ib_write_bw'", rc=127), "unknown",
         "ib_write_bw is not installed on b"),
        (LATE, ran(err=" Found Incompatibility issue with GID types.", rc=1), "fail",
         "the GID index is not usable: on a, index 3 is "),
        (LATE, ran(err="Couldn't allocate MR", rc=1), "fail", "b cannot register memory with mlx5_0:1"),
        (ran(err="IB device mlx5_0 not found", rc=1), ran(err="Couldn't connect to", rc=1), "fail",
         "a cannot open mlx5_0:1"),
        (ran(err="Couldn't listen to port 18515", rc=1), ran(err="Couldn't connect to", rc=1), "unknown",
         "in use on a"),
        (LATE, ran(err="Couldn't connect to 10.0.0.1:18515", rc=1), "fail",
         "b cannot connect by TCP to 10.0.0.1 port 18515"),
        (LATE, LATE, "fail", "b cannot connect by TCP"),
        (LATE, {**LATE, "out": MET}, "fail", "UDP port 4791 is dropped"),
        (LATE, ran(MET, "Failed status 12: wr_id 0 syndrom 0x81", 1), "fail", "UDP port 4791 is dropped"),
        (LATE, ran(err="Failed to modify QP 21 to RTR", rc=1), "fail", "the queue pairs could not be connected"),
        (LATE, ran(err="Segmentation fault", rc=-11), "unknown", "exit status -11: Segmentation fault"),
        (LATE, {"status": "error", "why": "connect: no route to the host"}, "unknown", "connect: no route to the host"),
        (LATE, ran("nothing of use"), "unknown", "the output has no table"),
    ],
)  # fmt: skip
def test_the_cause_of_an_incomplete_test_is_found(
    server: dict[str, Any], client: dict[str, Any], status: str, message: str
) -> None:  # fmt: skip
    found = status_and_message("write-bw", server, client)
    assert found[0] == status
    assert message in found[1]


def test_an_empty_row_is_the_cause_of_a_queue_pair_that_does_not_connect() -> None:
    found = status_and_message(
        "write-bw", LATE, ran(err="Failed to modify QP 21 to RTR", rc=1), gid=":: (no type here)"
    )
    assert found == (
        "fail",
        "the GID index is not usable: on a, index 3 is :: (no type here); on b, index 3 is :: (no type here)",
    )


def path(mtu: int, answers: dict[int, str]) -> dict[str, Any]:
    """Return the records of one side that tried these sizes."""
    records: dict[str, Any] = {f"cmd:ping {size}": ran(out) for size, out in answers.items()}
    sizes = {str(size): f"cmd:ping {size}" for size in answers}
    records["pair:path-mtu"] = {"status": "ok", "value": {**SIDE, "interface_mtu": mtu, "sizes": sizes}}
    return records


def sample(name: str) -> str:
    return external_texts.text(f"ping_{name}.txt")


@pytest.mark.parametrize(
    ("mtus", "answers", "status", "message"),
    [
        ((9000, 9000), {9000: "small"}, "pass", "packets of 9000 bytes pass unfragmented in both directions"),
        ((9000, 9000), {9000: "black_hole", 1501: "black_hole", 1500: "small"}, "fail",
         "the path has an MTU black hole: packets of 1500 bytes pass, but 1501 bytes vanish without an error"),
        ((9000, 9000), {9000: "frag_needed", 1500: "small"}, "fail",
         "a router on the path forwards packets of at most 1500 bytes, and rejects larger ones with an error"),
        ((9000, 9000), {9000: "black_hole", 576: "black_hole"}, "unknown", "not even packets of 576 bytes pass"),
        ((9000, 1500), {9000: "black_hole", 1500: "small"}, "fail", "the interfaces have different MTUs: 9000 on "
                                                                    "a and 1500 on b"),
    ],
)  # fmt: skip
def test_path_mtu(mtus: tuple[int, int], answers: dict[int, str], status: str, message: str) -> None:
    sides = [path(mtu, {size: sample(name) for size, name in answers.items()}) for mtu in mtus]
    for side, role, peer in zip(sides, ("server", "client"), ("b", "a"), strict=True):
        side["pair:path-mtu"]["value"] |= {"role": role, "peer": peer}
    assert judged("path-mtu", *sides) == (status, judged("path-mtu", *sides)[1])
    assert message in judged("path-mtu", *sides)[1]


def test_a_black_hole_below_the_rdma_mtu_is_reported() -> None:
    side = path(9000, {9000: sample("black_hole"), 1501: sample("black_hole"), 1500: sample("small")})
    side["pair:path-mtu"]["value"] |= {"role": "server", "peer": "b", "active_mtu": 4096}
    other = path(9000, {9000: sample("small")})
    other["pair:path-mtu"]["value"] |= {"role": "client", "peer": "a"}
    evidences = [Evidence("a", "", side), Evidence("b", "", other)]
    (finding,) = judge(evidences, [CHECKS["path-mtu"]])["findings"]
    assert finding["message"].startswith("from a: the path has an MTU black hole")
    assert finding["found"] == "passing: 1500 bytes, too few for this port's RDMA MTU of 4096"
    assert finding["excerpts"][0]["node"] == "a"


def test_silence_is_no_answer_of_a_router() -> None:
    assert ping.parse(sample("black_hole")).silent
    assert not ping.parse(sample("frag_needed")).silent
    assert not ping.parse(sample("too_long")).silent


# --- saved, and judged later -----------------------------------------------------------------------


def saved(folder: Path, case: str, tests: tuple[str, ...] = ("write-bw",)) -> list[Evidence]:
    """Write the documents that ``preflight pair --save`` writes for a test between gpu001 and gpu002."""
    (found,) = (one for one in cases(f"pair.{tests[0]}") if one.path.stem == case)
    one, other = found.evidences()
    both = [replace(one, pair=PairScope("gpu002", tests)), replace(other, pair=PairScope("gpu001", tests))]
    save(folder, both)
    return both


def invoked(*words: object) -> dict[str, Any]:
    done = CliRunner().invoke(app.main, [*map(str, words), "--json", "-"], catch_exceptions=False)
    report: dict[str, Any] = json.loads(done.stdout)
    jsonschema.validate(report, json.loads((files("preflight.schemas") / "report-1.json").read_text()))
    assert done.exit_code == report["exit_status"]
    return report


def test_a_saved_pair_is_judged_as_when_it_ran(tmp_path: Path) -> None:
    both = saved(tmp_path, "half-rate")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["gpu001.pair-gpu002.json", "gpu002.pair-gpu001.json"]
    for path in tmp_path.iterdir():
        jsonschema.validate(json.loads(path.read_text()), SCHEMA)
    live, later = judge(both, [CHECKS["write-bw"]]), invoked("judge", tmp_path)
    assert later["findings"] == live["findings"]
    assert (later["exit_status"], later["coverage"]["planned"], later["coverage"]["failed"]) == (1, 2, 2)
    assert later["coverage"]["without_pair"] == [one.id for one in CHECKS.values() if one.pair != "write-bw"]
    items = {line["id"]: line for line in later["checklists"]}
    assert (items["NT-GDR-2"]["status"], items["PA-13"]["status"]) == ("fail", "fail")
    assert items["AN-8"]["status"] == "unknown"


def test_a_saved_pair_joins_what_else_is_known_of_its_nodes(tmp_path: Path) -> None:
    saved(tmp_path, "line-rate")
    save(
        tmp_path, [replace(from_document(whole_node("hgx-h100-roce"), "n"), node=name) for name in ("gpu001", "gpu003")]
    )
    report = invoked("judge", tmp_path)
    checks = {node["name"]: set(node["checks"]) for node in report["nodes"]}
    assert checks["gpu002"] == {"pair.write-bw"}
    assert checks["gpu001"] == checks["gpu003"] | {"pair.write-bw"}
    (found,) = (one for one in report["findings"] if one["check"].startswith("pair."))
    assert (found["status"], found["nodes"]) == ("pass", ["gpu001", "gpu002"])
    assert found["found"] == "391.3 Gb/s, 11921 messages of 8388608 bytes"
    counts = report["coverage"]
    assert (
        counts["planned"]
        == sum(counts[key] for key in ("ran", "skipped", "no_answer"))
        == sum(map(len, checks.values()))
    )
    (item,) = (line for line in report["checklists"] if line["id"] == "NT-GDR-2")
    assert (item["status"], item["questions"][0]["missing"]) == ("unknown", "not judged: pair.read-bw")
    assert item["supply"].startswith("preflight pair ")


def test_half_of_a_pair_and_two_pairs_of_one_node(tmp_path: Path) -> None:
    one, _ = saved(tmp_path, "line-rate")
    (found,) = invoked("judge", tmp_path / "gpu001.pair-gpu002.json")["findings"]
    assert (found["status"], found["message"]) == (
        "unknown", "evidence is missing from gpu002, the other side of gpu001",
    )  # fmt: skip
    save(tmp_path, [replace(one, pair=PairScope("gpu009", ("write-bw",)))])
    done = CliRunner().invoke(app.main, ["judge", str(tmp_path)])
    assert done.exit_code == 2
    assert "both describe node gpu001" in done.output


def test_a_side_that_gave_no_answer(tmp_path: Path) -> None:
    one, other = saved(tmp_path, "line-rate")
    answered = replace(one, records={key: raw for key, raw in one.records.items() if not key.startswith("pair:")})
    save(tmp_path, [answered, replace(other, records={}, no_answer={"phase": "connect", "reason": "refused"})])
    report = invoked("judge", tmp_path)
    assert (report["exit_status"], report["coverage"]["planned"], report["coverage"]["no_answer"]) == (3, 2, 1)
    assert {one["status"] for one in report["findings"]} == {"unknown"}


# --- the command line ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["gpu001", "gpu001"], "two different hosts"),
        (["gpu[001-002]", "gpu003"], "is 2 nodes"),
        (["gpu001", "gpu002", "--test", "ib_write_bw"], "is not one of 'path-mtu'"),
        (["gpu001", "gpu002", "--mtu", "9000"], "is not one of '256'"),
    ],
)
def test_usage_errors_are_found_before_any_node_is_touched(words: list[str], message: str) -> None:
    done = CliRunner().invoke(app.main, ["pair", *words])
    assert done.exit_code == 2
    assert message in done.output


@pytest.mark.parametrize("check", CHECKS.values(), ids=lambda check: check.id)
def test_a_finding_can_be_looked_up(check: Check) -> None:
    page = CliRunner().invoke(app.main, ["explain", check.id], catch_exceptions=False).output
    assert check.title in page
    assert "Unverified format" not in page


def test_the_command_line_knows_every_test() -> None:
    (choice,) = (option for option in pair.params if option.name == "tests")
    assert isinstance(choice.type, click.Choice)
    assert tuple(choice.type.choices) == kinds.NAMES == tuple(CHECKS)
