"""Checks of NCCL usage in a log: communicators, buffers, in-network reduction."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from preflight.checks.logs import no_nccl
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, all_of, check, counted, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.parsers.nccl_log import NcclLog

USER_GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/usage"

#: Maximum number of communicators of one size for one rank; data, tensor, pipeline, context and expert groups need a
#: dozen.
MANY = 100
#: Number of steps followed by a setup at which communicators count as not reused, and minimum number of steps to
#: judge.
RECREATED, FEW_STEPS = 3, 3
#: Minimum number of communicators before the first step whose repetition is a restart of the job.
RESTARTED = 2
_VERSION = "NCCL version "

#: Name of the rdma-sharp plug-in in logs.
_SHARP = ("sharp", "ibext")


def no_step(run: RunFacts, site: Site) -> Finding | None:
    """Return *unknown* if no log has lines of both NCCL and training steps."""
    if run.nccl_logs.keys() & run.training.keys():
        return None
    return unknown("no log has lines of both NCCL and training steps", evidence=list(run.nccl_logs),
                   fix="pass the output of a complete rank, with NCCL_DEBUG=INFO and its step lines")  # fmt: skip


@check(
    "nccl.communicators",
    title="Communicators are created once and reused",
    fault="Communicators are created repeatedly",
    impact="slows-job",
    source=f"{USER_GUIDE}/communicators.html; more than 100 of one size by one rank: a judgement",
    fix="Create process groups before the loop; look for `new_group` and `init_process_group` inside it.",
    action="fix-job",
    answers=("NT-COM-1",),
    scope="run",
    gating=False,
    unless=(no_nccl,),
)
def communicators(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Count the communicators of one size that a rank sets up.

    ## Why it matters
    Creating a communicator takes seconds on a large job, and memory on every GPU; a job that creates one in each step
    makes little progress.

    ## Verdicts
    More than 100 of one size created by one rank warn: no parallel layout needs that many. A log that begins after the
    start of the job, or shows no communicator setup, is unknown.

    ## False alarms
    One log of many consecutive jobs.
    """
    for key, log in run.nccl_logs.items():
        name = key.removeprefix("log:")
        if not any(one.complete for one in log.communicators):
            yield unknown(f"{name}: no line shows a communicator setup", subject=name, evidence=[key],
                          fix="run with NCCL_DEBUG=INFO, and keep the log from its start")  # fmt: skip
            continue
        most = max(log.communicators, key=lambda one: one.most_by_one)
        message = f"{name}: one rank creates up to {counted(most.most_by_one, 'communicator')} of {most.nranks} ranks"
        if most.most_by_one > MANY:
            yield warned(message, subject=name, found=most.most_by_one, expected=f"at most {MANY}", evidence=[key])
        else:
            yield passed(message, subject=name, found=most.most_by_one, evidence=[key])


