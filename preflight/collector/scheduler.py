"""One run of a plan: its probes, a limited number in parallel, up to a deadline."""

import functools
import os
import threading
import time

from . import environment_kind, processes
from .records import Deadline, Record
from .redact import redact, redact_value
from .sudo import Privilege
from .tasks import ProbeJob, RunContext, jobs_of

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, List, Set, Tuple

SCHEMA = "preflight.evidence/1"

#: Seconds after the deadline for killing commands and closing the document.
_CLOSING_S = 0.32

#: Seconds beyond a probe's time limit after which its worker counts as stuck in the kernel.
_OVERDUE_S = 1.0

#: Initial number of workers, and seconds after which one more is added while jobs wait. Threads of one interpreter
#: compete: with fast answers, eight of them take twice the CPU time of two. So two workers start at the front of the
#: queue with commands, for which they mostly wait, and one starts at its end with files.
_AT_FIRST, _ONE_MORE_S = 3, 0.03


class CollectorRun:
    """The state that the workers of one run share."""

    def __init__(self, plan: "Dict[str, Any]") -> None:
        """Parse the plan; collection has not started yet."""
        self._deadline = Deadline(float(plan["deadline_s"]))
        self._parallel = max(1, int(plan["parallel"]))
        lock = threading.RLock()
        self._changed = threading.Condition(lock)  # work is available, or all work is done
        self._over = threading.Condition(lock)
        self._records: Dict[str, Record] = {}
        self._notes: List[str] = []
        self._site = RunContext(plan, self._deadline, Privilege(bool(plan["sudo"]), self.note))
        self._waiting = jobs_of(plan["probes"])
        self._later: List[Tuple[float, ProbeJob]] = []
        self._open: Set[ProbeJob] = set(self._waiting)

    def note(self, text: str) -> None:
        """Add a remark about the run."""
        with self._changed:
            if text not in self._notes:
                self._notes.append(redact(text))

    def collect(self) -> "Dict[str, Record]":
        """Run all probes; return by the deadline plus half a second, even if some hang."""
        workers = min(self._parallel, _AT_FIRST, len(self._waiting))
        for number in range(workers):
            self._add_worker(-1 if number == 1 else 0)
        with self._over:
            while self._open and time.monotonic() < self._deadline.at + _CLOSING_S:
                self._over.wait(_ONE_MORE_S if workers < self._parallel else 0.05)
                if workers < self._parallel and self._waiting:
                    workers += 1
                    self._add_worker()
                for job in [job for job in self._open if job.overdue(_OVERDUE_S)]:
                    self._give_up(job)
                    self._add_worker()
            for job in list(self._open):
                self._give_up(job)
            return dict(self._records)

    @property
    def notes(self) -> "List[str]":
        """The notes so far."""
        with self._changed:
            return list(self._notes)

    def _add_worker(self, end: int = 0) -> None:
        threading.Thread(target=self._work, args=(end,), daemon=True).start()

    def _work(self, end: int) -> None:
        """Run jobs one by one, from the first, or from the last (``end`` is -1)."""
        while True:
            with self._changed:
                while not self._due() and self._open and not self._deadline.passed:
                    self._changed.wait(self._pause_s())
                if not self._waiting or self._deadline.passed:
                    return
                job = self._waiting.pop(end)
                job.begin()
            try:
                more = job.answer(self._site, functools.partial(self._put, job))
            except Exception as error:  # a bug may cost one answer, but no other
                more = []
                why = "the collector failed: {}: {}".format(type(error).__name__, error)
                self._put(job, job.key, {"status": "error", "why": why})
            with self._changed:
                if job in self._open:
                    self._waiting[:0] = more
                    self._open.update(more)
                    for key in job.gone():
                        self._keep(job, key, {"status": "missing", "why": "is gone at the second reading"})
                    if self._is_read_again(job):
                        self._later.append((job.read_s + self._site.window_s, job.second()))
                        self._open.add(self._later[-1][1])
                    self._open.remove(job)
                if more or not self._open:
                    self._changed.notify_all()
                if not self._open:
                    self._over.notify_all()

    def _is_read_again(self, job: ProbeJob) -> bool:
        """Return whether a finished job is read again, which needs a successful reading."""
        if not self._site.window_s or not job.twice:
            return False
        return any(self._records[key]["status"] == "ok" for key in job.seen if key in self._records)

    def _due(self) -> bool:
        """Queue the jobs that are due; return whether there are any."""
        now = time.monotonic()
        self._waiting += [job for at, job in self._later if at <= now]
        self._later = [(at, job) for at, job in self._later if at > now]
        return bool(self._waiting)

    def _pause_s(self) -> float:
        """Return how many seconds an idle worker sleeps.

        If only second readings are left, it sleeps until one is due, but at most half a second, so as not to disturb
        the window.
        """
        if not self._later or len(self._open) > len(self._later):
            return 0.05
        return max(0.0, min(0.5, min(at for at, _ in self._later) - time.monotonic()))

    def _put(self, job: ProbeJob, key: str, record: Record) -> None:
        """Store a record, without secrets or empty fields, unless the job was abandoned."""
        job.reading = ""
        clean = {field: redact_value(part) for field, part in record.items() if part not in ("", None)}
        with self._changed:
            if job in self._open:
                self._keep(job, key, clean)

    def _keep(self, job: ProbeJob, key: str, record: Record) -> None:
        """Store an answer; that of a second reading is stored in the first record."""
        job.seen.add(key)
        if job.again:
            absent = {"status": "missing", "why": "was missing at the first reading"}
            self._records.setdefault(key, absent)["again"] = record
        else:
            self._records[key] = record

    def _give_up(self, job: ProbeJob) -> None:
        """Record the state of an unfinished job; its late answers are dropped."""
        self._open.discard(job)
        for key in job.unanswered(self._records):
            self._keep(job, key, job.stuck(self._deadline))


def collect(plan: "Dict[str, Any]") -> "Dict[str, Any]":
    """Carry out a plan (``schemas/plan-1.json``) and return the Evidence document."""
    began, at = time.monotonic(), time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    collector: Dict[str, Any] = dict(environment_kind.identity(), user=str(os.geteuid()), where="unknown")
    collector.update(deadline_s=plan["deadline_s"], sudo=plan["sudo"])
    if "version" in plan:
        collector["version"] = plan["version"]

    def look_around() -> None:
        collector["where"] = environment_kind.where()
        collector["user"] = environment_kind.user()

    looking = threading.Thread(target=look_around, daemon=True)
    looking.start()
    run = CollectorRun(plan)
    records = run.collect()
    looking.join(0.03)
    seconds = round(time.monotonic() - began, 3)
    return {
        "schema": SCHEMA,
        "node": plan["node"] or processes.node(),
        "collected_at": at,
        "collector": dict(collector, seconds=seconds, notes=run.notes),
        "records": records,
    }
