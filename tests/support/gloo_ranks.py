"""Flight-recorder dumps of real Gloo ranks, and torchfrtrace's findings in them.

Run by a Python that has PyTorch 2.13 (the analyser of 2.10 refuses Gloo), never imported by the tests:
``python gloo_ranks.py FOLDER CASE`` starts four processes that call the collectives of the case, dumps each rank's
recorder into ``FOLDER`` as PyTorch does (``rank_N``, a pickle), and prints torchfrtrace's verdict on each collective
as JSON.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pickle
import socket
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.flight_recorder.components.builder import build_db
from torch.distributed.flight_recorder.components.config_manager import JobConfig
from torch.distributed.flight_recorder.components.loader import read_dir

RANKS = 4
LONGEST = 200  # time limit of an attempt in seconds: on a busy machine, starting takes most of it
ATTEMPTS = 4  # Gloo aborts ranks with different sizes, sometimes before they record the call
#: Calls of each rank: (collective, elements, type, group) in order. Unlisted ranks make the calls of None.
Calls = dict["int | None", list[tuple[Any, ...]]]
_SUM = ("all_reduce", 64)
CASES: dict[str, Calls] = {
    "healthy": {None: [_SUM, ("all_gather", 8), ("broadcast", 16), ("reduce", 16), ("gather", 4), ("scatter", 4),
                       ("reduce_scatter", 8), ("all_to_all", (2, 2, 2, 2), (2, 2, 2, 2)), _SUM]},
    "uneven all-to-all": {rank: [_SUM, ("all_to_all", (rank + 1,) * 4, (1, 2, 3, 4)), _SUM] for rank in range(4)},
    "behind": {None: [_SUM] * 4, 1: [_SUM] * 3},
    "two behind": {None: [_SUM] * 4, 1: [_SUM] * 3, 2: [_SUM] * 2},
    "other collective": {None: [_SUM, _SUM, _SUM], 2: [_SUM, ("all_gather", 64), _SUM]},
    "other order": {None: [_SUM, ("broadcast", 16), ("reduce", 16)], 3: [_SUM, ("reduce", 16), ("broadcast", 16)]},
    "other size": {None: [_SUM, _SUM], 0: [_SUM, ("all_reduce", 65)]},
    "other size gathered": {None: [_SUM, ("all_gather", 8)], 1: [_SUM, ("all_gather", 9)]},
    "other size scattered": {None: [_SUM, ("reduce_scatter", 8)], 3: [_SUM, ("reduce_scatter", 12)]},
    "other type": {None: [_SUM, _SUM], 2: [_SUM, ("all_reduce", 64, "float64")]},
    "totals of all-to-all": {None: [_SUM, ("all_to_all", (2, 2, 2, 2), (2, 2, 2, 2))],
                             1: [_SUM, ("all_to_all", (2, 2, 2, 2), (2, 2, 3, 2))]},
    "behind in a group": {None: [_SUM, _SUM], 0: [_SUM, ("all_reduce", 32, "float32", (0, 1)), _SUM]},
}  # fmt: skip


def _call(kind: str, size: Any, *rest: Any) -> Any:
    """Call a collective and do not wait for it."""
    rank, world = dist.get_rank(), dist.get_world_size()
    if kind == "all_to_all":
        outputs, inputs = (size, rest[0])
        return dist.all_to_all_single(torch.zeros(sum(outputs)), torch.zeros(sum(inputs)), list(outputs), list(inputs),
                                      async_op=True)  # fmt: skip
    dtype = getattr(torch, rest[0]) if rest else torch.float32
    group = _GROUPS[rest[1]] if len(rest) > 1 else None
    tensor = torch.zeros(size, dtype=dtype)
    many = [torch.zeros(size, dtype=dtype) for _ in range(world)]
    if kind == "all_reduce":
        return dist.all_reduce(tensor, group=group, async_op=True)
    if kind == "all_gather":
        return dist.all_gather(many, tensor, async_op=True)
    if kind == "reduce_scatter":
        return dist.reduce_scatter(tensor, many, async_op=True)
    if kind == "gather":
        return dist.gather(tensor, many if rank == 0 else None, async_op=True)
    if kind == "scatter":
        return dist.scatter(tensor, many if rank == 0 else None, async_op=True)
    return getattr(dist, kind)(tensor, 0, async_op=True)


_GROUPS: dict[tuple[int, ...], Any] = {}


def _dump(folder: str, rank: int, groups: dict[str, Any]) -> None:
    """Write the recorder with process groups, which Gloo leaves out."""
    recorded = pickle.loads(torch._C._distributed_c10d._dump_fr_trace())
    recorded |= {"rank": rank, "host_name": "localhost", "pg_config": groups}
    path = Path(folder, f".{rank}")
    path.write_bytes(pickle.dumps(recorded, protocol=2))
    path.rename(Path(folder, f"rank_{rank}"))


def _run(rank: int, folder: str, port: int, case: str) -> None:
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    calls = CASES[case]
    for members in sorted({call[3] for each in calls.values() for call in each if len(call) > 3}):
        _GROUPS[members] = dist.new_group(list(members))
    dist.barrier()
    groups = {dist.group.WORLD: tuple(range(RANKS))} | {group: members for members, group in _GROUPS.items()}
    named = {dist.distributed_c10d._world.pg_names.get(group): members for group, members in groups.items()}
    config = {
        name: {"name": name, "desc": "default_pg" if len(members) == RANKS else "pair", "ranks": str(list(members))}
        for name, members in named.items() if rank in members
    }  # fmt: skip
    for call in calls.get(rank, calls.get(None, [])):
        time.sleep(0.05 * (1 + rank))  # in turn: Gloo aborts ranks with different sizes soon after the call
        try:
            _call(*call)
        except (RuntimeError, ValueError) as error:
            print(f"rank {rank}: {call}: {error}", file=sys.stderr)
        _dump(folder, rank, config)
    for second in range(LONGEST):  # until the parent ends it: a rank that exits early would end its peers' calls
        time.sleep(1)
        _dump(folder, rank, config)  # again: a rank that calls later completes calls of this one
        if second == 2:  # what can complete has; the rest hangs
            Path(folder, f"done_{rank}").touch()


def analyse(folder: str) -> list[dict[str, Any]]:
    """Return torchfrtrace's collectives: group, number, verdict and missing ranks."""
    options = JobConfig().parse_args([folder, "--prefix", "rank_", "--allow-incomplete-ranks"])
    details, version = read_dir(options)
    database = build_db(details, options, version)
    return [
        {
            "group": collective.pg_desc,
            "seq": collective.collective_seq_id,
            "good": collective.pass_check,
            "missing": sorted(collective.missing_ranks or []),
        }
        for collective in database.collectives
    ]


