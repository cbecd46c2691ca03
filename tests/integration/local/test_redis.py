"""The collector's connection to a SONiC switch's databases: a real Redis, and servers that are not Redis."""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from preflight.collect.options import CollectOptions
from preflight.collect.switches import switch_plan, switch_probes
from preflight.collector import redis_databases
from preflight.collector.records import Deadline
from preflight.probes.probe import OUTPUT_CAP
from preflight.schemas.conform import find_error
from tests.support.clos import Clos
from tests.support.sonic_redis import SonicRedis, database_config, needs_redis

PORTS = 512


@contextmanager
def config(tmp_path: Path, server: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    path = tmp_path / "database_config.json"
    path.write_text(database_config(server))
    monkeypatch.setattr(redis_databases, "CONFIG", str(path))
    yield


def collect(timeout_s: float = 20.0, cap: int = OUTPUT_CAP) -> dict[str, dict[str, Any]]:
    records: dict[str, dict[str, Any]] = {}
    probes = [probe.to_plan() for probe in switch_probes() if probe.kind == "redis"]
    redis_databases.collect(probes, timeout_s, Deadline(60), cap, records.__setitem__)
    return records


def test_the_plan_of_a_switch_has_no_command() -> None:
    plan = switch_plan("leaf1", 60, CollectOptions(sudo=True, window_s=60))
    assert find_error(plan, "plan-1", exact=True) == ""
    assert {probe["kind"] for probe in plan["probes"]} == {"file", "redis"}
    assert plan["sudo"] is False


@needs_redis
@pytest.mark.parametrize("word", ["EVAL", "FLUSHALL", "CONFIG", "KEYS", "SET", "DEL", "SUBSCRIBE", "flushall"])
def test_a_command_that_could_change_something_is_never_sent(word: str) -> None:
    with SonicRedis() as server:
        server.load({"CONFIG_DB": {"PORT|Ethernet0": {"speed": "400000"}}})
        redis = redis_databases.ReadOnlyRedis(str(server.socket), 5)
        with pytest.raises(ValueError, match="not one of the read-only commands"):
            redis.answers([["SELECT", "4"], [word, "PORT|Ethernet0"]])
        redis.answer("SELECT", "4")
        assert redis.answer("HGETALL", "PORT|Ethernet0") == ["speed", "400000"]
        redis.close()


@needs_redis
def test_512_ports_are_read_within_a_second_and_the_limit_of_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Clos().databases["leaf1"]
    port_row = base["COUNTERS_DB"]["COUNTERS:" + base["COUNTERS_DB"]["COUNTERS_PORT_NAME_MAP"]["Ethernet0"]]
    queue_row = base["COUNTERS_DB"]["COUNTERS:" + base["COUNTERS_DB"]["COUNTERS_QUEUE_NAME_MAP"]["Ethernet0:3"]]
    counters: dict[str, dict[str, str]] = {f"COUNTERS_{what}_NAME_MAP": {} for what in ("PORT", "QUEUE", "PG")}
    for place in range(PORTS):
        name = f"Ethernet{place * 4}"
        counters["COUNTERS_PORT_NAME_MAP"][name] = f"oid:0x1{place:05x}"
        counters[f"COUNTERS:oid:0x1{place:05x}"] = {field: str(10**12 + place) for field in port_row}
        for what, kind, number in (("QUEUE", "15", 20), ("PG", "1a", 8)):
            for index in range(number):
                oid = f"oid:0x{kind}{place:05x}{index:02x}"
                counters[f"COUNTERS_{what}_NAME_MAP"][f"{name}:{index}"] = oid
                counters[f"COUNTERS:{oid}"] = dict(queue_row) if what == "QUEUE" else {
                    "SAI_INGRESS_PRIORITY_GROUP_STAT_DROPPED_PACKETS": "0",
                    "SAI_INGRESS_PRIORITY_GROUP_STAT_XOFF_ROOM_WATERMARK_BYTES": "190000"}  # fmt: skip
    with SonicRedis() as server, config(tmp_path, server.socket, monkeypatch):
        server.load({"COUNTERS_DB": counters})
        ticks = sum(map(int, Path(f"/proc/{server.pid}/stat").read_text().split()[13:15]))
        began = time.process_time()
        records = collect()
        seconds = time.process_time() - began
        seconds += (sum(map(int, Path(f"/proc/{server.pid}/stat").read_text().split()[13:15])) - ticks) / os.sysconf(
            "SC_CLK_TCK")  # fmt: skip
    sizes = {key: len(json.dumps(record["value"], separators=(",", ":"))) for key, record in records.items()}
    assert all(record["status"] == "ok" for record in records.values())
    assert len(records["redis:COUNTERS_DB queues"]["value"]["rows"]) == PORTS * 8
    assert max(sizes.values()) < OUTPUT_CAP
    assert seconds < 1


@needs_redis
def test_a_record_above_the_limit_is_cut_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with SonicRedis() as server, config(tmp_path, server.socket, monkeypatch):
        server.load(Clos().databases["leaf1"])
        records = collect(cap=1500)
    assert records["redis:COUNTERS_DB ports"]["status"] == "cut"
    assert records["redis:CONFIG_DB PFC_WD"]["status"] == "ok"


def test_without_redis_the_tables_are_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with config(tmp_path, tmp_path / "none.sock", monkeypatch):
        records = collect()
    assert {record["status"] for record in records.values()} == {"missing"}


@pytest.mark.parametrize(
    ("reply", "status", "why"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "error", "not valid RESP"),
        (b"-NOAUTH Authentication required.\r\n", "error", "NOAUTH"),
        (b"*2000000000\r\n", "error", "too large"),
        (b"$2000000000\r\n", "error", "replies exceed"),
        (b"*1\r\n" * 50, "error", "too large"),
        (b"+" + b"x" * 100_000, "error", "not valid RESP"),
        (b"+OK\r\n+OK\r\n", "error", "reply to SCAN is malformed"),
        (b"+OK\r\n*2\r\n$1\r\n1\r\n*1\r\n:7\r\n", "error", "reply to SCAN is malformed"),
        (b"", "timeout", "has not answered"),
    ],
)
def test_a_hostile_server_costs_an_answer_and_no_memory(
    reply: bytes, status: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s"
    held: list[socket.socket] = []
    with socket.socket(socket.AF_UNIX) as listener, config(tmp_path, path, monkeypatch):
        listener.bind(str(path))
        listener.listen(8)

        def serve() -> None:
            while True:
                try:
                    held.append(listener.accept()[0])
                    held[-1].sendall(reply)
                except ConnectionError:
                    continue
                except OSError:
                    return

        server = threading.Thread(target=serve)
        server.start()
        records = collect(timeout_s=0.3)
        listener.shutdown(socket.SHUT_RDWR)
        server.join()
        for client in held:
            client.close()
    assert {record["status"] for record in records.values()} == {status}
    assert any(why in record["why"] for record in records.values()), records
