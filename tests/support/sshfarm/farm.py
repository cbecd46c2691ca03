"""Many real OpenSSH hosts on one machine, on loopback addresses only.

All of 127.0.0.0/8 is local, so host *i* is an address of its own. A listener per address hands each
connection to ``sshd -i``; host keys, options, views and faults differ by host. As an ordinary user the
farm works too, without views; the login user is then the one who started it.
"""

from __future__ import annotations

import functools
import getpass
import os
import selectors
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from tests.support.sshfarm import processes
from tests.support.sshfarm.material import SSHD, addresses, keygen, public, reserved
from tests.support.sshfarm.relay import Wire, carry, reset
from tests.support.sshfarm.view import USER, Room, View

#: Possible faults of a host's listener or sshd; ``Farm.wire`` adds those of the network.
FAULTS = ("", "refuse", "silent", "reset", "close", "banner", "hostkey", "noauth")

_CONFIG = """\
AuthorizedKeysFile {authorized_keys}
PidFile none
StrictModes no
UsePAM no
UseDNS no
PasswordAuthentication no
KbdInteractiveAuthentication no
PrintMotd no
PrintLastLog no
PermitRootLogin yes
LoginGraceTime 60
LogLevel ERROR
"""


class Farm:
    """Real hosts, from ``start`` (or ``with``) to ``stop``, which ends all of their processes."""

    def __init__(self, number: int, views: Mapping[str, View] | None = None, port: int = 0, first: int = 1) -> None:
        """Prepare ``number`` hosts from ``127.77.0.first`` on; ``views`` is by address, and needs root."""
        self._reserved = reserved()  # until the end: no other farm on this machine uses it
        self.hosts, self.port = addresses(number, first), port or int(self._reserved.getsockname()[1])
        self.rooted = os.getuid() == 0
        self.user = USER if self.rooted else getpass.getuser()
        self.directory = Path(tempfile.mkdtemp(prefix="sshfarm-"))
        self.directory.chmod(0o755)  # sshd reads authorized_keys as the login user
        self.key = keygen(self.directory / "id_ed25519")
        self.host_key = keygen(self.directory / "host_ed25519")
        self.known_hosts = self.directory / "known_hosts"
        self.known_hosts.write_text(self.known_hosts_lines(), encoding="utf-8")
        self.mark = f"FARM_ID={os.getpid()}-{os.urandom(6).hex()}"
        self._views = dict(views or {})
        self._rooms: dict[str, Room] = {}
        self._faults: dict[str, str] = {}
        self._wires: dict[str, Wire] = {}
        self._keys: dict[str, Path] = {}
        self._reset_first: dict[str, int] = {}
        self.accepted: dict[str, int] = dict.fromkeys(self.hosts, 0)
        self._children: dict[subprocess.Popen[bytes], str] = {}
        self._daemons: list[subprocess.Popen[bytes]] = []
        self._held: list[socket.socket] = []
        self._listeners: dict[str, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._lock = threading.RLock()
        self._stopping = False
        self._threads: list[threading.Thread] = []

    # Files

    def known_hosts_lines(self) -> str:
        """Return the lines of ``known_hosts`` for all hosts of the farm."""
        return "".join(f"[{host}]:{self.port} {public(self.host_key)}\n" for host in self.hosts)

    @functools.cached_property
    def ssh_config(self) -> Path:
        """A configuration with which ``ssh`` reaches all hosts."""
        path = self.directory / "ssh_config"
        path.write_text(
            f"Host 127.*\n Port {self.port}\n User {self.user}\n IdentityFile {self.key}\n IdentitiesOnly yes\n"
            f" UserKnownHostsFile {self.known_hosts}\n GlobalKnownHostsFile /dev/null\n"
            " StrictHostKeyChecking yes\n BatchMode yes\n",
            encoding="utf-8",
        )
        return path

    @functools.cached_property
    def _config(self) -> Path:
        keys = self.directory / "authorized_keys"
        keys.write_text(public(self.key) + "\n", encoding="utf-8")
        path = self.directory / "sshd_config"
        path.write_text(_CONFIG.format(authorized_keys=keys), encoding="utf-8")
        if self.rooted:
            os.makedirs("/run/sshd", exist_ok=True)  # sshd's directory for privilege separation
        return path

    # Properties of a host

    def view(self, host: str, view: View) -> None:
        """Make a host show these files, tools and login shell from its next connection on."""
        if not self.rooted:
            raise PermissionError("views need root")
        with self._lock:
            number = sum(1 for _ in self.directory.glob(f"{host}-*"))
            self._rooms[host] = Room(self.directory / f"{host}-{number}", view)

    def fault(self, host: str, kind: str, *, first: int = 0) -> None:
        """Make a host fail in one of the ways of FAULTS; with ``first``, only its first connections."""
        assert kind in FAULTS, kind
        with self._lock:
            self._faults[host] = kind
            self._reset_first[host] = first
            if kind == "refuse" and host in self._listeners:
                listener = self._listeners.pop(host)
                self._selector.unregister(listener)
                listener.close()

    def wire(self, host: str, wire: Wire) -> None:
        """Put a slow, long or breaking wire in front of a host."""
        self._wires[host] = wire

    def authorize(self, key: str) -> None:
        """Allow logins with another public key, before the start or at any time."""
        with (self._config.parent / "authorized_keys").open("a", encoding="utf-8") as stream:
            stream.write(key + "\n")

    def use_host_key(self, host: str, key: Path) -> None:
        """Make one host present another host key, with the certificate next to it (``-cert.pub``), if any."""
        self._keys[host] = key

    def reboot(self, host: str) -> None:
        """End all processes of a host, and refuse new connections."""
        self.fault(host, "refuse")
        with self._lock:
            children = [child for child, at in self._children.items() if at == host]
        for child in children:  # sshd first: a host that goes down reports nothing about its processes
            processes.kill([child.pid, *sorted(processes.descendants(child.pid))])

    def daemon(self, address: str, *options: str, port: int = 0) -> int:
        """Run a listening sshd on a separate address, with sshd's default MaxStartups; return its port.

        It serves as a jump host. ``options`` are lines of sshd_config.
        """
        port = port or self.port
        if self.rooted and address not in self._rooms:
            self.view(address, View())
        with self.known_hosts.open("a", encoding="utf-8") as stream:
            stream.write(f"[{address}]:{port} {public(self.host_key)}\n")
        lines = [f"HostKey={self.host_key}", f"Port={port}", f"ListenAddress={address}", *options]
        command = self._sshd(address, [argument for line in lines for argument in ("-o", line)], "-D")
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, env=self._environ
        )
        self._daemons.append(process)
        until = time.monotonic() + 60
        while True:
            with socket.socket() as probe:
                if probe.connect_ex((address, port)) == 0:
                    return port
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"sshd did not start: {' '.join(command)}")
            time.sleep(0.02)

    # From start to stop

    def start(self) -> Farm:
        """Open the listeners; hosts answer when this returns."""
        if self.rooted:
            for host in self.hosts:
                self.view(host, self._views.get(host, View()))
        for host in self.hosts:
            if self._faults.get(host) != "refuse":
                listener = socket.socket()
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((host, self.port))
                listener.listen(64)
                listener.setblocking(False)
                self._listeners[host] = listener
                self._selector.register(listener, selectors.EVENT_READ, host)
        self._run(self._serve)
        return self

    def stop(self) -> None:
        """Close the listeners, and end every process that the farm or one of its hosts has started."""
        self._stopping = True
        for thread in self._threads[:1]:
            thread.join()
        started = [child.pid for child in (*self._daemons, *self._children)]
        processes.kill({*started, *processes.descendants(*started)})  # sshd overwrites the mark with its title
        processes.kill(processes.marked(self.mark))
        for child in [*self._daemons, *self._children]:
            child.wait(60)
        for held in [*self._held, *self._listeners.values(), self._reserved]:
            held.close()
        for thread in self._threads:
            thread.join(60)
        self._selector.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def __enter__(self) -> Farm:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    # Leftovers

    def running(self, host: str = "") -> dict[int, str]:
        """Return the processes on one host, or on all, by number, with their command lines."""
        pids = (
            processes.marked(f"FARM_HOST={host}") & processes.marked(self.mark) if host else processes.marked(self.mark)
        )
        found = {pid: processes.command_of(pid) for pid in pids}
        own = {daemon.pid for daemon in self._daemons}
        return {pid: command for pid, command in found.items() if command and pid not in own}

    def left(self, host: str = "", within_s: float = 20.0, litter: str = "") -> dict[int, str]:
        """Return the processes still running after some time to end; those listed as ``litter`` may run on."""
        until = time.monotonic() + within_s
        while True:
            found = {pid: command for pid, command in self.running(host).items() if not litter or command != litter}
            if not found or time.monotonic() > until:
                return found
            time.sleep(0.02)

    # The listeners

    def _run(self, target: Callable[..., object], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _serve(self) -> None:
        while not self._stopping:
            for key, _ in self._selector.select(0.05):
                try:
                    connection = key.fileobj.accept()[0]  # type: ignore[union-attr]
                except OSError:
                    continue
                connection.setblocking(True)
                self._answer(connection, key.data)
            with self._lock:
                for child in [child for child in self._children if child.poll() is not None]:
                    del self._children[child]

    def _answer(self, connection: socket.socket, host: str) -> None:
        self.accepted[host] += 1
        kind, first = self._faults.get(host, ""), self._reset_first.get(host, 0)
        if first and self.accepted[host] > first:
            kind = ""
        if kind == "reset":
            reset(connection)
        elif kind == "close":
            connection.close()
        elif kind in ("silent", "banner"):
            if kind == "banner":
                connection.sendall(b"220 mail.example smtp ready\r\n")
            self._held.append(connection)
        elif host in self._wires:
            near, far = socket.socketpair()
            child = self._spawn(far, host, kind)
            self._run(carry, connection, near, self._wires[host], lambda: self._kill(child))
        else:
            self._spawn(connection, host, kind)

    @staticmethod
    def _kill(child: subprocess.Popen[bytes]) -> None:
        processes.kill({child.pid, *processes.descendants(child.pid)})

    @functools.cached_property
    def _environ(self) -> dict[str, str]:
        name, _, value = self.mark.partition("=")
        return {**os.environ, name: value}

    def _sshd(self, host: str, options: list[str], *flags: str) -> list[str]:
        assert SSHD, "sshd is not installed"
        room = self._rooms.get(host)
        variables = {**dict([self.mark.split("=")]), "FARM_HOST": host, **(room.environment if room else {})}
        # sshd honours only the first SetEnv line, so it has all variables
        line = "SetEnv=" + " ".join(f'{name}="{value}"' for name, value in variables.items())
        own = [argument for option in (room.view.sshd if room else ()) for argument in ("-o", option)]
        inside = room.command if room else []
        return [*inside, SSHD, *flags, "-f", str(self._config), "-o", line, *options, *own]

    def _spawn(self, connection: socket.socket, host: str, kind: str) -> subprocess.Popen[bytes]:
        key = self._other_key if kind == "hostkey" else self._keys.get(host, self.host_key)
        options = ["-o", f"HostKey={key}"]
        if (certificate := Path(f"{key}-cert.pub")).exists():
            options += ["-o", f"HostCertificate={certificate}"]
        if kind == "noauth":
            options = ["-o", "AuthorizedKeysFile=none", *options]
        child = subprocess.Popen(
            self._sshd(host, options, "-i"),
            stdin=connection.fileno(),
            stdout=connection.fileno(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            env={**self._environ, "FARM_HOST": host},
        )
        connection.close()
        with self._lock:
            self._children[child] = host
        return child

    @functools.cached_property
    def _other_key(self) -> Path:
        return keygen(self.directory / "host_other")
