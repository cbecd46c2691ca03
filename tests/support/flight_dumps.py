"""Dumps of PyTorch's flight recorder, made up in the form of version 2.10.

The form of the entries is that of the recordings in ``tests/data/outside/torch``; names, states and numbers of sends,
receives and batches are those that ProcessGroupNCCL gives them (torch/csrc/distributed/c10d, PyTorch 2.5 and later).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from preflight.parsers import torch
from preflight.parsers.torch import Recording


def dump(
    rank: int, calls: Sequence[Any], members: Sequence[int] = (0, 1, 2, 3), *, group: str = "0", size: int = 1024,
    from_record: int = 0, named: bool = True,
) -> str:  # fmt: skip
    """Write the dump of a rank; ``from_record``: calls that have left the ring buffer."""
    entries: list[dict[str, Any]] = []
    numbers = {True: 0, False: 0}
    for call in calls:
        batch = call if isinstance(call, list) else [call]
        p2p = batch[0].startswith(("send", "recv"))
        numbers[p2p] += 1
        done = not any(one.endswith("!") for one in batch)
        names = [one.rstrip("!") for one in batch] + ["coalesced"] * isinstance(call, list)
        for name in names:
            is_last = name == names[-1]  # the calls of a batch never leave their first state
            entries.append({
                "record_id": len(entries), "pg_id": 0, "process_group": [group, "default_pg"],
                "collective_seq_id": numbers[False], "p2p_seq_id": numbers[True], "op_id": len(entries) + 1,
                "profiling_name": f"nccl:{name}", "input_sizes": [[] if name == "coalesced" else [size]],
                "output_sizes": [[] if name == "coalesced" else [size]],
                "input_dtypes": ["BFloat16"], "output_dtypes": ["BFloat16"], "is_p2p": p2p,
                "state": "completed" if done and is_last else "scheduled", "retired": done and is_last,
                "time_created_ns": 1795287428770992634 + len(entries), "timeout_ms": 600000,
            })  # fmt: skip
    config = {group: {"name": group, "desc": "default_pg", "ranks": json.dumps(list(members))}} if named else {}
    document = {"version": "2.10", "comm_lib_version": "2.26.2", "rank": rank, "pg_config": config, "pg_status": {},
             "entries": entries[from_record:]}  # fmt: skip
    return json.dumps(document)


def recording(*args: Any, **options: Any) -> Recording:
    """Read such a dump."""
    found = torch.parse(dump(*args, **options)).recording
    assert found is not None
    return found
