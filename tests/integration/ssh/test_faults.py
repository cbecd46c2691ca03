"""Faults of real hosts and networks, F01 to F20: each is named correctly, and only on its own node."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from preflight.evidence import document as evidence
from preflight.probes.probe import plan
from preflight.transport.ssh.paramiko_transport import SshOptions, SshTransport
from tests.support.sshfarm import Farm, View, Wire, network
from tests.support.sshfarm.marks import needs_farm, needs_network
from tests.support.stopwatch import Stopwatch

DEADLINE_S = 16.0
CONNECT_TIMEOUT_S = 8.0
NOISE = "head -c 100000000 /dev/zero"


def probe(*argv: str, timeout_s: float = 2.0) -> dict[str, Any]:
    target = " ".join(argv)
    return {"key": f"cmd:{target}", "kind": "cmd", "target": target, "timeout_s": timeout_s, "argv": list(argv)}


def make_plan(*extra: Mapping[str, Any], deadline_s: float = DEADLINE_S) -> dict[str, Any]:
    return {**plan((), node="", deadline_s=deadline_s), "probes": [probe("echo", "ok"), *extra]}


@dataclass(frozen=True)
class SshFault:
    """A fault, and the expected report of its node: an answer (no phase), or a phase and words of the reason.

    ``litter`` is what a start-up file leaves running, which is its user's own.
    """

    name: str
    arrange: Callable[[Farm, str], object]
    phase: str = ""
    reason: str = ""
    extra: tuple[Mapping[str, Any], ...] = ()
    records: Mapping[str, tuple[str, ...]] | None = None
    within_s: float = DEADLINE_S
    litter: str = ""


def tool(script: str) -> Callable[[Farm, str], None]:
    return lambda farm, host: farm.view(host, View(tools={"tool": script}))


def rc(script: str) -> Callable[[Farm, str], None]:
    return lambda farm, host: farm.view(host, View(files={"~/.bashrc": script + "\n"}))


def wired(script: str, wire: Wire) -> Callable[[Farm, str], None]:
    def arrange(farm: Farm, host: str) -> None:
        tool(script)(farm, host)
        farm.wire(host, wire)

    return arrange


def reboots(farm: Farm, host: str) -> None:
    farm.view(host, View(tools={"tool": "touch ~/here; exec sleep 60"}))

    def wait() -> None:
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until and not any("sleep 60" in command for command in farm.running(host).values()):
            time.sleep(0.05)
        farm.reboot(host)

    threading.Thread(target=wait, daemon=True).start()


LONG = probe("tool", timeout_s=30)
BIG = "head -c {} /dev/urandom | od -An -v -tu1"  # text that looks like a secret would be replaced

FAULTS = (
    SshFault("F01 healthy", lambda farm, host: None),
    SshFault("F02 refused", lambda farm, host: farm.fault(host, "refuse"), "connect", "connection refused", within_s=1),
    SshFault("F03 silent", lambda farm, host: farm.fault(host, "silent"), "banner", "sent no SSH banner", within_s=9),
    SshFault(
        "F04 reset",
        lambda farm, host: farm.fault(host, "reset"),
        "banner",
        "reset the connection before its SSH banner",
    ),
    SshFault("F05 close", lambda farm, host: farm.fault(host, "close"), "banner", "before its SSH banner"),
    SshFault("F05 close twice, then well", lambda farm, host: farm.fault(host, "close", first=2)),
    SshFault("F06 changed key", lambda farm, host: farm.fault(host, "hostkey"), "host-key", "ssh-keygen -R '[{host}]:"),
    SshFault(
        "F07 key not accepted", lambda farm, host: farm.fault(host, "noauth"), "authenticate", "no key was accepted"
    ),
    SshFault(
        "F08 no SSH server",
        lambda farm, host: farm.fault(host, "banner"),
        "banner",
        "not an SSH server; it sent: 220 mail.example smtp ready",
    ),
    SshFault("F09 200 ms round trips", wired(":", Wire(delay_s=0.1))),
    SshFault(
        "F10 cut in mid-answer",
        wired(BIG.format(150_000), Wire(cut_after_bytes=150_000)),
        "read",
        "the connection was reset: the answer was truncated at ",
        (probe("tool"),),
    ),
    SshFault(
        "F11 12 kB/s",  # three seconds to reach it, and half a minute to return
        wired(BIG.format(250_000), Wire(bytes_per_s=12_000)),
        "read",
        "the node's deadline passed: the answer was truncated at ",
        (probe("tool", timeout_s=8),),
        within_s=DEADLINE_S + 1,
    ),
    SshFault("F12 100 MB from a tool", tool(NOISE), extra=(probe("tool"),), records={"cmd:tool": ("cut",)}),
    SshFault("F12 100 MB from .bashrc", rc(NOISE), "start", "more than 4 MiB of other text on standard output"),
    SshFault(
        "F13 100 MB on standard error", rc(NOISE + " >&2"), "start", "more than 4 MiB of other text on standard error"
    ),
    SshFault(
        "F14 ignores signals",
        tool("trap '' HUP TERM INT; while :; do sleep 1; done"),
        extra=(probe("tool"),),
        records={"cmd:tool": ("timeout",)},
    ),
    SshFault(
        "F14 stopped", tool("kill -STOP $$; echo never"), extra=(probe("tool"),), records={"cmd:tool": ("timeout",)}
    ),
    SshFault(
        "F15 grandchild holds a tool's output",
        tool("sleep 60 & echo ok"),
        extra=(probe("tool"),),
        records={"cmd:tool": ("ok", "timeout")},
    ),
    SshFault("F15 grandchild holds the channel", rc("sleep 30 &"), within_s=DEADLINE_S / 2, litter="sleep 30"),
    SshFault("F16 reboots", reboots, "collect", "the connection was ", (LONG,)),
    SshFault("F17 collector killed", tool("kill -9 $PPID"), "collect", "killed by signal 9", (probe("tool"),)),
    SshFault(
        "F17 no python3",
        lambda farm, host: farm.view(host, View(without=("/usr/bin/python3*", "/usr/local/bin/python3*"))),
        "start",
        "no python3 (3.6 or newer) on the node; searched PATH ",
    ),
)
HEALTHY = 3


@dataclass(frozen=True)
class FaultResult:
    host: str
    document: Mapping[str, Any]
    seconds: float  # its own time: delays by a busy machine are excluded
    elapsed: float


def collect_all(
    farm: Farm, hosts: Mapping[str, Mapping[str, Any]], deadline_s: float, config_of: Farm | None = None
) -> dict[str, FaultResult]:
    """Query all hosts at once; each has its own deadline."""
    options = SshOptions((config_of or farm).ssh_config, connect_timeout_s=CONNECT_TIMEOUT_S)
    transport = SshTransport(options, list(hosts))

    def one(host: str) -> FaultResult:
        watch = Stopwatch()
        document = transport.collect(host, hosts[host], time.monotonic() + deadline_s)
        return FaultResult(host, document, watch.seconds, watch.elapsed)

    with ThreadPoolExecutor(len(hosts)) as pool:
        try:
            return {result.host: result for result in pool.map(one, hosts)}
        finally:
            transport.close()


def check(result: FaultResult, phase: str, reason: str) -> None:
    """Compare an outcome; no phase means an answer with a complete probe of the healthy path."""
    read = evidence.from_document(dict(result.document), "test")
    assert read.node == result.host
    if phase:
        assert read.no_answer
        assert read.no_answer["phase"] == phase, read.no_answer
        assert reason.format(host=result.host) in read.no_answer["reason"], read.no_answer
        assert not read.records
    else:
        assert read.no_answer is None
        assert read.text("cmd:echo ok") == "ok\n"


@pytest.fixture(scope="module")
def run() -> Iterator[tuple[Farm, dict[str, FaultResult]]]:
    """One run over all faulty hosts and some healthy ones."""
    with Farm(len(FAULTS) + HEALTHY) as farm:
        plans = {host: make_plan() for host in farm.hosts}
        for host, fault in zip(farm.hosts, FAULTS, strict=False):
            plans[host] = make_plan(*fault.extra)
        for host, fault in zip(farm.hosts, FAULTS, strict=False):
            fault.arrange(farm, host)
        yield farm, collect_all(farm, plans, DEADLINE_S)


@needs_farm
@pytest.mark.parametrize("number", range(len(FAULTS)), ids=[fault.name for fault in FAULTS])
def test_a_fault_has_its_true_name(run: tuple[Farm, dict[str, FaultResult]], number: int) -> None:
    farm, results = run
    fault, result = FAULTS[number], results[farm.hosts[number]]
    check(result, fault.phase, fault.reason)
    for key, statuses in (fault.records or {}).items():
        assert result.document["records"][key]["status"] in statuses
    assert result.seconds < fault.within_s + 1
    assert not farm.left(result.host, litter=fault.litter)


@needs_farm
def test_no_fault_touches_another_node(run: tuple[Farm, dict[str, FaultResult]]) -> None:
    farm, results = run
    for host in farm.hosts[len(FAULTS) :]:
        check(results[host], "", "")
        assert results[host].seconds < DEADLINE_S / 2


@needs_farm
def test_an_unknown_user_is_reported_as_an_unknown_key() -> None:
    with Farm(1) as farm:
        farm.ssh_config.write_text(farm.ssh_config.read_text().replace(f"User {farm.user}", "User nobody-here"))
        result = collect_all(farm, {farm.hosts[0]: make_plan()}, DEADLINE_S)[farm.hosts[0]]
    check(result, "authenticate", "no key was accepted for nobody-here")


# Networks


def in_network(arrange: Callable[[Farm], object], hosts: Mapping[str, Mapping[str, Any]], deadline_s: float) -> Any:
    """Run two hosts in a separate network, and also query addresses that are not theirs."""

    def call() -> tuple[dict[str, FaultResult], dict[int, str]]:
        with Farm(2) as farm:
            config = farm.ssh_config.read_text()
            farm.ssh_config.write_text(config.replace("Host 127.*", "Host *"))
            arrange(farm)
            results = collect_all(farm, {farm.hosts[1]: make_plan(), **hosts}, deadline_s)
            return results, farm.left()

    return network.in_private_network(call)


HOST, NEIGHBOUR = "127.77.0.1", "127.77.0.2"


@needs_farm
@needs_network
def test_f18_routes_that_lead_nowhere() -> None:
    def arrange(farm: Farm) -> None:
        for number, kind in enumerate(("blackhole", "prohibit", "unreachable")):
            network.command("ip", "route", "add", kind, f"10.5{number}.0.0/16")

    hosts = {f"10.5{number}.0.1": make_plan() for number in range(4)}
    results, left = in_network(arrange, hosts, DEADLINE_S)
    check(results[NEIGHBOUR], "", "")
    check(results["10.50.0.1"], "connect", "a blackhole route on this machine")
    check(results["10.51.0.1"], "connect", "this machine's routes or firewall prohibit it")
    check(results["10.52.0.1"], "connect", "no route to the host")
    check(results["10.53.0.1"], "connect", "this machine has no route to its network")
    assert all(result.seconds < 2 for result in results.values())
    assert not left


@needs_farm
@needs_network
def test_f19_packets_are_dropped() -> None:
    results, left = in_network(lambda farm: network.drop(HOST), {HOST: make_plan()}, DEADLINE_S)
    check(results[NEIGHBOUR], "", "")
    check(results[HOST], "connect", "powered off, or packets are dropped")
    assert results[HOST].elapsed > CONNECT_TIMEOUT_S - 0.5
    assert results[HOST].seconds < CONNECT_TIMEOUT_S + 1
    assert not left


@needs_farm
@needs_network
def test_f20_power_loss_in_mid_run() -> None:
    deadline_s = 10.0

    def arrange(farm: Farm) -> None:
        farm.view(HOST, View(tools={"tool": "sleep 60"}))

        def lose_power() -> None:
            until = time.monotonic() + deadline_s
            while time.monotonic() < until and not any("sleep 60" in c for c in farm.running(HOST).values()):
                time.sleep(0.05)
            network.drop(HOST)

        threading.Thread(target=lose_power, daemon=True).start()

    results, _ = in_network(arrange, {HOST: make_plan(LONG)}, deadline_s)
    check(results[NEIGHBOUR], "", "")
    check(results[HOST], "collect", "the node's deadline passed")
    assert deadline_s - 0.1 < results[HOST].elapsed
    assert results[HOST].seconds < deadline_s + 1
