"""Outputs of several hosts in one text are compared with each other (made by hand from formats)."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from preflight.recognition import compare_files, read_text

Port = tuple[str, int, str, str]  # device, rate, state, firmware


def _text(hosts: Mapping[str, list[Port]]) -> str:
    return "".join(
        f"{host}: {line}\n"
        for host, ports in hosts.items()
        for device, rate, state, firmware in ports
        for line in (
            f"CA '{device}'", "\tCA type: MT4129", "\tNumber of ports: 1", f"\tFirmware version: {firmware}",
            "\tPort 1:", f"\t\tState: {state}", f"\t\tPhysical state: {'LinkUp' if state == 'Active' else 'Polling'}",
            f"\t\tRate: {rate}", "\t\tBase lid: 9", "\t\tSM lid: 2", "\t\tLink layer: InfiniBand",
        )
    )  # fmt: skip


def _found(text: str) -> set[tuple[str, str, str | None, str]]:
    return {
        (finding["status"], finding["check"], part.writer, finding["subject"])
        for part in read_text(text, "pasted")
        for finding in part.findings
        if finding["status"] in ("warn", "fail")
        or (finding["status"] == "unknown" and finding["check"].startswith("fleet."))
    }


def _hosts(count: int, ports: list[Port]) -> dict[str, list[Port]]:
    return {f"rk{number:02}": list(ports) for number in range(1, count + 1)}


NDR = ("mlx5_4", 400, "Active", "28.41.1000")
STORAGE = ("mlx5_9", 200, "Active", "28.41.1000")
HALF = ("mlx5_4", 200, "Active", "28.41.1000")
OLD = ("mlx5_4", 400, "Active", "28.38.0900")

SICK: dict[str, tuple[dict[str, list[Port]], set[tuple[str, str, str, str]]]] = {
    "one of two is slow": ({"rk01": [NDR], "rk02": [HALF]}, {("warn", "rdma.port-rate", "rk02", "mlx5_4:1")}),
    "one of four is slow": (
        {**_hosts(4, [NDR, STORAGE]), "rk03": [HALF, STORAGE]}, {("warn", "rdma.port-rate", "rk03", "mlx5_4:1")},
    ),
    "one of three is down": (
        {**_hosts(3, [NDR, STORAGE]), "rk02": [("mlx5_4", 10, "Down", "28.41.1000"), STORAGE]},
        {("warn", "rdma.port-state", "rk02", "mlx5_4:1")},
    ),
    "one of three has old firmware": (
        {**_hosts(3, [NDR]), "rk03": [OLD]}, {("warn", "fleet.firmware", "rk03", "mlx5_4:1")},
    ),
    "two differ, and which is right is unknown": (
        {"rk01": [NDR], "rk02": [OLD]}, {("unknown", "fleet.firmware", "rk02", "mlx5_4:1")},
    ),
}  # fmt: skip

HEALTHY = {
    "a slower HCA for storage on each": _hosts(3, [NDR, STORAGE]),
    "devices numbered in another order": {
        "rk01": [("mlx5_0", 400, "Active", "28.41.1000"), ("mlx5_1", 200, "Active", "28.41.1000")],
        "rk02": [("mlx5_0", 200, "Active", "28.41.1000"), ("mlx5_1", 400, "Active", "28.41.1000")],
    },
    "another machine": {**_hosts(3, [NDR, STORAGE]), "login": [("mlx5_0", 100, "Active", "28.41.1000")]},
    "one host is faster": {"rk01": [HALF], "rk02": [HALF], "rk03": [HALF]},
}  # fmt: skip


@pytest.mark.parametrize("case", SICK)
def test_the_odd_one_is_named(case: str) -> None:
    hosts, expected = SICK[case]
    assert _found(_text(hosts)) == expected


@pytest.mark.parametrize("case", HEALTHY)
def test_equal_hosts_raise_nothing(case: str) -> None:
    assert not _found(_text(HEALTHY[case]))


@pytest.mark.parametrize("time", ["Mar  3 11:20:31", "2026-03-03T11:20:31.120455+00:00"])
def test_hosts_of_a_journal_are_compared(time: str) -> None:
    """The host of a line of syslog or the journal wrote the output, and any program may have logged it."""
    ports = {"rk04": [NDR], "rk05": [NDR], "rk06": [(*NDR[:2], "Down", NDR[3])]}
    lines = [line.partition(": ") for line in _text(ports).splitlines()]
    journal = "".join(f"{time} {host} audit[77]: {text}\n" for host, _, text in lines)
    assert _found(journal) == _found(_text(ports))
    assert {writer for *_, writer, _ in _found(journal)} == {"rk06"}


def test_one_host_twice_is_not_two() -> None:
    """The second reading is from the same machine."""
    assert not _found(_text({"rk01": [NDR]}) + _text({"rk01": [NDR]}))


def _of_files(texts: Mapping[str, str]) -> list[tuple[str, str, str, str]]:
    """Return what is known only from the files together: status, file, check, message."""
    sources = [(name, read_text(text, name)) for name, text in texts.items()]
    before = {id(finding) for _, parts in sources for part in parts for finding in part.findings}
    compare_files(sources)
    return [
        (finding["status"], name, finding["check"], finding["message"])
        for name, parts in sources
        for part in parts
        for finding in part.findings
        if id(finding) not in before
    ]


def _driver(version: str, host: str = "") -> str:
    shown = f"name, driver_version\nNVIDIA H100 80GB HBM3, {version}\n"
    return "".join(f"{host}: {line}\n" for line in shown.splitlines()) if host else shown


FILES: dict[str, tuple[dict[str, str], list[tuple[str, str, str, str]]]] = {
    "one of three drivers": (
        {"a.txt": _driver("570.86.15"), "b.txt": _driver("550.54.15"), "c.txt": _driver("570.86.15")},
        [("warn", "b.txt", "fleet.driver-equal", "the NVIDIA driver is 550.54.15, but 570.86.15 in 2 other files")],
    ),
    "two drivers, and which is right is unknown": (
        {"a.txt": _driver("570.86.15"), "b.txt": _driver("550.54.15")},
        [("unknown", "b.txt", "fleet.driver-equal", "the NVIDIA driver is 550.54.15, but 570.86.15 in 1 other file")],
    ),
    "a slow port": (
        {"a.txt": _text({"rk01": [NDR]}), "b.txt": _text({"rk02": [HALF]})},
        [("warn", "b.txt", "rdma.port-rate", "mlx5_4:1 runs at 200 Gb/s, but at 400 in 1 other file")],
    ),
    "one driver": ({"a.txt": _driver("570.86.15"), "b.txt": _driver("570.86.15")}, []),
    "a host before and after an update": (
        {"a.txt": _driver("570.86.15", "rk01"), "b.txt": _driver("550.54.15", "rk01")}, []
    ),
    "another machine": (
        {"a.txt": _text({"rk01": [NDR]}), "b.txt": _text({"login": [("mlx5_0", 100, "Active", "28.41.1000")]})}, []
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", FILES)
def test_files_are_compared(case: str) -> None:
    texts, expected = FILES[case]
    assert _of_files(texts) == expected
