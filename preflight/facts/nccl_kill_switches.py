"""NCCL variables that disable a transport.

They help to find a fault, but are harmful if left set. The disabling values follow NCCL's source (src/transport/*.cc,
src/graph/paths.cc, 2.30): P2P_DISABLE and SHM_DISABLE act only at 1, IB_DISABLE at anything but 0, a level at LOC or,
in the old numbering, 0.
"""

from __future__ import annotations

from collections.abc import Callable

from preflight._startup.lightclass import dataclass
from preflight.facts.nccl_environment import strtoll


def _nonzero(value: str) -> bool:
    return bool(strtoll(value))


def _one(value: str) -> bool:
    return strtoll(value) == 1


def _zero(value: str) -> bool:
    return strtoll(value) == 0


def _loc(value: str) -> bool:
    return value == "LOC" or (value[0].isdigit() and strtoll(value) == 0)


@dataclass(frozen=True)
class Switch:
    """A variable that disables a transport: its disabling values and its effect."""

    on: Callable[[str], bool]  # whether NCCL treats this (non-empty) value as disabling
    effect: str
    of_rdma: bool = False  # without effect if there is no RDMA device


SWITCHES = {
    "NCCL_IB_DISABLE": Switch(_nonzero, "disables InfiniBand and RoCE", True),
    "NCCL_NET": Switch(lambda value: value.casefold() == "socket", "forces TCP", True),
    "NCCL_P2P_DISABLE": Switch(_one, "switches GPU peer-to-peer off"),
    "NCCL_P2P_LEVEL": Switch(_loc, "switches GPU peer-to-peer off"),
    "NCCL_SHM_DISABLE": Switch(_one, "switches shared memory off"),
    "NCCL_NET_GDR_LEVEL": Switch(_loc, "switches GPUDirect RDMA off", True),
    "NCCL_NET_GDR_READ": Switch(_zero, "stages every send through host memory", True),
    "NCCL_NET_GDR_C2C": Switch(_zero, "disables GPUDirect RDMA for NICs that are attached to the processor", True),
    "NCCL_DMABUF_ENABLE": Switch(
        _zero, "prevents RDMA from accessing GPU memory if no peer-memory module is loaded", True
    ),
    "NCCL_PXN_DISABLE": Switch(_nonzero, "moves traffic between rails over the network instead of over NVLink", True),
    "NCCL_MNNVL_ENABLE": Switch(_zero, "disables NVLink between nodes"),
    "NCCL_NVLS_ENABLE": Switch(_zero, "switches NVLink SHARP off"),
}
