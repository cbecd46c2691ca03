"""Hosts for MPI on one machine.

Each has its own network, process table, host name, /tmp and sshd. They are connected to bridges, the leaves, which are
connected by one link. Links can be slowed (tbf) and cut. Needs root; ``missing()`` names further requirements.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from tests.support.mpi import standin
from tests.support.paths import ROOT
from tests.support.sshfarm.material import SSHD, keygen, public

#: Seconds until all hosts must answer.
_UP_S = 30.0

#: Rate of a host's link, and of the link between leaves, Mbit/s: far below the capability of this machine.
HOST_MBIT, UPLINK_MBIT = 40, 1000

_TOOLS = ("mpirun", "mpicc", "ip", "tc", "unshare", "nsenter", "ssh", "ssh-keygen")

_SSH_CONFIG = """\
Host *
  User root
  IdentityFile {folder}/id
  IdentitiesOnly yes
  UserKnownHostsFile {folder}/known_hosts
  GlobalKnownHostsFile /dev/null
  StrictHostKeyChecking yes
  LogLevel ERROR
  BatchMode yes
  ConnectTimeout 4
"""
_SSHD_CONFIG = """\
HostKey {folder}/hostkey
AuthorizedKeysFile {folder}/authorized_keys
PasswordAuthentication no
PermitRootLogin yes
UsePAM no
StrictModes no
UseDNS no
PidFile none
MaxStartups 200
"""

#: What a host runs first: its name, its own hosts file, its own /tmp (the head node sees that of this machine, which
#: may contain the tree); then sshd, or a process that waits and lets no child become a zombie.
_INIT = """\
hostname "$1" && mount --bind "$2/hosts" /etc/hosts &&
{ [ "$1" = head ] || mount -t tmpfs tmpfs /tmp; } && shift 2 && exec "$@"
"""
_WAIT = "import signal; signal.signal(signal.SIGCHLD, signal.SIG_IGN)\nwhile True: signal.pause()"


def missing() -> str:
    """Return the missing requirements of these hosts; empty if none."""
    if os.getuid() != 0:
        return "root"
    return next((tool for tool in _TOOLS if not shutil.which(tool)), "" if SSHD else "sshd")


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, stdin=subprocess.DEVNULL, capture_output=True)


class MpiHosts:
    """Hosts n1, n2, … on leaves, and a head node; a context manager."""

    def __init__(self, number: int, leaf: int = 0) -> None:
        """Prepare this many hosts, ``leaf`` of them on a leaf (0: all on one)."""
        self.names = [f"n{place}" for place in range(1, number + 1)]
        self.leaf_of = {name: place // (leaf or number) for place, name in enumerate(self.names)}
        self.folder = Path(tempfile.mkdtemp(prefix="mpi-", dir="/var/tmp"))
        self.folder.chmod(0o755)
        self.binaries = self.folder / "bin"
        self.tag = f"m{os.getpid() % 100000:05d}{os.urandom(1).hex()}"
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._inits: dict[str, int] = {}

    def __enter__(self) -> MpiHosts:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def ssh_config(self) -> Path:
        """A configuration for ``ssh`` from the head node to all hosts."""
        return self.folder / "ssh_config"

    @property
    def leaves(self) -> dict[str, str]:
        """Node -> leaf."""
        return {name: f"leaf{leaf}" for name, leaf in self.leaf_of.items()}

    def on(self, host: str) -> list[str]:
        """Return the prefix of a command that makes it run on a host."""
        return ["nsenter", f"--target={self._inits[host]}", "--net", "--uts", "--mount", "--pid", f"--wd={self.folder}"]

    def run(self, command: Sequence[str], host: str = "head", **options: Any) -> subprocess.CompletedProcess[str]:
        """Run a command, by default on the head node with captured output."""
        settings = {"capture_output": True, "text": True, "timeout": 240, "check": False, "stdin": subprocess.DEVNULL,
                    "env": self.environment}  # fmt: skip
        return subprocess.run([*self.on(host), *command], **{**settings, **options})

    @property
    def environment(self) -> dict[str, str]:
        """The environment of commands; the head node has a folder for temporary files."""
        return {**os.environ, "TMPDIR": str(self.folder / "tmp"), "PYTHONPATH": str(ROOT)}

    def preflight(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        """Run preflight on the head node."""
        return self.run([sys.executable, "-m", "preflight", *words], **options)

    def slow(self, host: str, mbit: int) -> None:
        """Set the rate of a host's link, both ways."""
        self._shape(f"{self.tag}-{host}", "eth0", mbit)
        self._shape(f"{self.tag}-fabric", host, mbit)

    def slow_uplink(self, mbit: int) -> None:
        """Set the rate of the link between the first two leaves, both ways."""
        for name in ("up0", "up1"):
            self._shape(f"{self.tag}-fabric", name, mbit)

    def cut(self, host: str, down: bool = True) -> None:
        """Cut a host's link, or restore it."""
        _ip("-n", f"{self.tag}-fabric", "link", "set", host, "down" if down else "up")

    def fault(self, host: str, kind: str, present: bool = True) -> None:
        """Make the stand-in misbehave on a host: wrong, fail, hang or deaf."""
        path = self.binaries / f"{host}.{kind}"
        path.touch() if present else path.unlink(missing_ok=True)

    def processes(self, host: str) -> list[str]:
        """Return the command lines on a host, without its own sshd or waiting process."""
        lines = self.run(["ps", "-eo", "pid=,args="], host).stdout.splitlines()
        rows = [line.split(None, 1) for line in lines]
        return [words for pid, words in rows if pid != "1" and not words.startswith("ps -eo")]

    def files(self, host: str) -> list[str]:
        """Return the temporary files of a host."""
        where = str(self.folder / "tmp") if host == "head" else "/tmp"
        return self.run(["find", where, "-mindepth", "1"], host).stdout.split()

    def left_behind(self, seconds: float = 15.0) -> dict[str, list[str]]:
        """Return the leftovers on each host after at most this many seconds."""
        until = time.monotonic() + seconds
        while True:
            left = {name: [*self.processes(name), *self.files(name)] for name in [*self.names, "head"]}
            left = {name: entries for name, entries in left.items() if entries}
            if not left or time.monotonic() > until:
                return left
            time.sleep(0.3)

    def _start(self) -> None:
        folder = self.folder
        for name in ("id", "hostkey"):
            keygen(folder / name)
        (folder / "authorized_keys").write_text(public(folder / "id") + "\n")
        (folder / "known_hosts").write_text("".join(f"{name} {public(folder / 'hostkey')}\n" for name in self.names))
        (folder / "ssh_config").write_text(_SSH_CONFIG.format(folder=folder))
        (folder / "sshd_config").write_text(_SSHD_CONFIG.format(folder=folder))
        addresses = {name: f"10.78.0.{place}" for place, name in enumerate([*self.names, "head"], 1)}
        (folder / "hosts").write_text(
            "127.0.0.1 localhost\n" + "".join(f"{address} {name}\n" for name, address in addresses.items())
        )
        os.makedirs("/run/sshd", exist_ok=True)
        (folder / "tmp").mkdir()
        standin.build(self.binaries)
        self._fabric()
        for name, address in addresses.items():
            self._host(name, address)
        until = time.monotonic() + _UP_S
        for name in self.names:
            while self.run(["ssh", "-F", str(self.ssh_config), name, "true"]).returncode:
                assert time.monotonic() < until, f"{name} does not answer"
                time.sleep(0.1)

    def _fabric(self) -> None:
        fabric = f"{self.tag}-fabric"
        _ip("netns", "add", fabric)
        count = max(self.leaf_of.values()) + 1
        for leaf in range(count):
            _ip("-n", fabric, "link", "add", f"leaf{leaf}", "type", "bridge")
            _ip("-n", fabric, "link", "set", f"leaf{leaf}", "up")
        for leaf in range(1, count):
            _ip("-n", fabric, "link", "add", f"up{2 * leaf - 2}", "type", "veth", "peer", "name", f"up{2 * leaf - 1}")
            _ip("-n", fabric, "link", "set", f"up{2 * leaf - 2}", "master", "leaf0", "up")
            _ip("-n", fabric, "link", "set", f"up{2 * leaf - 1}", "master", f"leaf{leaf}", "up")

    def _host(self, name: str, address: str) -> None:
        space, fabric = f"{self.tag}-{name}", f"{self.tag}-fabric"
        _ip("netns", "add", space)
        _ip("link", "add", name, "netns", fabric, "type", "veth", "peer", "name", "eth0", "netns", space)
        _ip("-n", fabric, "link", "set", name, "master", f"leaf{self.leaf_of.get(name, 0)}", "up")
        for interface in ("lo", "eth0"):
            _ip("-n", space, "link", "set", interface, "up")
        _ip("-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
        if name != "head":
            self.slow(name, HOST_MBIT)
        server = [str(SSHD), "-D", "-e", "-f", str(self.folder / "sshd_config")]
        command = [sys.executable, "-c", _WAIT] if name == "head" else server
        log = (self.folder / f"log.{name}").open("wb")
        self._holders[name] = holder = subprocess.Popen(
            ["ip", "netns", "exec", space, "unshare", "--uts", "--mount", "--pid", "--fork", "--kill-child",
             "--mount-proc", "sh", "-c", _INIT, "sh", name, str(self.folder), *command],
            stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
        )  # fmt: skip
        log.close()
        children = Path(f"/proc/{holder.pid}/task/{holder.pid}/children")
        until = time.monotonic() + _UP_S
        while not (children_ids := children.read_text().split()):
            assert time.monotonic() < until, f"{name} does not start"
            time.sleep(0.01)
        self._inits[name] = int(children_ids[0])
        while b"sh\0-c" in Path(f"/proc/{children_ids[0]}/cmdline").read_bytes():  # still being set up
            assert time.monotonic() < until, f"{name} does not start"
            time.sleep(0.01)

    @staticmethod
    def _shape(space: str, interface: str, mbit: int) -> None:
        subprocess.run(
            ["ip", "netns", "exec", space, "tc", "qdisc", "replace", "dev", interface, "root", "tbf", "rate",
             f"{mbit}mbit", "burst", "16kb", "latency", "200ms"],
            check=True, stdin=subprocess.DEVNULL, capture_output=True,
        )  # fmt: skip

    def stop(self) -> None:
        """End all processes on the hosts; the end of a host's first process ends the rest."""
        for pid in self._inits.values():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for holder in self._holders.values():
            holder.kill()
            holder.wait()
        for name in [*self.names, "head", "fabric"]:
            subprocess.run(["ip", "netns", "del", f"{self.tag}-{name}"], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
