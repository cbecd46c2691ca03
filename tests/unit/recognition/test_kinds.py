"""Names of kinds: those of the documented contract exist, and the page on pasted text lists all."""

from __future__ import annotations

import re

import pytest

from preflight.recognition import detector, known, read_text
from preflight.recognition.formats import kinds
from tests.support.paths import ROOT

#: Names of kinds that programs rely on; more may be added, none renamed.
CONTRACT = (
    "nccl-tests", "nccl-log", "nvidia-smi topo -m", "nvidia-smi topo -p2p", "nvidia-smi -q", "nvidia-smi -q -x",
    "nvidia-smi nvlink -s", "ibstat", "ibstatus", "ibv_devinfo", "rdma link", "ibdev2netdev", "show_gids", "perfquery",
    "ethtool -S", "hw_counters", "ethtool -a", "ethtool -i", "ethtool -m", "mlnx_qos", "dcb", "kernel log", "lspci",
    "numactl", "lscpu", "network-status", "pytorch trace", "flight recorder", "nccl-env", "nvidia-smi",
    "nvidia-smi error", "dcgmi diag", "dcgmi health", "dcgmi nvlink", "fabricmanager status", "nvbandwidth",
    "perftest", "ip addr", "bonding", "ulimit", "iblinkinfo", "ucx", "kubernetes events", "kubernetes describe",
    "sinfo", "scontrol node", "slurm error", "framework error", "training log",
)  # fmt: skip


def test_the_kinds_of_the_contract_exist() -> None:
    assert set(CONTRACT) <= set(known())
    assert len(known()) == len(set(known()))


def test_the_page_lists_every_kind() -> None:
    page = (ROOT / "docs/pasted-text.md").read_text(encoding="utf-8")
    section = page.partition("## What is recognised\n")[2].partition("\nFor error messages")[0]
    listed = [name.replace("\n ", "") for name in re.findall(r"`([^`]+)`", section)][1:]  # the first is `kind`
    assert sorted(" ".join(name.split()) for name in listed) == sorted(known())


def test_every_hint_is_found_in_a_text_without_digits() -> None:
    hints = frozenset(hint for kind in kinds() for hint in kind.hints)
    bare = {hint: hint.translate(detector._NO_DIGITS) for hint in hints}
    text = "\n".join(bare.values())
    assert detector._held(hints, text) == hints
    assert detector._held(hints, text[: len(text) // 2]) == {
        hint for hint in hints if bare[hint] in text[: len(text) // 2]
    }
    assert detector._held(frozenset({"# ", "x1y2z"}), "xyxz") == set()


@pytest.mark.parametrize(("second", "status"), [
    ("|                           | Fail - GPU: 3                                  |", "fail"),
    ("| Warning                   | GPU 3 is slower than the others                |", "warn"),
    ("|                           | Pass - GPU: 3                                  |", "pass"),
])  # fmt: skip
def test_results_of_a_diagnostic_that_differ_by_gpu(second: str, status: str) -> None:
    rule = "+---------------------------+------------------------------------------------+\n"
    rows = (f"{rule}| Diagnostic                | Result                                         |\n{rule}"
            f"| GPU Memory                | Pass - GPUs: 0, 1, 2                           |\n{second}\n"
            f"{rule}")  # fmt: skip
    (part,) = read_text(rows, "a")
    assert [finding["status"] for finding in part.findings] == [status]
    assert status == "pass" or "GPU 3" in part.findings[0]["message"]
