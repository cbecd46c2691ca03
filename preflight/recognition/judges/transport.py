"""Judges of pod networks, fabric links, perftest runs and transport errors."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight._startup.lightclass import replace
from preflight.checks.kubernetes.container import judge_address
from preflight.model import Finding, Status, clause, counted, failed, passed, unknown, warned
from preflight.parsers.infiniband.iblinkinfo import PortState
from preflight.parsers.network.network_status import PodNetwork
from preflight.parsers.network.perftest_text import PerftestRow, PerftestRun
from preflight.parsers.network.transport_errors import SIGNATURES, TransportMessage
from preflight.recognition.judges import Judge, Judges, PastedValue
from preflight.recognition.judges.lists import MOST_FINDINGS, limited, unsure


@limited
def _networks(part: PastedValue) -> Iterator[Finding]:
    networks: Sequence[PodNetwork] = part.value
    secondary = [network for network in networks if not network.default]
    # InfiniBand without IPoIB needs no address
    faults = [replace(finding, status=Status.UNKNOWN) for network in secondary
              for finding in judge_address(network, part.evidence[0])]  # fmt: skip
    yield from faults
    with_rdma = [network for network in secondary if network.rdma_device]
    for network in secondary if with_rdma else ():
        if not network.rdma_device:
            others = clause(len(with_rdma), "other", "has")
            yield unknown(f"the network {network.name} has no RDMA device, but {others} one",
                          subject=network.interface or network.name, found="no rdma-device", expected="rdma-device",
                          evidence=part.evidence)  # fmt: skip
    if not faults and len(with_rdma) == len(secondary) and secondary and part.complete:
        yield passed(
            f"{counted(len(secondary), 'secondary network')} with an address and an RDMA device", evidence=part.evidence
        )
    elif not with_rdma and not faults:
        names = ", ".join(network.name for network in secondary[:MOST_FINDINGS]) or "only the cluster's own network"
        yield unknown(f"no network of the pod has an RDMA device: {names}; the text does not show the pod's request",
                      found=names, evidence=part.evidence)  # fmt: skip


@limited
def _fabric_links(part: PastedValue) -> Iterator[Finding]:
    ports: Sequence[PortState] = part.value
    slow = [port for port in ports if port.state == "Active" and port.could_be]
    for port in slow:
        far = f" (to {port.peer})" if port.peer else ""
        yield warned(
            f"{port.name} port {port.number}{far} runs at {port.width}X {port.lane_gbps:g} Gb/s, but both "
            f"ends support {', '.join(port.could_be)}",
            subject=f"{port.name}:{port.number}",
            found=f"{port.width}X {port.lane_gbps:g} Gb/s",
            expected=", ".join(port.could_be),
            evidence=part.evidence,
        )
    waiting = [port for port in ports if port.state in ("Initialize", "Armed")]
    for port in waiting:
        yield unknown(f"{port.name} port {port.number} is {port.state}: no subnet manager has activated it",
                      subject=f"{port.name}:{port.number}", found=port.state, expected="Active",
                      evidence=part.evidence, fix="`sminfo`")  # fmt: skip
    active, down = (sum(port.state == state for port in ports) for state in ("Active", "Down"))
    if active and not slow and not waiting and part.complete:
        others = f"; {counted(down, 'port')} down, unused or without a cable" if down else ""
        yield passed(f"{active} active ports run at the maximum of both ends{others}", evidence=part.evidence)


@limited
def _fabric_states(part: PastedValue) -> Iterator[Finding]:
    """Report ports of HCAs that are down; those of switches are often unused."""
    ports: Sequence[PortState] = part.value
    for port in ports:
        if port.is_hca and port.state == "Down":
            yield unsure(f"{port.name} port {port.number} is Down ({port.physical})",
                         subject=f"{port.name}:{port.number}", found=f"Down/{port.physical}",
                         expected="Active/LinkUp", evidence=part.evidence)  # fmt: skip


#: perftest tool -> its check; other tools, such as Send tests, belong to ``pair.write-bw``.
_TESTS = {"ib_write_bw": "pair.write-bw", "ib_read_bw": "pair.read-bw", "ib_write_lat": "pair.write-lat"}


def _test_of(check: str) -> Judge:
    def report(part: PastedValue) -> Iterator[Finding]:
        run: PerftestRun = part.value
        if _TESTS.get(run.tool or "", "pair.write-bw") == check:
            yield from _perftest(run, part)

    return report


def _perftest(run: PerftestRun, part: PastedValue) -> Iterator[Finding]:
    name = f"{run.tool or 'the test'} over {run.device or 'a device'}"
    if run.error is not None or (run.error_text and not run.rows):
        why = run.error.value if run.error else run.error_text
        yield failed(f"{name} failed: {why}", subject=run.device or "", found=run.error_text or why,
                     expected="a row of results", evidence=part.evidence)  # fmt: skip
    speeds = [row for row in run.rows if row.bandwidth_gbps is not None]
    if run.error is None and not run.error_text and (speeds or run.rows):
        best = max(speeds, key=lambda row: row.bandwidth_gbps or 0) if speeds else run.rows[0]
        shown = f"{best.bandwidth_gbps:g} Gb/s" if speeds else f"{best.latency_us} us"
        yield _with_rate(run, name, best, shown, part) or _with_peak(run, name, best, part) or unknown(
            f"{name}: {shown} at {best.bytes} bytes; the text does not show the port's rate",
            subject=run.device or "", found=shown, expected="the rate of the port, less a tenth",
            evidence=part.evidence, fix="Compare with `ibstat` of both ports; `preflight pair NODE NODE` judges it.",
        )  # fmt: skip
    if run.mtu is not None and run.mtu <= 1024:
        yield warned(f"{name} ran with an MTU of {run.mtu} bytes", subject=run.device or "", found=f"{run.mtu} bytes",
                     expected="4096 bytes", evidence=part.evidence, fix="Set MTU 9000 on the interface and the switch."
                     )  # fmt: skip


#: Share of the port's rate below which a test with large messages is slow, and bytes of a large message: judgement
#: calls.
_SHARE, _LARGE = 0.8, 65_536


#: Minimum share of the peak that a steady transfer reaches on average: a judgement call.
_OF_PEAK = 0.5


def _with_peak(run: PerftestRun, name: str, best: PerftestRow, part: PastedValue) -> Finding | None:
    """Compare an average with the peak in its row; return None unless it is far below."""
    average, peak = best.bandwidth_gbps, best.peak_gbps
    if average is None or peak is None or best.bytes < _LARGE or average >= _OF_PEAK * peak:
        return None
    return warned(
        f"{name}: {average:g} Gb/s on average at {best.bytes} bytes, but {peak:g} Gb/s at its peak",
        subject=run.device or "", found=f"{average:g} Gb/s", expected=f"about the peak, {peak:g} Gb/s",
        evidence=part.evidence,
        fix="Repeat it with `--run_infinitely` or `-D 30` to see whether the rate stays low; then look for pauses, "
            "retransmissions and other traffic on both ports.",
    )  # fmt: skip


def _with_rate(run: PerftestRun, name: str, best: PerftestRow, shown: str, part: PastedValue) -> Finding | None:
    """Compare a bandwidth with the port's rate; None if the text lacks either.

    Also None for small messages.
    """
    if not run.port_gbps or best.bandwidth_gbps is None or best.bytes < _LARGE:
        return None
    words = f"{name}: {shown} at {best.bytes} bytes, over a port of {run.port_gbps:g} Gb/s"
    if best.bandwidth_gbps >= _SHARE * run.port_gbps:
        return passed(words, evidence=part.evidence)
    return warned(words, subject=run.device or "", found=shown, expected=f"about {run.port_gbps:g} Gb/s",
                  evidence=part.evidence, fix="Check PCIe link and MaxReadReq of both NICs, MTU and rate of the other"
                  " port, and lost packets; run it again with `-q 4`, on the NIC's socket.")  # fmt: skip


#: Messages that follow from others of the same text.
_CAUSES = {"device-open": frozenset({"memlock"}), "unreachable": frozenset({"no-transport", "retries-exceeded"})}


def _errors(check: str, part: PastedValue) -> Iterator[Finding]:
    errors: Sequence[TransportMessage] = part.value
    causes = {error.what for error in errors}
    for error in errors:
        if error.check != check or causes & _CAUSES.get(error.what, frozenset()):
            continue
        where = " on ".join(filter(None, (f"{error.device}:{error.port}" if error.port else error.device, error.host)))
        to = f", peer {error.peer}" if error.peer else ""
        report = failed if error.is_error else warned
        yield report(f"{where or 'a device'}{to}: {error.meaning} (line {error.line})",
                     subject=error.device or error.host or "", found=error.text[:200], evidence=part.evidence,
                     quote=error.text)  # fmt: skip


def _errors_of(check: str) -> Judge:
    return lambda part: _errors(check, part)


_CHECKS = tuple(dict.fromkeys(check for _, _, check, _ in SIGNATURES))

JUDGES: Judges = {
    "network-status": (("container.networks", _networks),),
    "iblinkinfo": (("fabric.link-speed", _fabric_links), ("rdma.port-state", _fabric_states)),
    "perftest": tuple((check, _test_of(check)) for check in _TESTS.values()),
    "ucx": tuple((check, _errors_of(check)) for check in _CHECKS),
}
