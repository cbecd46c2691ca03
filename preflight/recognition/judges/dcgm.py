"""Judges of ``dcgmi``: diagnostics, health, discovery and the state of NVLinks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from preflight.model import Finding, counted, failed, passed, unknown, warned
from preflight.parsers.nvidia.dcgmi import Diag, DiagTest, Discovery, HealthReport, LinkStatus
from preflight.recognition.judges import Judge, Judged, Judges, PastedValue

#: Word in a test's name -> the check for the same fault on a node; the first match applies.
_OF_TEST = (
    ("page retirement", "gpu.row-remap"), ("row remap", "gpu.row-remap"), ("memory", "gpu.ecc-uncorrected"),
    ("memtest", "gpu.ecc-uncorrected"), ("pcie", "gpu.pcie-link"), ("nvlink", "nvlink.links"),
    ("nvbandwidth", "nvlink.links"), ("ncclt", "nvlink.links"), ("nccl", "nvlink.links"),
    ("inforom", "gpu.firmware"), ("persistence", "gpu.persistence"), ("graphics processes", "gpu.left-over-processes"),
    ("library", "versions.driver-files"), ("nvml", "versions.driver-files"), ("denylist", "kernel.modules"),
    ("blacklist", "kernel.modules"), ("permissions", "container.gpu-devices"),
    ("fabric manager", "nvlink.fabric-manager"),
    ("environment", "nccl.left-over-disables"), ("power", "gpu.throttling"), ("thermal", "gpu.temperature-margin"),
    ("nvswitch", "xid.nvswitch"), ("xid", "xid.gpu"), ("software", "gpu.driver"), ("driver", "gpu.driver"),
)  # fmt: skip


#: Argument of ``dcgmi diag -r`` that runs a test alone; level 1 runs those of the deployment.
_RUN_OF_TEST = {
    "gpu memory": "memory", "memory": "memory", "pcie": "pcie", "diagnostic": "diagnostic", "memtest": "memtest",
    "memory bandwidth": "memory_bandwidth", "targeted stress": "targeted_stress", "targeted power": "targeted_power",
    "pulse test": "pulse_test", "sm stress": "sm_stress", "eud": "eud",
}  # fmt: skip


def _check_of(name: str) -> str:
    return next((check for word, check in _OF_TEST if word in name.lower()), "gpu.driver")


def _diag(diag: Diag) -> Judged:
    bad: tuple[tuple[str, Judge], ...] = tuple(
        (_check_of(test.name), _test_judge(test)) for test in diag.tests if test.result in ("fail", "warn")
    )
    return bad or (("gpu.driver", _diag_passed),)


def _test_judge(test: DiagTest) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        gpus = f" on GPU {test.gpus}" if test.gpus else ""
        words = f": {' '.join(test.messages)[:200]}" if test.messages else ""
        report = failed if test.result == "fail" else warned
        yield report(
            f"dcgmi diag: {test.name} {'failed' if test.result == 'fail' else 'warned'}{gpus}{words} (line"
            f" {test.line})",
            subject=f"GPU {test.gpus}" if test.gpus else "", found=test.result, expected="pass", evidence=part.evidence,
            fix="Drain the node; check `nvidia-smi -q` and `dmesg | grep -i xid`; run the test again:"
            f" `dcgmi diag -r {_RUN_OF_TEST.get(test.name.lower(), '1')}`.",
        )  # fmt: skip

    return judge_part


def _diag_passed(part: PastedValue) -> Iterator[Finding]:
    counts = Counter(test.result for test in part.value.tests)
    if not counts["pass"]:
        yield unknown("dcgmi diag: no test was run", found=", ".join(counts), evidence=part.evidence,
                      fix="`dcgmi diag -r 1`")  # fmt: skip
        return
    skipped = f", {counts['skip']} skipped" if counts["skip"] else ""
    yield passed(f"dcgmi diag: {counted(counts['pass'], 'test')} passed{skipped}", evidence=part.evidence)


def _report(report: HealthReport) -> Judged:
    problems = [problem for problem in report.problems if problem[2].lower() not in ("healthy", "pass", "")]
    if problems:
        return tuple((_check_of(system), _health_judge(*problem)) for problem in problems for system in [problem[1]])
    return (("gpu.driver", _overall),)


def _health_judge(entity: str, system: str, state: str, message: str, line: int) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        report = failed if state.lower().startswith(("fail", "unhealthy")) else warned
        yield report(f"{entity}: {system} {state.lower()}: {message[:200]} (line {line})", subject=entity, found=state,
                     expected="Healthy", evidence=part.evidence)  # fmt: skip

    return judge_part


def _overall(part: PastedValue) -> Iterator[Finding]:
    overall = part.value.overall.lower()
    if overall in ("healthy", "pass"):
        yield passed("dcgmi health reports no problem", evidence=part.evidence)
    elif overall:
        report = failed if overall.startswith(("fail", "unhealthy")) else warned
        yield report(f"dcgmi health reports {part.value.overall}", found=part.value.overall, expected="Healthy",
                     evidence=part.evidence, fix="`dcgmi health -c` names the GPU and the system.")  # fmt: skip


def _discovered(part: PastedValue) -> Iterator[Finding]:
    listing: Discovery = part.value
    if listing.gpu_count is None:
        yield unknown("the number of GPUs that dcgmi finds is missing", evidence=part.evidence,
                      fix="Paste the complete output of `dcgmi discovery -l`.")  # fmt: skip
    elif listing.gpu_count == 0:
        yield failed("dcgmi finds no GPU", found=0, expected="the node's GPUs", evidence=part.evidence)
    else:
        yield unknown(f"dcgmi finds {listing.gpu_count} GPUs; the expected number is unknown",
                      found=listing.gpu_count, evidence=part.evidence,
                      fix="Compare with `lspci -d 10de:`.")  # fmt: skip


def _link_states(part: PastedValue) -> Iterator[Finding]:
    status: LinkStatus = part.value
    bad = False
    for kind, entities in (("GPU", status.gpus), ("NVSwitch", status.switches)):
        for number, links in entities.items():
            if down := [str(at) for at, state in enumerate(links) if state == "D"]:
                bad = True
                yield failed(f"{kind} {number}: {len(down)} of {len(links)} NVLinks are down ({', '.join(down)})",
                             subject=f"{kind} {number}", found=f"down: {', '.join(down)}", expected="up",
                             evidence=part.evidence)  # fmt: skip
    up = {number: links.count("U") for number, links in status.gpus.items()}
    most = max(up.values(), default=0)
    for number, count in up.items():
        if count < most and "D" not in status.gpus[number]:
            bad = True
            yield failed(f"GPU {number}: {count} NVLinks are up, compared with {most} on its peers",
                         subject=f"GPU {number}", found=count, expected=most, evidence=part.evidence)  # fmt: skip
    if most and not bad:
        yield passed(f"{len(up)} GPUs have {most} NVLinks up each", evidence=part.evidence)
    elif not most and not bad:
        yield unknown("no NVLink is up, and it is not known whether any should be", found=0, evidence=part.evidence,
                      fix="`nvidia-smi nvlink -s`")  # fmt: skip


JUDGES: Judges = {
    "dcgmi diag": _diag,
    "dcgmi health": _report,
    "dcgmi discovery": (("gpu.count", _discovered),),
    "dcgmi nvlink": (("nvlink.links", _link_states),),
}
