"""Parsers of host facts with unusual texts; tests/robustness/test_parsers.py tests all parsers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from preflight.evidence.document import Evidence, from_document
from preflight.facts import addresses, kernel, lspci, rank_binding, versions
from preflight.facts.gpudirect import nic_link
from preflight.facts.node import NodeFacts
from preflight.facts.nvidia.query import GpuIdentity
from preflight.parsers.host import boot_options, checkpoint, command_line
from preflight.parsers.rdma import port_values
from preflight.textprep.lines import Line
from tests.support import machines
from tests.support.machines import Machine, hgx_h100

IP_ADDR = json.dumps(
    [
        {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
        {"ifname": "enp24s0", "addr_info": [{"family": "inet6", "local": "fe80::1", "prefixlen": 64}]},
    ]
)


# --- lspci -----------------------------------------------------------------------------------------

#: The head of a bridge as people paste it: names, no domain, from `lspci -vvv` as root.
PASTED = """\
d8:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0) (prog-if 00 [Normal decode])
	Capabilities: [68] Express (v2) Upstream Port, MSI 00
		DevCtl:	CorrErr- NonFatalErr- FatalErr- UnsupReq-
			RlxdOrd- ExtTag+ PhantFunc- AuxPwr- NoSnoop+
			MaxPayload 512 bytes, MaxReadReq 128 bytes
		DevSta:	CorrErr+ NonFatalErr- FatalErr- UnsupReq+ AuxPwr- TransPend-
	Capabilities: [150 v1] Access Control Services
		ACSCap:	SrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+
		ACSCtl:	SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
