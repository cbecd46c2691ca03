"""The roofline compared with published figures, tagged beforehand, and with the documents' own numbers."""

from __future__ import annotations

from dataclasses import replace

import pytest

from preflight.expectations.catalogue import GPUS, PARTS, part_by_name
from preflight.expectations.roofline import batch, fat_tree
from preflight.expectations.roofline.bound import judge, proof
from preflight.expectations.roofline.collectives import Roofline, roofline
from preflight.expectations.roofline.datasheets import BF16_FLOPS, bandwidth_of_name, memory_bandwidth
from preflight.expectations.roofline.machine import RooflineMachine, gpu_named, machine_of, switches_reduce
from preflight.layout import hardware

MIB, GIB = 2**20, 2**30


def machine(part: str, *, nics: int = 0, gbps: float = 0, gpus: int = 0, sharp: bool | None = False) -> RooflineMachine:
    known = part_by_name(part)
    assert known is not None
    made = machine_of(known, gpus or None, nics or None, gbps or None)
    assert made is not None
    return replace(made, sharp=sharp)


A100, H100, H200 = machine("HGX A100"), machine("HGX H100"), machine("HGX H200")
DGX_A100 = machine("HGX A100", nics=8, gbps=200)
NDR = machine("HGX H100", nics=8, gbps=400)
EFA = machine("HGX H100", nics=32, gbps=100)
GB200 = machine("GB200 tray", nics=4, gbps=400)
GB300 = machine("GB300 tray", nics=4, gbps=800)

#: Published figures. *reference*: what a tuned machine of the kind reaches. *untuned*: the page itself, or its
#: transport, states that it is not the machine's best. *floor*: below which an operator rejects, or too little data for
#: so many ranks. They were tagged before they were run through the model; its shares of the line rates come from some
#: of them.
GKE = machine("HGX H200", gpus=1, nics=1, gbps=400)

Published = tuple[str, str, RooflineMachine | None, str, int, float, float]

