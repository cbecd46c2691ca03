"""Calls of scontrol: from a trusted folder, without a shell, with a deadline."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import stat
import subprocess
import time
from collections.abc import Mapping

from preflight.errors import PreflightError
from preflight.gate.slurm import scontrol_nodes, slurm_conf, squeue
from preflight.gate.slurm.drain_settings import Settings
from preflight.gate.slurm.scontrol_nodes import Node
from preflight.gate.slurm.squeue import SlurmJob

#: Usual locations of scontrol: packages, the documentation's example, Bright, AWS ParallelCluster.
FOLDERS = ("/usr/bin", "/usr/local/bin", "/opt/slurm/bin", "/cm/shared/apps/slurm/current/bin", "/usr/local/slurm/bin")

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_SHOWN = 200


class ControllerError(PreflightError):
    """The controller did not answer, or refused; the text names the command."""


class Controller:
    """Queries and commands slurmctld through scontrol.

    Every method may raise ControllerError. Times are in UTC. Only SLURM_CONF is passed on from the environment; slurmd
    sets it. If it is not set (HealthCheckProgram), scontrol uses its default.
    """

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        """Find scontrol; raises ControllerError if none can be trusted."""
        self._tool = _scontrol(settings.bin)
        self._call_s = settings.call_s
        self._until = time.monotonic() + settings.deadline_s
        self._environ = {"PATH": "/usr/bin:/bin", "TZ": "UTC0", "LC_ALL": "C", "SLURM_TIME_FORMAT": "standard"}
        if (conf := environ.get("SLURM_CONF", "")).startswith("/"):
            self._environ["SLURM_CONF"] = conf

    def configuration(self) -> dict[str, str]:
        """Return the running configuration by key; "" for a key without a value."""
        return slurm_conf.running(self._run("show", "config"))

    def nodes(self) -> dict[str, Node]:
        """Return all nodes, including those of hidden partitions."""
        return self._read("--all", "--oneliner", "show", "node")

    def node(self, name: str) -> Node:
        """Return a node by its name."""
        found = self._read("--oneliner", "show", "node", _checked(name))
        if name not in found:
            raise ControllerError(f"the controller does not know node {name}")
        return found[name]

    def drain(self, name: str, reason: str) -> None:
        """Drain a node; its running jobs continue."""
        self._run("update", f"nodename={_checked(name)}", "state=drain", f"reason={reason}")

    def set_reason(self, name: str, reason: str) -> None:
        """Change the reason of a drained node."""
        self._run("update", f"nodename={_checked(name)}", f"reason={reason}")

    def undrain(self, name: str) -> None:
        """Remove only the drain of a node.

        ``resume`` would also cancel a pending reboot and resume a node that is down.
        """
        self._run("update", f"nodename={_checked(name)}", "state=undrain")

    def comment(self, name: str, text: str) -> None:
        """Set a node's comment; an empty string removes it."""
        self._run("update", f"nodename={_checked(name)}", f"comment={text}")

    def job(self, number: str) -> SlurmJob | None:
        """Return a job by its number; None once the controller has dropped it."""
        query = ("-h", "--all", "--local", "--states=all", f"--jobs={number}", "-O", squeue.FORMAT)
        try:
            return squeue.read(self._run(*query, tool="squeue"), number)
        except ValueError as error:
            raise ControllerError(f"squeue --jobs={number}: its answer {error}") from None
        except ControllerError as error:
            if "Invalid job id specified" in str(error):
                return None
            raise

    def batch_script(self, number: str) -> str:
        """Return the script of a batch job; fails for a job of srun or salloc."""
        if not number:
            raise ControllerError("SLURM_JOB_ID is not set: not started for a job")
        return self._run("write", "batch_script", number, "-")

    def requeue(self, number: str) -> None:
        """Put a batch job back into the queue."""
        self._run("requeue", number)

    def hold_back(self, number: str, seconds: int, why: str) -> None:
        """Delay a pending job by some seconds, with a reason for its owner."""
        self._run("update", f"jobid={number}", f"starttime=now+{seconds}seconds", f"admincomment={why}")

    def hold(self, number: str, why: str) -> None:
        """Requeue a batch job and hold it until it is released, with the reason."""
        self._run("requeuehold", number)
        self._run("update", f"jobid={number}", f"admincomment={why}")

    def notify(self, number: str, text: str) -> None:
        """Write a line to the job's srun or salloc, or to the output of its batch script."""
        self._run("notify", number, text)

    def cancel(self, number: str) -> None:
        """Cancel a job."""
        self._run(number, tool="scancel")

    def _read(self, *arguments: str) -> dict[str, Node]:
        output = self._run(*arguments)
        try:
            return scontrol_nodes.read(output)
        except ValueError as error:
            raise ControllerError(f"scontrol {' '.join(arguments)}: its answer {error}") from None

    def _run(self, *arguments: str, tool: str = "scontrol") -> str:
        shown = f"{tool} {' '.join(arguments)}"[:_SHOWN]
        seconds = min(self._call_s, self._until - time.monotonic())
        if seconds <= 0:
            raise ControllerError(f"{shown}: no time left")
        path = os.path.join(os.path.dirname(self._tool), tool)
        try:
            process = subprocess.Popen(
                [path, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env=self._environ, cwd="/", start_new_session=True,
            )  # fmt: skip
        except (OSError, ValueError) as error:
            raise ControllerError(f"{shown}: {error}") from None
        try:
            out, err = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            raise ControllerError(f"{shown}: no answer within {seconds:.1f} s") from None
        finally:
            _end(process)
        if process.returncode != 0:
            message = " ".join((out + err).decode("utf-8", "replace").split())
            raise ControllerError(f"{shown}: {message[:_SHOWN] or f'exit status {process.returncode}'}")
        return out.decode("utf-8", "backslashreplace")


def _end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1)
    for stream in (process.stdout, process.stderr):
        if stream is not None:
            stream.close()


def _checked(name: str) -> str:
    """Return a node's name; raises ControllerError unless it names one node."""
    if not _NAME.fullmatch(name) or name.upper() == "ALL":
        raise ControllerError(f"{name[:60]!r} is not the name of one node")
    return name


def _scontrol(folder: str) -> str:
    """Return the path of scontrol; raises ControllerError if none can be trusted."""
    searched = ", ".join((folder,) if folder else FOLDERS)
    missing = f"no scontrol in {searched}; set its folder: slurm_bin in [gate] of the cluster file"
    why = ""
    for place in (folder,) if folder else FOLDERS:
        path = os.path.join(place, "scontrol")
        if os.path.isabs(path) and os.access(path, os.X_OK) and not (why := untrusted(path)):
            return path
    raise ControllerError(why or missing)


def untrusted(path: str) -> str:
    """Return why others could replace a file; empty if they cannot.

    The target of a link is checked as well.
    """
    owners = {0, os.geteuid()}
    for start in (path, os.path.realpath(path)):
        place = start
        while True:
            info = os.lstat(place)
            writable = info.st_mode & 0o022 and not stat.S_ISLNK(info.st_mode)
            if writable and not (stat.S_ISDIR(info.st_mode) and info.st_mode & stat.S_ISVTX):
                return f"{path} is not trusted: {place} is writable by others"
            if info.st_uid not in owners:
                return f"{path} is not trusted: {place} belongs to user {info.st_uid}"
            if place == os.path.dirname(place):
                break
            place = os.path.dirname(place)
    return ""
