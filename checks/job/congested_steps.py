"""Check of a job's step times while the ports of its nodes were watched."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import median
from typing import Any, NamedTuple

from preflight import facts
from preflight.checks.rdma.congestion import HELD
from preflight.checks.rdma.per_port import judged_ports
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.node import NodeFacts
from preflight.facts.steps_in_window import contradicts, seconds_since_1970, times_within
from preflight.model import Finding, check, clause, passed, unknown, warned
from preflight.parsers.torch.samples import percentile

#: Minimum steps in the window for its 95th percentile, and maximum ratio of that to the median of all steps.
_ENOUGH, SLOWER = 20, 1.10
#: Maximum number of lines after the last step.
_AFTER = 5
FIX = (
    "while the job runs, run `preflight check --window 600 --hosts NODES --save DIR`; then run "
    "`preflight judge DIR --log job.log`"
)


class _Window(NamedTuple):
    """Paused ports of one node in its window; times are in seconds since 1970."""

    begin: float
    end: float
    node: str
    paused: tuple[str, ...]  # ports that were paused for a notable share of the window
    vague: tuple[str, ...]  # ports whose pauses are not known


@check(
    "counters.step-times",
    title="Congestion does not lengthen the steps of the job",
    fault="Steps take longer while ports are paused",
    impact="slows-job",
    owner="network",
    source="IEEE 802.1Qbb; 95th percentile of at least 20 steps; a tenth above the median: a judgement",
    fix="See counters.congestion for the port, and run `preflight check --window 60` on its peers to find the slow "
    "receiver.",
    answers=("NT-LENS-8",),
    scope="run",
    gating=False,
    needs=("steps",),
)
def step_times(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the step times in the window of the counters with all steps of the log.

    ## Why it matters
    A pause that falls between two collectives costs nothing. Congestion matters if the slow steps of the job fall into
    the time in which ports were paused.

    ## Verdicts
    To find the steps in the window, the check counts back their lengths from the time at which the log was last
    written. So the log has to end with a step, and the clocks of the machines have to agree. If the last step has a
    time stamp that is not the time of the file in any time zone, the result is unknown. The check warns if a compute
    port of a judged node was paused for at least 1% of the window, and the 95th percentile of the steps in it is more
    than a tenth above the median of all steps. With 100 steps or more, it also gives the p99. Paused ports pass if the
    steps are even, and so do ports that were not paused. Fewer than 20 steps in the window, or a single reading of the
    counters, are unknown. So are long steps if the pauses of a port, or of a node of the job, are not known.

    ## False alarms
    A checkpoint or a validation in the window, while ports are paused for another reason.
    """
    if not run.nodes:
        yield unknown("no evidence of the job's nodes was passed", evidence=list(run.training), fix=FIX)
        return
    windows = [window for node in run.nodes if (window := _window(node, site)) is not None]
    for key in run.training:
        yield _judged(run, key, windows)


def _judged(run: RunFacts, key: str, windows: Sequence[_Window]) -> Finding:
    name = key.removeprefix("log:")
    at: dict[str, Any] = {"subject": name, "evidence": [key]}
    if not windows:
        return unknown(f"{name}: no node has two readings of its ports' counters", fix=FIX, **at)
    steps = max((own for _, own in run.training[key].logs), key=lambda own: len(own.steps)).steps
    if run.log(key).line_count - steps[-1].line > _AFTER:
        return unknown(f"{name}: other lines follow its last step, so the time of that step is unknown", fix=FIX, **at)
    written = seconds_since_1970(run.evidence.collected_at) if len(run.logs) == 1 else None
    if written is None:
        return unknown(f"{name}: the end of its last step is unknown", fix="pass the job's log alone", **at)
    last = next((line for number, line in run.log(key).text.lines() if number == steps[-1].line), "")
    if contradicts(last, written):
        return unknown(f"{name}: the time of its last step differs from that of the file, which may be a copy",
                       fix="copy the log with its time (`cp -p`, `rsync -t`)", **at)  # fmt: skip
    times = times_within(steps, written, min(window.begin for window in windows), max(window.end for window in windows))
    if times is None or len(times) < _ENOUGH:
        what = "the log does not cover the window of the counters"
        if times is not None:
            what = f"only {clause(len(times), 'step', 'is')} in the window of the counters, fewer than {_ENOUGH}"
        return unknown(f"{name}: {what}", fix=FIX, **at)
    usual = median(step.step_time_s for step in steps[1:] if step.step_time_s)
    ordered = sorted(times)
    p95, p99 = percentile(ordered, 0.95) or ordered[-1], percentile(ordered, 0.99)
    shown = f"{name}: {len(times)} steps in the window took {p95:.4g} s at p95" + (
        f", {p99:.4g} s at p99" if p99 else ""
    )
    shown += f"; the median of all steps is {usual:.4g} s"
    at["found"] = f"{p95 / usual:.0%} of the median"
    paused = sorted(port for window in windows for port in window.paused)
    vague = [port for window in windows for port in window.vague]
    if paused and p95 > SLOWER * usual:
        slow = warned(f"{shown}; meanwhile {_listed(paused)} paused", expected=f"at most {SLOWER:.0%}", **at)
        return slow.from_cause(("counters.congestion", *(window.node for window in windows if window.paused)))
    if paused:
        return passed(f"{shown}; {_listed(paused)} paused, without an effect on the steps", **at)
    nodes = run.nccl_logs[key].nnodes if key in run.nccl_logs else None
    if p95 > SLOWER * usual and (vague or len(windows) < max(len(run.nodes), nodes or 0)):
        why = f"the pauses of {_listed(vague, '')} are not known" if vague else "not all nodes of the job were watched"
        return unknown(f"{shown}; {why}", fix=FIX, **at)
    return passed(f"{shown}; no watched port was paused for {HELD:.0%} of the time", **at)


def _listed(ports: Sequence[str], verb: str = " was") -> str:
    more = f" and {len(ports) - 4} more" if len(ports) > 4 else ""
    return ", ".join(ports[:4]) + more + (verb if len(ports) == 1 else verb and " were")


def _window(node: NodeFacts, site: Site) -> _Window | None:
    """Return the paused ports of a node in its window; None without two readings."""
    begin = seconds_since_1970(node.evidence.collected_at)
    try:
        ports = [node.port_growth[port.name] for port in judged_ports(node, site)]
    except EvidenceError:
        return None
    seconds = max((port.seconds for port in ports if port.seconds), default=0.0)
    if begin is None or not seconds:
        return None
    held = [(f"{node.node} {port.port.name}", hold) for port in ports for hold in facts.port_stalls.held(port)]
    paused = [name for name, hold in held if hold.share is not None and not hold.bound and hold.share >= HELD]
    vague = [name for name, hold in held if hold.share is None or (hold.bound and hold.share >= HELD)]
    return _Window(begin, begin + seconds, node.node, tuple(dict.fromkeys(paused)), tuple(dict.fromkeys(vague)))