PUBLISHED: list[Published] = [
    # tag, system, machine, collective, nodes, GB/s, GiB; NICs that the page does not state are those of the system
    # that it names (the two A100 nodes: eight of 200 Gb/s); the catalogue has no DGX-1, where the NICs bind
    ("reference", "A100-SXM4-40GB node", A100, "all_reduce", 1, 235, 8),
    ("reference", "A100-SXM4-40GB node", A100, "all_gather", 1, 230, 8),
    ("reference", "A100-SXM4-40GB node", A100, "reduce_scatter", 1, 232, 8),
    ("reference", "A100-SXM4-40GB node", A100, "alltoall", 1, 226, 8),
    ("reference", "A100-SXM4-40GB node", A100, "broadcast", 1, 235, 8),
    ("reference", "A100-SXM4-40GB node", A100, "reduce", 1, 231, 8),
    ("reference", "A100 8 GPU (NCCL 2.16.2)", A100, "all_reduce", 1, 232, 1),
    ("reference", "2 nodes A100 (NCCL 2.12.12)", DGX_A100, "all_reduce", 2, 183, 1),
    ("reference", "DGX A100 x2", DGX_A100, "all_reduce", 2, 189, 4),
    ("reference", "DGX A100 x4", DGX_A100, "all_reduce", 4, 192, 4),
    ("untuned", "DGX-1 class x2 over RoCE", machine("HGX A100", nics=4, gbps=100), "all_reduce", 2, 23, 2),
    ("reference", "H100 p5, NVLS", H100, "all_reduce", 1, 483, 16),
    ("reference", "H100 8 GPU", H100, "all_reduce", 1, 471, 2),
    ("reference", "p5.48xlarge x2", EFA, "all_reduce", 2, 438, 2),
    ("reference", "p5.48xlarge x2", EFA, "all_reduce", 2, 483, 16),
    ("reference", "p5en.48xlarge x16", machine("HGX H200", nics=16, gbps=200), "all_reduce", 16, 370, 16),
    ("reference", "H100 + SHARP", machine("HGX H100", nics=8, gbps=400, sharp=True), "all_reduce", 12, 387, 8),
    ("untuned", "A3 High, TCPX", machine("HGX H100", nics=4, gbps=200), "all_gather", 2, 71, 0.5),
    ("reference", "A3 Mega, FasTrak", machine("HGX H100", nics=8, gbps=200), "all_gather", 2, 189, 8),
    ("reference", "A3 Ultra, gIB", machine("HGX H200", nics=8, gbps=400), "all_gather", 2, 336, 8),
    ("untuned", "A4, gIB, as documented", machine("HGX B200", nics=8, gbps=400), "all_gather", 2, 269, 2),
    ("untuned", "H200, one GPU and NIC a node, GKE", GKE, "all_reduce", 2, 32, 8),
    ("untuned", "H200, one GPU and NIC a node, GKE", GKE, "all_gather", 2, 33, 8),
    ("untuned", "B200, two of eight GPUs", machine("HGX B200", gpus=2), "all_gather", 1, 564, 8),
    ("reference", "GB200 NVL72, one rack", GB200, "all_reduce", 18, 847, 8),
    ("reference", "GB200 NVL72, two racks", GB200, "all_reduce", 36, 820, 16),
    ("floor", "GB200 NVL72, twenty racks: 11 MiB a rank", GB200, "all_reduce", 360, 406, 16),
    ("reference", "GB300 NVL72, one rack", GB300, "all_reduce", 18, 937, 16),
    ("floor", "GB300 NVL72, inter-rack, ranks not stated", None, "all_reduce", 0, 200, 16),
    ("reference", "ND H100 v5, SHARP", machine("HGX H100", nics=8, gbps=400, sharp=True), "all_reduce", 8, 450, 16),
    ("untuned", "H200 NVL, PCIe and bridges", None, "all_reduce", 1, 69, 32),
    ("untuned", "RTX 5090 x2, no P2P", None, "all_reduce", 1, 2.3, 0.125),
    # operators' floors, one node
    ("floor", "ND A100 v4", A100, "all_reduce", 1, 228, 16),
    ("floor", "ND H100 v5", H100, "all_reduce", 1, 460, 16),
    ("floor", "ND H200 v5", H200, "all_reduce", 1, 431, 16),
    ("floor", "OCI A100", A100, "all_reduce", 1, 185, 8),
    ("floor", "OCI H100", H100, "all_reduce", 1, 440, 8),
    ("floor", "OCI B200", machine("HGX B200"), "all_reduce", 1, 440, 8),
    ("floor", "OCI B300", machine("HGX B300"), "all_reduce", 1, 800, 8),
]  # fmt: skip

REFERENCE = [row for row in PUBLISHED if row[0] == "reference"]


def roof(built: RooflineMachine, collective: str, nodes: int) -> Roofline:
    found = roofline(collective, built, nodes)
    assert found is not None
    return found


def names(rows: list[Published]) -> list[str]:
    return [f"{row[1]}-{row[3]}-{row[5]:g}" for row in rows]


@pytest.mark.parametrize("row", REFERENCE, ids=names(REFERENCE))
def test_a_reference_is_as_expected_and_0_7_of_it_is_degraded(
    row: Published,
) -> None:
    _, _, built, collective, nodes, busbw, gib = row
    assert built is not None
    found = roof(built, collective, nodes)
    assert gib * GIB >= found.smallest
    assert judge(busbw, found, built).word == "as expected"
    degraded = judge(0.7 * busbw, found, built)
    assert degraded.word == "degraded"
    assert degraded.causes, "the likely cause is named"
    impossible = judge(1.2 * found.limit, found, built)
    assert impossible.word == "impossible"
    assert "check the labels" in impossible.causes[0]


