"""One call of a seat from beginning to end: its rules, its words, and who is told. Imported before every job."""

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


class Sitting:
    """What is known so far; whoever ends it, in time or late, finds here what there is to say.

    ``verdict`` is set as soon as there is one, ``exit`` where Slurm was told something that asks for another status
    than the rule's, ``settled`` is what came of that. ``lines`` explain the verdict, the most important first.
    ``keep`` writes it to the state directory, ``unkept`` says why that could not be done.
    """

    def __init__(self, asked: Options, node: str, watch: Watch) -> None:
        self.asked, self.node, self.watch = asked, node, watch
        self.at = int(time.time())
        self.actions: Mapping[str, str] = {}
        self.strict, self.dry_run = asked.strict, asked.dry_run
        self.verdict: Verdict | None = None
        self.exit: int | None = None
        self.lines: Sequence[str] = ()
        self.settled = ""
        self.error = ""
        self.unkept = ""
        self.publish: str | None = None
        self.report: Mapping[str, Any] | None = None
        self.evidence: Any = None
        self.keep: Callable[[Verdict, bool], None] | None = None

    def rule(self, status: str) -> policy.Rule:
        """Return what this seat does about a status."""
        found = policy.rule(self.asked.seat, status, self.actions, self.strict)
        if self.error and found.action == "drain":  # a wrong cluster file never drains; the job is put back
            return policy.Rule(found.exit, "refuse")
        return found

    def untold(self, check: str, why: str, status: str = "unknown") -> Verdict:
        """Return the verdict on a node that could not be judged; ``check`` names what prevented it."""
        from preflight.gate.verdict_cache import boot_id

        return Verdict(
            announce.name(self.node), status, self.at, boot_id=boot_id(),
            reason=ascii_reason(f"{PREFIX}{check}: {why}"),
            unknowns=(check,) if status == "unknown" else (), seconds=round(time.monotonic() - self.watch.began, 3),
        )  # fmt: skip

    def late(self, why: str, killed: bool) -> int:
        """End it from the other thread; return the exit status, which is never that of a pass."""
        found = self.verdict
        if found is None:
            found = self.untold("gate.interrupted" if killed else "gate.deadline", why)
            if self.keep is not None:
                self.keep(found, False)
        elif killed or self.exit is None:
            self.lines = (f"{PREFIX}{self.node}: not all was done: {why}", *self.lines)
        status = self.tell(found)
        return (status or 3) if killed else status

    def finish(self, found: Verdict, age_s: float | None = None) -> int:
        """End it in time; return the exit status."""
        self.verdict = found
        self.watch.over(self.status(found))
        return self.tell(found, age_s)

    def status(self, found: Verdict) -> int:
        """Return the exit status that a verdict leads to.

        slurmd drains a node whose Prolog does not end with 0. So that is how one ends that could not judge, however
        strict, unless Slurm was asked to put the job back.
        """
        if self.dry_run:
            return 0
        if self.exit is not None:
            return self.exit
        if self.asked.seat == "slurm-prolog" and found.status != "fail":
            return 0
        return self.rule(found.status).exit

    def tell(self, found: Verdict, age_s: float | None = None) -> int:
        """Tell everybody who is to know; return the exit status."""
        asked, loud = self.asked, found.status != "pass"
        text = announce.line(found, asked.seat, age_s=age_s, job=scheduler_env.job(), dry_run=self.dry_run)
        unkept = announce.plain(f"{PREFIX}the verdict is not kept: {self.unkept}") if self.unkept else ""
        troubles = [trouble for trouble in (self.error, unkept) if trouble]
        complaints, lines = [*troubles], [text, *troubles, *self.lines]
        if asked.termination_log:
            complaints.append(announce.terminate(asked.termination_log, lines))
        announce.say(text, loud=loud)
        for line in (*complaints, *self.lines):
            if line:
                announce.say(line, loud=True)
        announce.log(text, found.status)
        if self.settled:
            announce.log(self.settled, found.status)
        for trouble in troubles:  # else a health check that cannot write would say "one is being made" for ever
            announce.log(trouble, "error")
        if asked.textfile or asked.report_dir or self.publish:
            from preflight.gate import outputs

            result = outputs.Result(
                asked.seat, self.node, found, self.status(found), asked.textfile, asked.report_dir, self.publish,
                self.report, self.evidence,
            )  # fmt: skip
            for complaint in outputs.write(result):
                announce.say(complaint, loud=True)
        return self.status(found)
