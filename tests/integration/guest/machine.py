"""A guest from start to end, and a pair of guests connected by a cable."""

from __future__ import annotations

import contextlib
import ctypes
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import TracebackType

from tests.integration.guest.image import HERE, Image
from tests.support.sshfarm import keygen, public

_PR_SET_PDEATHSIG = 1

#: Seconds for a boot: 10 on an idle machine, 50 on a busy one.
BOOT_S = 240.0


class Guest:
    """One virtual machine: two processors, Soft-RoCE devices rxe0, rxe1 on the interfaces eth0, eth1."""

    def __init__(self, image: Image, number: int = 1, *, rails: int = 2, mtu: int = 9000, memory_mib: int = 768,
                 cable: Path | None = None) -> None:  # fmt: skip
        """Prepare a guest; ``cable`` is the folder with the sockets that connect the rails of a pair."""
        self.name, self.port = f"guest{number}", _free_port()
        self.boot_s = 0.0
        self._image, self._number, self._rails, self._mtu, self._memory = image, number, rails, mtu, memory_mib
        self._cable = cable
        self.folder = Path(tempfile.mkdtemp(prefix=f"{self.name}-"))
        self._process: subprocess.Popen[bytes] | None = None

    def address(self, rail: int = 0) -> str:
        """Return the IPv4 address of a rail."""
        return f"192.168.10{rail}.{self._number}"

    def ssh_config(self) -> str:
        """Return the stanza with which ``ssh`` and preflight reach it by name."""
        return (
            f"Host {self.name}\n HostName 127.0.0.1\n Port {self.port}\n User root\n IdentityFile {self.folder}/key\n"
            f" IdentitiesOnly yes\n UserKnownHostsFile {self.folder}/known_hosts\n GlobalKnownHostsFile /dev/null\n"
            " StrictHostKeyChecking yes\n BatchMode yes\n"
        )

    def start(self) -> Guest:
        """Start to boot; ``ready`` waits for it."""
        share = self.folder / "share"
        share.mkdir()
        key, host_key = keygen(self.folder / "key"), keygen(self.folder / "host_key")
        (share / "authorized_keys").write_text(public(key) + "\n", encoding="utf-8")
        shutil.copy(host_key, share)
        shutil.copy(HERE / "start.sh", share)
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {public(host_key)}\n", encoding="utf-8")
        (self.folder / "ssh_config").write_text(
            self.ssh_config() + f" ControlMaster auto\n ControlPersist 600\n ControlPath {self.folder}/control\n",
            encoding="utf-8",
        )
        with (self.folder / "qemu.log").open("wb") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, preexec_fn=_die_with_parent
            )
        return self

    def ready(self) -> Guest:
        """Wait for its sshd; raises RuntimeError with the output of the console."""
        began = time.monotonic()
        while "READY" not in self._log_text("console") or self._ssh("true", 60).returncode:
            assert self._process
            if self._process.poll() is not None or time.monotonic() > began + BOOT_S:
                output = f"{self._log_text('qemu.log')} {self._log_text('console')[-2000:]}"
                raise RuntimeError(f"{self.name} did not boot: {output}")
            time.sleep(0.2)
        self.boot_s = time.monotonic() - began
        return self

    def run(self, command: str, timeout_s: float = 120) -> str:
        """Run a shell command in the guest and return its output; a failure is an exception."""
        done = self._ssh(command, timeout_s)
        if done.returncode:
            raise RuntimeError(f"{self.name}: {command}: exit status {done.returncode}: {done.stderr or done.stdout}")
        return done.stdout

    def stop(self) -> None:
        """Stop it, and all processes that were started for it."""
        if (self.folder / "control").exists():  # else ssh's master outlives it
            subprocess.run(self._ssh_command("-O", "exit"), capture_output=True)
        if self._process and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Guest:
        try:
            return self.start().ready()
        except BaseException:
            self.stop()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def _log_text(self, file: str) -> str:
        path = self.folder / file
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def _ssh_command(self, *options: str) -> list[str]:
        return ["ssh", "-F", f"{self.folder}/ssh_config", "-o", "ConnectTimeout=30", *options, self.name]

    def _ssh(self, command: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
        # the master keeps the standard streams of its starter, so it must not get a pipe
        if not (self.folder / "control").exists():
            subprocess.run([*self._ssh_command("-fN")], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                           stderr=subprocess.DEVNULL, timeout=timeout_s)  # fmt: skip
        return subprocess.run([*self._ssh_command(), command], stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=timeout_s)  # fmt: skip

    def _command(self) -> Sequence[str]:
        hardware = f"52:54:00:00:{self._number:02x}"
        share = f"path={self.folder}/share,security_model=none"
        command = [
            "qemu-system-x86_64", "-accel", "tcg,thread=multi", "-machine", "q35", "-cpu", "max", "-smp", "2",
            "-m", str(self._memory), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
            "-kernel", str(self._image.kernel), "-initrd", str(self._image.initrd),
            "-append", f"console=ttyS0 quiet loglevel=4 panic=-1 mitigations=off nokaslr guest={self._number} "
            f"mtu={self._mtu}",
            "-serial", f"file:{self.folder}/console", "-device", "virtio-rng-pci",
            "-fsdev", "local,id=host,path=/,security_model=none,readonly=on,multidevs=remap",
            "-device", "virtio-9p-pci,fsdev=host,mount_tag=host",
            "-fsdev", f"local,id=share,{share}", "-device", "virtio-9p-pci,fsdev=share,mount_tag=share",
            "-netdev", f"user,id=admin,restrict=on,ipv6=off,hostfwd=tcp:127.0.0.1:{self.port}-:22",
            "-device", f"virtio-net-pci,netdev=admin,mac={hardware}:00,romfile=",
        ]  # fmt: skip
        for rail in range(self._rails):
            end = f"hubport,id=rail{rail},hubid={rail + 1}"
            if self._cable:
                server = "on" if self._number == 1 else "off"
                end = f"stream,id=rail{rail},server={server},addr.type=unix,addr.path={self._cable}/rail{rail}"
            # without speed= the devices would claim to run at 2.5 Gb/s
            card = f"virtio-net-pci,netdev=rail{rail},mac={hardware}:{rail + 1:02x},romfile="
            command += ["-netdev", end, "-device", f"{card},host_mtu=9000,speed=100000,duplex=full"]
        return command


@contextlib.contextmanager
def pair(image: Image, *, rails: int = 1, mtu: int = 9000) -> Iterator[tuple[Guest, Guest]]:
    """Boot two guests with their rails connected one to one."""
    with tempfile.TemporaryDirectory(prefix="cable-") as cable, contextlib.ExitStack() as stack:
        guests = [Guest(image, number, rails=rails, mtu=mtu, cable=Path(cable)) for number in (1, 2)]
        for guest in guests:
            stack.callback(guest.stop)
        guests[0].start()
        until = time.monotonic() + 30
        while not (Path(cable) / f"rail{rails - 1}").exists() and time.monotonic() < until:
            time.sleep(0.05)  # the second guest can only connect to an existing socket
        guests[1].start()
        yield guests[0].ready(), guests[1].ready()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
