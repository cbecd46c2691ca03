"""Judges of ``mlxlink``, ``mst``, ``cma_roce_mode`` and ``devlink``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from preflight.checks.rdma.counter_totals import TOLERATED
from preflight.checks.rdma.optics import judge_ratios
from preflight.facts.counter_catalogue import CounterKind
from preflight.model import Finding, clause, each_of, failed, passed, unknown, warned
from preflight.parsers.network.devlink_health import Reporter
from preflight.parsers.network.mlxlink import PortLink
from preflight.parsers.rdma.cma_mode import CmaMode
from preflight.parsers.rdma.mst_status import MstDevice
from preflight.recognition.judges import Judges, PastedValue
from preflight.recognition.judges.lists import limited, unsure


def _state(part: PastedValue) -> Iterator[Finding]:
    link: PortLink = part.value
    name = link.device or "the port"
    advice = link.advice if link.opcode else None
    if link.state is None:
        return
    if link.state != "Active":
        shown = "/".join(filter(None, (link.state, link.physical_state)))
        report = warned if link.state == "Polling" else unsure  # a port that was disabled does not poll
        yield report(f"{name} is {shown}{f': {advice}' if advice else ''}", subject=link.device or "", found=shown,
                     expected="Active/LinkUp", evidence=part.evidence,
                     fix=f"{advice or 'No link'}: check cable, module and switch port.")  # fmt: skip
    elif advice:
        yield warned(f"{name} is active, and mlxlink reports: {advice} (opcode {link.opcode})",
                     subject=link.device or "", found=advice, expected="No issue was observed",
                     evidence=part.evidence)  # fmt: skip
    else:
        yield passed(f"{name} is active{f' at {link.speed}' if link.speed else ''}", evidence=part.evidence)


def _ratios(part: PastedValue) -> Iterator[Finding]:
    link: PortLink = part.value
    if link.quality is None or link.state not in ("Active", None):
        return
    name = link.device or "the port"
    if (finding := judge_ratios(name, link.quality, part.evidence[0], warned)) is not None:
        yield finding
    else:
        yield passed(f"{name} has a low bit error ratio", evidence=part.evidence)


def _loopback(part: PastedValue) -> Iterator[Finding]:
    """Report a port in loopback mode, left over from a test."""
    link: PortLink = part.value
    mode = link.fields.get("Loopback Mode", "")
    if mode and mode not in ("No Loopback", "N/A"):
        yield warned(f"{link.device or 'the port'} is in loopback: {mode}", subject=link.device or "", found=mode,
                     expected="No Loopback", evidence=part.evidence, fix="`mlxlink -d DEVICE -l NO`.")  # fmt: skip


#: Maximum number of times a day that a link goes down on a healthy node, which may reboot: a judgement call.
_MOST_A_DAY = 3


def _link_downs(part: PastedValue) -> Iterator[Finding]:
    """Report a link that went down or recovered often."""
    link: PortLink = part.value
    name = link.device or "the port"
    recovered = link.fields.get("Link Error Recovery Counter", "")
    minutes = link.quality.minutes if link.quality else None
    counts = (("went down", link.link_downs), ("recovered", int(recovered) if recovered.isdecimal() else None))
    for what, count in counts:
        if count is not None and minutes and count > _MOST_A_DAY * max(minutes / 1440, 1):
            yield warned(f"{name}: its link {what} {count} times in the {minutes / 60:.4g} h since the last clear",
                         subject=link.device or "", found=count, expected=f"at most {_MOST_A_DAY} a day",
                         evidence=part.evidence)  # fmt: skip
        elif count is not None and count > TOLERATED[CounterKind.FLAP]:
            yield unknown(f"{name}: its link {what} {count} times; a single reading does not show the period",
                          subject=link.device or "", found=count, expected="no growth between two readings",
                          evidence=part.evidence)  # fmt: skip


#: Reporters of firmware errors; those of queues recover by themselves.
_OF_FIRMWARE = frozenset({"fw", "fw_fatal"})


@limited
def _reporters(part: PastedValue) -> Iterator[Finding]:
    reporters: Sequence[Reporter] = part.value
    calm = True
    for reporter in reporters:
        if reporter.state == "healthy" and not reporter.errors:
            continue
        calm = False
        yield _of_reporter(reporter, part.evidence)
    if reporters and calm and part.complete:
        yield passed(f"{clause(len(reporters), 'reporter', 'is')} healthy", evidence=part.evidence)


def _of_reporter(reporter: Reporter, evidence: tuple[str, ...]) -> Finding:
    name = f"{reporter.device}: reporter {reporter.name}"
    where = f"{f', last dump {reporter.dumped}' if reporter.dumped else ''} (line {reporter.line})"
    fix = (
        f"`devlink health diagnose {reporter.device} reporter {reporter.name}`, `dmesg | grep -i mlx5`; if the "
        "firmware fails again, update it or contact the vendor."
    )
    if reporter.state != "healthy":
        report, message = failed, f"{name} is in state {reporter.state}, with {reporter.errors} errors{where}"
    elif reporter.name in _OF_FIRMWARE:
        report, message = warned, f"{name} has had {reporter.errors} errors{where}"
    else:
        report = unknown
        message = (
            f"{name} has had {reporter.errors} errors and recovered{where}; a single reading does not show the period"
        )
    return report(message, subject=reporter.device, found=f"state {reporter.state}, {reporter.errors} errors",
                  expected="healthy, no error", evidence=evidence, fix=fix)  # fmt: skip


def _devices(part: PastedValue) -> Iterator[Finding]:
    devices: Sequence[MstDevice] = part.value
    without = [device.address for device in devices if not device.rdma]
    if not devices and part.complete:
        yield unknown("mst finds no NVIDIA NIC; the expected number is unknown", found=0, evidence=part.evidence,
                      fix="`lspci -d 15b3:`; if it lists NICs, `mst start`")  # fmt: skip
    elif any(device.rdma is None for device in devices):
        yield unknown("without -v, mst shows no RDMA devices", evidence=part.evidence, fix="`mst status -v`")
    elif without and len(without) < len(devices):
        yield unsure(f"no RDMA device for {', '.join(without[:8])}, although other NICs have one", subject=without[0],
                     found=f"{len(devices) - len(without)} of {len(devices)}", expected="an RDMA device for each",
                     evidence=part.evidence, fix="`dmesg | grep mlx5_ib`; `modprobe mlx5_ib`.")  # fmt: skip
    elif devices and not without and part.complete:
        yield passed(f"{each_of(len(devices), 'NVIDIA NIC')} has an RDMA device", evidence=part.evidence)


def _cma(part: PastedValue) -> Iterator[Finding]:
    mode: CmaMode = part.value
    name = mode.device or "the device"
    if mode.version == 1:
        yield warned(f"{name}: rdma_cm connects with RoCE v1, which no router forwards", subject=mode.device or "",
                     found="RoCE v1", expected="RoCE v2", evidence=part.evidence,
                     fix="`cma_roce_mode -d DEVICE -p 1 -m 2`")  # fmt: skip
    elif mode.version == 2:
        yield passed(f"{name}: rdma_cm connects with RoCE v2", evidence=part.evidence)
    elif mode.tos is not None:
        at: dict[str, Any] = {"subject": mode.device or "", "found": mode.tos, "evidence": part.evidence}
        if mode.tos == 0:
            yield unknown(f"{name}: rdma_cm connects with type of service 0: such packets are not marked for the "
                          "lossless priority", expected="the site's DSCP x 4", fix="`cma_roce_tos -d DEVICE -t TOS`",
                          **at)  # fmt: skip
        else:
            yield unknown(f"{name}: rdma_cm connects with type of service {mode.tos} (DSCP {mode.tos >> 2}); the text "
                          "does not show what the site expects", fix="Compare with the DSCP map: `mlnx_qos -i IF`.",
                          **at)  # fmt: skip


JUDGES: Judges = {
    "mlxlink": (
        ("rdma.port-state", _state),
        ("rdma.port-state", _loopback),
        ("optics.ber", _ratios),
        ("counters.flaps", _link_downs),
    ),
    "devlink health": (("rdma.firmware", _reporters),),
    "mst status": (("rdma.registered", _devices),),
    "cma_roce": (("roce.chain", _cma),),
}
