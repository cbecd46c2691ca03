"""Generator of NCCL logs of any size: interleaved ranks, formats of several versions.

``python -m tests.support.nccl_log_generate --ranks 1024 --mib 1024 --version 2.21 -o FILE``. The same seed gives the
same bytes. It is for measurements and counts only; real logs (tests/data/outside) decide whether the formats are right.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

VERSIONS = ("2.4", "2.12", "2.18", "2.21", "2.27")
_FULL = {"2.4": "2.4.8+cuda10.1", "2.12": "2.12.12+cuda11.8", "2.18": "2.18.3+cuda12.1", "2.21": "2.21.5+cuda12.4",
         "2.27": "2.27.5+cuda12.9"}  # fmt: skip
_DRIVER = {"2.12": 11080, "2.18": 12010, "2.21": 12040, "2.27": 12090}
LOCAL = 8  # GPUs, and HCAs, of a node
CHANNELS = 16


@dataclass(frozen=True)
class Job:
    """Content of the log."""

    version: str = "2.21"
    ranks: int = 1024
    seed: int = 0
    dead: int | None = None  # a rank that fails at the end, and its peers with it
    launcher: str = ""  # put before each line; {rank} is the rank

    @property
    def nodes(self) -> int:
        """Number of nodes."""
        return -(-self.ranks // LOCAL)

    def at_least(self, version: str) -> bool:
        """Return whether the log's version is at least this one."""
        return VERSIONS.index(self.version) >= VERSIONS.index(version)

    def head(self, rank: int) -> bytes:
        """Return the prefix of each line of a rank."""
        pid = 40_000 + rank % LOCAL * 7
        mark = self.launcher.format(rank=rank)
        return f"{mark}gpu{rank // LOCAL + 1:03d}:{pid}:{pid + 900} [{rank % LOCAL}] ".encode()


def generate(job: Job, size: int, out: BinaryIO) -> int:
    """Write a log of at least this many bytes; return its number of lines."""
    dice = random.Random(job.seed)
    written = count = 0
    for block in _blocks(job, dice, size):
        out.write(block)
        written += len(block)
        count += block.count(b"\n")
    return count


def _blocks(job: Job, dice: random.Random, size: int) -> Iterator[bytes]:
    heads = [job.head(rank) for rank in range(job.ranks)]
    if not job.at_least("2.27"):
        yield job.launcher.format(rank=0).encode() + f"NCCL version {_FULL[job.version]}\n".encode()
    block = _interleaved([[heads[r] + m for m in _start(job, r)] for r in range(job.ranks)], dice)
    written = len(block)
    yield block
    number = 0
    while written < size:
        for members in _groups(job, number):
            block = _interleaved(
                [[heads[r] + m for m in _communicator(job, number, i, members)] for i, r in enumerate(members)], dice
            )
            written += len(block)
            yield block
        number += 1
    if job.dead is not None:
        yield _interleaved([[heads[r] + m for m in _end(job, r)] for r in range(job.ranks)], dice, in_blocks=True)


def _groups(job: Job, number: int) -> list[list[int]]:
    """Return the members of communicators that are created together: all, then those of equal local rank."""
    if number % 2 == 0 or job.nodes < 2:
        return [list(range(job.ranks))]
    return [list(range(local, job.ranks, LOCAL)) for local in range(min(LOCAL, job.ranks))]


def _interleaved(per_rank: list[list[bytes]], dice: random.Random, *, in_blocks: bool = False) -> bytes:
    """Interleave the lines of all ranks; each rank's own lines stay in order."""
    order = list(range(len(per_rank)))
    next_line = [0] * len(order)
    lines: list[bytes] = []
    if in_blocks:  # the first rank that reports an error comes first
        order.sort(key=lambda i: b"Got completion" not in per_rank[i][0])
        return b"\n".join(line for i in order for line in per_rank[i]) + b"\n"
    while order:
        dice.shuffle(order)
        left = []
        for i in order:
            begin, burst = next_line[i], 1 + int(dice.random() * 6)
            lines += per_rank[i][begin : begin + burst]
            next_line[i] = begin + burst
            if begin + burst < len(per_rank[i]):
                left.append(i)
        order = left
    return b"\n".join(lines) + b"\n"


