"""A real Redis with the databases of a SONiC switch, and a recorder of all bytes sent to it."""

from __future__ import annotations

import json
import selectors
import shutil
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

REDIS = shutil.which("redis-server")
needs_redis = pytest.mark.skipif(REDIS is None, reason="needs redis-server")

#: The numbers of SONiC's databases.
NUMBERS = {"APPL_DB": 0, "COUNTERS_DB": 2, "CONFIG_DB": 4, "STATE_DB": 6}


class SonicRedis:
    """A server on a separate socket; ``with SonicRedis() as server: server.load(databases)``."""

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="sonic-redis-"))
        self._folder.chmod(0o755)  # the login user of a farm connects
        self.socket = self._folder / "redis.sock"
        assert REDIS
        self._server = subprocess.Popen(
            [REDIS, "--port", "0", "--unixsocket", str(self.socket), "--unixsocketperm", "777", "--save", "",
             "--appendonly", "no", "--databases", "16", "--dir", str(self._folder)],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        until = time.monotonic() + 30
        while not self._answers():
            assert self._server.poll() is None, "redis-server did not start"
            assert time.monotonic() < until, "redis-server did not start"
            time.sleep(0.01)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as connection:
            return connection.connect_ex(str(self.socket)) == 0

    def __enter__(self) -> SonicRedis:
        return self

    def __exit__(self, *_: object) -> None:
        self._server.kill()
        self._server.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def pid(self) -> int:
        return self._server.pid

    def load(self, databases: Mapping[str, Mapping[str, Mapping[str, str]]]) -> None:
        """Store the hashes of each database; other databases stay as they are."""
        commands: list[list[str]] = []
        for name, hashes in databases.items():
            commands += [["SELECT", str(NUMBERS[name])], ["FLUSHDB"]]
            commands += [
                ["HSET", key, *(word for pair in row.items() for word in pair)] for key, row in hashes.items() if row
            ]
        self._send(commands)

    def execute(self, *commands: list[str]) -> None:
        """Send other commands, such as those that store a value other than a hash."""
        self._send(commands)

    def _send(self, commands: Iterable[list[str]]) -> None:
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(self.socket))
            stream = connection.makefile("rb")
            for command in commands:
                words = [word.encode() for word in command]
                lines = [b"*%d\r\n" % len(words), *(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)]
                connection.sendall(b"".join(lines))
                reply = stream.readline()
                assert reply[:1] != b"-", (command[:2], reply)


def database_config(path: Path) -> str:
    """Return SONiC's ``database_config.json`` for a socket."""
    return json.dumps({
        "INSTANCES": {"redis": {"hostname": "127.0.0.1", "port": 6379, "unix_socket_path": str(path)}},
        "DATABASES": {name: {"id": number, "separator": ":" if name in ("APPL_DB", "COUNTERS_DB") else "|",
                             "instance": "redis"} for name, number in NUMBERS.items()},
        "VERSION": "1.0",
    })  # fmt: skip


class Recorder:
    """A socket that forwards everything to a server, and records what is sent to it."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self._folder = Path(tempfile.mkdtemp(prefix="recorder-"))
        self._folder.chmod(0o755)
        self.socket = self._folder / "redis.sock"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self.socket))
        self.socket.chmod(0o777)
        self._listener.listen(16)
        self.sent: list[bytes] = []
        self.most_at_once = 0
        self.open = 0  # connections
        self.silent = False  # forward nothing
        self._lock = threading.Lock()
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def commands(self) -> list[list[str]]:
        """Return the commands that were sent, word by word."""
        commands = []
        for sent in self.sent:
            left = sent
            while left:
                count, _, left = left.partition(b"\r\n")
                words = []
                for _ in range(int(count[1:])):
                    length, _, left = left.partition(b"\r\n")
                    words.append(left[: int(length[1:])].decode())
                    left = left[int(length[1:]) + 2 :]
                commands.append(words)
        return commands

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._carry, args=(connection,), daemon=True).start()

    def _carry(self, client: socket.socket) -> None:
        until = time.monotonic() + 1  # the end of the previous one may be read later than the start of this one
        while self.open and time.monotonic() < until:
            time.sleep(0.002)
        with self._lock:
            self.open += 1
            self.most_at_once = max(self.most_at_once, self.open)
        sent = bytearray()
        with client, socket.socket(socket.AF_UNIX) as server, selectors.DefaultSelector() as selector:
            server.connect(str(self._server))
            selector.register(client, selectors.EVENT_READ, server)
            selector.register(server, selectors.EVENT_READ, client)
            while True:
                for key, _ in selector.select():
                    source = key.fileobj
                    assert isinstance(source, socket.socket)
                    content = source.recv(65536)
                    if not content:
                        with self._lock:
                            self.sent.append(bytes(sent))
                            self.open -= 1
                        return
                    if source is client:
                        sent += content
                    if not self.silent:
                        key.data.sendall(content)
