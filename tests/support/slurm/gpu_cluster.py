"""A real Slurm cluster of hand-made DGX H100 nodes, with all hooks of preflight.

Each node's slurmd, its prolog and its jobs see the /sys, /dev and tools of ``tests.support.machines.hgx_h100``
(``hostroot``); the scripts and the lines of slurm.conf are those of ``deploy/slurm``, unchanged.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from tests.support import hostroot, paths
from tests.support.machines import hgx_h100
from tests.support.slurm.cluster import Slurm

DEPLOY = paths.ROOT / "deploy" / "slurm"

#: Parts of the nodes, without those that this machine lacks: it has two cores and no nvidia module.
CLUSTER = """\
[class.h100]
nodes = "n[1-64]"
gpus = 8
hcas = 8

[class.h100.ports]
compute = "mlx5_[0,3-6,9-11]"
storage = "mlx5_[1-2,7-8]"
link_layer = "InfiniBand"
rate_gbps = 400

[gate]
skip = ["numa.affinity", "versions.driver-files"]
deadline_s = 40                 # six gates at once on two cores
"""

_RATE = "sys/class/infiniband/mlx5_0/ports/1/rate"
_TOOL = """#!/bin/sh
if [ -e "{folder}/hung.$(uname -n)" ]; then trap '' TERM; while :; do sleep 1000; done; fi
exec {root}/bin/nvidia-smi.true "$@"
"""
_INSTALL = """\
mount -t tmpfs none /opt && mkdir -p /opt/preflight/bin && ln -s {prefix}/lib /opt/preflight/lib
ln -s {python} /opt/preflight/bin/python3 && cp {prefix}/pyvenv.cfg /opt/preflight/
mount -t tmpfs none /var/lib
"""
_SETUP = """\
mount --rbind /sys/fs/cgroup {root}/sys/fs/cgroup
mount --rbind {root}/sys /sys
for kept in shm pts; do mount --rbind /dev/$kept {root}/dev/$kept; done
mount --rbind {root}/dev /dev
mount --bind {root}/bin /usr/local/sbin
{install}
cp {root}/{rate} {folder}/rate.$1
mount --bind {folder}/rate.$1 /{rate}
"""


class Gpus(Slurm):
    """The cluster; ``conf`` are additional lines of slurm.conf, ``without`` is a line of ``deploy/slurm`` to omit.

    The cluster file is /etc/slurm/preflight/cluster.toml, as on a site. The epilog, which judges after every job, and
    all lines and scripts if not ``gated``, are for the test of ``preflight slurm install``.
    """

    def __init__(self, number: int, *, conf: str = "", without: tuple[str, ...] = (), gated: bool = True) -> None:
        """Write the machine and the configuration."""
        self.seen = Path(tempfile.mkdtemp(prefix="nodes-"))
        self.seen.chmod(0o755)
        root = hostroot.write(hgx_h100("n1"), self.seen / "root")
        (root / "sys/fs/cgroup").mkdir(parents=True)
        os.mknod(root / "dev/nvidiactl", stat.S_IFCHR | 0o666, os.makedev(1, 3))  # the driver's, as on any GPU node
        tool = root / "bin/nvidia-smi"
        tool.rename(f"{tool}.true")
        tool.write_text(_TOOL.format(root=root, folder=self.seen))
        tool.chmod(0o755)
        text = (DEPLOY / "slurm.conf").read_text() if gated else "SchedulerParameters=nohold_on_prolog_fail\n"
        lines = [line for line in text.splitlines() if not line.startswith(("Epilog=", *without))]
        scheduler = next(index for index, line in enumerate(lines) if line.startswith("SchedulerParameters="))
        lines[scheduler] += ",batch_sched_delay=0,bf_interval=2"  # else three seconds, thirty for a heterogeneous job
        self._install = _INSTALL.format(prefix=sys.prefix, python=os.path.realpath(sys.executable))
        setup = _SETUP.format(root=root, folder=self.seen, install=self._install, rate=_RATE)
        super().__init__(number, "\n".join(lines) + "\n" + conf, setup)
        if gated:
            shutil.copytree(DEPLOY, self.folder / "etc" / "preflight")
        else:
            (self.folder / "etc" / "preflight").mkdir()
        self.write_cluster(CLUSTER)
        self._syslog = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._syslog.bind(str(root / "dev/log"))
        self._logged: list[str] = []
        threading.Thread(target=self._listen, daemon=True).start()

    def __enter__(self) -> Gpus:
        """Start the cluster; preflight is also installed on slurmctld's host."""
        super().__enter__()
        self.run(["sh", "-c", self._install], check=True)
        return self

    def stop(self) -> None:
        """End the cluster and remove the machine."""
        super().stop()
        with contextlib.suppress(OSError):
            self._syslog.shutdown(socket.SHUT_RD)
        shutil.rmtree(self.seen, ignore_errors=True)

    def write_cluster(self, text: str) -> None:
        """Write the cluster file; an identical one stays, and so do the verdicts."""
        path = self.folder / "etc/preflight/cluster.toml"
        if not path.exists() or path.read_bytes() != text.encode():
            self._write("etc/preflight/cluster.toml", text)

    def logged(self, *words: str) -> str:
        """Wait for a line with all these words in the nodes' system logs since the last ``heal``; return it."""
        for _ in self.wait_for(f"a line in the system logs with {words}"):
            for line in tuple(self._logged):
                if all(word in line for word in words):
                    return line
        raise AssertionError

    def logs(self) -> str:
        """Return the ends of all logs, and the controller's view of the nodes, for a failed test's message."""
        known = self.run(["scontrol", "--oneliner", "show", "node"]).stdout
        return "\n".join([super().logs(), "--- nodes", known, "--- system logs", *self._logged])

    def _listen(self) -> None:
        """Read continuously: a writer to a log without a reader would block."""
        with self._syslog:
            while line := self._syslog.recv(8192):
                self._logged.append(line.decode())

    def sicken(self, *names: str, unnoticed: bool = False) -> None:
        """Make one port of each of these nodes run at half its rate.

        Delete the nodes' verdicts; with ``unnoticed``, leave the passing verdicts of a prolog that ran just before.
        """
        for name in names:
            if unnoticed:
                assert self.within(name, "/etc/slurm/preflight/prolog").returncode == 0
            (self.seen / f"rate.{name}").write_text("200 Gb/sec (2X NDR)\n")
            if not unnoticed:
                self.forget(name)

    def well(self, *names: str) -> None:
        """Make the slow port of each of these nodes run at its full rate again."""
        for name in names:
            (self.seen / f"rate.{name}").write_text("400 Gb/sec (4X NDR)\n")

    def hang(self, name: str) -> None:
        """Make nvidia-smi of a node hang, and ignore SIGTERM."""
        (self.seen / f"hung.{name}").touch()
        self.forget(name)

    def forget(self, name: str) -> None:
        """Remove a node's state directory."""
        self.within(name, "rm", "-rf", "/var/lib/preflight")

    def heal(self) -> None:
        """Repair all nodes, resume them and end all jobs; verdicts on nodes that were healthy remain."""
        self.run(["scancel", "--user=root"])
        self.well(*self.names)
        for name in self.names:
            (self.seen / f"hung.{name}").unlink(missing_ok=True)
            self.run(["scontrol", "update", f"nodename={name}", "state=resume"])
            self.run(["scontrol", "update", f"nodename={name}", "comment="])
        self.write_cluster(CLUSTER)
        self._logged.clear()
        for _ in self.wait_for("idle nodes"):  # sinfo of 22.05 may show the job for some seconds after its end
            output = self.run(["scontrol", "--oneliner", "show", "node"]).stdout
            if output.count(" State=IDLE ") == self.number:
                return

    def drained(self) -> dict[str, str]:
        """Return the nodes that accept no new job, with the reasons."""
        lines = self.run(["sinfo", "-h", "-N", "-o", "%N|%T|%E"]).stdout.splitlines()
        found = (line.split("|", 2) for line in lines)
        return {name: why for name, state, why in found if state.startswith("drain")}

    def within(self, name: str, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command on a node, in the bare environment of slurmd's HealthCheckProgram."""
        settings = {"capture_output": True, "text": True, "timeout": 180.0, "check": False, "input": "", **options}
        return subprocess.run([*self.on(name), "env", "-i", f"SLURMD_NODENAME={name}", *command], **settings)
