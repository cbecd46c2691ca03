"""A real Slurm cluster on this machine: munged, slurmctld and some slurmd, each node with its own name.

The cluster has its own network, host name and mount namespace, so that nothing outside is affected and several clusters
can run at the same time. Root only; ``missing()`` returns missing requirements.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

#: Seconds until all nodes must be idle, and until one command must have ended.
_UP_S, _COMMAND_S = 180.0, 180.0

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

# Slurm resolves with AI_ADDRCONFIG: with only loopback addresses, glibc then resolves no name
_HOLD = """\
hostname ctl && ip link set lo up && ip addr add 198.18.0.1/32 dev lo &&
mount --bind "$0/hosts" /etc/hosts && mkdir -p /etc/slurm && mount --bind "$0/etc" /etc/slurm &&
: > "$0/ready" && exec sleep 3600
"""
_CONFIG = """\
ClusterName=tests
SlurmctldHost=ctl(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge/sock
CredType=cred/munge
SlurmctldPort=6817
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/log/slurmctld
SlurmdLogFile={folder}/log/slurmd.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SchedulerType=sched/backfill
MpiDefault=none
SwitchType=switch/none
AccountingStorageType=accounting_storage/none
ReturnToService=1
SlurmdTimeout=300
KillWait=2
SlurmdParameters=config_overrides
{extra}
NodeName=n[1-{number}] NodeHostname=n[1-{number}] NodeAddr=127.0.0.1 Port=[17001-{last_port}] CPUs=2 RealMemory=1000
PartitionName=all Nodes=ALL Default=YES MaxTime=10 State=UP
"""


def missing() -> str:
    """Return the requirements of a real cluster that this machine lacks; empty if none."""
    if os.getuid() != 0:
        return "root"
    for tool in ("munged", "slurmctld", "slurmd", "srun", "unshare", "nsenter", "ip"):
        if not shutil.which(tool, path=_PATH):
            return tool
    return ""


class Slurm:
    """A running cluster of nodes n1, n2, …; a context manager.

    ``setup`` is a shell script that every node runs before its slurmd, as root, with the node's name as ``$1``, in a
    separate mount namespace: it may bind files over /sys or /dev.
    """

    def __init__(self, number: int, extra: str = "", setup: str = "") -> None:
        """Write the configuration; ``extra`` are further lines of slurm.conf."""
        self.number = number
        self.names = [f"n{index}" for index in range(1, number + 1)]
        self.folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # short: a socket's path ends at 107 characters
        self.folder.chmod(0o755)
        for name in ("munge", "state", "log", "etc", *(f"spool.{node}" for node in self.names)):
            (self.folder / name).mkdir()
        # Every node is another loopback address, so that an sshd on all of them can distinguish them by name
        hosts = ["127.0.0.1 localhost ctl", *(f"127.0.1.{index} n{index}" for index in range(1, number + 1))]
        self._write("hosts", "\n".join(hosts) + "\n")
        self._write("etc/slurm.conf", _CONFIG.format(
            folder=self.folder, extra=extra, number=number, last_port=17000 + number,
        ))  # fmt: skip
        self._write("setup", "#!/bin/sh\n" + setup)
        self._holder: subprocess.Popen[bytes] | None = None
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Slurm:
        """Start the daemons and wait until every node is idle."""
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End all processes in the cluster's namespace, and remove its files."""
        self.stop()

    def run(self, command: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on the login node, by default with captured output."""
        settings = {"capture_output": True, "text": True, "timeout": _COMMAND_S, "check": False, **options}
        return subprocess.run([*self._enter(), *command], **settings)

    def on(self, node: str) -> list[str]:
        """Return the prefix of a command that makes it run in the environment of a node's slurmd."""
        slurmd = str(self.daemons[node].pid)
        return ["nsenter", "--target", slurmd, "--net", "--uts", "--mount", "--wd=/"]

    def has(self, pid: int) -> bool:
        """Return whether a process is of this cluster: several clusters can run on one machine."""
        return pid in self._members()

    def submit(self, script: str, *options: str) -> str:
        """Submit a batch job; return its number."""
        path = self.folder / f"job{time.monotonic_ns()}"
        path.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
        ran = self.run(["sbatch", "--parsable", "--chdir=/", f"--output={path}.out", *options, str(path)])
        assert ran.returncode == 0, ran.stderr
        return ran.stdout.strip()

    def job(self, number: str) -> Mapping[str, str]:
        """Return the output of ``scontrol show job`` for a job, by key."""
        output = self.run(["scontrol", "show", "job", "-o", number]).stdout
        return dict(word.split("=", 1) for word in output.split() if "=" in word)

    def node(self, name: str) -> tuple[str, str]:
        """Return a node's state and its reason."""
        output = self.run(["sinfo", "-h", "-N", "-n", name, "-o", "%T|%E"]).stdout.strip()
        state, _, reason = output.partition("|")
        return state, reason

    def wait_for(self, what: str, seconds: float = 120.0) -> Iterator[None]:
        """Yield repeatedly until the caller breaks the loop; fail with ``what`` after ``seconds``."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            yield
            time.sleep(0.1)
        raise AssertionError(f"{what}: not within {seconds:g} s\n{self.logs()}")

    def logs(self) -> str:
        """Return the ends of all logs, for a failed test's message."""
        found = sorted(path for path in (self.folder / "log").iterdir() if path.is_file())
        return "\n".join(f"--- {path.name}\n{path.read_text(errors='replace')[-2000:]}" for path in found)

    def stop(self) -> None:
        """Stop the cluster, as at the end of the context."""
        if self._holder is not None:
            for number in (signal.SIGCONT, signal.SIGTERM):
                self._signal(number)
            until = time.monotonic() + 3
            while self._members() and time.monotonic() < until:
                time.sleep(0.05)
            self._signal(signal.SIGKILL)
            self._holder.kill()
            self._holder.wait()
        for daemon in self.daemons.values():
            daemon.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start(self) -> None:
        hold = ["unshare", "--net", "--uts", "--mount", "--propagation", "private", "sh", "-c", _HOLD, str(self.folder)]
        self._holder = subprocess.Popen(hold, stdin=subprocess.DEVNULL, start_new_session=True)
        for _ in self.wait_for("the name space"):
            if (self.folder / "ready").exists():
                break
        munge = self.folder / "munge"
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o600)
        files = [f"--{name}={munge / name.split('-')[0]}" for name in ("key-file", "pid-file", "log-file", "seed-file")]
        self.run(["munged", "--force", f"--socket={munge}/sock", "--num-threads=2", *files], check=True)
        self._daemon("slurmctld", ["slurmctld", "-D", "-c"])
        for name in self.names:
            script = f'hostname {name} && sh "{self.folder}/setup" {name} && exec slurmd -D -N {name}'
            self._daemon(name, ["unshare", "--uts", "--mount", "--propagation", "private", "sh", "-c", script])
        for _ in self.wait_for("idle nodes", _UP_S):
            if self.run(["sinfo", "-h", "-t", "idle", "-o", "%D"]).stdout.strip() == str(self.number):
                break

    def _daemon(self, name: str, command: Sequence[str]) -> None:
        with (self.folder / "log" / f"{name}.out").open("wb") as log:
            self.daemons[name] = subprocess.Popen(
                [*self._enter(), *command], stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
                env={**os.environ, "PATH": _PATH},
            )  # fmt: skip

    def _enter(self) -> list[str]:
        assert self._holder is not None
        return ["nsenter", "--target", str(self._holder.pid), "--net", "--uts", "--mount", "--wd=/"]

    def _members(self) -> list[int]:
        """Return the processes in the cluster's network namespace, except the one that keeps it alive."""
        assert self._holder is not None
        found = []
        with contextlib.suppress(OSError):
            ours = os.readlink(f"/proc/{self._holder.pid}/ns/net")
            assert ours != os.readlink("/proc/self/ns/net")
            for path in Path("/proc").glob("[0-9]*"):
                with contextlib.suppress(OSError):
                    if os.readlink(path / "ns/net") == ours and int(path.name) != self._holder.pid:
                        found.append(int(path.name))
        return found

    def _signal(self, number: signal.Signals) -> None:
        for pid in self._members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def _write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text, encoding="utf-8")
