"""Names in columns of tables, as from `ps`, `top`, `squeue` or `kubectl get`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

#: Headings of columns that contain names.
_USERS = frozenset(("USER", "UID", "OWNER", "RUSER", "EUSER", "USERNAME", "User", "user"))
_HOSTS = frozenset(("NODELIST", "NODELIST(REASON)", "NODE", "HOSTNAME", "HOSTNAMES", "HOST", "NODE_NAME", "NodeList",
                    "NodeName", "EXEC_HOST", "FROM_HOST"))  # fmt: skip
#: Headings that denote names only in combination with another one: `NAME` next to `JOBID` is a job's name.
_BESIDE: Sequence[tuple[frozenset[str], Mapping[str, str]]] = (
    (frozenset(("JOBID", "JobID", "JobId", "JOB_ID")),
     {"NAME": "name", "JobName": "name", "ACCOUNT": "name", "Account": "name", "USER": "user", "WCKEY": "name"}),
    (frozenset(("ROLES", "INTERNAL-IP")), {"NAME": "host"}),
    (frozenset(("RESTARTS",)), {"NAME": "host", "NAMESPACE": "name", "NODE": "host"}),
)  # fmt: skip
#: Headings, of which a header must contain at least two: a sentence with the word USER is not a header.
_OTHERS = frozenset(re.findall(
    r"\S+",
    "PID PPID %CPU %MEM CPU% MEM% RSS VSZ TTY TIME TIME+ CMD COMMAND STAT START STIME PR NI VIRT RES SHR S C "
    "JOBID JobID PARTITION Partition ST STATE State NODES TIMELIMIT REASON STATUS ROLES AGE VERSION READY "
    "RESTARTS IP FD TYPE DEVICE ACCESS LOGIN@ IDLE JCPU PCPU WHAT FROM SIZE NAME CPUS AVAIL FEATURES GPU GPUS "
    "QUEUE SUBMIT ACCOUNT JobName QOS TRES Elapsed ExitCode AllocCPUS PORT LAST UP NLWP LWP PRI SZ ADDR F WCHAN ",
))  # fmt: skip
_HEAD = re.compile(
    r"(?<![^\s|])(?:USER|UID|OWNER|[RE]USER|USERNAME|User|NODELIST|NODE|HOSTNAMES?|NODE_NAME|NodeList|JobName|ROLES|"
    r"RESTARTS|HOST)(?![\w=:.])"
)
#: A cell: a word, or the restarts of a pod with the time of the last one.
_CELL = re.compile(r"\d+ \(\w+ ago\)|[^\s|]+")
_NAME = re.compile(r"[A-Za-z_][\w.-]{0,63}(?=[+$]?\Z)")
_NODES = re.compile(r"[^\W_][\w.,\[\]-]{0,2000}\Z")


def cells(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield the kind, start and end of each name in a column of names."""
    if not _HEAD.search(text):
        return
    kinds: Mapping[int, str] = {}
    at = 0
    for line in text.splitlines(keepends=True):
        if _HEAD.search(line) and (headed := _kinds(line)):
            kinds = headed
        elif not line.strip():
            kinds = {}
        elif kinds:
            for place, cell in enumerate(_CELL.finditer(line)):
                if (kind := kinds.get(place)) is not None:
                    pattern = _NODES if kind == "host" else _NAME
                    if name := pattern.match(cell[0]):
                        yield kind, at + cell.start(), at + cell.start() + name.end()
                if place > max(kinds):
                    break
        at += len(line)


def _kinds(line: str) -> dict[int, str]:
    """Return the kind of each column with names in a header; empty for other lines."""
    heads = _CELL.findall(line[:2000])
    if len(heads) < 3 or sum(head in _OTHERS for head in heads) < 2:
        return {}
    kinds = {place: "user" for place, head in enumerate(heads) if head in _USERS}
    kinds |= {place: "host" for place, head in enumerate(heads) if head in _HOSTS}
    for sign, more in _BESIDE:
        if sign & set(heads):
            kinds |= {place: more[head] for place, head in enumerate(heads) if head in more}
    return kinds
