"""`preflight read`: kind and content of pasted text, also as changed by a terminal, a mail or a launcher."""

from __future__ import annotations

import json
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.checks import registry
from preflight.cli.app import main
from preflight.evidence.document import from_document
from preflight.judge import findings
from preflight.recognition import document, exit_status, open_sources, read, read_text
from preflight.recognition.detector import TextPart, parts
from preflight.recognition.formats import kinds
from preflight.recognition.input_sources import InputSource
from preflight.reports.recognition_text import not_judged
from preflight.textprep.line_prefixes import split_by_writer
from preflight.textprep.lines import lines_of
from tests.support.fixture import whole_node
from tests.support.pasted_texts import IBSTAT, OUTSIDE, TRUTH, ibstat, outside

PASTED = OUTSIDE / "pasted"


def only(text: str) -> TextPart:
    (part,) = read_text(text, "pasted")
    return part


def at(facts: Any, path: str) -> Any:
    for name in path.split("."):
        facts = facts[int(name)] if isinstance(facts, list) else facts[name]
    return facts


@pytest.mark.parametrize("name", TRUTH)
def test_texts_of_outside_origin(name: str) -> None:
    kind, complete, facts = TRUTH[name]
    part = only(outside(name))
    assert (part.kind, part.taken.complete) == (kind, complete), part.taken.cut
    for path, value in facts.items():
        assert at(part.taken.facts, path) == value, path


MARKS = {
    "mpirun": "[1,0]<stdout>:", "srun": "0: ", "pdsh": "node17: ", "kubectl": "[pod/job-0/main] ",
    "compose": "web-1  | ", "ray": "(RayTrainWorker pid=1234) ", "torchrun": "[rank3]: ",
    "mail": "> ", "deep mail": "> > ",
}  # fmt: skip


def dressed(text: str, way: str) -> str:
    if way == "CRLF":
        return text.replace("\n", "\r\n")
    if way == "coloured":
        return "".join(f"\x1b[32m{line}\x1b[0m\n" for line in text.splitlines())
    if way == "underlined first line":
        return f"\x1b[4m{text.split(chr(10))[0]}\x1b[0m\n" + text.partition("\n")[2]
    if way == "Markdown":
        return f"Here it is:\n\n```console\n$ some-tool\n{text}```\nplease help\n"
    if way == "blanks for tabs":
        return text.expandtabs(8)
    if way == "indented":
        return "".join(f"    {line}\n" for line in text.splitlines())
    return "".join(f"{MARKS[way]}{line}\n" for line in text.splitlines())


WAYS = ("CRLF", "coloured", "underlined first line", "Markdown", "blanks for tabs", *MARKS)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", [name for name in TRUTH if not name.endswith(("json", "xml"))])
def test_marks_of_terminals_mails_and_launchers_change_nothing(name: str, way: str) -> None:
    plain, marked = only(outside(name)), only(dressed(outside(name), way))
    assert marked.kind == plain.kind
    assert without_lines(marked.taken.facts) == without_lines(plain.taken.facts)


#: Times of log collectors: kubectl and with its pods, journalctl, journalctl -o short-iso, Jenkins.
TIMES = (
    "2026-03-05T09:41:{:02}.120456Z ", "[pod/probe-0/main] 2026-03-05T09:41:{:02}.120456Z ",
    "Mar  5 09:41:{:02} node17 probe[812]: ", "2026-03-05T09:41:{:02}+0100 node17 probe[812]: ", "[09:41:{:02}] ",
)  # fmt: skip
FRESH = Path(__file__).parents[2] / "data" / "fresh"
FRAMED = ("smi-table-ecc", "smi-table-healthy", "smi-table-mig", "dcgmi-diag-fail", "dcgmi-diag-ok", "dcgmi-health",
          "dcgmi-discovery", "dcgmi-nvlink")  # fmt: skip


