"""Jobs of the workers; a job is one probe, or all calls of one library or Redis."""

import functools
import os
import re
import time

from . import commands, files, hardware_presence, libraries, paths, process_environments, processes, tools
from .frame import sha256
from .records import Deadline, Record, name, refusal
from .sudo import Privilege

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Callable, Dict, Iterable, List, Mapping, Pattern, Set

    Put = Callable[[str, Record], None]

_LIBRARIES = ("nvml", "psutil")
_SLOW_FIRST = (*_LIBRARIES, "cmd")
#: Maximum number of listed subjects for which a command is run.
_MOST_LISTED = 32
#: Multiple of the output cap that is read from a command with a ``keep`` pattern.
_RAW_SHARE = 8


class RunContext:
    """The limits and state that all probes of a run share."""

    def __init__(self, plan: "Mapping[str, Any]", deadline: Deadline, privilege: Privilege) -> None:
        """Set the limits from the plan."""
        self.cap = int(plan["output_cap"])
        self.allowed: List[str] = plan["environment"]
        self.deadline = deadline
        self.privilege = privilege
        self.window_s = float(plan.get("window_s", 0))
        self.there: Dict[str, bool] = {}
        tools.also(plan.get("tools", ()))


class ProbeJob:
    """One or more probes that are answered together; ``key`` is the first one's."""

    def __init__(self, probes: "List[Dict[str, Any]]") -> None:
        """Store probes of one kind; more than one only for a library or Redis."""
        self.probes = probes
        self.kind: str = probes[0]["kind"]
        self.key: str = probes[0]["key"]
        self.target: str = probes[0]["target"]
        self.timeout_s = max(float(probe["timeout_s"]) for probe in probes)
        self.reading = ""
        self.began = 0.0
        self.read_s = 0.0
        self.again = False
        self.seen: Set[str] = set()
        self._expected: Set[str] = set()
        self._thread = ""

    def begin(self) -> None:
        """Start the clock, on the thread that does the work."""
        self.began = time.monotonic()
        self._thread = processes.thread()
        self.reading = self.key

    def second(self) -> "ProbeJob":
        """Return a job that repeats this one at the end of the window."""
        job = ProbeJob(self.probes)
        job.again = True
        job._expected = set(self.seen)
        return job

    def gone(self) -> "List[str]":
        """Return the keys that the first reading had, but this second one lacks."""
        return sorted(self._expected - self.seen)

    @property
    def twice(self) -> bool:
        """Whether a second reading is wanted.

        A probe that expands to several jobs is not read again itself, but its jobs are.
        """
        probe = self.probes[0]
        return bool(probe.get("twice")) and not self.again and "each" not in probe and "listed" not in probe

    def overdue(self, grace_s: float) -> bool:
        """Return whether the job exceeds its time limit by ``grace_s`` seconds."""
        return self.began > 0 and time.monotonic() > self.began + self.timeout_s + grace_s

    def unanswered(self, records: "Mapping[str, Record]") -> "List[str]":
        """Return the keys of this job that are not among the records."""
        keys = {probe["key"] for probe in self.probes} | {self.reading} | self._expected
        return sorted(key for key in keys if key and not (key in self.seen if self.again else key in records))

    def stuck(self, deadline: Deadline) -> Record:
        """Return the record of a job that has not ended."""
        if not self.began:
            return {"status": "not-run", "why": deadline.why}
        if not self.reading:
            why = deadline.why if deadline.passed else "no end after {:g} s".format(self.timeout_s)
            return {"status": "timeout", "why": why}
        found = processes.kernel(processes.blocked(self._thread))
        after_s = time.monotonic() - self.began
        why = "the kernel has not answered for {:.1f} s, at {}".format(after_s, self.reading)
        if after_s < self.timeout_s:  # it may only have started late
            why = "{}: {}".format(deadline.why, why)
        return {"status": "abandoned", "why": why, "kernel": found}

    def answer(self, context: RunContext, put: "Put") -> "List[ProbeJob]":
        """Run the job; return the further jobs that it expands to."""
        absent = hardware_presence.lacking(self.probes[0].get("where", ()), context.there)
        if absent:
            put(self.key, {"status": "missing", "why": absent})
            return []
        if self.kind == "cmd":
            return self._command(context, put)
        if self.kind in _LIBRARIES:
            self._library(context, put)
        elif self.kind in ("file", "files", "dir", "statvfs"):
            self._paths(context, put)
        elif self.kind == "env":
            put(self.key, process_environments.answer(self.target, context.allowed))
        elif self.kind == "redis":
            from . import redis_databases

            self.read_s = time.monotonic()
            redis_databases.collect(self.probes, self.timeout_s, context.deadline, context.cap, put)
        elif self.kind == "kube":
            from . import kubernetes_api

            put(self.key, kubernetes_api.answer(self.target, self.timeout_s, context.deadline))
        else:
            put(self.key, {"status": "error", "why": "this collector knows no such kind of probe"})
        return []

    def _command(self, context: RunContext, put: "Put") -> "List[ProbeJob]":
        probe = self.probes[0]
        if "each" in probe:
            return self._each(probe, put)
        if "listed" in probe:
            return self._listed(probe, context, put)
        record = self._timed(context, lambda: self._execute(probe["argv"], context))
        put(self.key, record)
        answered = record["status"] == "ok" and record["rc"] == 0
        return [] if answered else [ProbeJob([other]) for other in probe.get("otherwise", [])]

    def _execute(self, argv: "List[str]", context: RunContext) -> Record:
        try:
            tool = tools.find(argv[0])
        except OSError as error:
            return refusal(error)
        filtered = _RAW_SHARE if "keep" in self.probes[0] else 1
        limits = (self.timeout_s, context.deadline, context.cap * filtered)
        if self.probes[0].get("needs") == "root":
            self.reading = ""
            return context.privilege.execute([tool, *argv[1:]], self.begin, *limits)
        return commands.execute([tool, *argv[1:]], *limits)

    def _timed(self, context: RunContext, read: "Callable[[], Record]") -> Record:
        """Run one probe; add the time if read twice, and drop unwanted lines."""
        at_s, probe = time.monotonic(), self.probes[0]
        self.read_s = at_s
        record = read()
        if "omit" in probe and record.get("out"):
            record = _without(record, re.compile(probe["omit"]))
        if "keep" in probe and record.get("out"):
            record = _only(record, re.compile(probe["keep"]), context.cap)
        if probe.get("digest") and record.get("out"):
            record = dict(record, out=_digest(record["out"]) + "\n")
        return dict(record, at_s=round(at_s, 6)) if context.window_s and probe.get("twice") else record

    def _listed(self, probe: "Dict[str, Any]", context: RunContext, put: "Put") -> "List[ProbeJob]":
        """Run the command that lists the subjects and return a job for each of them."""
        argv, pattern = probe["listed"]["argv"], probe["listed"]["pattern"]
        record = self._execute(argv, context)
        put("cmd:" + name(" ".join(argv)), record)
        found = list(dict.fromkeys(re.findall(pattern, record.get("out", ""))))
        if not found:
            put(probe["key"], {"status": "missing", "why": "nothing to collect: " + " ".join(argv) + " lists none"})
        if len(found) > _MOST_LISTED:
            why = "{} are listed; the first {} were collected".format(len(found), _MOST_LISTED)
            put(probe["key"], {"status": "error", "why": why})
        return self._jobs_for(dict.fromkeys(found[:_MOST_LISTED], True), put)

    def _each(self, probe: "Dict[str, Any]", put: "Put") -> "List[ProbeJob]":
        """Return a job for every name that ``each`` matches."""
        try:
            found = paths.names(probe["each"])
        except OSError as error:
            put(self.key, refusal(error))
            return []
        patterns = ", ".join(probe["each"])
        if not found:
            put(self.key, {"status": "missing", "why": "nothing to collect: no match for " + patterns})
        return self._jobs_for(found, put)

    def _jobs_for(self, subjects: "Mapping[str, bool]", put: "Put") -> "List[ProbeJob]":
        """Return a job for each subject that is usable as a word of the command."""
        probe, jobs = self.probes[0], []
        for subject, usable in subjects.items():
            key = probe["key"].replace("{}", paths.in_key(subject))
            if not usable:
                put(key, {"status": "error", "why": "not collected: the name could be taken for an option"})
                continue
            argv = [word.replace("{}", subject) for word in probe["argv"]]
            subject_probe = {**probe, "key": key, "argv": argv}
            subject_probe.pop("each", None)
            subject_probe.pop("listed", None)
            jobs.append(ProbeJob([subject_probe]))
        return jobs

    def _library(self, context: RunContext, put: "Put") -> None:
        if self.kind == "nvml" and hardware_presence.lacking(["nvidia"], context.there):
            for probe in self.probes:
                put(probe["key"], {"status": "missing", "why": "no NVIDIA driver is loaded"})
            return
        calls = [probe["target"] for probe in self.probes]
        answers = libraries.call_library(self.kind, calls, self.timeout_s, context.deadline, context.cap)
        for probe in self.probes:
            put(probe["key"], answers[probe["target"]])

    def _paths(self, context: RunContext, put: "Put") -> None:
        """Read every path of the target; record the number of a pattern's matches."""
        pattern, count, failed = paths.home(self.target), 0, None
        if not paths.is_pattern(self.target):
            self.reading = self.key
            put(self.key, self._timed(context, lambda: self._read(pattern, context)))
            return
        for alternative in paths.alternatives(pattern):
            try:
                for path in paths.matches(alternative):
                    if self.overdue(0) or context.deadline.passed:
                        why = "{} were read in {:.1f} s".format(count, time.monotonic() - self.began)
                        put(self.key, {"status": "timeout", "why": why, "value": {"matches": count}})
                        return
                    self.reading = "{}:{}".format(self.kind, paths.in_key(path))
                    put(self.reading, self._timed(context, functools.partial(self._read, path, context)))
                    self.reading = self.key
                    count += 1
            except OSError as error:
                failed = refusal(error, name(str(error.filename)))
        parents = sorted({paths.fixed(alternative) for alternative in paths.alternatives(pattern)})
        if not count and not any(os.path.isdir(parent) for parent in parents):
            failed = {"status": "missing", "why": "there is no {}".format(" or ".join(parents))}
        put(self.key, dict(failed or {"status": "ok"}, value={"matches": count}))

    def _read(self, path: str, context: RunContext) -> Record:
        if self.kind == "file":
            return files.read_file(path, context.cap)
        if self.kind == "files":
            return files.read_files(path, context.cap)
        return files.read_dir(path, context.cap) if self.kind == "dir" else files.free_space(path)


