"""Output formats of the host: ``numactl``, ``lscpu``, ``ulimit``, kernel log."""

from __future__ import annotations

from typing import Any

from preflight.model import counted
from preflight.parsers.host.kernel_text import KernelText, LoggedCode
from preflight.parsers.host.numa_nodes import HostCpus
from preflight.parsers.host.ulimit import ProcessLimits
from preflight.parsers.nvidia.xid_marks import is_masked, pid_in
from preflight.recognition.formats.typed import output_format


def _nodes(host: HostCpus) -> dict[str, Any]:
    return {
        name: {"cpus": None if node.cpus is None else list(node.cpus), "memory_bytes": node.memory_bytes}
        for name, node in host.nodes.items()
    }


def _numactl(host: HostCpus) -> tuple[dict[str, Any], str]:
    return {"numa_nodes": _nodes(host)}, counted(len(host.nodes), "NUMA node")


def _lscpu(host: HostCpus) -> tuple[dict[str, Any], str]:
    facts = {
        "numa_nodes": _nodes(host), "cpus": host.cpus, "model": host.model, "sockets": host.sockets,
        "threads_per_core": host.threads_per_core, "architecture": host.architecture,
        "offline_cpus": host.offline,
    }  # fmt: skip
    count = f"{host.cpus} CPUs, " if host.cpus is not None else ""
    return facts, f"{host.model or 'CPU'}, {count}{counted(len(host.nodes), 'NUMA node')}"


def _kernel(log: KernelText) -> tuple[dict[str, Any], str]:
    stamps = {line.number: line for line in log.lines}
    xids = [
        {"bus_id": _address(code), "xid": code.mark.code, "time": code.line.stamp, "pid": pid_in(code.mark.text),
         "text": code.mark.text, "line": code.line.number}
        for code in log.xids
    ]  # fmt: skip
    sxids = [
        {"switch": code.switch, "bus_id": _address(code), "sxid": code.mark.code, "time": code.line.stamp,
         "fatal": code.mark.fatal, "text": code.mark.text, "line": code.line.number}
        for code in log.sxids
    ]  # fmt: skip
    events = [
        {"event": event.kind, "severity": event.severity, "device": event.device or None, "bus": event.bus or None,
         "count": event.count, "detail": event.detail or None, "time": stamps[event.line].stamp, "seconds": event.at_s,
         "text": stamps[event.line].text.strip()[:300], "line": event.line}
        for event in log.events
    ]  # fmt: skip
    codes = ", ".join(map(str, sorted({code.mark.code or 0 for code in log.xids}))) or "none"
    count = log.lines[-1].number - log.lines[0].number + 1 if log.lines else 0
    return (
        {"xids": xids, "sxids": sxids, "events": events, "driver_version": log.driver, "firmware": dict(log.firmware)},
        f"{count} lines; Xid: {codes}; SXid: {len(sxids)}; events: {len(events)}",
    )


def _address(code: LoggedCode) -> str | None:
    """Return the PCI address as printed; None if it was masked."""
    return None if is_masked(code.mark.where) else code.mark.where


def _limits(limits: ProcessLimits) -> tuple[dict[str, Any], str]:
    shown = (f"{name} {'unlimited' if value is None else value}" for name, value in limits.soft.items()
             if name in ("max locked memory", "open files"))  # fmt: skip
    written = {name: "unlimited" if value is None else value for name, value in limits.soft.items()}
    return {"limits": written}, f"{counted(len(limits.soft), 'limit')}; {', '.join(shown)}"


KINDS = (
    output_format("numactl", _numactl),
    output_format("lscpu", _lscpu),
    output_format("kernel log", _kernel),
    output_format("ulimit", _limits),
)
