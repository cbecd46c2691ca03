"""Usual and possible bus bandwidths of collectives, and the limiting links."""

from __future__ import annotations

from preflight._startup.lightclass import dataclass
from preflight.expectations.roofline.machine import RooflineMachine

#: GPU generation -> fraction of NVLink's line rate that a ring reaches on one node. Public runs of nccl-tests reach 235
#: of 300 GB/s on A100 x8, 361 of 450 on H200 x8, and 682 of 900 on B200 x8. NCCL's own constants give 0.80 to 0.82
#: (src/graph/topo.h: 20.0, 20.6 or 40.1 for a link of 25 or 50 GB/s).
RING = {"Volta": 0.80, "Ampere": 0.78, "Hopper": 0.80, "Blackwell": 0.76}

#: The same for an all_reduce in the NVSwitches: H100 470 to 487 and H200 478 to 490 of 450 GB/s; B200 800 to 840 of
#: 900.
NVLS = {"Hopper": 1.04, "Blackwell": 0.90}

#: The same for alltoall and sendrecv within an NVLink domain: A100 x8 226 of 300 GB/s.
PAIRS = 0.75

#: Fraction of the NICs' line rate that a collective reaches with GPUDirect RDMA: 46 to 48 of 50 GB/s, 23 to 24 of 25.
NICS = 0.95

#: The same for alltoall, whose many small messages cost more: 85 of 94 GB/s on two nodes (public run over EFA).
NIC_PAIRS = 0.90

SOURCE = "nccl-tests doc/PERFORMANCE.md; shares of the line rate as in public runs (roofline/collectives.py)"

MIB = 2**20


@dataclass(frozen=True)
class Constraint:
    """One constraint, with the busbw that is possible if it is the only one."""

    name: str
    line: float  # line rate, GB/s
    customary: float  # usual busbw, GB/s
    limit: float  # maximum possible busbw, GB/s


@dataclass(frozen=True)
class Roofline:
    """The bus bandwidth that a collective can reach on some ranks."""

    collective: str
    ranks: int
    nodes: int
    customary: float  # usual busbw, GB/s
    limit: float  # maximum possible busbw, GB/s
    wire: Constraint  # the limiting constraint
    nics: Constraint | None  # NICs of a node or rack; None if the collective does not span several
    ring: float | None  # busbw of a ring, GB/s; None unless NVLS is assumed
    smallest: int  # minimum message size in bytes for a comparison

    def seconds(self, size: int, factor: float) -> float:
        """Return the usual seconds of one operation on ``size`` bytes.

        ``factor`` is the ratio of busbw to algbw.
        """
        return size * factor / (self.customary * 1e9)


def roofline(collective: str, machine: RooflineMachine, nodes: int) -> Roofline | None:
    """Return the roofline of a collective on this many nodes.

    It is None if the collective has no model, or if it needs NICs that are unknown.
    """
    ranks = nodes * machine.gpus
    inside = min(machine.domain, ranks)  # ranks in one NVLink domain
    domains = -(-ranks // machine.domain)
    if ranks < 2 or collective not in _KINDS:
        return None
    wires = [_nvlink(collective, machine, ranks, inside)] if inside > 1 else []
    nics = _nics(collective, machine, ranks, inside, domains) if domains > 1 else None
    if nics is not None:
        wires.append(nics)
    elif domains > 1:
        return None
    binding = min(wires, key=lambda wire: wire.customary)
    ring = None
    if binding.name == _NVLS:
        ring = RING[machine.gpu.generation] * machine.nvlink
    # the size that reaches half of the peak grows with the ranks; 16 MiB per rank was enough in all public runs
    smallest = max((256 if nodes == 1 else 1024) * MIB, 16 * MIB * ranks)
    limit = min(wire.limit for wire in wires)
    return Roofline(collective, ranks, nodes, binding.customary, limit, binding, nics, ring, smallest)


_NVLS = "NVSwitch, reducing (NVLS)"
_NVLINK = "NVLink of a GPU"

#: Collective -> traffic pattern: both reduce-scatter and all-gather, one of them, from or to a root, all pairs, or
#: neighbours.
_KINDS = {
    "all_reduce": "both", "all_gather": "half", "reduce_scatter": "half", "broadcast": "root", "reduce": "root",
    "alltoall": "pairs", "sendrecv": "neighbour",
}  # fmt: skip


def _nvlink(collective: str, machine: RooflineMachine, ranks: int, inside: int) -> Constraint:
    line = machine.nvlink
    kind = _KINDS[collective]
    # data from a GPU's own NIC does not use NVLink
    own = inside / (inside - 1) * ((ranks - 1) / ranks if kind != "root" else 1) if ranks > inside else 1.0
    if kind in ("pairs", "neighbour"):
        # of T bytes, a rank sends those for the other ranks of its domain over NVLink
        share = (ranks - 1) / (inside - 1) if kind == "pairs" else 1.0
        return Constraint(_NVLINK, line, PAIRS * line * share, line * share)
    if kind == "both" and machine.reduces_in_switch(inside):
        # a GPU sends S bytes and the n-th part that it reduced, and receives as many
        limit = 2 * (ranks - 1) / ranks * line * inside / (inside + 1)
        return Constraint(_NVLS, line, NVLS[machine.gpu.generation] * line, limit)
    return Constraint(_NVLINK, line, RING.get(machine.gpu.generation, 0.76) * line, line * own)


def _nics(collective: str, machine: RooflineMachine, ranks: int, inside: int, domains: int) -> Constraint | None:
    node = machine.node_nics
    if node is None or machine.nic is None or machine.nics is None:
        return None
    line = node * inside / machine.gpus  # of all nodes in the domain
    number = round(machine.nics * inside / machine.gpus)
    name = f"{number} NIC{'s' * (number != 1)} of {machine.nic_gbps:g} Gb/s"
    kind = _KINDS[collective]
    outside = (ranks - 1) / (ranks - inside)
    if kind == "pairs":
        # each rank sends T (n-G)/n to other nodes
        return Constraint(name, line, NIC_PAIRS * line / inside * outside, line / inside * outside)
    if kind == "neighbour":
        # one flow crosses between nodes, over one NIC or one GPU's share of the NICs
        return Constraint(name, line, NICS * max(machine.nic, node / machine.gpus), line)
    if kind == "root":
        return Constraint(name, line, NICS * line, line)
    if kind == "half":
        # a domain must receive the T (n-G)/n that it lacks; a ring forwards T (n-1)/n
        return Constraint(name, line, NICS * line, line * outside)
    # S (N-1)/N is sent and received twice, or S once with SHARP; on two nodes, a ring's traffic is half
    limit = 2 * (ranks - 1) / ranks * line
    if machine.sharp is False:
        limit *= domains / (2 * (domains - 1))
    return Constraint(name, line, NICS * line, limit)