@pytest.mark.parametrize("name", FRAMED)
def test_times_before_a_table_change_nothing(name: str) -> None:
    text = (FRESH / f"{name}.txt").read_text()
    plain = read_text(text, "plain")
    for time in TIMES:
        marked = "".join(f"{time.format(at % 60)}{line}\n" for at, line in enumerate(text.splitlines()))
        timed = read_text(marked, "marked")
        assert [part.kind for part in timed] == [part.kind for part in plain], time
        for part, expected in zip(timed, plain, strict=True):
            assert without_lines(part.taken.facts) == without_lines(expected.taken.facts), time
            assert [row["status"] for row in part.findings] == [row["status"] for row in expected.findings], time


COUNTS = "mc0: 0 Corrected Errors with no DIMM info\nmc0: csrow0: 2 Uncorrected Errors\n"
DUMP = (
    '{"version": "2.5", "pg_config": {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}, "rank": 0,\n'
    '"entries": [{"record_id": 7, "pg_id": 0, "process_group": ["0", "default_pg"], "collective_seq_id": 7,\n'
    '"p2p_seq_id": 0, "op_id": 7, "profiling_name": "nccl:all_gather", "state": "started", "input_sizes": [[4]],\n'
    '"output_sizes": [[8]], "time_created_ns": 1770000000000000000, "is_p2p": false}]}\n'
)


@pytest.mark.parametrize(
    ("text", "status"), [(COUNTS, "fail"), (COUNTS.replace("2", "0"), "pass"), (DUMP, "pass unknown")]
)
@pytest.mark.parametrize("mark", ["", "oak3: ", "[pod/probe-0/main] ", "> ", "```"])
def test_short_texts_and_dumps_behind_marks_are_judged(tmp_path: Path, text: str, status: str, mark: str) -> None:
    marked = (
        f"Look:\n```json\n{text}```\n" if mark == "```" else "".join(f"{mark}{line}\n" for line in text.splitlines())
    )
    (tmp_path / "pasted").write_text(marked)
    (source,) = open_sources((str(tmp_path / "pasted"),))
    assert {finding["status"] for part in read(source) for finding in part.findings} == {*status.split()}


def test_a_dump_without_its_beginning_is_not_judged(tmp_path: Path) -> None:
    (tmp_path / "pasted").write_text(DUMP[DUMP.index('"rank"') :])
    (source,) = open_sources((str(tmp_path / "pasted"),))
    assert not [finding for part in read(source) for finding in part.findings]


def without_lines(facts: Any) -> Any:
    if isinstance(facts, dict):
        return {key: without_lines(value) for key, value in facts.items() if key != "line"}
    return [without_lines(value) for value in facts] if isinstance(facts, list) else facts


def test_a_mixed_paste_is_taken_apart_at_the_right_lines() -> None:
    pieces = ["topo_2x1080ti.txt", "ibstat_mt4125.txt", "nvlink_a100.txt", "dmesg_ctime_xid.txt"]
    text, expected = "Hello, here is what you asked for:\n", []
    for name in pieces:
        text += "root@gpu17:~# some-tool\n"
        first = text.count("\n") + 1
        text += outside(name)
        expected.append((TRUTH[name][0], first, text.rstrip("\n").count("\n") + 1))
    assert [(part.kind, part.first, part.last) for part in read_text(text, "mixed")] == expected


def test_what_two_nodes_wrote_into_each_other_is_separated() -> None:
    one, two = outside("ibstat_mt4125.txt").splitlines(), outside("ibstat_partial.txt").splitlines()
    lines = []
    for number in range(max(len(one), len(two))):
        lines += [f"gpu01: {one[number]}"] if number < len(one) else []
        lines += [f"gpu02: {two[number]}"] if number < len(two) else []
    parts = read_text("\n".join(lines), "pdsh")
    assert {part.writer: len(part.taken.facts["ports"]) for part in parts} == {"gpu01": 2, "gpu02": 1}
    assert parts[0].taken.facts == only(outside("ibstat_mt4125.txt")).taken.facts


def test_fields_with_colons_are_no_marks_of_a_launcher() -> None:
    text = "State: Active\nRate: 100\nLMC: 0\nLink: up\nSpeed: 1\nDuplex: Full\n"
    assert [writer for writer, _ in split_by_writer(lines_of(text))] == [""]


