"""`preflight read` on texts from outside, in the forms that people, launchers, pages and terminals give them.

Each form is tried on texts of a third of the kinds, selected by the form's name; all of them would take minutes:
``python -m tests.support.transformed`` reads all texts in all forms; with names of forms as arguments, it prints the
differences.
"""

from __future__ import annotations

import random

import pytest

from preflight.recognition.detector import TextPart
from tests.support.transformed import EVERY, bad, corpus, difference, leaves, original, parts

#: Texts that contain only one kind, with at least a few lines of it.
SAMPLE = {
    "dcb": ("dcb_pfc_prio3.json",),
    "ethtool -S": ("ethtool_statistics_virtio.txt", "ethtool_statistics_mlx5_head.txt", "pasted/ethtool-s-bnx2x.txt"),
    "ethtool -m": ("pasted/ethtool-m-sfp.txt", "ethtool_module_qsfp28.txt", "pasted/em-477.txt"),
    "hw_counters": ("pasted/hwc-omnipath.txt",),
    "ibdev2netdev": ("pasted/ibdev-imbue.txt",),
    "ibstat": ("ibstat_softroce.txt", "ibstat_mlx4_down.txt", "pasted/ibstat-flush.txt"),
    "ibstatus": ("pasted/topo-legend-ibstatus.txt",),
    "ibv_devinfo": ("ibv_devinfo_ndr.txt", "pasted/ibv-deepep60.txt", "pasted/ibv-v-tail-of-a-port.txt"),
    "kernel log": ("pasted/xid31-301.txt", "dmesg_softroce.txt", "pasted/dmesg-2511.txt"),
    "lscpu": ("pasted/lscpu-p-169.txt", "pasted/lscpu-gh200.txt", "pasted/lscpu-blank-lines.txt"),
    "lspci": ("pasted/lspci-585.txt", "pasted/lspci-two-lines-lnk.txt", "pasted/lspci-headless-rtx8000.txt"),
    "mlnx_qos": ("mlnx_qos_prio3_no_buffers.txt", "mlnx_qos_four_priorities.txt", "pasted/qos-blanks-and-second.txt"),
    "nccl-env": ("pasted/env-list.txt",),
    "nccl-log": ("nccl/efa-2.24.log", "pasted/nl-302.txt", "nccl/ray-rccl.log"),
    "nccl-tests": ("nccl_tests/six-nodes-fail-at-32g.txt", "pasted/nt-gcp-376.txt", "pasted/nt-hashes-lost.txt"),
    "network-status": ("network_status_rdma.json", "pasted/netstatus-describe.txt"),
    "numactl": ("pasted/numactl-c5n.txt", "pasted/numactl-kt797.txt", "pasted/numactl-cut.txt"),
    "nvidia-smi -q": ("pasted/smi-1226.txt", "pasted/smi-q-920m.txt", "pasted/smi-q-1753-pci.txt"),
    "nvidia-smi -q -x": ("pasted/smi-xml-fragment.txt",),
    "nvidia-smi nvlink -s": ("pasted/nvlink-v100.txt", "nvlink_a100.txt", "pasted/nvlink-gb200-cut.txt"),
    "nvidia-smi topo -m": ("pasted/topo-1617.txt", "topo_h100_4gpu_nv6.txt", "pasted/topo-1737.txt"),
    "perfquery": ("pasted/perfquery-ibsim.txt", "pasted/perfquery-x.txt", "pasted/perfquery-wrapped-head.txt"),
    "rdma link": ("pasted/rdma-link.txt",),
    "show_gids": ("pasted/gids-vxlan.txt", "pasted/gids-macvlan.txt", "pasted/gids-mi355.txt"),
}


_SHARE = 0.3


@pytest.mark.parametrize("way", EVERY)
def test_what_is_left_in_a_way(way: str) -> None:
    pick = random.Random(way)
    for names in SAMPLE.values():
        if pick.random() > _SHARE:
            continue
        name = pick.choice(names)
        total, preserved, wrong = difference(way, name)
        assert not wrong, (name, wrong[:5])
        assert preserved == total, name


def _facts(found: list[TextPart]) -> set[tuple[str, ...]]:
    """Return every fact by its name and value, at any index of a list."""
    without = {"line", "file", "cut_rows", "missing_rows", "complete_rows", "text", "count", "summary", "fields"}
    return {
        (*(step for step in place[1:] if not step.isdigit()), repr(value))
        for place, value in leaves(found, without).items()
        if value is not None
    }


#: Kinds in which each fact has a separate line: a piece has no fact that the complete text does not have.
PIECEMEAL = (
    "ethtool -S", "hw_counters", "ibdev2netdev", "ibstat", "ibstatus", "ibv_devinfo", "lspci", "mlnx_qos",
    "numactl", "nvidia-smi -q", "nvidia-smi nvlink -s", "nvidia-smi topo -m", "perfquery", "rdma link", "show_gids",
)  # fmt: skip


@pytest.mark.parametrize("kind", PIECEMEAL)
def test_a_piece_has_no_fact_that_the_full_text_lacks(kind: str) -> None:
    pick = random.Random(kind)
    for name in SAMPLE[kind][:2]:
        lines = corpus()[name].split("\n")
        for cut in sorted(pick.sample(range(1, len(lines)), min(6, len(lines) - 1))):
            for content in ("\n".join(lines[cut:]), "\n".join(lines[:cut]) + "\n"):
                found = [part for part in parts(content) if part.kind == kind]
                assert _facts(found) <= _facts(original(name)), (name, cut)


#: Text between two outputs.
BETWEEN = ("", "\n", "\nAnd this is what the other node says:\n\n", "----------------\nnode002\n----------------\n")


@pytest.mark.parametrize("between", BETWEEN, ids=["nothing", "a blank line", "prose", "dshbak"])
def test_two_outputs_keep_the_facts_of_each(between: str) -> None:
    pick = random.Random(between)
    names = [name for kind in PIECEMEAL for name in SAMPLE[kind]]
    tools = [name for name in names if all(part.taken.complete for part in original(name))]
    for _ in range(20):
        one, other = pick.sample(tools, 2)
        if original(one)[-1].kind == original(other)[0].kind:
            continue  # two lists of one tool may be one
        found = parts(corpus()[one].rstrip("\n") + "\n" + between + corpus()[other])
        assert _facts(found) == _facts(original(one)) | _facts(original(other)), (one, other)
        assert bad(found) == bad(original(one)) | bad(original(other)), (one, other)


@pytest.mark.parametrize("way", ["Ansible's string", "a page's breaks, in one line"])
def test_lines_are_those_of_the_source(way: str) -> None:
    """A text packed into one line has that line's number in its facts and findings."""
    name = "dmesg_ctime_xid.txt"
    (part,) = parts(EVERY[way](corpus()[name]))
    lines = {xid["line"] for xid in part.taken.facts["xids"]} | {part.first, part.last}
    assert len(lines) == 1
    number = lines.pop()
    assert all(f"(line {number})" in finding["message"] for finding in part.findings if "(line " in finding["message"])
