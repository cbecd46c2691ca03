"""Comparison of software and firmware across nodes of one kind."""

from __future__ import annotations

import posixpath
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from preflight import facts
from preflight.checks.comparison.compare import compare
from preflight.checks.comparison.electorate import Misses, Trait
from preflight.checks.comparison.values import (
    PerDevice,
    installed,
    of_gpus,
    on_gpu_nodes,
    on_rdma_nodes,
    several,
    text,
    where_there,
)
from preflight.checks.gpu import part
from preflight.expectations import Site
from preflight.facts import system_settings
from preflight.facts.kernel import NVIDIA_VERSION
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import ROOT
from preflight.facts.versions import LIBRARIES
from preflight.model import Finding, check
from preflight.parsers.nvidia.driver_version import open_modules
from preflight.parsers.nvidia.toolkit_version import toolkit_version


def _torch(node: NodeFacts, site: Site) -> str | None:
    return several(package.version for package in node.packages if package.name == "torch")


def _plugins(node: NodeFacts, site: Site) -> str | None:
    """Return NCCL's plug-ins in the loader's directories, or "none"."""
    if not node.gpus_on_bus:
        return None
    names = {posixpath.basename(library.path).split(".so")[0] for library in node.libraries}
    plugins = {name for name in names if name.startswith(("libnccl-net", "libnccl-tuner", "libnccl-profiler"))}
    return several(plugins) or "none"


def _flavour(driver: str) -> str:
    return "open" if open_modules(driver) else "proprietary"


def _release(output: str) -> str:
    return output.strip().rstrip(":")


SOFTWARE = (
    Trait("PyTorch", "file:*.dist-info/INSTALLER", _torch, breaks=True, expects="versions.pytorch"),
    Trait("NCCL plug-ins", LIBRARIES, _plugins, breaks=True, expects="versions.nccl_plugins"),
    Trait(
        "NVIDIA kernel modules",
        NVIDIA_VERSION,
        on_gpu_nodes(text(NVIDIA_VERSION, _flavour)),
        expects="versions.kernel_modules",
    ),
    Trait(
        "CUDA toolkit",
        system_settings.CUDA,
        on_gpu_nodes(where_there(system_settings.CUDA, system_settings.cuda_version)),
        expects="versions.cuda",
    ),
    Trait(
        "OFED or DOCA",
        system_settings.OFED,
        on_rdma_nodes(installed(system_settings.OFED, _release)),
        expects="versions.ofed",
    ),
    Trait(
        "mlx5_core",
        "file:/sys/module/mlx5_core/version",
        on_rdma_nodes(where_there("file:/sys/module/mlx5_core/version")),
        expects="versions.mlx5_core",
    ),
    Trait(
        "efa",
        "file:/sys/module/efa/version",
        on_rdma_nodes(where_there("file:/sys/module/efa/version")),
        expects="versions.efa",
    ),
    Trait(
        "NVIDIA container toolkit",
        system_settings.TOOLKIT,
        on_gpu_nodes(installed(system_settings.TOOLKIT, toolkit_version)),
        expects="versions.container_toolkit",
    ),
)


