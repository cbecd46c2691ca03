"""Draining without Slurm: the output of scontrol, the owner of a reason, the limit on drains."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.expectations.cluster_file import load
from preflight.expectations.gate_table import Gate
from preflight.gate.slurm import Settings, drain, drain_limit, drain_reason, scontrol_nodes, squeue
from preflight.gate.slurm.drain_settings import of
from preflight.gate.slurm.scontrol import Controller, ControllerError
from preflight.gate.slurm.scontrol_nodes import Node
from preflight.gate.verdict import Verdict

FOUND = "preflight: gpu.xid: found Xid 79 on GPU 3, expected none"
NOW = 1_800_000_000

# Pasted by an operator of H100 nodes into the tests of the public repository slonk (Slurm 23.11.0-0rc1); shortened
SEEN_23_11 = """NodeName=cluster-h100-9-78 Arch=x86_64 CoresPerSocket=1 
   CPUAlloc=0 CPUEfctv=96 CPUTot=96 CPULoad=1.15
   Gres=gpu:8
   NodeAddr=cluster-h100-9-78 NodeHostName=cluster-h100-9-78 Version=23.11.0-0rc1
   OS=Linux 5.15.133+ #1 SMP Wed Nov 8 17:30:28 UTC 2023 
   State=IDLE+DRAIN+MAINTENANCE+RESERVED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=low,general,high 
   LastBusyTime=2023-12-22T11:13:31 ResumeAfterTime=None
   Reason=Prolog error: 571 xid 13 errors [root@2023-12-24T06:51:08]
   ReservationName=example

NodeName=cluster-h100-9-69 Arch=x86_64 CoresPerSocket=1 
   CPUAlloc=96 CPUEfctv=96 CPUTot=96 CPULoad=49.84
   Gres=gpu:8
   NodeAddr=cluster-h100-9-69 NodeHostName=cluster-h100-9-69 Version=23.11.0-0rc1
   State=ALLOCATED+MAINTENANCE+RESERVED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=low,general,high 
   ReservationName=example
