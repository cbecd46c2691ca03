"""Values in lines, in the spellings of many programs."""

from __future__ import annotations

from typing import Any

import pytest

from preflight import recognition
from preflight.parsers.messages.stated_values import stated


@pytest.mark.parametrize(
    ("text", "name", "values"),
    [
        ("[kw03:00412] *** Process received signal ***", "hosts", ["kw03"]),
        ("root@kw-17:~# nvidia-smi -L", "hosts", ["kw-17"]),
        ("Nov 28 07:02:11 kw21 nv-hostengine[911]: failed", "hosts", ["kw21"]),
        ("task lost on node kw09.lab.internal", "hosts", ["kw09.lab.internal"]),
        ("prterun: process rank 5 with PID 912 on node kw04 exited on signal 6", "ranks", [5]),
        ("prterun: process rank 5 with PID 912 on node kw04 exited on signal 6", "pids", [912]),
        ("prterun: process rank 5 with PID 912 on node kw04 exited on signal 6", "signals", [6]),
        ("missing ranks: 3, 6 and 11-13", "ranks", [3, 6, 11, 12, 13]),
        ("3: [allreduce.head.weight, allreduce.head.bias]", "ranks", [3]),
        ("of tasks that reached the barrier: 30/32", "shares", ["30/32"]),
        ("killed by SIGKILL (exit code: 137)", "exit_codes", [137]),
        ("peer 10.3.7.19:4791 is gone", "addresses", ["10.3.7.19"]),
        (
            "NCCL WARN NCCL version : rank 0 version 22304 rank 8 version 2708",
            "versions",
            ["2.23.4", "2.7.8"],
        ),
        ("engine of version 0.11.2", "versions", ["0.11.2"]),
        ("allocating 3.91 GiB, of which 1.27 GiB is free", "quantities", ["3.91 GiB", "1.27 GiB"]),
        ("network devices 'mlx5_8:1' and 'mlx5_9:1' are missing", "devices", ["mlx5_8:1", "mlx5_9:1"]),
        ("NodeList=kw[05-06,11] Partition=long", "node_sets", ["kw[05-06,11]"]),
    ],
)
def test_values_of_any_spelling_are_stated(text: str, name: str, values: list[Any]) -> None:
    assert stated([text])[name] == values


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("loss scale: 1.0 | number of nan iterations:  30 |", {"loss scale": [1], "number of nan iterations": [30]}),
        ("epoch=2/micro_step=40/global_step=10, skipped=4", {"epoch": [2], "micro_step": [40], "global_step": [10],
                                                             "skipped": [4]}),
        ('{"event": "lost", "attempt": 3}', {"event": ["lost"], "attempt": [3]}),
        ("Stratum         : 3", {"Stratum": [3]}),
        ("waiting=[16, 17]", {"waiting": [16, 17]}),
        ("mfu: 41.61%  loss:  3.84", {"mfu": ["41.61 %"], "loss": [3.84]}),
    ],
)  # fmt: skip
def test_named_fields_are_stated(text: str, fields: dict[str, Any]) -> None:
    assert fields.items() <= stated([text])["fields"].items()


def test_times_and_devices_are_no_values_of_others() -> None:
    values = stated(["2026-11-28 10:12:01 mlx5_3: port 0000:81:00.0 of GPU-1"])
    assert not {"shares", "versions", "hosts", "addresses"} & values.keys()


def test_many_values_are_limited_to_the_first_and_last() -> None:
    steps = stated([f"step: {number} loss: 2.{number}" for number in range(1000)])["fields"]["step"]
    assert [*steps[:2], steps[-1], len(steps)] == [0, 1, 999, 24]


def test_lines_of_no_part_are_stated_with_the_part_above(tmp_path: Any) -> None:
    path = tmp_path / "log"
    path.write_text(
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
        "launcher: the process with PID 4127 on node kw31 ended\n"
    )  # fmt: skip
    [(_, parts)] = [(source.name, recognition.read(source)) for source in recognition.open_sources((str(path),))]
    assert parts[0].document()["stated"]["pids"] == [4127]
    assert parts[0].document()["stated"]["hosts"] == ["kw31"]