def _complete(folder: str, case: str) -> bool:
    """Return whether every rank recorded all its calls and the barrier."""
    calls = CASES[case]
    dumps = [Path(folder, f"rank_{rank}") for rank in range(RANKS)]
    return all(
        path.exists() and len(pickle.loads(path.read_bytes())["entries"]) > len(calls.get(rank, calls.get(None, [])))
        for rank, path in enumerate(dumps)
    )


def _attempt(folder: str, case: str) -> None:
    """Run the ranks until each is done or dead."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranks = [multiprocessing.Process(target=_run, args=(rank, folder, port, case)) for rank in range(RANKS)]
    for process in ranks:
        process.start()
    deadline = time.monotonic() + LONGEST
    while time.monotonic() < deadline:
        if all(Path(folder, f"done_{rank}").exists() or not ranks[rank].is_alive() for rank in range(RANKS)):
            break
        time.sleep(0.05)
    for process in ranks:
        process.kill()
        process.join()
    for path in Path(folder).glob("done_*"):
        path.unlink()


def main() -> None:
    """Run one case."""
    folder, case = sys.argv[1:]
    os.environ["TORCH_FR_BUFFER_SIZE"] = "2000"  # inherited by the ranks; without it, Gloo records nothing
    for _ in range(ATTEMPTS):
        _attempt(folder, case)
        if _complete(folder, case):
            break
    print(json.dumps(analyse(folder)))


if __name__ == "__main__":
    multiprocessing.set_start_method("spawn")
    main()