"""

# Recorded from Slurm 22.05.8 of Debian 12 (tests.support.slurm.cluster): drained by hand, with a comment and an extra;
# shortened
SEEN_22_05 = (
    "NodeName=n1 Arch=x86_64 CoresPerSocket=1  CPUAlloc=1 CPUEfctv=2 CPUTot=2 CPULoad=22.93 AvailableFeatures=(null) "
    "Gres=(null) NodeAddr=127.0.0.1 NodeHostName=n1 Port=17001 Version=22.05.8 OS=Linux 6.18.44 #1 SMP "
    "PREEMPT_DYNAMIC @0  RealMemory=1000 State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Partitions=all  "
    "BootTime=2026-11-21T12:19:17 ExtSensorsTemp=n/s Reason=found 'a=b' Comment=x, expected Y "
    "[root@2026-11-21T18:44:13] Comment=held: x Extra=extra = a b\n"
)


def test_slurm_23_11() -> None:
    found = scontrol_nodes.read(SEEN_23_11)
    first, second = found.values()
    assert first.name == first.host == "cluster-h100-9-78"
    assert first.states == ("IDLE", "DRAIN", "MAINTENANCE", "RESERVED")
    assert first.drained
    assert first.gpus
    assert first.partitions == ("low", "general", "high")
    assert (first.reason, first.user, first.at) == ("Prolog error: 571 xid 13 errors", "root", 1703400668)
    assert first.comment == ""
    assert not second.drained
    assert (second.reason, second.at, second.cpus_in_use) == ("", 0, 96)


def test_slurm_22_05() -> None:
    node = scontrol_nodes.read(SEEN_22_05)["n1"]
    assert not node.gpus
    assert node.reason == "found 'a=b' Comment=x, expected Y"
    assert (node.user, node.at, node.comment, node.cpus_in_use) == ("root", 1795286653, "held: x", 1)


@pytest.mark.parametrize(
    ("state", "drained", "down"),
    [
        ("IDLE", False, False), ("IDLE*", False, False), ("MIXED+PLANNED", False, False), ("DRAINED", True, False),
        ("DRAINING*", True, False), ("ALLOCATED+DRAIN", True, False), ("DOWN*", False, True),
        ("DOWN+DRAIN+NOT_RESPONDING", True, True), ("IDLE+CLOUD+POWERED_DOWN", False, True), ("FUTURE", False, True),
        ("IDLE+MAINT", False, False), ("IDLE$", False, False), ("IDLE+REBOOT_REQUESTED", False, False),
    ],
)  # fmt: skip
def test_states(state: str, drained: bool, down: bool) -> None:
    node = scontrol_nodes.read(f"NodeName=a Arch=x State={state} ThreadsPerCore=1 Partitions=p\n")["a"]
    assert (node.drained, node.down) == (drained, down)


#: Made by hand, as squeue of Slurm 22.05.8 printed an array with its number in the last task, and a heterogeneous job.
_QUEUE = "".join(
    "".join(f"{cell:24}" for cell in line.split()) + "\n"
    for line in (
        "11 11 3 N/A PENDING 1 1", "17 11 2 N/A RUNNING 1 1", "13 13 N/A 13 RUNNING 1 1", "14 14 N/A 13 RUNNING 1 0",
    )
)  # fmt: skip


@pytest.mark.parametrize(
    ("number", "name", "target_id", "returns"),
    [("11", "11_3", "11_3", True), ("17", "11_2", "11_2", True), ("13", "13", "13", True), ("14", "14", "13", False)],
)
def test_a_job_is_called_so_that_no_other_is_meant(number: str, name: str, target_id: str, returns: bool) -> None:
    job = squeue.read(_QUEUE, number)
    assert job is not None
    assert (job.name, job.target_id, job.returns) == (name, target_id, returns)


def test_a_job_that_is_not_there_and_an_answer_that_is_none() -> None:
    assert squeue.read(_QUEUE, "1") is None
    with pytest.raises(ValueError, match="not a job"):
        squeue.read("squeue: something else\n", "1")


@pytest.mark.parametrize("text", ["slurm_load_node error: Unable to contact slurm controller", "NodeName=\n", "No nodes in the system\n", "NodeName=a Arch=x\n"])  # fmt: skip # noqa: E501
def test_what_is_no_answer_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"NodeName|state"):
        scontrol_nodes.read(text)


@given(st.text())
def test_any_answer_is_read_or_refused(text: str) -> None:
    for answer in (text, f"NodeName=a State=IDLE ThreadsPerCore=1 Reason={text}"):
        try:
            scontrol_nodes.read(answer)
        except ValueError:
            continue


@given(st.text(alphabet=st.characters(codec="ascii", categories=["L", "N", "P", "S", "Zs"]), max_size=300))
def test_only_our_own_drain_reasons_are_recognised_after_slurm(found: str) -> None:
    text = drain_reason.drained("gpu001", f"preflight: gpu.xid: {found}", "node")
    line = f"NodeName=gpu001 State=IDLE+DRAIN ThreadsPerCore=1 Reason={text} [root@2026-11-21T18:44:13] Comment=x\n"
    node = scontrol_nodes.read(line)["gpu001"]
    assert node.reason == text
    assert node.comment == "x"
    assert drain_reason.ours("gpu001", text) == drain_reason.DrainMark("gpu.xid")
    assert drain_reason.ours("gpu002", text) is None
    for edited in (f"{text} ", f"{text} bob", text[:-1], text.replace("x", "y", 1), text.split(" #")[0], found):
        assert drain_reason.ours("gpu001", edited) is None


def test_a_held_node_is_no_drained_one() -> None:
    mark = drain_reason.ours("gpu001", drain_reason.held("gpu001", FOUND, "node", NOW))
    assert mark == drain_reason.DrainMark("gpu.xid", NOW)


def made(name: str, *, cause: str = "", at: int = NOW, gpus: bool = True, held: str = "", state: str = "IDLE") -> Node:
    node = Node(name, name, (state,), ("p",), gpus)
    if cause:
        text = drain_reason.drained(name, FOUND.replace("gpu.xid", cause), "node")
        node = replace(node, states=(state, "DRAIN"), reason=text, user="root", at=at)
    if held:
        node = replace(node, comment=drain_reason.held(name, FOUND.replace("gpu.xid", held), "node", at))
    return node


def cluster(*some: Node, number: int = 30) -> dict[str, Node]:
    rest = [made(f"r{index:02}") for index in range(number - len(some))]
    return {node.name: node for node in (*some, *rest)}


def test_cpu_nodes_do_not_count() -> None:
    """Four of eight GPU nodes among a hundred: ten percent of the eligible ones is one node."""
    found = {f"c{index}": made(f"c{index}", gpus=False) for index in range(92)}
    found |= {f"g{index}": made(f"g{index}") for index in range(8)}
    assert len(drain_limit.eligible(found, found["g0"])) == 8
    assert drain_limit.limit(8, Settings()) == 1
    found["g1"] = made("g1", cause="a.one")
    assert drain_limit.before(found, found["g0"], "a.two", NOW, Settings())


def test_of_other_partitions_or_out_of_service_does_not_count() -> None:
    own, other = made("a"), replace(made("b"), partitions=("q",))
    down, by_hand = made("c", state="DOWN"), replace(made("d"), states=("IDLE", "DRAIN"), reason="bob")
    counted = drain_limit.eligible({node.name: node for node in (own, other, down, by_hand)}, own)
    assert [node.name for node in counted] == ["a"]


@pytest.mark.parametrize(("number", "most"), [(0, 1), (1, 1), (19, 1), (20, 2), (30, 3), (1000, 10)])
def test_ten_percent_one_at_least_ten_at_most(number: int, most: int) -> None:
    assert drain_limit.limit(number, Settings()) == most


def test_no_drain_at_all_if_the_limit_is_zero() -> None:
    assert drain_limit.before(cluster(made("a")), made("a"), "x", NOW, Settings(most=0))


def test_a_drain_older_than_the_window_does_not_count() -> None:
    for at, blocked in ((NOW - 599, True), (NOW - 600, False)):
        found = cluster(made("a"), made("b", cause="gpu.xid", at=at), number=10)
        assert bool(drain_limit.before(found, found["a"], "gpu.xid", NOW, Settings())) is blocked
        held = cluster(made("a"), made("b", held="gpu.xid", at=at), number=10)
        assert bool(drain_limit.before(held, held["a"], "gpu.xid", NOW, Settings())) is blocked


def test_its_own_comment_does_not_hold_a_node() -> None:
    found = cluster(made("a", held="gpu.xid"))
    assert not drain_limit.before(found, found["a"], "gpu.xid", NOW, Settings())


@given(st.lists(st.tuples(st.integers(0, 3), st.sampled_from("xyz")), min_size=1, max_size=8), st.randoms())
def test_the_same_drains_remain_in_any_order_of_undoing(drained: list[tuple[int, str]], order: object) -> None:
    """Each gate looks at its own time; exactly the excess drains are undone."""
    some = [made(f"n{index}", cause=f"c.{cause}", at=NOW + at) for index, (at, cause) in enumerate(drained)]
    found, names = cluster(*some), [node.name for node in some]
    expected: list[str] = []
    for node in sorted(some, key=lambda node: (node.at, node.name)):
        causes = [drain_reason.ours(name, found[name].reason) for name in expected]
        if len(expected) < 3 and drain_reason.ours(node.name, node.reason) not in causes:
            expected.append(node.name)
    order.shuffle(names)  # type: ignore[attr-defined]
    for name in names:
        if drain_limit.after(found, found[name], Settings()):
            found[name] = made(name)
    assert sorted(expected) == sorted(name for name in names if found[name].drained)


def tool(folder: Path, text: str, mode: int = 0o755) -> Settings:
    folder.mkdir(exist_ok=True)
    (folder / "scontrol").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "scontrol").chmod(mode)
    return Settings(bin=str(folder), call_s=0.5)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("exit 3", "exit status 3"),
        ("echo 'slurm_load_node error: Unable to contact slurm controller (connect failure)' >&2; exit 1", "Unable"),
        ("echo hello", "does not begin with NodeName="),
        (":", "does not know node"),
        ("sleep 60", "no answer within 0.5 s"),
        ("trap '' TERM; sleep 60 & wait", "no answer within 0.5 s"),
        ("kill -9 $$", "exit status -9"),
    ],
)
def test_a_tool_that_fails_is_an_error_with_its_words(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ControllerError, match=why):
        Controller(tool(tmp_path / "bin", text), {}).node("n1")


def test_a_tool_that_others_may_write_is_not_run(tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    for mode in (0o775, 0o757):
        with pytest.raises(ControllerError, match=r"scontrol is writable by others"):
            Controller(tool(folder, ":", mode), {})
    (folder / "scontrol").chmod(0o755)
    folder.chmod(0o777)
    with pytest.raises(ControllerError, match=r"bin is writable by others"):
        Controller(Settings(bin=str(folder)), {})
    link = tmp_path / "link"
    link.mkdir()
    (link / "scontrol").symlink_to(folder / "scontrol")
    with pytest.raises(ControllerError, match=r"bin is writable by others"):
        Controller(Settings(bin=str(link)), {})
    with pytest.raises(ControllerError, match="no scontrol in /nowhere"):
        Controller(Settings(bin="/nowhere"), {"PATH": str(folder)})


def test_what_the_tool_is_given_of_the_environment(tmp_path: Path) -> None:
    settings = tool(tmp_path / "bin", 'echo "NodeName=n1 Arch=$(env | sort | tr "\\n" ",") State=IDLE"; exit 1')
    environ: Mapping[str, str] = {"SLURM_CONF": "/x/slurm.conf", "LD_PRELOAD": "/evil.so", "SLURM_CLUSTERS": "other"}
    with pytest.raises(ControllerError) as error:
        Controller(settings, environ).node("n1")
    assert "SLURM_CONF=/x/slurm.conf" in str(error.value)
    assert "LD_PRELOAD" not in str(error.value)
    assert "SLURM_CLUSTERS" not in str(error.value)


def test_names_of_nodes_are_names_of_one_node(tmp_path: Path) -> None:
    controller = Controller(tool(tmp_path / "bin", "exit 0"), {})
    for name in itertools.chain(("n[1-3]", "a,b", "ALL", "all", "-h", "", "a b", "n1\n", "a=b"), ["x" * 300]):
        with pytest.raises(ControllerError, match="not the name of one node"):
            controller.drain(name, "preflight: x")


FAILED = Verdict("n1", "fail", NOW, cause="gpu.xid", causes=("gpu.xid",), reason=FOUND)
SHOWN = "NodeName=n1 Arch=x86_64 CPUAlloc=0 NodeHostName=n1 State=IDLE ThreadsPerCore=1 Partitions=all"


def test_a_drain_stands_when_the_controller_is_gone_before_the_others_could_be_counted(tmp_path: Path) -> None:
    """A stand-in for a controller that dies between two calls."""
    gone = tmp_path / "gone"
    text = f'[ -e {gone} ] && exit 1\ncase "$*" in *state=drain*) touch {gone};; *) echo "{SHOWN}";; esac'
    settings = tool(tmp_path / "bin", text)
    outcome = drain.drain(Controller(settings, {}), "n1", FAILED, settings, wait=lambda _: None)
    assert outcome.line.startswith(f"drained the node: {FOUND} [node] #")
    assert "it is not known whether too many are drained" in outcome.line
    assert outcome.drained
    assert outcome.human


def test_a_comment_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    """A stand-in for a Slurm whose nodes have no comments."""
    text = f'case "$*" in *comment=*) exit 1;; *) echo "{SHOWN}";; esac'
    settings = replace(tool(tmp_path / "bin", text), most=0)
    outcome = drain.drain(Controller(settings, {}), "n1", FAILED, settings)
    assert outcome.line.startswith(
        "NOT DRAINED, alert an administrator: 0 of 1 eligible nodes were drained within 10 min; the limit is 0"
    )
    assert not outcome.drained


def test_the_cluster_file_sets_the_breaker(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(
        "[class.a]\ngpus = 8\n[gate]\nslurm_bin = '/opt/slurm/bin'\ndrain_share_pct = 5\ndrain_most = 3\n"
        "drain_window_s = 60\ndry_run = true\n"
    )
    gate = load(path).gate
    assert gate is not None
    expected = Settings(bin="/opt/slurm/bin", share=0.05, most=3, window_s=60, dry_run=True)
    assert of(gate) == expected
    assert of(Gate()) == Settings()