@pytest.mark.parametrize(
    "node", ["hgx-h100", "hgx-h100-roce", "dgx-a100", "hgx-b200", "gb200-tray", "l40s-pcie", "cloud-vm"]
)
def test_no_false_word_about_a_healthy_node(node: str) -> None:
    """Hand-made outputs: each is recognised and has no fault; results that depend on the ports' use are unknown."""
    records = from_document(whole_node(node), node).records
    read = {key: read_text(str(records[key].get("out", "")), key) for key in records if key.startswith("cmd:")}
    for key, kind in {
        "cmd:nvidia-smi topo -m": "nvidia-smi topo -m", "cmd:nvidia-smi -q -x": "nvidia-smi -q -x",
        "cmd:ibstat": "ibstat", "cmd:ibv_devinfo": "ibv_devinfo", "cmd:lspci -Dnvv": "lspci",
    }.items():  # fmt: skip
        assert [(part.kind, part.taken.complete) for part in read[key]] == [(kind, True)], key
    found = [finding for parts in read.values() for part in parts for finding in part.findings]
    unsure = [finding for finding in found if finding["status"] != "pass"]
    # storage ports: down, slower, of another link layer, with another MTU, without PFC; cards without NVLink, and
    # switches hidden by a hypervisor
    spare = {"rdma.port-state", "rdma.port-rate", "rdma.link-layer", "rdma.active-mtu", "roce.chain", "topology.nvlink",
             "topology.nearest-nic", "nvlink.links"}  # fmt: skip
    assert {(one["status"], one["check"]) for one in unsure} <= {("unknown", check) for check in spare}
    assert len(found) > len(unsure)


SICK = {
    "no subnet manager": (("State: Active", "State: Initializing"), "ibstat_ibsim.txt", "rdma.port-state"),
    "no port is active": (("State: Active", "State: Down"), "ibstat_mt4125.txt", "rdma.port-state"),
    "MTU 1500": (("active_mtu:\t\t1024", "active_mtu:\t\t1024"), "ibv_devinfo_softroce.txt", None),
    "a link of one GPU is inactive": (("Link 11: 25 GB/s", "Link 11: <inactive>"), "nvlink_a100.txt", "nvlink.links"),
    "an XID that takes the GPU out": (("): 13,", "): 79,"), "dmesg_ctime_xid.txt", "xid.gpu"),
}


@pytest.mark.parametrize("case", [case for case, (_, _, check) in SICK.items() if check])
def test_what_is_wrong_is_reported(case: str) -> None:
    (old, new), name, check = SICK[case]
    text = outside(name)
    assert old in text
    # The first of several equal ones suffices, except for states that all must have
    text = text.replace(old, new) if old.startswith("State") else text.replace(old, new, 1)
    failures = [
        (f["check"], f["status"]) for part in read_text(text, case) for f in part.findings if f["status"] != "pass"
    ]
    assert set(failures) == {(check, "fail")}


RDMA_LINK = "link {0}/1 state {1} physical_state {2} netdev eth{0}\n"


def findings_of(text: str) -> list[tuple[str, str, str]]:
    return [(one["check"], one["status"], one["subject"]) for part in read_text(text, "x") for one in part.findings]


