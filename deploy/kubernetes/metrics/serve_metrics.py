"""Serve the metrics file that the DaemonSet ``preflight`` writes on this node: ``serve_metrics.py FILE [PORT]``.

Only ``GET /metrics`` is answered, with the file as it is. Without a readable file the answer is 503, so that Prometheus
reports the target as down instead of a node without failures. Needs only Python's standard library.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PORT = 9798
#: Limits: bytes of the file, seconds of a request, requests at the same time.
_MOST_BYTES, _TIMEOUT_S, _AT_ONCE = 4 << 20, 10.0, 8


class Unreadable(Exception):
    """The file cannot be served; the text is the reason."""


def read(path: str) -> bytes:
    """Return the content of a regular file of limited size; raises Unreadable."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from None
    try:
        if not stat.S_ISREG(os.fstat(file).st_mode):
            raise Unreadable(f"{path}: not a file")
        with open(file, "rb", closefd=False) as stream:
            content = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror}") from None
    finally:
        os.close(file)
    if not 0 < len(content) <= _MOST_BYTES:
        raise Unreadable(f"{path}: {'empty' if not content else 'too long'}")
    return content


class Handler(BaseHTTPRequestHandler):
    """Answers one request."""

    timeout = _TIMEOUT_S
    server: Server

    def version_string(self) -> str:
        """Return the Server header, without the version of Python."""
        return "preflight"

    def do_GET(self) -> None:
        """Answer with the file, 404 or 503."""
        if self.path.partition("?")[0] != "/metrics":
            self._answer(404, b"see /metrics\n")
            return
        try:
            self._answer(200, read(self.server.path))
        except Unreadable as error:
            self._answer(503, f"{error}\n".encode("utf-8", "replace"))

    def _answer(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        """Log nothing: clients choose the text."""


class Server(ThreadingHTTPServer):
    """Listens on all addresses; drops connections above the limit."""

    address_family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET

    def __init__(self, path: str, port: int = PORT) -> None:
        """Listen on a port; 0 chooses one."""
        self.path, self._free = path, threading.BoundedSemaphore(_AT_ONCE)
        super().__init__(("", port), Handler)

    def server_bind(self) -> None:
        """Accept IPv4 on the same socket."""
        if self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        super().server_bind()

    def process_request(self, request: object, client_address: object) -> None:
        """Start a thread, unless too many are running."""
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)  # type: ignore[arg-type]
        else:
            self.shutdown_request(request)  # type: ignore[arg-type]

    def process_request_thread(self, request: object, client_address: object) -> None:
        """Answer, then free the slot."""
        try:
            super().process_request_thread(request, client_address)  # type: ignore[arg-type]
        finally:
            self._free.release()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect or send nothing."""


if __name__ == "__main__":
    Server(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else PORT).serve_forever()