"""


def test_lspci_with_names_and_without_domains() -> None:
    function = lspci.parse(PASTED)["0000:d8:00.0"]
    assert function.acs == frozenset({"SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"})
    assert function.redirects == frozenset({"ReqRedir", "CmpltRedir", "UpstreamFwd"})
    assert function.max_read_request_bytes == 128
    assert function.relaxed_ordering is False
    assert not function.denied


def test_lspci_of_an_ordinary_user_is_unknown_not_off() -> None:
    function = lspci.parse("0000:18:00.0 0207: 15b3:1021\n\tCapabilities: <access denied>\n")["0000:18:00.0"]
    assert function.denied
    assert function.acs is None
    assert function.max_read_request_bytes is None


def test_acs_capability_is_not_its_control() -> None:
    text = "0000:d8:00.0 0604: 1000:c030\n\t\tACSCap:\tSrcValid+ ReqRedir+\n\t\tACSCtl:\tSrcValid- ReqRedir-\n"
    assert lspci.parse(text)["0000:d8:00.0"].acs == frozenset()


# --- kernel ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wish"),
    [
        ("ro quiet", ""),
        ("intel_iommu=on iommu=pt", "passthrough"),
        ("iommu=pt intel_iommu=on", "passthrough"),
        ("amd_iommu=on", "translated"),
        ("intel_iommu=off", "off"),
        ("intel_iommu=on,sm_on", "translated"),
        ("iommu.passthrough=1", "passthrough"),
        ("iommu.passthrough=0", "translated"),
        ("iommu=pt iommu=nopt", "translated"),
    ],
)
def test_iommu_wish(text: str, wish: str) -> None:
    assert kernel.iommu_wish(boot_options.parse(text)) == wish


def test_boot_options_with_quotes_and_what_is_for_init() -> None:
    options = boot_options.parse('root=UUID=1 dyndbg="file x +p" quiet -- iommu=pt')
    assert [str(option) for option in options] == ["root=UUID=1", "dyndbg=file x +p", "quiet"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5.15.0-1063-nvidia\n", (5, 15)), ("6.1\n", (6, 1)), ("4.18.0-553.el8_10.x86_64\n", (4, 18))],
)
def test_release(text: str, expected: tuple[int, int]) -> None:
    assert kernel.release(text) == expected


# --- binding ---------------------------------------------------------------------------------------

GPUS = tuple(GpuIdentity(index, f"0000:{index:02x}:00.0", "NVIDIA H100", f"GPU-{index:08d}-aaaa") for index in range(4))


@pytest.mark.parametrize(
    ("environment", "own"),
    [
        ({}, [0, 1, 2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "2,3"}, [2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "GPU-00000001"}, [1]),
        ({"CUDA_VISIBLE_DEVICES": "MIG-1"}, [0, 1, 2, 3]),
        ({"CUDA_VISIBLE_DEVICES": "9"}, [0, 1, 2, 3]),
        ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "4"}, [3]),
        ({"LOCAL_RANK": "3", "LOCAL_WORLD_SIZE": "2"}, [0, 1, 2, 3]),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "CUDA_VISIBLE_DEVICES": "2,3"}, [3]),
        ({"LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4", "CUDA_VISIBLE_DEVICES": "2"}, [2]),
        ({"SLURM_LOCALID": "1", "SLURM_NTASKS_PER_NODE": "4"}, [0, 1, 2, 3]),
        ({"SLURM_STEP_ID": "0", "SLURM_LOCALID": "1", "SLURM_STEP_TASKS_PER_NODE": "4(x2)"}, [1]),
    ],
)
def test_own_gpus(environment: dict[str, str], own: list[int]) -> None:
    assert [gpu.index for gpu in rank_binding.own_gpus(environment, GPUS)] == own


# --- pairs -----------------------------------------------------------------------------------------


def facts(machine: Machine, **changed: Any) -> NodeFacts:
    document = machines.evidence(machine)
    document["records"] |= changed
    return NodeFacts(from_document(document, machine.name))


def test_pairs_are_read_from_the_matrix_and_the_tree_agrees() -> None:
    machine = hgx_h100("node1")
    devices = [nic.device for nic in machine.nics if nic.gpu is not None]
    by_matrix = facts(machine).gpu_nic_pairs(devices)
    assert [(pair.gpu, pair.nic) for pair in by_matrix] == [
        ("GPU0", "mlx5_0"), ("GPU1", "mlx5_3"), ("GPU2", "mlx5_4"), ("GPU3", "mlx5_5"),
        ("GPU4", "mlx5_6"), ("GPU5", "mlx5_9"), ("GPU6", "mlx5_10"), ("GPU7", "mlx5_11"),
    ]  # fmt: skip
    gone = {"status": "missing", "why": "no tool"}
    by_tree = facts(machine, **{"cmd:nvidia-smi topo -m": gone}).gpu_nic_pairs(devices)
    assert [pair.nic for pair in by_tree] == [pair.nic for pair in by_matrix]
    assert all(pair.near for pair in by_tree)
    assert all(len(pair.bridges) == 2 for pair in by_tree), "two downstream ports of one switch"


def test_a_far_pair_has_no_bridges_to_judge() -> None:
    machine = hgx_h100("node1")
    pairs = facts(machine).gpu_nic_pairs(["mlx5_1"])
    assert {pair.nic for pair in pairs} == {"mlx5_1"}
    assert not any(pair.bridges for pair in pairs)


def evidence(records: dict[str, str]) -> Evidence:
    made = {key: {"status": "ok", "out": text} for key, text in records.items()}
    return Evidence("node1", "", made)


@pytest.mark.parametrize(
    ("speed", "width", "gbps"),
    [("32.0 GT/s PCIe", "16", 504), ("32.0 GT/s PCIe", "8", 252), ("8 GT/s", "16", 126), ("64.0 GT/s PCIe", "16", 968)],
)
def test_nic_link(speed: str, width: str, gbps: int) -> None:
    base = "file:/sys/class/infiniband/mlx5_0/device"
    link = nic_link(evidence({f"{base}/current_link_speed": speed, f"{base}/max_link_speed": speed,
                              f"{base}/current_link_width": width, f"{base}/max_link_width": "16"}),
                    "mlx5_0")  # fmt: skip
    assert link is not None
    assert round(link.gbps) == gbps


def test_a_virtual_function_has_no_link() -> None:
    base = "file:/sys/class/infiniband/mlx5_0/device"
    virtual = {f"{base}/current_link_speed": "Unknown", f"{base}/max_link_speed": "Unknown",
               f"{base}/current_link_width": "0", f"{base}/max_link_width": "0"}  # fmt: skip
    assert nic_link(evidence(virtual), "mlx5_0") is None


# --- the small ones --------------------------------------------------------------------------------


def test_packages_are_recognised_by_file_names() -> None:
    found = versions.packages(
        evidence(
            {
                "file:/opt/conda/lib/python3.11/site-packages/torch-2.5.1+cu124.dist-info/INSTALLER": "conda\n",
                "file:/usr/lib/python3.10/dist-packages/nvidia_nccl_cu12-2.21.5.dist-info/INSTALLER": "pip\n",
                "file:/usr/lib/python3.10/dist-packages/torchvision-0.20.dist-info/INSTALLER": "pip\n",
            }
        )
    )
    assert {(package.name, package.version) for package in found} == {
        ("torch", "2.5.1+cu124"), ("nvidia_nccl_cu12", "2.21.5"),
    }  # fmt: skip


def test_the_newest_entry_is_never_the_directory_itself() -> None:
    assert checkpoint.newest("99999.0 d \n") is None
    newest = checkpoint.newest("99999.0 d \n5.5 d step 1\n7.25 f step 2/model.pt\n")
    assert newest == checkpoint.CheckpointEntry("step 2/model.pt", 7.25)


def test_an_ipv6_scope_and_both_kinds_of_mask_are_read() -> None:
    value = {"eth0": [{"family": "inet6", "address": "fe80::1%eth0", "netmask": "ffff:ffff:ffff:ffff::"},
                      {"family": "inet", "address": "10.0.0.1", "netmask": "255.255.255.254"},
                      {"family": "link", "address": "00:11:22:33:44:55", "netmask": None}]}  # fmt: skip
    assert [str(a) for a in addresses.parse_psutil(value)["eth0"]] == ["fe80::1/64", "10.0.0.1/31"]
    assert [str(a) for a in addresses.parse_ip(IP_ADDR)["enp24s0"]] == ["fe80::1/64"]


def test_a_pasted_command_line_has_the_options_of_a_node() -> None:
    text = 'Kernel command line: BOOT_IMAGE=/vmlinuz root=UUID=2 ro dyndbg="file mlx5 +p" iommu=pt -- single'
    parsed = command_line.parse_lines([Line(1, text)], 0)
    assert parsed.value == boot_options.parse(text.partition(": ")[2])
    assert command_line.facts(parsed.value)["options"][-2:] == ["dyndbg=file mlx5 +p", "iommu=pt"]


@pytest.mark.parametrize(
    ("text", "gbps"), [("400 Gb/sec (4X NDR)", 400), ("2.5 Gb/sec (1X SDR)", 2.5), ("Gb/sec", None), ("", None)]
)
def test_the_rate_of_a_port(text: str, gbps: float | None) -> None:
    assert port_values.rate(text) == gbps


@pytest.mark.parametrize(("text", "word"), [("4: ACTIVE", "ACTIVE"), ("5: LinkUp\n", "LinkUp"), ("ACTIVE", None)])
def test_the_state_of_a_port(text: str, word: str | None) -> None:
    assert port_values.state(text) == word
