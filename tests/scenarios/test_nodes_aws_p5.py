"""An AWS node: EFA devices are judged where possible; checks for InfiniBand or RoCE skip, and never pass."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.evidence.document import from_document
from preflight.expectations.cluster_file import decode
from preflight.facts.node import NodeFacts
from preflight.learn import learn
from preflight.pair.endpoints import EndpointError, Wanted, end
from tests.support import machines
from tests.support.machines.p5 import NAME, aws_p5
from tests.support.machines.records import ok, ran
from tests.support.whole_nodes import (
    CHECKS,
    INVENTORY,
    LESS_PER_GPU,
    Fault,
    Faults,
    Table,
    both,
    env,
    every_rail,
    loud,
    nic,
    node,
    record,
    report,
    setting,
    silent_checks,
    site,
)

LINK_LAYER = "/sys/class/infiniband/rdmap79s0/ports/1/link_layer"


def without_nic(device: str) -> Fault:
    """Remove a device, as in an instance launched with one network card fewer."""
    return lambda machine: replace(machine, nics=tuple(one for one in machine.nics if one.device != device))


FAULTS: Faults = {
    "instance launched with a device fewer": (without_nic("rdmap130s0"), {
        LESS_PER_GPU, ("fail", "rdma.device-count", "")}),
    "device without its driver": (
        nic("rdmap130s0", bound=False), {
            LESS_PER_GPU, ("fail", "rdma.device-count", ""), ("fail", "rdma.registered", "")},
    ),
    "port down": (nic("rdmap96s0", state="DOWN", physical="Disabled"), {
        LESS_PER_GPU, ("fail", "rdma.port-state", "rdmap96s0:1")}),
    "port at half rate": (nic("rdmap201s0", rate="50 Gb/sec (1X HDR)"), {
        LESS_PER_GPU, ("fail", "rdma.port-rate", "rdmap201s0:1")}),
    "every port at half rate": (every_rail(rate="50 Gb/sec (1X HDR)"), {LESS_PER_GPU, ("fail", "rdma.port-rate", "")}),
    "device node missing": (nic("rdmap164s0", uverbs=False), {("fail", "rdma.device-nodes", "rdmap164s0")}),
    "device node that this user may not open": (
        nic("rdmap164s0", mode="0600"), {("fail", "rdma.device-nodes", "rdmap164s0")},
    ),
    "locked memory limited": (node(memlock="8388608"), {("fail", "host.memlock", "")}),
    "driver not loaded by the image": (
        node(without_modules=("ipmi_si", "efa")), {("fail", "kernel.modules", "efa")},
    ),
    "TCP left over": (
        env(NCCL_NET="Socket"), {("fail", "nccl.left-over-disables", "NCCL_NET")},
    ),
    "PCIe link with half its lanes": (nic("rdmap115s0", lanes=4), {
        LESS_PER_GPU, ("fail", "pcie.nic-link", "rdmap115s0")}),
    "PCIe link with fewer lanes that suffice": (
        nic("rdmap115s0", lanes=4, speed="32.0 GT/s PCIe"), {("warn", "pcie.nic-link", "rdmap115s0")},
    ),
    "proprietary driver and no peer-memory module": (
        node(open_driver=False), {("unknown", "gpudirect.peer-memory", "")},
    ),
    "RDMA writes end in errors": (
        nic("rdmap80s0", grows={"rdma_write_wr_err": 12}), {("warn", "counters.loss", "rdmap80s0:1")},
    ),
}  # fmt: skip


def older_devinfo() -> Fault:
    """Let ibv_devinfo print the link layer as rdma-core before 33 does."""
    text = machines.evidence(aws_p5())["records"]["cmd:ibv_devinfo"]["out"]
    return record("cmd:ibv_devinfo", ran(text.replace("Unspecified", "InfiniBand")))


#: Facts that look wrong but are right here.
SILENT: dict[str, Fault] = {
    "InfiniBand switched off, which EFA is not": env(NCCL_IB_DISABLE="1"),
    "the plug-in's provider": env(FI_PROVIDER="efa", FI_EFA_USE_DEVICE_RDMA="1"),
    "HCA names of other machines": env(NCCL_IB_HCA="=mlx5_0,mlx5_1"),
    "GID index of RoCE": env(NCCL_IB_GID_INDEX="3"),
    "ibv_devinfo of an older rdma-core": older_devinfo(),
    "no ibv_devinfo": record("cmd:ibv_devinfo", {"status": "missing", "why": "not found in PATH"}),
    "GUIDs of zeros, as on P4d": every_rail(guid="0000:0000:0000:0000"),
    "EFA's own peer-memory module": both(node(open_driver=False, peer_modules=("efa_nv_peermem",))),
    "both peer-memory modules": node(peer_modules=("efa_nv_peermem", "nvidia_peermem")),
    "SRD sends some packets again": every_rail(grows={"retrans_pkts": 90_000, "retrans_bytes": 720_000_000}),
    "device names without udev's rule": lambda machine: replace(
        machine, nics=tuple(replace(one, device=f"efa_{number}") for number, one in enumerate(machine.nics))
    ),
    "driver without a version, as the kernel's own": setting("/sys/module/efa/version", ""),
}  # fmt: skip

TABLES = [Table(NAME, aws_p5, FAULTS)]

#: Features that EFA does not have, or its driver does not report.
NOT_OF_EFA = {
    "rdma.active-mtu", "roce.chain", "rails.subnets", "rails.isolated",
    "switch.pfc", "switch.mtu", "switch.dscp", "switch.ets", "optics.module",
    "optics.fec", "optics.ber", "counters.link-quality", "counters.flaps", "counters.traffic-class",
    "nccl.load-balancing", "pcie.max-read-request", "pcie.relaxed-ordering", "container.rdma-address",
    "storage.network",
}  # fmt: skip


def test_healthy() -> None:
    found = report(aws_p5(), site(NAME))
    assert loud(aws_p5(), site(NAME)) == set()
    assert found["exit_status"] == 0
    assert silent_checks(found) == NOT_OF_EFA | {
        "container.gpu-devices", "container.device-plugin", "container.state", "container.networks",
        "gpu.process-per-gpu",
        "nccl.sharp-plugin", "versions.compatibility",
        "nccl.ib-hca", "rdma.firmware",
        "gpu.retired-pages", "gpudirect.iommu", "kernel.cpu-governor", "nvlink.imex",
    }  # fmt: skip
    skips = [one for one in found["findings"] if one["check"] in NOT_OF_EFA]
    assert all(one["message"].startswith("EFA devices: ") and LINK_LAYER in str(one["evidence"]) for one in skips)


@pytest.mark.parametrize("name", FAULTS)
def test_planted_fault(name: str) -> None:
    plant, expected = FAULTS[name]
    assert loud(plant(aws_p5()), site(NAME)) == expected


@pytest.mark.parametrize("name", SILENT)
def test_raises_nothing(name: str) -> None:
    assert loud(SILENT[name](aws_p5()), site(NAME)) == set()


def test_without_a_cluster_file() -> None:
    """Four ports of 100 Gb/s are usual for one GPU of the part."""
    assert loud(aws_p5()) == {
        ("unknown", "rdma.device-count", ""), ("unknown", "checkpoint.age", ""), INVENTORY,
    }  # fmt: skip


def test_switching_infiniband_off_has_no_effect_and_explains_why() -> None:
    found = report(env(NCCL_IB_DISABLE="1", NCCL_IB_HCA="mlx5_0")(aws_p5()), site(NAME))
    message = {one["check"]: one["message"] for one in found["findings"] if one["subject"].startswith("NCCL_IB")}
    assert message["nccl.left-over-disables"].endswith("no effect here: the kernel has no RDMA device other than EFA")
    assert "NCCL uses EFA devices through a plug-in" in message["nccl.ib-hca"]


def test_a_rate_that_an_old_driver_prints_of_any_device_is_no_fault() -> None:
    """With 16 devices of 200 Gb/s (P5en) an old driver reports 100 for each; a device at 200 shows a newer one."""
    machine = aws_p5()
    p5en = replace(machine, nics=tuple(one for number, one in enumerate(machine.nics) if number % 2))
    rate = {
        ("unknown", "rdma.port-rate", ""),
        ("unknown", "rdma.device-count", ""),
        ("unknown", "checkpoint.age", ""),
        INVENTORY,
    }
    assert loud(p5en) == rate | {("unknown", "rdma.bandwidth-per-gpu", "")}
    fast = every_rail(rate="200 Gb/sec (4X HDR)", speed="32.0 GT/s PCIe", gbps=150.0)(p5en)
    assert loud(fast) == rate - {("unknown", "rdma.port-rate", "")}
    odd = nic("rdmap80s0", rate="100 Gb/sec (4X EDR)")(fast)
    assert loud(odd) == loud(fast) | {
        ("fail", "rdma.port-rate", "rdmap80s0:1"),
        LESS_PER_GPU,
    }


def test_no_pair_test_begins_over_it() -> None:
    facts = NodeFacts(from_document(machines.evidence(aws_p5()), NAME))
    with pytest.raises(EndpointError, match="rdmap79s0:1 is an EFA device"):
        end(facts, site(NAME).site(facts), Wanted())


def test_what_is_learnt_of_it_is_a_cluster_file_that_it_passes() -> None:
    nodes = [replace(aws_p5(f"gpu{number:03d}"), number=number) for number in range(3)]
    evidences = [from_document(machines.evidence(one), one.name) for one in nodes]
    text = learn(evidences, CHECKS).text
    assert 'link_layer = "Unspecified"' in text
    assert loud(nodes[0], decode(text.encode(), "cluster.toml")) <= {("unknown", "checkpoint.age", ""), INVENTORY}


def test_the_same_text_of_another_driver_is_not_believed() -> None:
    """mlx5 prints this if it cannot read its port's type."""
    document = machines.evidence(machines.hgx_h100("hgx-h100"))
    document["records"]["file:/sys/class/infiniband/mlx5_0/ports/1/link_layer"] = ok("Unknown\n")
    facts = NodeFacts(from_document(document, "x"))
    assert {port.link_layer for port in facts.rdma_ports} == {"InfiniBand"}  # of ibstat
    del document["records"]["cmd:ibstat"]
    with pytest.raises(Exception, match="neither InfiniBand nor Ethernet"):
        _ = NodeFacts(from_document(document, "x")).rdma_ports
