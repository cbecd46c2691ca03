"""What a worker does at once: one probe, or all calls of one library."""

import os
import time
from typing import Any, Callable, Dict, Iterable, List, Mapping

from . import commands, files, libraries, paths, processes
from .records import Deadline, Record, name, refusal
from .redact import environment
from .sudo import Privilege

Put = Callable[[str, Record], None]

_LIBRARIES = ("nvml", "psutil")
_SLOW_FIRST = ("cmd", *_LIBRARIES)


class Site:
    """What all probes of a run have in common."""

    def __init__(self, plan: Mapping[str, Any], deadline: Deadline, privilege: Privilege) -> None:
        """Take the limits from the plan."""
        self.cap = int(plan["output_cap"])
        self.allowed: List[str] = plan["environment"]
        self.deadline = deadline
        self.privilege = privilege


class Job:
    """One or several probes that are answered together; ``key`` is that of the first."""

    def __init__(self, probes: List[Dict[str, Any]]) -> None:
        """Take probes of one kind; more than one only of a library."""
        self.probes = probes
        self.kind: str = probes[0]["kind"]
        self.key: str = probes[0]["key"]
        self.target: str = probes[0]["target"]
        self.timeout_s = max(float(probe["timeout_s"]) for probe in probes)
        self.reading = ""
        self.began = 0.0
        self._thread = ""

    def begin(self) -> None:
        """Start the clock, on the thread that does the work."""
        self.began = time.monotonic()
        self._thread = processes.thread()
        self.reading = self.key

    def overdue(self, grace_s: float) -> bool:
        """Tell whether the job is ``grace_s`` seconds beyond its time limit."""
        return self.began > 0 and time.monotonic() > self.began + self.timeout_s + grace_s

    def unanswered(self, records: Mapping[str, Record]) -> List[str]:
        """Return the keys of this job that are not among the records."""
        keys = [probe["key"] for probe in self.probes] + [self.reading]
        return sorted({key for key in keys if key and key not in records})

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
        return {"status": "abandoned", "why": why, "kernel": found}

    def answer(self, site: Site, put: Put) -> "List[Job]":
        """Do the work; return further jobs that it turned out to be made of."""
        if self.kind == "cmd":
            return self._command(site, put)
        if self.kind in _LIBRARIES:
            self._library(site, put)
        elif self.kind in ("file", "dir", "statvfs"):
            self._paths(site, put)
        elif self.kind == "env":
            put(self.key, {"status": "ok", "value": environment(site.allowed, os.environ)})
        else:
            put(self.key, {"status": "error", "why": "this collector knows no such kind of probe"})
        return []

    def _command(self, site: Site, put: Put) -> "List[Job]":
        probe = self.probes[0]
        if "each" in probe:
            return self._each(probe, put)
        try:
            tool = commands.find(probe["argv"][0])
        except OSError as error:
            put(self.key, refusal(error))
            return []
        argv = [tool, *probe["argv"][1:]]
        limits = (self.timeout_s, site.deadline, site.cap)
        if probe.get("needs") == "root":
            self.reading = ""
            put(self.key, site.privilege.execute(argv, self.begin, *limits))
        else:
            put(self.key, commands.execute(argv, *limits))
        return []

    def _each(self, probe: Dict[str, Any], put: Put) -> "List[Job]":
        """Return a job for every name that ``each`` matches."""
        try:
            found = paths.names(probe["each"])
        except OSError as error:
            put(self.key, refusal(error))
            return []
        patterns = ", ".join(probe["each"])
        if not found:
            put(self.key, {"status": "missing", "why": "nothing to ask: no match for " + patterns})
        jobs = []
        for subject, usable in found.items():
            key = probe["key"].replace("{}", name(subject))
            if not usable:
                put(key, {"status": "error", "why": "not asked: the name could be taken for an option"})
                continue
            argv = [word.replace("{}", subject) for word in probe["argv"]]
            jobs.append(Job([{**probe, "key": key, "argv": argv}]))
            del jobs[-1].probes[0]["each"]
        return jobs

    def _library(self, site: Site, put: Put) -> None:
        if self.kind == "nvml" and not libraries.nvidia_present():
            for probe in self.probes:
                put(probe["key"], {"status": "missing", "why": "no NVIDIA driver is loaded"})
            return
        calls = [probe["target"] for probe in self.probes]
        answers = libraries.ask(self.kind, calls, self.timeout_s, site.deadline, site.cap)
        for probe in self.probes:
            put(probe["key"], answers[probe["target"]])

    def _paths(self, site: Site, put: Put) -> None:
        """Read every path that the target names, and say how many there were if it is a pattern."""
        pattern, count, failed = paths.home(self.target), 0, None
        if not paths.is_pattern(self.target):
            self.reading = self.key
            put(self.key, self._read(pattern, site))
            return
        for alternative in paths.alternatives(pattern):
            try:
                for path in paths.matches(alternative):
                    if self.overdue(0) or site.deadline.passed:
                        why = "{} were read in {:.1f} s".format(count, time.monotonic() - self.began)
                        put(self.key, {"status": "timeout", "why": why, "value": {"matches": count}})
                        return
                    self.reading = "{}:{}".format(self.kind, name(path))
                    put(self.reading, self._read(path, site))
                    self.reading = self.key
                    count += 1
            except OSError as error:
                failed = refusal(error, name(str(error.filename)))
        parents = sorted({paths.fixed(alternative) for alternative in paths.alternatives(pattern)})
        if not count and not any(os.path.isdir(parent) for parent in parents):
            failed = {"status": "missing", "why": "there is no {}".format(" or ".join(parents))}
        put(self.key, dict(failed or {"status": "ok"}, value={"matches": count}))

    def _read(self, path: str, site: Site) -> Record:
        if self.kind == "file":
            return files.read_file(path, site.cap)
        return files.read_dir(path, site.cap) if self.kind == "dir" else files.free_space(path)


def jobs_of(probes: Iterable[Dict[str, Any]]) -> List[Job]:
    """Return the jobs of a plan: commands first, since they take longest; a library's calls as one."""
    jobs: List[Job] = []
    together: Dict[str, Job] = {}
    for probe in probes:
        if probe["kind"] in together:
            job = together[probe["kind"]]
            job.probes.append(probe)
            job.timeout_s = max(job.timeout_s, float(probe["timeout_s"]))
            continue
        jobs.append(Job([probe]))
        if probe["kind"] in _LIBRARIES:
            together[probe["kind"]] = jobs[-1]
    return sorted(jobs, key=lambda job: job.kind not in _SLOW_FIRST)