@check(
    "nccl.late-communicators",
    title="No communicator is created between the steps",
    fault="Communicators are created between the steps",
    impact="slows-job",
    source=f"{USER_GUIDE}/communicators.html; after three different steps: a judgement",
    fix="Create process groups before the loop; look for `new_group`, `split_group` and `DeviceMesh` inside it.",
    action="fix-job",
    answers=("NT-COM-1",),
    scope="run",
    gating=False,
    unless=(no_nccl, no_step),
    needs=("steps",),
)
def late_communicators(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Look for communicators that are set up between the steps of a log.

    ## Why it matters
    All ranks wait while a communicator is created. In the loop, this delay is part of the steps, and each new
    communicator takes memory unless the previous one is destroyed.

    ## Verdicts
    Only the order of the lines counts: clocks and time stamps are not compared. The check warns if one process sets up
    communicators after three different steps. Setups after one or two steps pass, because a first validation or
    checkpoint may need them. A log without setups or with fewer than three steps is unknown. So is one in which a
    process sets up at least as many communicators of one size as steps are printed, but before them: the step lines may
    have been buffered. It is also unknown if the job may have restarted: NCCL prints its version again, or a process
    repeats, after at most half of the steps, all setups that it made before the first step (at least two). For large
    jobs, the first 256 processes of the log are judged.

    ## False alarms
    A job that creates a group for each of its checkpoints.
    """
    for key, log in run.nccl_logs.items():
        if key not in run.training:
            continue
        name = key.removeprefix("log:")
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        steps = max((own for _, own in run.training[key].logs), key=lambda own: len(own.steps)).steps
        ends = sorted(step.line for step in steps)
        if not log.setups or len(ends) < FEW_STEPS:
            what = f"only {len(ends)} steps" if log.setups else "no communicator setup"
            fix = "run with NCCL_DEBUG=INFO, and keep the log from its start"
            yield unknown(f"{name}: the log shows {what}", fix=fix, **at)
            continue
        after = [Counter(bisect_right(ends, line) for line in lines) for lines in log.setups]
        versions = _versions(run, key, ends)
        worst = max(after, key=lambda setups: len(setups.keys() - {0})).keys() - {0}
        new = max(len(setups.keys() - {0} - versions - _repeats(setups, len(ends))) for setups in after)
        creates = "one process creates new communicators" if worst else "no process creates a new communicator"
        message = f"{name}: {creates} after {len(worst) or 'any'} of {len(ends)} steps"
        if new >= RECREATED:
            yield warned(message, found=len(worst), expected=f"fewer than {RECREATED}", **at)
        elif len(worst) >= RECREATED:
            yield unknown(f"{message}; the job may have restarted there", fix="pass the log of a single start of "
                                                                              "the job",
                          found=len(worst), **at)  # fmt: skip
        elif any(comm.most_by_one >= len(ends) for comm in log.communicators):
            yield unknown(f"{message}; before the first step, one process creates as many as there are steps, so "
                          "the step "
                          "lines may be late",
                          fix="run with PYTHONUNBUFFERED=1", found=len(worst), **at)  # fmt: skip
        else:
            yield passed(message, found=len(worst), **at)


def _versions(run: RunFacts, key: str, ends: Sequence[int]) -> set[int]:
    """Return the steps after which NCCL prints its version."""
    text = run.log(key).text
    if _VERSION not in text.text:
        return set()
    return {bisect_right(ends, number) for number, line in text.lines() if _VERSION in line} - {0}


def _repeats(setups: Mapping[int, int], steps: int) -> set[int]:
    """Return the steps after which a process repeats its initial setups."""
    first = setups.get(0, 0)
    again = {after for after, count in setups.items() if after and count >= first}
    return again if first >= RESTARTED and 2 * len(again) <= steps else set()


@check(
    "nccl.buffers",
    title="All ranks register user buffers, or none does",
    fault="Only some ranks register user buffers",
    impact="slows-job",
    source=f"{USER_GUIDE}/bufferreg.html: all ranks must register; lines of NCCL 2.19 … 2.30",
    fix="Register the buffers on every rank, with the same NCCL_LOCAL_REGISTER, allocator (`ncclMemAlloc`) and code.",
    action="fix-job",
    answers=("NT-COM-2",),
    scope="run",
    gating=False,
    unless=(no_nccl,),
)
def buffers(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Count the processes of a log that register buffers.

    ## Why it matters
    If one rank has not registered its buffer, all ranks fall back to copies or, with NVLink SHARP, hang.

    ## Verdicts
    If some but not all processes register buffers, the check warns. NCCL logs registrations only with
    NCCL_DEBUG_SUBSYS=REG (or ALL): without such lines, the result is unknown, unless the log shows that the subsystem
    was on.

    ## False alarms
    A log without the lines of some ranks.
    """
    for key, log in run.nccl_logs.items():
        at: dict[str, Any] = {"subject": key.removeprefix("log:"), "evidence": [key]}
        name = at["subject"]
        subsystems = log.variable("NCCL_DEBUG_SUBSYS")
        on = subsystems is not None and any(word in ("REG", "ALL") for word in subsystems.value.upper().split(","))
        if log.registering and log.registering < log.processes:
            yield warned(f"{name}: {log.registering} of {log.processes} processes register buffers",
                         found=log.registering, expected=f"{log.processes}, or none", **at)  # fmt: skip
        elif log.registering or (on and log.processes):
            which = "all" if log.registering else "none"
            owners = all_of(log.processes, "process") if log.registering else "no process"
            yield passed(
                f"{name}: {owners} register{'s' * (log.processes == 1 or not log.registering)} buffers",
                found=which,
                **at,
            )
        else:
            yield unknown(f"{name}: no line shows registered buffers",
                          fix="run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,ENV,REG", **at)  # fmt: skip


@check(
    "nccl.in-network",
    title="The network performs reductions: SHARP over InfiniBand, NVLink SHARP in a node",
    fault="The network does not perform reductions",
    impact="slows-job",
    source="NVIDIA SHARP user manual; nccl-rdma-sharp-plugins; lines of NCCL 2.17 … 2.30",
    fix="SHARP needs its plug-in (`libnccl-net.so` of HPC-X), sharp_am and NCCL_COLLNET_ENABLE=1; for NVLS, unset "
    "NCCL_NVLS_ENABLE.",
    action="fix-job",
    answers=("NT-SHP-2", "NT-SHP-3", "NT-SHP-4"),
    scope="run",
    gating=False,
    unless=(no_nccl,),
)
def in_network(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Look in the log for the SHARP plug-in, and for CollNet or NVLS channels.

    ## Why it matters
    Data that the switches reduce crosses each link once instead of twice. No message reports that the switches are not
    used.

    ## Verdicts
    A communicator with SHARP shows that the aggregation manager answers; an error of its library warns. SHARP that is
    requested (NCCL_COLLNET_ENABLE=1) without its plug-in loaded, or without a channel that uses it, warns; so does
    NVLS that the GPUs support but that is disabled. If neither is requested or supported, the check is skipped.

    ## False alarms
    None known: a log without channels (NCCL_DEBUG_SUBSYS=INIT only) is unknown.
    """
    for key, log in run.nccl_logs.items():
        at: dict[str, Any] = {"subject": key.removeprefix("log:"), "evidence": [key]}
        yield _plugin(log, at).about("NT-SHP-3")
        yield _used(log, at).about("NT-SHP-4")
        if granted := _granted(log, at):
            yield granted.about("NT-SHP-2")


def _requests_sharp(log: NcclLog) -> bool:
    collnet = log.variable("NCCL_COLLNET_ENABLE")
    return collnet is not None and collnet.value.strip() == "1"


def _plugin(log: NcclLog, at: dict[str, Any]) -> Finding:
    name = at["subject"]
    loaded = [one.name or "" for one in log.plugins if one.state == "loaded"]
    sharp = [one for one in loaded if any(word in one.casefold() for word in _SHARP)]
    if sharp or log.collnet or any(device.sharp for device in log.ib_devices):
        which = sharp[0] if sharp else "according to its devices"
        return passed(f"{name}: the SHARP plug-in is loaded ({which})", found="loaded", **at)
    lacks = [one for one in log.plugins if one.state in ("not found", "failed", "unsupported", "internal")]
    if _requests_sharp(log) and lacks:
        return warned(f"{name}: NCCL_COLLNET_ENABLE=1 requests SHARP, but its plug-in is not loaded ({lacks[0].state})",
                      found=lacks[0].state, expected="loaded", quote=str(lacks[0].first), **at)  # fmt: skip
    if not _requests_sharp(log):
        return skipped(f"{name}: SHARP is not requested", **at)
    return unknown(f"{name}: no line shows a plug-in", fix="run with NCCL_DEBUG=INFO", **at)


def _granted(log: NcclLog, at: dict[str, Any]) -> Finding | None:
    """Report whether the aggregation manager granted SHARP; None if not shown.

    The library queries the manager when it sets up a communicator, so a completed setup proves the grant.
    """
    name = at["subject"]
    if refused := next((one for one in log.failures if one.id == "sharp_failed"), None):
        return warned(f"{name}: SHARP was requested but not granted", found=refused.line.text, quote=str(refused.line),
                      expected="trees of the aggregation manager (sharp_am)", **at)  # fmt: skip
    if log.collnet:
        return passed(f"{name}: the aggregation manager granted SHARP", found=log.collnet[0].name, **at)
    return None


def _used(log: NcclLog, at: dict[str, Any]) -> Finding:
    name = at["subject"]
    used = [what for what, here in (("SHARP (CollNet)", bool(log.collnet)), ("NVLS", log.nvls is not None)) if here]
    if used:
        return passed(f"{name}: NCCL uses {' and '.join(used)}", found=", ".join(used), **at)
    off = log.variable("NCCL_NVLS_ENABLE")
    if _requests_sharp(log) and (log.channels or log.channel_counts is not None):
        return warned(f"{name}: NCCL_COLLNET_ENABLE=1 requests SHARP, but no channel uses it", found="no channel",
                      expected="CollNet channels", **at)  # fmt: skip
    if log.nvls_support and off is not None and off.value.strip() == "0":
        return warned(f"{name}: the GPUs support NVLS, but NCCL_NVLS_ENABLE=0 disables it", found="off",
                      expected="in use", quote=str(off.first), **at)  # fmt: skip
    if log.nvls_support is False and not _requests_sharp(log):
        return skipped(f"{name}: the GPUs have no NVLS, and SHARP is not requested", **at)
    return unknown(f"{name}: no line shows whether NCCL uses SHARP or NVLS",
                   fix="run with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,ENV", **at)  # fmt: skip