def _start(job: Job, rank: int) -> list[bytes]:
    """Return the lines that a process prints once."""
    address = f"10.1.{rank // LOCAL // 250}.{rank // LOCAL % 250 + 1}"
    space = "" if job.at_least("2.27") else " "
    relaxed = " [RO]" if job.at_least("2.12") else " "
    devices = " ".join(f"[{i}]mlx5_{i}:1/IB" for i in range(LOCAL))
    messages = [
        "NCCL_SOCKET_IFNAME set by environment to bond0" if job.at_least("2.12") else "NCCL_SOCKET_IFNAME set to bond0",
        f"Bootstrap{space}: Using {'[0]' if job.version == '2.4' else ''}bond0:{address}<0>",
    ]
    if job.version in _DRIVER:
        messages.append(f"cudaDriverVersion {_DRIVER[job.version]}")
    if job.at_least("2.27"):
        messages += [f"NCCL version {_FULL[job.version]}", "NET/Plugin: Could not find: libnccl-net.so. "]
    elif job.at_least("2.21"):
        messages += ["NET/Plugin: No plugin found (libnccl-net.so)", "NET/Plugin: Using internal network plugin."]
    else:
        messages.append("NET/Plugin : No plugin found (libnccl-net.so), using internal implementation")
    messages += [
        "NCCL_IB_HCA set to mlx5" if not job.at_least("2.21") else "NCCL_IB_HCA set to =mlx5_0,mlx5_1,mlx5_2,mlx5_3",
        "NCCL_IB_TIMEOUT set by environment to 22.",
        f"NET/IB : Using {devices}{relaxed}; OOB bond0:{address}<0>",
    ]
    if job.at_least("2.27"):
        messages += ["Initialized NET plugin IB", "Assigned NET plugin IB to comm"]
    return [b"NCCL INFO " + text.encode() for text in messages]


def _communicator(job: Job, number: int, i: int, members: list[int]) -> list[bytes]:
    """Return the lines of one rank about one communicator; ``i`` is its rank in it."""
    rank, n = members[i], len(members)
    local, stride = rank % LOCAL, 1 if n == job.ranks else LOCAL
    per_node = min(LOCAL, job.ranks) if stride == 1 else 1
    call = "ncclCommInitRank " if job.at_least("2.21") else ""
    bus, pointer = f"{0x19000 + local * 0x1000:x}", f"0x{0x55D000000000 + number * 0x1000 + rank * 0x40:x}"
    device = f"cudaDev {local} " + (f"nvmlDev {local} " if job.version != "2.12" else "")
    comm = f"{call}comm {pointer} rank {i} nranks {n} {device}"
    if job.at_least("2.12"):
        comm += f"busId {bus} "
    if job.at_least("2.18"):
        comm += f"commId 0x{(number * 64 + (0 if stride == 1 else local) + 1) * 0x9E3779B97F4A7C15 % 2**64:x} "
    messages = [] if job.version == "2.4" else ["Using network IB"]
    if job.at_least("2.18"):
        messages.append(comm + "- Init START")
    messages.append(f"Setting affinity for GPU {local} to {'ffffffff,00000000' if local > 3 else '00000000,ffffffff'}")
    if job.at_least("2.21"):
        nodes = f"nNodes {n // per_node} localRanks {per_node} localRank {i % per_node}"
        messages.append(f"comm {pointer} rank {i} nRanks {n} {nodes} MNNVL 0")
    if i == 0:
        order = " ".join(f"{r:3d}" for r in range(n))
        messages += [f"Channel {c:02d}/{CHANNELS:02d} : {order}" for c in range(CHANNELS)]
    trees = " ".join(f"[{c}] {(i + 1) % n}/-1/-1->{i}->{(i - 1) % n if i else -1}" for c in range(CHANNELS))
    messages.append(f"Trees {trees}")
    lines = [b"NCCL INFO " + text.encode() for text in messages]
    lines += _connections(job, number, i, members, per_node)
    rings = "Connected all rings, use ring PXN 0 GDR 1" if job.at_least("2.27") else "Connected all rings"
    messages = [rings, "Connected all trees", "threadThresholds 8/8/64 | 8192/8/64 | 512 | 512"]
    if job.at_least("2.18"):
        messages.append("16 coll channels, 0 nvls channels, 32 p2p channels, 2 p2p channels per peer")
    lines += [b"NCCL INFO " + text.encode() for text in [*messages, comm + "- Init COMPLETE"]]
    return lines


