"""Parts of the simulated API server: requests and answers over HTTP, the API's Status, a certificate."""

from __future__ import annotations

import asyncio
import base64
import datetime
import hashlib
import ipaddress
import json
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.kubernetes.apiserver_streams import WebSocket


@dataclass(frozen=True)
class Request:
    """A request: its method, path and headers."""

    method: str
    path: str
    query: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]

    @property
    def upgrade(self) -> str:
        """The requested protocol of an upgrade, in lower case."""
        return self.headers.get("upgrade", "").lower()


async def request(reader: asyncio.StreamReader) -> Request | None:
    """Read one request; raises IncompleteReadError at the end of the connection."""
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers: dict[str, str] = {}
    for line in filter(None, lines):
        name, _, value = line.partition(":")
        headers.setdefault(name.strip().lower(), value.strip())
    if length := int(headers.get("content-length", 0)):
        await reader.readexactly(length)
    parts = urlsplit(target)
    return Request(method, unquote(parts.path), parse_qs(parts.query), headers)


async def reply(writer: asyncio.StreamWriter, status: int, body: Mapping[str, Any] | str) -> None:
    """Answer with an object of the API, or with text as a kubelet does."""
    kind, raw = (
        ("text/plain", body.encode()) if isinstance(body, str) else ("application/json", json.dumps(body).encode())
    )
    head = f"HTTP/1.1 {status} Simulated\r\nContent-Type: {kind}\r\nContent-Length: {len(raw)}\r\n\r\n"
    writer.write(head.encode() + raw)
    await writer.drain()


async def web_socket(request: Request, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> WebSocket:
    key = request.headers["sec-websocket-key"] + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    accepted = base64.b64encode(hashlib.sha1(key.encode()).digest()).decode()
    writer.write(
        "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        f"Sec-WebSocket-Accept: {accepted}\r\nSec-WebSocket-Protocol: v5.channel.k8s.io\r\n\r\n".encode()
    )
    await writer.drain()
    return WebSocket(reader, writer)


def status(code: int, reason: str, message: str) -> tuple[int, Mapping[str, Any]]:
    """Return an answer of kind Status, the form of all refusals of the API."""
    return code, {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message,
                  "reason": reason, "details": {"kind": "pods"}, "code": code}  # fmt: skip


def ended(status: int) -> Mapping[str, Any]:
    if status == 0:
        return {"metadata": {}, "status": "Success"}
    status = 128 - status if status < 0 else status
    return {"metadata": {}, "status": "Failure", "reason": "NonZeroExitCode",
            "message": f"command terminated with non-zero exit code: exit status {status}",
            "details": {"causes": [{"reason": "ExitCode", "message": str(status)}]}}  # fmt: skip


def certificate(folder: Path) -> ssl.SSLContext:
    """Make a key and a certificate for 127.0.0.1, valid for a day."""
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec
    from cryptography.x509.oid import NameOID

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "simulated API server")])
    now = datetime.datetime.now(datetime.timezone.utc)
    made = (
        x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(hours=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), True)
        .sign(key, hashes.SHA256())
    )  # fmt: skip
    (folder / "ca.crt").write_bytes(made.public_bytes(serialization.Encoding.PEM))
    (folder / "tls.key").write_bytes(key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()))  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", folder / "tls.key")
    return context