ALL_UP = ("rdma.port-state", "pass", "")
PORTS = {
    "all are up": (ibstat(), [ALL_UP]),
    "one of eight is down": (ibstat(("Down", "Polling", 10)), [("rdma.port-state", "warn", "mlx5_7:1")]),
    "one of eight is disabled": (ibstat(("Down", "Disabled", 10)), [("rdma.port-state", "unknown", "mlx5_7:1")]),
    "five of eight are down": (ibstat(*[("Down", "Polling", 10)] * 5), [
        ("rdma.port-state", "unknown", f"mlx5_{number}:1") for number in range(3, 8)
    ]),
    "two of eight are": (ibstat(*[("Down", "Disabled", 10)] * 2), [
        ("rdma.port-state", "unknown", "mlx5_6:1"), ("rdma.port-state", "unknown", "mlx5_7:1"),
    ]),
    "Ethernet": (ibstat(("Down", "Disabled", 40), layer="Ethernet"), [("rdma.port-state", "unknown", "mlx5_7:1")]),
    "initialising without a link": (
        ibstat(("Initializing", "Polling", 10)), [("rdma.port-state", "unknown", "mlx5_7:1")],
    ),
    "initialising with one": (ibstat(("Initializing", "LinkUp", 400)), [("rdma.port-state", "fail", "mlx5_7:1")]),
    "one is slow": (ibstat(("Active", "LinkUp", 200)), [("rdma.port-rate", "unknown", "mlx5_7:1"), ALL_UP]),
    "Ethernet beside InfiniBand is slower": (
        ibstat() + IBSTAT.format("mlx5_9", "Active", "LinkUp", 100, "Ethernet"), [ALL_UP],
    ),
    "rdma link": (
        RDMA_LINK.format("mlx5_0", "ACTIVE", "LINK_UP") + RDMA_LINK.format("mlx5_1", "DOWN", "DISABLED"),
        [("rdma.port-state", "unknown", "mlx5_1:1")],
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", PORTS)
def test_a_port_that_is_down_or_slow_beside_others_never_passes(case: str) -> None:
    """The text does not show which ports a job uses: `preflight check` without roles is unknown as well."""
    text, expected = PORTS[case]
    assert sorted(findings_of(text)) == sorted(expected)


def nvlinks(*gpus: str) -> str:
    """Return `nvidia-smi nvlink -s` of GPUs, one letter per link: u is up, d inactive; empty: no links."""
    none = "NVML: Unable to retrieve NVLink information as all links are inActive\n"
    return "".join(
        f"GPU {gpu}: NVIDIA H100 80GB HBM3 (UUID: GPU-0000000{gpu}-1111-2222-3333-444444444444)\n"
        + (
            "".join(f"\t Link {at}: {'26.562 GB/s' if one == 'u' else '<inactive>'}\n" for at, one in enumerate(links))
            or none
        )
        for gpu, links in enumerate(gpus)
    )


LINKS = {
    "all up": (("uuuu", "uuuu"), [("nvlink.links", "pass", "")]),
    "the same links inactive on all": (("uudd", "uudd", "uudd"), [("nvlink.links", "pass", "")]),
    "one inactive on one": (("uuud", "uuuu"), [("nvlink.links", "fail", "GPU0"), ("nvlink.links", "pass", "")]),
    "one inactive, of a single GPU": (("uuud",), [("nvlink.links", "unknown", "GPU0")]),
    "both ends of one link": (
        ("uuud", "uudu"), [("nvlink.links", "unknown", "GPU0"), ("nvlink.links", "unknown", "GPU1")],
    ),
    "none active": (("dddd", "dddd"), [("nvlink.links", "warn", "GPU0")]),
    "one GPU without any": (("uuuu", "", "uuuu"), [("nvlink.links", "fail", "GPU1"), ("nvlink.links", "pass", "")]),
    "the last GPU without any": (("uuuu", ""), [("nvlink.links", "fail", "GPU1"), ("nvlink.links", "pass", "")]),
    "a GPU without any beside one with an inactive link": (
        ("uud", ""), [("nvlink.links", "unknown", "GPU0"), ("nvlink.links", "unknown", "GPU1")],
    ),
    "a single GPU, all up": (("uuuu",), [("nvlink.links", "pass", "")]),
}  # fmt: skip


@pytest.mark.parametrize("case", LINKS)
def test_an_inactive_link_is_never_silent(case: str) -> None:
    gpus, expected = LINKS[case]
    assert sorted(findings_of(nvlinks(*gpus))) == sorted(expected)


def test_a_list_that_ends_before_the_links_of_a_gpu_does_not_show_that_it_has_none() -> None:
    complete = nvlinks("uu", "uu")
    last = complete.index("GPU 1:")
    for end in (last + 24, complete.index("-2222", last), complete.index("\t", last)):
        verdicts = [(check, status) for check, status, _ in findings_of(complete[:end])]
        assert sorted(verdicts) == [("nvlink.links", "pass"), ("nvlink.links", "unknown")]


@pytest.mark.parametrize(("link", "expected"), [
    ("Speed 64GT/s, Width x16", [("gpu.pcie-link", "pass", "")]),
    ("Speed 2.5GT/s (downgraded), Width x16", []),  # the GPU is idle, or a fault
    ("Speed 64GT/s, Width x8 (downgraded)", [("gpu.pcie-link", "warn", "4f:00.0")]),
])  # fmt: skip
def test_the_link_of_a_gpu(link: str, expected: list[tuple[str, str, str]]) -> None:
    name = "4f:00.0 3D controller: NVIDIA Corporation GB100 [B200] (rev a1)\n"
    assert findings_of(f"{name}\tLnkCap:\tPort #0, Speed 64GT/s, Width x16\n\tLnkSta:\t{link}\n") == expected


@pytest.mark.parametrize(("test", "level"), [("GPU Memory", "memory"), ("Denylist", "1")])
def test_the_remedy_of_a_diagnostic_names_its_test(test: str, level: str) -> None:
    text = f"| Diagnostic | Result |\n+====+====+\n| {test} | Fail - GPU: 3 |\n+----+----+\n"
    (finding,) = only(text).findings
    assert (finding["status"], f"`dcgmi diag -r {level}`" in finding["fix"]) == ("fail", True)


@pytest.mark.parametrize(
    ("code", "status", "pasted"),
    [(94, "pass", "warn"), (31, "pass", "warn"), (63, "pass", "unknown"), (95, "fail", "fail"), (79, "fail", "fail"),
     (8888, "warn", "warn")],
)  # fmt: skip
def test_an_xid_has_the_verdict_that_check_gives(code: int, status: str, pasted: str) -> None:
    """An application error fails no node; the user who pasted it looks for the cause of a failed job."""
    line = f"[  123.456789] NVRM: Xid (PCI:0000:3b:00): {code}, pid=1234, name=python, Contained: SM (0x1)\n"
    ((check, actual, _),) = findings_of(line)
    assert (check, actual) == ("xid.gpu", pasted)
    node = deepcopy(whole_node("hgx-h100"))
    (key, _) = (key for key in node["records"] if key.startswith("cmd:dmesg"))
    node["records"][key]["out"] += line
    (by_check,) = findings([from_document(node, "x")], [one for one in registry().checks if one.id == "xid.gpu"])
    assert by_check["status"] == status


def test_one_gpu_without_nvlink() -> None:
    text = whole_node("hgx-h100")["records"]["cmd:nvidia-smi topo -m"]["out"]
    rows = text.split("\n")
    for number, row in enumerate(rows):
        if row.startswith("GPU6"):
            rows[number] = row.replace("NV18", "NODE")
        elif row.startswith("GPU"):
            cells = row.split("\t")
            cells[7] = "NODE"
            rows[number] = "\t".join(cells)
    (finding,) = (finding for finding in only("\n".join(rows)).findings if finding["status"] != "pass")
    assert (finding["status"], finding["check"], finding["subject"]) == ("fail", "topology.nvlink", "GPU6")


def test_the_document_follows_the_contract() -> None:
    output = document([("a.txt", read_text(outside("ibstat_mt4125.txt"), "a.txt"))])
    assert output["schema"] == "preflight.read/1"
    (source,) = output["sources"]
    assert source["name"] == "a.txt"
    (part,) = source["parts"]
    assert {"kind", "lines", "complete", "facts", "findings"} <= part.keys()
    promised = "device port state physical_state rate_gbps link_layer lid sm_lid active_mtu netdev guid"
    assert set(promised.split()) <= part["facts"]["ports"][0].keys()
    json.dumps(output)


#: A list that lacks a node: it is read, but nothing in it is judged.
CPUS = "Architecture:        x86_64\nCPU(s):              2\nNUMA node(s):        2\nNUMA node0 CPU(s):   0,1\n"
#: Two runs of nccl-tests; of the second one, on its last line, every check is unknown.
RUNS = (OUTSIDE / "nccl_tests" / "all-gather-tail-then-broadcast.txt").read_text()


@pytest.mark.parametrize(("text", "words"), [
    ("", "nothing was recognised, so nothing was judged"),
    ("Dear colleague,\n\nit is slow.\n", "nothing was recognised, so nothing was judged"),
    (CPUS, "the recognised parts contain nothing to judge"),
    (RUNS.splitlines()[-1], "the recognised parts contain nothing to judge"),
    (RUNS, "1 of 2 parts was not judged"),
    (CPUS + outside("ibstat_mt4125.txt"), "1 of 2 parts was not judged"),
])  # fmt: skip
def test_what_was_not_judged_is_no_pass(tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "pasted.txt").write_text(text)
    done = CliRunner().invoke(main, ["read", str(tmp_path / "pasted.txt")])
    assert (done.exit_code, done.output.splitlines()[0]) == (3, f"NOT JUDGED: {words}")


@pytest.mark.parametrize(("text", "status"), [
    (outside("ibstat_mt4125.txt"), 0), (CPUS + outside("ibstat_mt4125.txt").replace("Active", "Down"), 1),
])  # fmt: skip
def test_what_was_judged_has_no_such_line(tmp_path: Path, text: str, status: int) -> None:
    (tmp_path / "pasted.txt").write_text(text)
    done = CliRunner().invoke(main, ["read", str(tmp_path / "pasted.txt")])
    assert done.exit_code == status
    assert "NOT JUDGED" not in done.output


@pytest.mark.parametrize(("value", "readings", "status", "words"), [
    ("0.912", 12, "pass", "SMs are active for 91% of the time"),
    ("0.912", 4, "unknown", "in fewer than 10 readings"),
    ("0.000", 12, "unknown", "SMs are not active"),
    ("N/A", 12, "unknown", "none of the 12 readings has a value of the SM activity"),
])  # fmt: skip
def test_activity_that_is_not_judged_has_a_reason(value: str, readings: int, status: str, words: str) -> None:
    text = "#Entity   SMACT        TENSO\nID\n" + f"GPU 0     {value}        {value}\n" * readings
    (finding,) = only(text).findings
    assert (finding["status"], words in finding["message"]) == (status, True), finding["message"]


def test_a_part_without_a_finding_is_marked() -> None:
    (source,) = document([("a", read_text(CPUS + outside("ibstat_mt4125.txt"), "a"))])["sources"]
    assert {part["kind"]: part["judged"] for part in source["parts"]} == {"lscpu": False, "ibstat": True}


def test_sources_in_which_nothing_was_recognised_are_named() -> None:
    good = {"judged": True, "findings": [{"status": "pass"}]}
    vague = {"judged": True, "findings": [{"status": "unknown"}, {"status": "pass"}]}
    sources = [{"name": "a", "parts": [good]}, {"name": "b", "parts": [vague]}, {"name": "c", "parts": []}]
    assert not_judged({"sources": sources}) == "nothing was recognised in c"
    assert not_judged({"sources": sources[:1]}) == ""
    sick = {"judged": True, "findings": [{"status": "fail"}]}
    assert not_judged({"sources": [*sources, {"name": "d", "parts": [sick]}]}) == ""


def test_exit_status() -> None:
    known, nothing = read_text(outside("ibstat_mt4125.txt"), "a"), read_text("Dear colleague,\n\nit is slow.\n", "b")
    assert exit_status([("a", known)]) == 0
    assert exit_status([("b", nothing)]) == exit_status([("a", known), ("b", nothing)]) == 3
    sick = read_text(outside("ibstat_mt4125.txt").replace("Active", "Down"), "c")
    assert exit_status([("c", sick), ("b", nothing)]) == 1


def test_elements_in_the_place_of_a_text_are_no_text() -> None:
    """A closing tag was lost: the name of the GPU contains everything after it."""
    (part,) = read_text(
        "<nvidia_smi_log><driver_version>570.86.15</driver_version><gpu id='00000000:18:00.0'>"
        "<product_name><uuid>GPU-1</uuid></product_name></gpu></nvidia_smi_log>", "a",
    )  # fmt: skip
    assert part.taken.facts["gpus"][0]["product"] is None


@pytest.mark.parametrize("empty", [2, 1000, 1001, 1002, 1003, 50_000])
def test_lines_keep_their_numbers_behind_a_gap(empty: int) -> None:
    text = "a" + "\n" * empty + "b\n" + "\n" * empty + "c"
    numbered = [(line.number, line.text) for line in lines_of(text) if line.text]
    assert numbered == [(1, "a"), (1 + empty, "b"), (2 + 2 * empty, "c")]


@pytest.mark.parametrize("name", sorted(path.name for path in PASTED.glob("*.txt")))
def test_hints_miss_no_line_that_a_kind_begins_with(name: str) -> None:
    lines = lines_of((PASTED / name).read_text(errors="backslashreplace"))
    without_hints = [replace(kind, hints=()) for kind in kinds()]
    with_hints, expected = ([part.document() for part in parts(lines, "", some)] for some in (kinds(), without_hints))
    assert with_hints == expected


JOB = """gpu01:11:111 [0] NCCL INFO NCCL version 2.21.5+cuda12.4
# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 \
validation: 1 graph: 0
#
# Using devices
#  Rank  0 Group  0 Pid  11 on      gpu01 device  0 [0x1b] NVIDIA H100 80GB HBM3
#  Rank  1 Group  0 Pid  12 on      gpu02 device  0 [0x1b] NVIDIA H100 80GB HBM3
gpu01:11:111 [0] NCCL INFO Using network Socket
gpu01:11:111 [0] NCCL INFO comm 0x55 rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 1b000 commId 0x1 - Init COMPLETE
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
   134217728      33554432     float     sum      -1  80000.0    1.68    1.68      0  80000.0    1.68    1.68      0
gpu01:11:111 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0
# Out of bounds values : 0 OK
# Avg bus bandwidth    : 1.68
#
"""


def source(text: str, folder: Path) -> InputSource:
    path = folder / "job.log"
    path.write_text(text, encoding="utf-8")
    return next(open_sources((str(path),)))


def test_a_job_that_fell_back_to_tcp(tmp_path: Path) -> None:
    """Lines of NCCL's log and the table of nccl-tests are interleaved."""
    parts = {part.kind: part for part in read(source(JOB + outside("ibstat_mt4125.txt"), tmp_path))}
    assert set(parts) == {"nccl-log", "nccl-tests", "ibstat"}
    log, table = parts["nccl-log"].taken.facts, parts["nccl-tests"].taken.facts
    assert (log["nccl_version"], log["network"], log["transports"]["inter_node"]) == ("2.21.5", "Socket", ["Socket"])
    assert (parts["nccl-log"].first, parts["nccl-log"].last) == (1, 14)
    assert (table["nranks"], table["rows"][0]["bytes"], table["avg_busbw"], table["wrong"]) == (2, 134217728, 1.68, 0)
    statuses = {finding["check"]: finding["status"] for finding in parts["nccl-log"].findings}
    assert statuses["nccl.transport"] == "fail"


@pytest.mark.parametrize("path", sorted((OUTSIDE / "nccl").glob("*.log")), ids=lambda path: path.stem)
def test_logs_of_outside_origin_are_recognised(path: Path) -> None:
    logs = [part for part in read(next(open_sources((str(path),)))) if part.kind == "nccl-log"]
    assert len(logs) == 1
    json.dumps(document([("x", logs)]))


def test_a_long_log_is_read_in_full_and_the_rest_of_it_at_both_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("preflight.parsers.nccl_log.reader.CHUNK", 1 << 16)
    channel = "gpu01:11:111 [0] NCCL INFO Channel 00/0 : %d[0] -> %d[0] [send] via NET/IB/0/GDRDMA\n"
    middle = "".join(channel % (rank, rank + 1) for rank in range(5000))
    text = outside("nvlink_a100.txt") + JOB.replace("Socket", "IB") + middle + outside("ibstat_mt4125.txt")
    long = source(text, tmp_path)
    assert not long.log.text.complete
    parts = {part.kind: part for part in read(long)}
    assert set(parts) == {"nvidia-smi nvlink -s", "nccl-log", "nccl-tests", "ibstat"}
    assert parts["ibstat"].last == text.rstrip("\n").count("\n") + 1
    assert sum(way["count"] for way in parts["nccl-log"].taken.facts["net_channels"]) >= 5000


def test_a_kernels_own_times_are_no_marks() -> None:
    """``dmesg --time-format iso``: the time is a fact of the log, not a prefix added by another tool."""
    text = "".join(
        f"2026-02-18T12:54:0{second},123456+00:00 NVRM: Xid (PCI:0000:1b:00 GPU-I:05): 94, pid=7, Contained\n"
        for second in range(4)
    )
    (part,) = read_text(text, "pasted")
    assert [(xid["bus_id"], xid["time"]) for xid in part.taken.facts["xids"]] == [
        ("0000:1b:00", f"2026-02-18T12:54:0{second},123456+00:00") for second in range(4)
    ]


#: Text after the address of an XID, and the verdict: as on a node, some are judged by the line's own words.
XIDS = {
    "149, NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x00000000)": "fail",
    "145, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)": "unknown",
    "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)": "fail",
    "154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)": None,
    "74, pid=7, name=x, NVLink: fatal error detected on link 6(0x10000, 0x0)": "warn",
    "45, pid=7, name=x, Ch 00000001 caused by previous Xid 149": "warn",
}


@pytest.mark.parametrize("line", XIDS)
def test_the_words_of_an_xid_decide(line: str) -> None:
    (part,) = read_text(f"[  100.123456] NVRM: Xid (PCI:0000:1b:00): {line}\n", "pasted")
    statuses = [finding["status"] for finding in part.findings if finding["check"] == "xid.gpu"]
    assert [one for one in statuses if one != "pass"] == ([XIDS[line]] if XIDS[line] else [])


def test_an_nvlink_error_that_comes_again_fails() -> None:
    line = "NVRM: Xid (PCI:0000:1b:00): 74, pid=7, name=x, NVLink: fatal error detected on link 6(0x10000, 0x0)\n"
    (part,) = read_text(f"[  100.100000] {line}[  101.100000] {line}[  300.100000] {line}", "pasted")
    assert [(one["status"], "repeated" in one["message"]) for one in part.findings] == [("fail", True)]


def test_numbers_that_count_up_are_tasks_if_they_begin_again() -> None:
    counted = "\n".join(f"{number}: line" for number in range(8))
    assert [writer for writer, _ in split_by_writer(lines_of(counted))] == [""]
    assert [writer for writer, _ in split_by_writer(lines_of("\n".join([counted] * 3)))] == [
        str(task) for task in range(8)
    ]
    addresses = "\n".join(f"0{bus}:00.0 Non-Volatile memory controller: Samsung" for bus in range(1, 8))
    assert [line.text for _, own in split_by_writer(lines_of(addresses)) for line in own] == addresses.splitlines()


def test_marks_upon_marks() -> None:
    """A launcher's lines with time stamps added by a log collector."""
    text = "\n".join(f"2026-02-18T12:54:01.5Z [1,{rank}]<stdout>:line" for rank in (0, 1) * 3)
    assert {writer: len(own) for writer, own in split_by_writer(lines_of(text))} == {"1,0": 3, "1,1": 3}


def test_blank_lines_between_all_lines() -> None:
    """A blank line of the text that was doubled like all others stays one."""
    text = "a\n\nb\n\nc\n\n\n\nd\n\ne\n\nf\n\ng\n\n"
    assert [line.text for line in lines_of(text)][:8] == ["a", "b", "c", "", "d", "e", "f", "g"]
    paragraphs = "one\n\ntwo\nthree\n\nfour\n"
    assert [line.text for line in lines_of(paragraphs)] == paragraphs.split("\n")