def _connections(job: Job, number: int, i: int, members: list[int], per_node: int) -> Iterator[bytes]:
    """Yield the channel lines of a rank: rings, and in every third communicator its peers on the same rail."""
    n = len(members)
    form, gpu = _forms(job)
    inside = b"via P2P/IPC"
    if job.at_least("2.12"):
        inside = b"via P2P/CUMEM/read" if job.at_least("2.21") else b"via P2P/IPC/read"
    node, place = divmod(i, per_node)

    def name(r: int) -> bytes:
        return gpu(r, members[r] % LOCAL)

    for c in range(CHANNELS):
        head = form % ((c, 0) if job.at_least("2.12") else (c,))
        first = c % per_node
        last = (first - 1) % per_node
        if place == last:
            to = ((node + 1) * per_node + first) % n
            yield head + name(i) + b" -> " + name(to) + b" [send] via NET/IB/%d/GDRDMA" % (c % LOCAL)
        else:
            yield head + name(i) + b" -> " + name(node * per_node + (place + 1) % per_node) + b" " + inside
        if place == first:
            source = ((node - 1) * per_node + last) % n
            yield head + name(source) + b" -> " + name(i) + b" [receive] via NET/IB/%d/GDRDMA" % (c % LOCAL)
    if number % 3 == 0 and job.at_least("2.12") and n > per_node:
        shared = b"/GDRDMA/Shared"
        for peer in range(place, n, per_node):
            if peer == i:
                continue
            nic = members[i] % LOCAL
            for c in range(2):
                head = form % (c, 1)
                yield head + name(i) + b" -> " + name(peer) + b" [send] via NET/IB/%d" % nic + shared
                yield head + name(peer) + b" -> " + name(i) + b" [receive] via NET/IB/%d" % nic + shared


def _forms(job: Job) -> tuple[bytes, Callable[[int, int], bytes]]:
    form = b"NCCL INFO Channel %02d/%d : " if job.at_least("2.12") else b"NCCL INFO Ring %02d : "
    if job.version == "2.12":
        return form, lambda rank, local: b"%d[%x]" % (rank, 0x19000 + local * 0x1000)
    return form, lambda rank, local: b"%d[%d]" % (rank, local)


def _end(job: Job, rank: int) -> list[bytes]:
    """Return the last lines: one rank's network fails, and all others report it."""
    assert job.dead is not None
    address = f"10.1.0.{job.dead // LOCAL + 1}<41000>"
    if rank == job.dead:
        status = "status=12 opcode=0" if job.at_least("2.21") else "error 12, opcode 0,"
        text = f"NET/IB : Got completion from peer {address} with {status} len=0 vendor err 129 (Recv)"
        return [f"transport/net_ib.cc:1295 NCCL WARN {text}".encode()]
    return [
        f"misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer {address}".encode(),
        b"NCCL INFO misc/socket.cc:752 -> 6",
        b"NCCL INFO transport/net.cc:1247 -> 6 [Proxy Thread]",
    ]


def main() -> None:
    """Write one log."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=1024)
    parser.add_argument("--mib", type=float, default=100)
    parser.add_argument("--version", choices=VERSIONS, default="2.21")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--dead", type=int, help="a rank that fails in the end")
    parser.add_argument("-o", "--output", type=Path)
    given = parser.parse_args()
    job = Job(given.version, given.ranks, given.seed, given.dead)
    size = int(given.mib * 2**20)
    if given.output is None:
        generate(job, size, sys.stdout.buffer)
    else:
        with given.output.open("wb") as out:
            generate(job, size, out)


if __name__ == "__main__":
    main()
