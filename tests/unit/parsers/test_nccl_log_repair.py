"""NCCL lines with parts removed by a person, a log shipper or a screen."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from preflight.parsers import nccl_log
from preflight.parsers.nccl_log.to_json import document
from preflight.recognition import open_sources, read

#: Made by hand from the formats of NCCL 2.21.
LOG = """\
node-17:4711:4711 [0] NCCL INFO Bootstrap : Using eth0:192.0.2.17<0>
node-17:4711:4711 [0] NCCL INFO cudaDriverVersion 12040
node-17:4711:4790 [0] NCCL INFO NCCL_IB_HCA set to mlx5_0,mlx5_1
node-17:4711:4790 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:192.0.2.17<0>
node-17:4711:4790 [0] NCCL INFO Using network IB
node-17:4711:4790 [0] NCCL INFO comm 0x55d0c8a31b40 rank 0 nRanks 16 nNodes 2 localRanks 8 localRank 0 MNNVL 0
node-17:4711:4790 [0] NCCL INFO Trees [0] 1/8/-1->0->-1 [1] -1/-1/-1->0->7 [2] 1/8/-1->0->-1 [3] 1/-1/-1->0->7
node-17:4711:4790 [0] NCCL INFO Channel 00/0 : 15[7] -> 0[0] [receive] via NET/IB/0/GDRDMA
node-17:4711:4790 [0] NCCL INFO Channel 01/0 : 0[0] -> 15[7] [send] via NET/IB/0/GDRDMA
node-17:4711:4790 [0] NCCL INFO Channel 00/0 : 0[0] -> 7[7] via P2P/CUMEM/read
node-17:4711:4790 [0] NCCL INFO Connected all rings
"""
_HEAD = re.compile(r"(?m)^(?P<process>\S+) \[(?P<device>\d)\] NCCL INFO ")
_FACTS = (
    "nranks",
    "nnodes",
    "network",
    "transports",
    "gpudirect_rdma",
    "hcas",
    "socket_interfaces",
    "env",
    "cuda_driver",
)


def facts(text: str) -> dict[str, Any]:
    log = nccl_log.parse(text)
    assert log is not None
    found = document(log)
    return {name: found[name] for name in _FACTS}


@pytest.mark.parametrize(
    ("head", "host"),
    [
        (r"\g<process> [\g<device>] INFO ", True),  # NCCL up to 2.2
        (r"\g<process> [\g<device>] NCCL ", True),
        (r"\g<process> [\g<device>] ", True),
        (r"\g<process> [\g<device>] NCCL  INFO\t", True),
        (r"\g<process> [\g<device>] nccl info ", True),
        (r"\g<process> \\[\g<device>\\] NCCL INFO ", True),  # Markdown's source
        (r"node-17:pid:tid NCCL INFO ", True),  # a manual
        (r"node-17:<pid>:<tid> [\g<device>] NCCL INFO ", True),
        ("... NCCL INFO ", False),
        ("…NCCL INFO ", False),
        ("NCCL INFO: ", False),
        ("[NCCL INFO] ", False),
        ("NCCL_INFO ", False),
        ("NCCL: ", False),
        ("INFO ", False),
        ("", False),
        ("      8 ", False),  # uniq -c
        ("      8 NCCL INFO ", False),
        ("- ", False),
    ],
)
def test_a_level_that_was_removed_or_respelled(head: str, host: bool) -> None:
    text = _HEAD.sub(head, LOG)
    assert facts(text) == facts(LOG)
    log = nccl_log.parse(text)
    assert log is not None
    assert log.hosts == (("node-17",) if host else ())


@pytest.mark.parametrize(
    "text",
    [
        "We saw Using network Socket in the log and then Connected all rings.",
        "Bootstrap : Using the right interface matters.\nThe channel goes via NET/IB/0.\n",
        "NCCL info: see below\nnccl warn\n[NCCL] is a library\n",
        "- NCCL_IB_DISABLE set to 1\n- NCCL_P2P_DISABLE set to 1\n- NCCL_DEBUG set to INFO\n",
        "run 12:34:56 [3] of the series\nhost:1:2 [0] finished\n",
    ],
)
def test_prose_is_no_log(text: str) -> None:
    assert nccl_log.parse(text) is None


def test_prose_around_a_log_adds_no_facts() -> None:
    prose = "Using network Socket\nUsing network Socket\n"
    assert facts(prose + LOG) == facts(LOG)


def test_ways_that_grep_counted(tmp_path: Path) -> None:
    text = (
        "$ grep -o 'via .*' nccl.log | sort | uniq -c\n    112 via NET/IB/0/GDRDMA\n     96 [send] via P2P/CUMEM/read\n"
    )
    (tmp_path / "ways.txt").write_text(text)
    (part,) = read(next(open_sources((str(tmp_path / "ways.txt"),))))
    assert part.kind == "nccl-log"
    assert part.taken.facts["transports"] == {"inter_node": ["IB"], "intra_node": ["P2P"]}
    assert part.taken.facts["gpudirect_rdma"] is True


#: Both channel lines have the same length, so a screen cuts them at the same place.
SAME = LOG.replace("0[0] -> 15[7] [send]", "15[7] -> 0[0] [receive]")
WIDTH = next(line.index("/GDRDMA") for line in SAME.splitlines() if "GDRDMA" in line)


@pytest.mark.parametrize(("more", "direct"), [(0, None), (1, None), (2, True), (20, True)])
def test_lines_cut_off_by_a_screen_leave_gpudirect_unknown(more: int, direct: bool | None, tmp_path: Path) -> None:
    """A line may end just before the deciding word; that others end there too shows that it was cut."""
    text = "".join(f"{line[: WIDTH + more]}\n" for line in SAME.splitlines())
    assert facts(text)["gpudirect_rdma"] is direct
    assert facts(text)["network"] == "IB"
    (tmp_path / "cut.log").write_text(text)
    (part,) = read(next(open_sources((str(tmp_path / "cut.log"),))))
    assert not [one for one in part.findings if one["status"] in ("fail", "warn")]


def test_a_ring_that_a_screen_cut_gives_no_size() -> None:
    ranks = "".join(f"{rank:4}" for rank in range(32))
    ring = f"node-17:4711:4790 [0] NCCL INFO Channel 00/02 : {ranks}\n"
    other = f"{ring.replace('00/02', '01/02')}node-17:4711:4790 [0] NCCL INFO Using network IB, {'x' * 200}\n"
    complete = nccl_log.parse(ring + other + "\n")
    cut = nccl_log.parse("".join(f"{line[:120]}\n" for line in (ring + other).splitlines()))
    assert complete is not None
    assert cut is not None
    assert (complete.nranks, cut.nranks) == (32, None)


def test_a_ring_alone_gives_the_size_unless_it_is_the_last_line() -> None:
    ring = "NCCL INFO Channel 00/16 :  0  7  6  5  4  3  2  1\n"
    for text, nranks in ((f"{ring}```\n", 8), (ring.rstrip("\n"), None)):
        log = nccl_log.parse(text)
        assert log is not None
        assert log.nranks == nranks


def test_lines_of_one_length_are_complete_where_no_other_line_is_as_long() -> None:
    without = SAME.replace("/GDRDMA", "")
    assert facts(without)["gpudirect_rdma"] is False
    assert facts("".join(f"{line}\n" for line in without.splitlines() if "via NET" in line))["gpudirect_rdma"] is False


def test_an_abridged_transport() -> None:
    log = nccl_log.parse(LOG.replace("/GDRDMA", "..."))
    assert log is not None
    assert [(entry.network, entry.gpudirect) for entry in log.channels] == [("IB", None)]


def _fluentd(line: str) -> str:
    return f"2026-02-18T12:54:01+00:00\tkube.var.log.containers.job\t{json.dumps({'log': line})}"


def _fluentd_on_screen(line: str) -> str:
    return f"2026-02-18 12:54:01.000000000 +0000 kube.var.log: {json.dumps({'message': line + chr(10)})}"


@pytest.mark.parametrize("record", [_fluentd, _fluentd_on_screen])
def test_records_of_fluentd(record: Callable[[str], str]) -> None:
    rccl = "RCCL version : 2.21.5-main:a29a210+\n"  # on separate lines, which do not name NCCL
    log = nccl_log.parse("".join(f"{record(line)}\n" for line in (rccl + LOG).splitlines()))
    assert log is not None
    assert log.nccl_version == "2.21.5"
    assert facts("".join(f"{record(line)}\n" for line in LOG.splitlines())) == facts(LOG)


def test_the_size_of_a_communicator_behind_a_channel() -> None:
    """RCCL since 2.18."""
    log = nccl_log.parse(
        "gcd-1:10:11 [0] NCCL INFO Channel 00/0 : 4092[d6000] -> 0[d6000] [receive] via NET/AWS Libfabric/2/GDRDMA"
        " comm 0x9bbf3b0 nRanks 4096\n"
    )
    assert log is not None
    assert (log.nranks, log.network_names) == (4096, ("AWS Libfabric",))


def test_a_text_that_a_program_names() -> None:
    log = nccl_log.parse(
        "const netLog = `NCCL INFO NET/Plugin: Loaded net plugin Libfabric (v10)\nNCCL INFO Using network IB`\n"
    )
    assert log is not None
    assert [(plugin.state, plugin.name) for plugin in log.plugins] == [("loaded", "Libfabric")]
    assert log.network_names == ("IB",)


def test_googles_plugin_is_recognised_by_its_name() -> None:
    log = nccl_log.parse(
        "vm-0:606:642 [ 6 ] NCCL INFO NET/gIB : Initializing gIB v1.0.5\n"
        "vm-0:606:642 [ 6 ] NCCL INFO NCCL_P2P_PCI_CHUNKSIZE set by environment to 131072 .\n"
    )
    assert log is not None
    assert [(plugin.state, plugin.name) for plugin in log.plugins] == [("loaded", "gIB")]
    assert log.environment[0].value == "131072"
