"""State of one gate run: its rules, its verdict and its output. Imported before every job."""

from __future__ import annotations

import time

from preflight.gate import announce, policy, scheduler_env
from preflight.gate.verdict import PREFIX, Verdict, ascii_reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from preflight.gate.options import Options
    from preflight.gate.watchdog import Watch


class GateRun:
    """State of one gate run, shared with the deadline thread so that either can finish it.

    ``verdict`` is set as soon as there is one, ``exit`` where Slurm was sent something that requires another status
    than the rule's, ``slurm_line`` is the result of that. ``lines`` explain the verdict, the most important first.
    ``keep`` writes it to the state directory, ``cache_error`` is the reason why that failed.
    """

    def __init__(self, options: Options, node: str, watch: Watch) -> None:
        self.options, self.node, self.watch = options, node, watch
        self.at = int(time.time())
        self.actions: Mapping[str, str] = {}
        self.strict, self.dry_run = options.strict, options.dry_run
        self.verdict: Verdict | None = None
        self.exit: int | None = None
        self.lines: Sequence[str] = ()
        self.slurm_line = ""
        self.error = ""
        self.cache_error = ""
        self.publish: str | None = None
        self.report: Mapping[str, Any] | None = None
        self.evidence: Any = None
        self.keep: Callable[[Verdict, bool], None] | None = None

    def rule(self, status: str) -> policy.PolicyRule:
        """Return what this hook does about a status."""
        default = policy.rule(self.options.hook, status, self.actions, self.strict)
        if self.error and default.action == "drain":  # a wrong cluster file never drains; the job is put back
            return policy.PolicyRule(default.exit, "refuse")
        return default

    def unknown_verdict(self, check: str, why: str, status: str = "unknown") -> Verdict:
        """Return the verdict on a node that could not be judged; ``check`` names what prevented it."""
        from preflight.gate.verdict_cache import boot_id

        return Verdict(
            announce.name(self.node), status, self.at, boot_id=boot_id(),
            reason=ascii_reason(f"{PREFIX}{check}: {why}"),
            unknowns=(check,) if status == "unknown" else (), seconds=round(time.monotonic() - self.watch.began, 3),
        )  # fmt: skip

    def on_deadline(self, why: str, killed: bool) -> int:
        """End it from the other thread; return the exit status, which is never that of a pass."""
        verdict = self.verdict
        if verdict is None:
            verdict = self.unknown_verdict("gate.interrupted" if killed else "gate.deadline", why)
            if self.keep is not None:
                self.keep(verdict, False)
        elif killed or self.exit is None:
            self.lines = (f"{PREFIX}{self.node}: not all was done: {why}", *self.lines)
        status = self.announce(verdict)
        return (status or 3) if killed else status

    def finish(self, verdict: Verdict, age_s: float | None = None) -> int:
        """End it in time; return the exit status."""
        self.verdict = verdict
        self.watch.disarm(self.status(verdict))
        return self.announce(verdict, age_s)

    def status(self, verdict: Verdict) -> int:
        """Return the exit status that a verdict leads to.

        slurmd drains a node if its Prolog does not exit 0. A prolog without a verdict therefore exits 0, even with
        --strict, unless the job was requeued.
        """
        if self.dry_run:
            return 0
        if self.exit is not None:
            return self.exit
        if self.options.hook == "slurm-prolog" and verdict.status != "fail":
            return 0
        return self.rule(verdict.status).exit

    def announce(self, verdict: Verdict, age_s: float | None = None) -> int:
        """Print, log and write the verdict; return the exit status."""
        options, loud = self.options, verdict.status != "pass"
        text = announce.line(verdict, options.hook, age_s=age_s, job=scheduler_env.job(), dry_run=self.dry_run)
        unwritten = announce.plain(f"{PREFIX}the verdict is not kept: {self.cache_error}") if self.cache_error else ""
        troubles = [trouble for trouble in (self.error, unwritten) if trouble]
        complaints, lines = [*troubles], [text, *troubles, *self.lines]
        if options.termination_log:
            complaints.append(announce.terminate(options.termination_log, lines))
        announce.print_line(text, loud=loud)
        for line in (*complaints, *self.lines):
            if line:
                announce.print_line(line, loud=True)
        announce.log(text, verdict.status)
        if self.slurm_line:
            announce.log(self.slurm_line, verdict.status)
        for trouble in troubles:  # else a health check that cannot write would report "one is being made" for ever
            announce.log(trouble, "error")
        if options.textfile or options.report_dir or self.publish:
            from preflight.gate import outputs

            result = outputs.Result(
                options.hook, self.node, verdict, self.status(verdict), options.textfile, options.report_dir,
                self.publish, self.report, self.evidence,
            )  # fmt: skip
            for complaint in outputs.write(result):
                announce.print_line(complaint, loud=True)
        return self.status(verdict)