@pytest.mark.parametrize("row", PUBLISHED, ids=names(PUBLISHED))
def test_nothing_published_is_called_impossible(row: Published) -> None:
    tag, system, built, collective, nodes, busbw, gib = row
    if built is None:
        assert tag != "reference", "no model: nothing is said"
        return
    found = roof(built, collective, nodes)
    judged = judge(busbw, found, built)
    assert judged.word != "impossible"
    if tag == "untuned":
        assert judged.word == "degraded", system
    if "twenty racks" in system:
        assert gib * GIB < found.smallest, "too little for so many ranks: not judged"


def test_floors_that_no_machine_reaches() -> None:
    """AWS health check: 800 on P5 and 900 on P6-B200 between nodes (lesson L28)."""
    assert roof(EFA, "all_reduce", 2).limit < 800
    assert roof(machine("HGX B200", nics=8, gbps=400), "all_reduce", 2).limit < 900
    assert roof(H100, "all_reduce", 1).limit < 900


@pytest.mark.parametrize(
    ("built", "collective", "nodes", "limit"),
    [
        (H100, "all_reduce", 1, 2 * 7 / 9 * 450),  # S and its n-th part through one direction
        (A100, "all_reduce", 1, 300),
        (H100, "all_gather", 1, 450),
        (NDR, "all_reduce", 2, 2 * 15 / 16 * 400),  # half of S need not cross twice
        (NDR, "all_reduce", 4, 31 / 32 * 4 / 3 * 400),
        (NDR, "all_gather", 2, 15 / 14 * 450),  # of 15/8 x 400, NVLink binds first
        (DGX_A100, "all_gather", 2, 15 / 14 * 300),
        (NDR, "alltoall", 2, 15 / 8 * 50),
        (NDR, "alltoall", 128, 1023 / 1016 * 50),
        (NDR, "broadcast", 2, 400),
        (machine("HGX H100", gpus=1, nics=1, gbps=400), "all_reduce", 2, 50),
        (machine("HGX H100", nics=8, gbps=400, sharp=True), "all_reduce", 64, 2 * 511 / 512 * 400),
    ],
)
def test_limits(built: RooflineMachine, collective: str, nodes: int, limit: float) -> None:
    assert roof(built, collective, nodes).limit == pytest.approx(limit)


def test_the_binding_wire_is_named() -> None:
    assert roof(H100, "all_reduce", 1).wire.name == "NVSwitch, reducing (NVLS)"
    assert roof(A100, "all_reduce", 1).wire.name == "NVLink of a GPU"
    assert roof(NDR, "all_reduce", 2).wire.name == "8 NICs of 400 Gb/s"
    assert roof(GB200, "all_reduce", 36).wire.name == "NVSwitch, reducing (NVLS)"
    assert roof(GB200, "alltoall", 36).wire.name == "72 NICs of 400 Gb/s"
    assert roof(replace(H100, nvls=False), "all_reduce", 1).wire.name == "NVLink of a GPU"


def test_what_there_is_no_model_for() -> None:
    assert roofline("hypercube", H100, 1) is None
    assert roofline("all_reduce", H100, 2) is None, "its NICs are not known"
    assert roofline("all_reduce", machine("HGX H100", gpus=1), 1) is None, "one rank"
    pcie = part_by_name("L40S PCIe")
    assert pcie is not None
    assert machine_of(pcie, 8) is None


@pytest.mark.parametrize("working", range(1, 8))
def test_nics_that_carry_nothing(working: int) -> None:
    found = roof(NDR, "all_gather", 4)
    by_nics = working / 8 * 0.95 * 400
    judged = judge(by_nics, found, NDR)
    if judged.word == "degraded":
        assert judged.causes[0] == f"{working} of 8 NICs carry the traffic"


