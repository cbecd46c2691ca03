"""Target nodes: from the command line, a file, a Slurm job or a report."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from preflight.errors import PreflightError
from preflight.evidence import safe_read
from preflight.nodeset import MOST_NAMES, excerpt, unfold
from preflight.reports import stored

#: Maximum size of a host file or report, in bytes.
_LARGEST_HOSTFILE = 16_000_000

_SLURM_S = 15.0

# Rejects names that ssh could parse as an option, or a shell as more than a word.
_HOST = re.compile(r"[A-Za-z0-9_:]([A-Za-z0-9_.:%-]{0,253})")
_JOB = re.compile(r"[0-9]+([_+][0-9]+)?")


class TargetError(PreflightError):
    """The target nodes cannot be determined; the text states the place and the fix."""


def resolve(
    hosts: str | None = None, hostfile: Path | None = None, job: str | None = None, rerun: Path | None = None
) -> tuple[str, ...]:
    """Return the names of the target nodes, sorted and unique.

    Exactly one argument is set: ``hosts`` in NodeSet syntax, including groups; ``hostfile`` with a name or NodeSet per
    line; ``job``, a Slurm job id; ``rerun``, a report, of which the nodes that failed or did not answer are the
    targets. Raises TargetError if there are no nodes.
    """
    given = [
        name
        for name, value in (("--hosts", hosts), ("--hostfile", hostfile), ("--job", job), ("--rerun", rerun))
        if value is not None
    ]
    if len(given) != 1:
        raise TargetError(
            f"{' and '.join(given) or 'no nodes'} given: use only one of --hosts, --hostfile, --job, --rerun"
        )
    if hosts is not None:
        return checked_names(_unfolded(hosts, "--hosts"), "--hosts")
    if hostfile is not None:
        return _from_file(hostfile)
    if job is not None:
        return _of_job(job)
    assert rerun is not None
    return _of_report(rerun)


def _unfolded(text: str, where: str) -> tuple[str, ...]:
    try:
        return unfold(text, groups=True)
    except ValueError as error:
        raise TargetError(f"{where}: {error} (write gpu[001-064], gpu1,gpu7 or @group)") from None


def checked_names(names: tuple[str, ...], where: str) -> tuple[str, ...]:
    """Return names that can be host names; raises TargetError.

    ``where`` is the list that they come from.
    """
    for name in names:
        if "@" in name:
            raise TargetError(f"{where}: {excerpt(name)} contains a user; set User in the SSH configuration")
        if not _HOST.fullmatch(name):
            raise TargetError(f"{where}: {excerpt(name)} is not a host name")
    return names


# --- a file ----------------------------------------------------------------------------------------


def _from_file(path: Path) -> tuple[str, ...]:
    try:
        safe_read.require_regular_file(path)
        with path.open("rb") as stream:
            raw = stream.read(_LARGEST_HOSTFILE + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise TargetError(f"{path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise TargetError(f"{path} is not text; put one name, or gpu[001-064], on each line") from None
    if len(raw) > _LARGEST_HOSTFILE:
        raise TargetError(f"{path} is longer than {_LARGEST_HOSTFILE} bytes")
    return from_text(text, str(path))


def from_text(text: str, where: str) -> tuple[str, ...]:
    """Return the distinct names in a host file; raises TargetError.

    ``where`` is its path.
    """
    found: dict[str, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if names := _of_line(line, f"{where}:{number}"):
            found.update(dict.fromkeys(names))
        if len(found) > MOST_NAMES:
            raise TargetError(f"{where}:{number}: the file names more than {MOST_NAMES} nodes")
    if not found:
        raise TargetError(f"{where} names no node; put one name, or gpu[001-064], on each line")
    return tuple(found)


def _of_line(line: str, where: str) -> tuple[str, ...]:
    """Return the names in one line of a host file.

    Entries such as ``slots=8`` in MPI and DeepSpeed host files are ignored.
    """
    words = line.split("#", 1)[0].split()
    names = " ".join(word for word in words if "=" not in word)
    if not words:
        return ()
    return checked_names(_unfolded(names, where), where)


# --- a Slurm job -----------------------------------------------------------------------------------


def _of_job(job: str) -> tuple[str, ...]:
    """Return the nodes of a job, or of all tasks of an array.

    squeue prints only fields written by Slurm. scontrol prints user-chosen job names unquoted among its fields, so a
    job name with ``NodeList=`` could inject other hosts.
    """
    if not _JOB.fullmatch(job):
        raise TargetError(f"--job: {excerpt(job)} is not a Slurm job id, such as 4711 or 4711_3")
    queue_text = _slurm("squeue", "-h", "--all", "--local", "--states=all", f"--jobs={job}", "-o", "%i %T %N")
    rows = [line.split(None, 2) for line in queue_text.splitlines() if line.strip()]
    mine = [row for row in rows if "+" not in job or row[0] == job]  # for a component, squeue lists the complete job
    if not (lists := [row[2] for row in mine if len(row) == 3]):
        states = ", ".join(dict.fromkeys(row[1] for row in mine if len(row) > 1)) or "unknown"
        raise TargetError(f"--job {job}: the job has no nodes (state {states}); wait until it runs, or use --hosts")
    names = dict.fromkeys(name for each in lists for name in _slurm("scontrol", "show", "hostnames", each).split())
    return checked_names(tuple(names), f"--job {job}")


def _slurm(tool: str, *arguments: str) -> str:
    """Return the output of a Slurm tool; its error output is the reason if it fails."""
    command = " ".join((tool, *arguments))
    if not (path := shutil.which(tool)):
        raise TargetError(f"--job: there is no {tool} in PATH; run on a node of the Slurm cluster, or use --hosts")
    environ = {name: value for name, value in os.environ.items() if not name.startswith("SQUEUE_")}  # filters
    try:
        ran = subprocess.run(
            [path, *arguments], capture_output=True, text=True, errors="backslashreplace", env=environ,
            stdin=subprocess.DEVNULL, timeout=_SLURM_S, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise TargetError(
            f"--job: `{command}` did not answer within {_SLURM_S:g} s: check that slurmctld is up"
        ) from None
    except OSError as error:
        raise TargetError(f"--job: {path} could not be executed: {error.strerror}") from None
    if ran.returncode:
        reason = " ".join(ran.stderr.split() or ran.stdout.split())[:400]
        raise TargetError(f"--job: `{command}` failed: {reason or f'exit status {ran.returncode}'}")
    return ran.stdout


# --- an earlier report -----------------------------------------------------------------------------


def _of_report(path: Path) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(_to_rerun(_report(path))))
    if not names:
        raise TargetError(f"--rerun: in {path} every node answered and none failed: no node to collect again")
    return checked_names(names, str(path))


def _report(path: Path) -> Mapping[str, Any]:
    try:
        report = stored.read(path, ("nodes",), partly=True)
    except stored.ReportError as error:
        raise TargetError(str(error)) from None
    if report is None:
        raise TargetError(f"{path} is not a report of this version; use one written with `preflight check --json`")
    for place, node in enumerate(report["nodes"]):
        if lacks := {"name", "status"} - set(node):
            where = f"nodes[{place}].{min(lacks)}"
            raise TargetError(f"{path} is damaged ({where} is missing); write it again with --json")
    return report


def _to_rerun(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield the nodes that failed, on which something hangs, or that did not answer."""
    hanging = {name for incident in report.get("incidents", ()) if incident.get("status") == "unknown"
               for name in incident.get("nodes", ())}  # fmt: skip
    for node in report["nodes"]:
        if node["status"] == "fail" or node.get("no_answer") or node["name"] in hanging:
            yield node["name"]