@check(
    "fleet.software",
    title="All nodes have the same job software",
    fault="A node's job software differs",
    impact="drifts",
    source="PyTorch and NCCL: all ranks of a job must run the same version; majority of at least 3 nodes and 60%",
    fix="Decide which version is right (`pip list`, `ofed_info -s`, `lsmod`) and install it on all nodes, "
    "ideally from one image.",
    action="fix-site",
    answers=("PA-03",),
    scope="fleet",
    reads=("file:*.dist-info/INSTALLER",),
)
def software(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare PyTorch, NCCL plug-ins, CUDA, OFED, drivers and container toolkit.

    ## Why it matters
    Ranks of one job that load different software may take different code paths: the job fails at start or hangs in its
    first collective, or one node is slower than all others.

    ## Verdicts
    A different PyTorch, or an NCCL plug-in on only some nodes, fails; other differences warn, because jobs survive
    them. The NVIDIA driver and NCCL have their own checks. Software that is missing in a container is not a
    difference.

    ## False alarms
    A rolling upgrade; a toolkit on the host that jobs in containers never load.
    """
    yield from compare(nodes, sites, SOFTWARE)


class _OfBoard(PerDevice):
    """Firmware of NICs with the same board id."""

    def __init__(self, board: str) -> None:
        self._board = board

    def devices(self, node: NodeFacts) -> dict[str, str]:
        versions: dict[str, str] = node.remember_for_fleet(
            f"firmware of NICs {self._board}", facts.nic_firmware.of_board, node, self._board
        )
        return versions


def nic_firmware(boards: Iterable[str]) -> Iterator[Trait]:
    """Yield a trait for each board (PSID).

    Firmware is specific to a board, so only NICs of one board are compared.
    """
    for board in sorted(boards):
        yield Trait(f"firmware of NICs {board}", f"file:{ROOT}/*/fw_ver", _OfBoard(board), alone=False,
                    misses=_mixed(board), expects=f"firmware.nics.{board}")  # fmt: skip


def _mixed(board: str) -> Misses:
    """Return a function that names rdma.firmware if a board has mixed firmware."""

    def by(node: NodeFacts, site: Site) -> tuple[str, ...]:
        versions = set(_OfBoard(board).devices(node).values())
        right = site.alternatives(f"firmware.nics.{board}")
        return ("rdma.firmware",) if len(versions) > 1 and not versions <= set(right) else ()

    return by


def _boards(node: NodeFacts) -> tuple[str, ...]:
    def read_boards() -> tuple[str, ...]:
        return tuple(facts.nic_firmware.boards(node))

    return node.remember_for_fleet("boards of NICs", read_boards)


def _gsp(node: NodeFacts, site: Site) -> str | None:
    """Return the GSP firmware's version; "the driver's" if the two are equal.

    Nodes with different drivers thus do not differ in this value too: fleet.driver-equal reports them.
    """
    found = of_gpus("gsp", lambda gpu: gpu.gsp)(node, site)
    return "the driver's" if found is not None and found == node.gpu_health.driver else found


FIRMWARE = (
    Trait(
        "VBIOS",
        "nvml:gpus",
        of_gpus("vbios", lambda gpu: gpu.vbios),
        judged_by=(part.firmware,),
        expects="firmware.vbios",
    ),
    Trait(
        "InfoROM",
        "nvml:gpus",
        of_gpus("inforom", lambda gpu: gpu.inforom),
        judged_by=(part.firmware,),
        expects="firmware.inforom",
    ),
    Trait("GSP firmware", "nvml:gpus", _gsp, judged_by=(part.firmware,), expects="firmware.gsp"),
)


@check(
    "fleet.firmware",
    title="NICs and GPUs run the same firmware on all nodes",
    fault="A node's firmware differs",
    impact="drifts",
    source="NVIDIA DGX firmware update guides: one bundle for all nodes; majority of at least 3 nodes and 60%",
    fix="Update with `mlxfwmanager` (NICs) or the vendor's bundle (GPUs), then reset or power-cycle to activate it.",
    action="fix-site",
    scope="fleet",
)
def firmware(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare NIC firmware by board (PSID), and VBIOS, InfoROM and GSP of GPUs.

    ## Why it matters
    Firmware controls how a NIC reacts to congestion and how a GPU handles errors. A node with another release may
    behave differently in ways that no setting shows.

    ## Verdicts
    Differences warn, because jobs still run. GSP firmware comes with the driver; a different version means that the
    driver is only partly loaded.

    ## False alarms
    NICs or GPUs that were replaced by a newer revision with different firmware.
    """
    mine: dict[str, list[NodeFacts]] = defaultdict(list)
    for node in nodes:
        mine[sites[node.node].class_name].append(node)
    for members in mine.values():
        yield from compare(
            members, sites, (*FIRMWARE, *nic_firmware({board for node in members for board in _boards(node)}))
        )