def _without(record: Record, unwanted: "Pattern[str]") -> Record:
    """Drop matching lines of an output, and count them."""
    lines = record["out"].splitlines(True)
    lines_left = [line for line in lines if not unwanted.match(line)]
    return dict(record, out="".join(lines_left), omitted=len(lines) - len(lines_left))


def _only(record: Record, wanted: "Pattern[str]", cap: int) -> Record:
    """Drop lines that do not match, except the first, and count them."""
    text = record["out"]
    end = text.find("\n") + 1 or len(text)
    lines_left = [text[:end]]
    match = wanted.search(text, end)
    while match:
        start = max(text.rfind("\n", 0, match.start()) + 1, end)
        end = text.find("\n", match.end()) + 1 or len(text)
        lines_left.append(text[start:end])
        match = wanted.search(text, end)
    out = "".join(lines_left)
    filtered = dict(record, out=out, omitted=text.count("\n") - out.count("\n"))
    if len(out) > cap and record["status"] == "ok":
        why = "longer than {0} bytes; the first {0} are included".format(cap)
        filtered.update(status="cut", bytes=cap, why=why)
    return dict(filtered, out=out[:cap])


def _digest(text: str) -> str:
    """Return a digest to compare confidential texts, as machine-id(5) requires."""
    return sha256(b"preflight " + text.strip().encode("utf-8", "replace")).hexdigest()[:16]


def jobs_of(probes: "Iterable[Dict[str, Any]]") -> "List[ProbeJob]":
    """Return the jobs of a plan, slow kinds first.

    The calls of a library are one job, or two if some are read twice; so are those of Redis.
    """
    jobs: List[ProbeJob] = []
    together: Dict[str, ProbeJob] = {}
    for probe in probes:
        group = probe["kind"] + (" twice" if probe.get("twice") else "")
        if group in together:
            job = together[group]
            job.probes.append(probe)
            job.timeout_s = max(job.timeout_s, float(probe["timeout_s"]))
            continue
        jobs.append(ProbeJob([probe]))
        if probe["kind"] in (*_LIBRARIES, "redis"):
            together[group] = jobs[-1]
    order = {kind: number for number, kind in enumerate(_SLOW_FIRST)}
    return sorted(jobs, key=lambda job: order.get(job.kind, len(order)))