def test_what_a_figure_proves() -> None:
    assert (
        proof(480, roof(H100, "all_reduce", 1), H100) == "; more than 450 GB/s proves that the NVSwitches reduce (NVLS)"
    )
    assert proof(455, roof(H100, "all_reduce", 1), H100) == ""
    assert proof(235, roof(A100, "all_reduce", 1), A100) == ""
    maybe = replace(NDR, sharp=None)
    assert proof(430, roof(maybe, "all_reduce", 32), maybe).endswith("proves that switches reduce (SHARP)")
    assert proof(380, roof(maybe, "all_reduce", 32), maybe) == ""
    assert proof(700, roof(NDR, "all_reduce", 2), NDR).endswith("(NVLS)"), "two nodes: no SHARP is needed for it"


def test_causes() -> None:
    assert judge(360, roof(H100, "all_reduce", 1), H100).causes[0].startswith("a ring instead of NVLS")
    assert "PCIe or shared memory" in judge(20, roof(H100, "all_reduce", 1), H100).causes[0]
    assert "TCP" in judge(2, roof(NDR, "all_reduce", 2), NDR).causes[0]


def test_verdicts_at_their_boundaries() -> None:
    found = roof(A100, "all_reduce", 1)
    for share, word, fails in ((0.9, "as expected", False), (0.899, "degraded", False), (0.75, "degraded", False),
                               (0.749, "degraded", True)):  # fmt: skip
        judged = judge(share * found.customary, found, A100)
        assert (judged.word, judged.fails) == (word, fails)
    assert judge(1.02 * found.limit, found, A100).word == "as expected"
    assert judge(1.021 * found.limit, found, A100).word == "impossible"


def test_operators_floors_of_the_catalogue_are_below_its_rooflines() -> None:
    for part in PARTS:
        built = machine_of(part)
        if built is not None and part.all_reduce_gbytes_s is not None:
            assert part.all_reduce_gbytes_s < roof(built, "all_reduce", 1).customary


@pytest.mark.parametrize(
    ("name", "gpu"),
    [
        ("NVIDIA A100-SXM4-80GB", "A100 SXM"), ("A100-SXM4-40GB", "A100 SXM"), ("Tesla V100-SXM2-16GB", "V100 SXM"),
        ("NVIDIA H100 80GB HBM3", "H100 SXM"), ("NVIDIA H200", "H200 SXM"), ("NVIDIA B200", "B200 SXM"),
        ("NVIDIA GB200", "GB200"), ("NVIDIA H100 PCIe", None), ("NVIDIA H200 NVL", None), ("NVIDIA L40S", None),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None), ("AMD Instinct MI300X", None), ("", None),
    ],
)  # fmt: skip
def test_names_of_the_cuda_runtime(name: str, gpu: str | None) -> None:
    found = gpu_named(name)
    assert (found.name if found else None) == gpu


@pytest.mark.parametrize(
    ("dtype", "operation", "reduced"),
    [
        ("float", "sum", True), ("bfloat16", "max", True), ("half", None, True), ("float", "min", False),
        ("f8e4m3", "sum", False), ("int8", "sum", False), ("float", "prod", False), ("bfloat16", "avg", False),
    ],
)  # fmt: skip
def test_what_nvswitches_reduce(dtype: str, operation: str | None, reduced: bool) -> None:
    assert switches_reduce(dtype, operation) is reduced


# --- fat tree and batches: the documents' H100 SuperPOD --------------------------------------------

SUPERPOD = fat_tree.FatTree(
    gpus=8, nvlink=450, nic=50, nics=8, unit_nodes=32, unit_leaves=8, units=4, spines=16, links_per_spine=2,
    nvswitches=6400, switch=1600,
)  # fmt: skip


def test_levels_of_the_documents_superpod() -> None:
    node, leaf, spine = SUPERPOD.levels()
    assert (node.bandwidth, node.per_gpu, node.binds) == (3600, 450, "links")
    assert (leaf.links, leaf.switches, leaf.per_gpu, leaf.gpus) == (12800, 12800, 50, 256)
    assert leaf.binds == "links and switches"
    assert (spine.links, spine.switches, spine.per_gpu, spine.gpus) == (51200, 25600, 25, 1024)
    assert spine.binds == "switches"


