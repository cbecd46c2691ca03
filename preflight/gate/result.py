"""Progress and result of a run of the gate.

``Progress`` is the part completed so far. The main thread or the deadline thread turns it into the one
``GateResult``, which ``announce`` writes. Imported before every job.
"""

from __future__ import annotations

from preflight.gate import announce, policy
from preflight.gate.request import GateRequest
from preflight.gate.values import dataclass, replace
from preflight.gate.verdict import PREFIX, Verdict, ascii_reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from preflight.evidence.document import Evidence
    from preflight.gate.cache_writer import CacheWriter
    from preflight.gate.slurm import SlurmResult
    from preflight.gate.verdict_cache import Cached


@dataclass(frozen=True)
class GateRules:
    """The policy of a run, from its options and the cluster file or cached verdict.

    ``actions`` maps a status to the action that replaces the policy's. ``error`` is the error in the cluster file if
    its last valid copy is used, ``publish`` the directory to which verdicts are published.
    """

    strict: bool = False
    dry_run: bool = False
    actions: Mapping[str, str] | None = None
    error: str = ""
    publish: str | None = None

    def rule(self, hook: str, status: str) -> policy.PolicyRule:
        """Return the hook's rule for a status."""
        rule = policy.rule(hook, status, self.actions, self.strict)
        if self.error and rule.action == "drain":  # an invalid cluster file never drains; the job is requeued
            return policy.PolicyRule(rule.exit, "refuse")
        return rule

    def exit_status(self, hook: str, status: str, slurm: SlurmResult | None) -> int:
        """Return the exit status of a verdict.

        slurmd drains a node if its Prolog does not exit 0. A prolog that did not fail the node therefore exits 0,
        even with --strict, unless Slurm was updated: the result of that determines the status.
        """
        if self.dry_run:
            return 0
        if slurm is not None:
            return slurm.exit
        if hook == "slurm-prolog" and status != "fail":
            return 0
        return self.rule(hook, status).exit


@dataclass(frozen=True)
class Judgement:
    """A verdict and its explanation.

    ``lines`` start with the most important. ``report`` and ``evidence`` are set only if the node was judged now.
    ``age_s`` is the age of a cached verdict in seconds. ``cacheable``: the verdict may be served to later jobs.
    """

    verdict: Verdict
    lines: tuple[str, ...] = ()
    report: Mapping[str, Any] | None = None
    evidence: Evidence | None = None
    age_s: float | None = None
    cacheable: bool = False


@dataclass(frozen=True)
class GateResult:
    """Result of a run of the gate, and all its output.

    ``text`` is the one-line result, ``troubles`` are errors of the cluster file or the state directory, ``lines``
    explain the verdict, ``slurm_line`` reports the action in Slurm.
    """

    hook: str
    node: str
    exit_status: int
    text: str
    verdict: Verdict
    troubles: tuple[str, ...] = ()
    lines: tuple[str, ...] = ()
    slurm_line: str = ""
    termination_log: str | None = None
    textfile: str | None = None
    report_dir: str | None = None
    publish: str | None = None
    report: Mapping[str, Any] | None = None
    evidence: Evidence | None = None


@dataclass(frozen=True)
class PassedOn:
    """End of a process that leaves judging to another process.

    ``loud``: a job may be waiting for the verdict.
    """

    exit_status: int
    text: str
    loud: bool


@dataclass(frozen=True)
class Progress:
    """The completed part of a run, sufficient to end the run at any time.

    ``slurm`` is the result in Slurm, ``cache`` writes verdicts to the state directory, ``cache_error`` is the error of
    that write, and ``note`` names unfinished work.
    """

    request: GateRequest
    rules: GateRules
    judgement: Judgement | None = None
    slurm: SlurmResult | None = None
    cache: CacheWriter | None = None
    cache_error: str = ""
    note: str = ""

    def judged(self, verdict: Verdict) -> Progress:
        """Return the progress with another verdict and unchanged lines and report."""
        former = self.judgement or Judgement(verdict)
        return replace(self, judgement=replace(former, verdict=verdict, age_s=None))

    def unjudged(self, check: str, why: str, status: str = "unknown") -> Progress:
        """Return the progress of a run that cannot judge; ``check`` prevented it."""
        return self.judged(self.request.unknown_verdict(check, why, status))


def begun(request: GateRequest) -> Progress:
    """Return the progress at the start of a run."""
    return Progress(request, GateRules(request.options.strict, request.options.dry_run))


def served(request: GateRequest, cached: Cached) -> Progress:
    """Return the progress of a run with a cached verdict and its rules."""
    rules, options = cached.hooks.get(request.hook.name, {}), request.options
    strict = options.strict or bool(rules.get("strict"))
    return Progress(
        request, GateRules(strict, options.dry_run, rules.get("actions"), cached.error),
        Judgement(cached.verdict, age_s=cached.age_s),
    )  # fmt: skip


def in_time(progress: Progress) -> GateResult:
    """Return the result of a run that has a verdict."""
    if progress.judgement is None:
        raise ValueError("a result needs a verdict")
    return _result(progress, progress.judgement)


def late(progress: Progress, why: str, killed: bool) -> GateResult:
    """Return the result of a run that the deadline or a signal (``killed``) ends.

    After a signal, the exit status is never 0. A node without a verdict is *unknown*; this is written to the state
    directory as an incomplete verdict.
    """
    if progress.judgement is None:
        progress = progress.unjudged("gate.interrupted" if killed else "gate.deadline", why)
        progress = written(progress, complete=False)
    elif killed or progress.slurm is None:
        progress = replace(progress, note=f"{PREFIX}{progress.request.node}: incomplete: {why}")
    result = in_time(progress)
    return replace(result, exit_status=result.exit_status or 3) if killed else result


def written(progress: Progress, *, complete: bool) -> Progress:
    """Write the verdict, if there is one, to the run's state directory, if it has one.

    An incomplete verdict is never served.
    """
    if progress.cache is None or progress.judgement is None:
        return progress
    return replace(progress, cache_error=progress.cache.write(progress.judgement, complete=complete))


def _result(progress: Progress, judgement: Judgement) -> GateResult:
    request, rules, verdict = progress.request, progress.rules, judgement.verdict
    hook, options = request.hook.name, request.options
    slurm_line = progress.slurm.line if progress.slurm is not None else ""
    if slurm_line:
        slurm_line = ascii_reason(f"{PREFIX}{slurm_line.removeprefix(PREFIX)}", 1000)
    unwritten = announce.plain(f"{PREFIX}the verdict is not saved: {progress.cache_error}")
    return GateResult(
        hook,
        request.node,
        rules.exit_status(hook, verdict.status, progress.slurm),
        announce.line(verdict, hook, age_s=judgement.age_s, job=request.job, dry_run=rules.dry_run),
        verdict,
        troubles=tuple(filter(None, (rules.error, unwritten if progress.cache_error else ""))),
        lines=(*filter(None, (progress.note, slurm_line)), *judgement.lines),
        slurm_line=slurm_line,
        termination_log=options.termination_log,
        textfile=options.textfile,
        report_dir=options.report_dir,
        publish=rules.publish,
        report=judgement.report,
        evidence=judgement.evidence,
    )