def test_times_over_the_superpod() -> None:
    levels = SUPERPOD.levels()
    time, level = fat_tree.seconds("all_reduce", 10**9, levels, in_network=True)
    assert time == pytest.approx(1 / 400)
    assert level.name == "leaf"
    assert fat_tree.seconds("all_reduce", 10**9, levels, in_network=False)[0] == pytest.approx(2 / 400)
    assert fat_tree.seconds("all_gather", 10**9, levels, in_network=False)[0] == pytest.approx(1 / 400)
    assert fat_tree.seconds("all_gather", 10**9, levels[:1], in_network=False)[0] == pytest.approx(1 / 450)
    time, level = fat_tree.seconds("alltoall", 10**9, levels, in_network=False)
    assert time == pytest.approx(768 / 1024 / 25)
    assert level.name == "spine"


def test_one_unit_has_no_spine() -> None:
    assert [level.name for level in replace(SUPERPOD, units=1).levels()] == ["node", "leaf"]


@pytest.mark.parametrize(("ways", "node", "leaf", "spine"), [(64, 28.8e3, 3.2e3, 6.4e3), (256, 115.2e3, 12.8e3, 6.4e3)])
def test_an_array_sharded_over_neighbours_fills_the_levels_above_less(
    ways: int, node: float, leaf: float, spine: float
) -> None:
    """The document's bandwidths for 64-way and 256-way sharding on its SuperPOD, GB/s."""
    levels = fat_tree.FatTree(8, 450, 50, 8, 32, 8, 4, 16, 2, 6400, 1600).levels()
    time, _ = fat_tree.seconds("all_reduce", 10**9, levels, in_network=True, ways=ways)
    assert 1 / time == pytest.approx(min(node, leaf, spine))


def test_batches_of_the_documents() -> None:
    """Document 002, section on rooflines: 1098 in a node, 1236 above it, 2472 for FSDP, 4944 and 77."""
    flops = BF16_FLOPS["H100 SXM"]
    assert int(batch.data_parallel(flops, 450e9)) == 1098
    assert int(batch.data_parallel(flops, 400e9)) == 1236
    assert int(batch.fully_sharded(flops, 400e9)) == 2472
    assert 16384 / batch.tensor_ways(898e12, 450e9, 16384, 8) == pytest.approx(1746, abs=1)
    assert int(batch.least(flops, 400e9, experts=256, active=8, speedup=8) / 4) == 1236  # 1236 x 256 / 8 / 8 = 4944
    assert 1236 * 256 // 8 // 8 == 4944
    levels = fat_tree.FatTree(8, 450, 50, 8, 32, 8, 4, 16, 2, 6400, 1600).levels()
    time, slowest = fat_tree.seconds("all_reduce", 10**9, levels, in_network=True, ways=256)
    assert (slowest.name, round(1 / time)) == ("spine", 6400)
    assert int(batch.least(flops, 1e9 / time)) == 77


def test_memory_bandwidths_of_the_datasheets() -> None:
    """The size decides for A100 with its two kinds of memory; plans and checks use the same figures."""
    gpus = {gpu.name: gpu for gpu in GPUS}
    assert memory_bandwidth(gpus["B200 SXM"]) == bandwidth_of_name("NVIDIA B200") == 7.7e12
    assert memory_bandwidth(gpus["GB200"]) == 8e12
    assert memory_bandwidth(gpus["A100 SXM"]) is None
    assert memory_bandwidth(gpus["A100 SXM"], 40.0) == bandwidth_of_name("A100-SXM4-40GB") == 1.555e12
    assert memory_bandwidth(gpus["A100 SXM"], 80.0) == bandwidth_of_name("NVIDIA A100-SXM4-80GB") == 2.039e12
    assert memory_bandwidth(gpus["A100 SXM"], 64.0) is None
    assert bandwidth_of_name("NVIDIA T4") is None
    plan = hardware.described("4 x HGX B200")
    assert plan.memory_bandwidth == memory_bandwidth(gpus["B200 SXM"])
