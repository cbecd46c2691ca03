"""Commands of an Arista EOS switch over eAPI: JSON-RPC over HTTPS.

The certificate and the name of the switch are always verified. Source: Arista eAPI (``runCmds``).
"""

from __future__ import annotations

import base64
import json
import netrc
import os
import ssl
import stat
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.evidence import json_limits
from preflight.transport.command_rules import CommandRules
from preflight.transport.errors import NoAnswer, TransportError, quoted

#: Maximum time for one answer, in seconds.
_ANSWER_S = 30.0


@dataclass(frozen=True)
class Eapi:
    """Access to switches: certificates, accounts and port."""

    context: ssl.SSLContext
    accounts: netrc.netrc
    port: int = 443

    @classmethod
    def prepare(cls, ca: str, port: int) -> Eapi:
        """Read the certificates and the accounts; raises TransportError.

        ``ca`` is a certificate file; empty for the system's certificates.
        """
        try:
            context = ssl.create_default_context(cafile=ca or None)
        except OSError as error:
            raise TransportError(f"{ca} cannot be read as certificates: {error.strerror or error}") from None
        return cls(context, _accounts(), port)

    def run_commands(self, host: str, commands: Sequence[str], rules: CommandRules, until: float) -> None:
        """Run commands; raises NoAnswer.

        An output is the JSON answer; if the switch refuses a command, it contains the errors.
        """
        account = self.accounts.authenticators(host)
        if account is None:
            raise NoAnswer(
                "authenticate", f"{_file()} has no account for {host}: add `machine {host} login … password …`"
            )
        secret = base64.b64encode(f"{account[0]}:{account[2]}".encode()).decode()
        for place, command in enumerate(commands):
            if place:
                time.sleep(rules.gap_s)
            rules.heard(self._answer(host, command, secret, rules.most_bytes, until))

    def _answer(self, host: str, command: str, secret: str, most_bytes: int, until: float) -> bytes | None:
        left_s = until - time.monotonic()
        if left_s <= 0:
            raise NoAnswer("collect", "the deadline of the switch passed")
        body = {"jsonrpc": "2.0", "method": "runCmds", "id": "1",
                "params": {"version": 1, "cmds": [command], "format": "json"}}  # fmt: skip
        request = urllib.request.Request(
            f"https://{host}:{self.port}/command-api", json.dumps(body).encode(),
            {"Content-Type": "application/json", "Authorization": f"Basic {secret}"},
        )  # fmt: skip
        opener = urllib.request.OpenerDirector()  # no proxy, no redirect: the password goes nowhere else
        opener.add_handler(urllib.request.HTTPSHandler(context=self.context))
        opener.add_handler(urllib.request.HTTPDefaultErrorHandler())
        opener.add_handler(urllib.request.HTTPErrorProcessor())
        try:
            with opener.open(request, timeout=min(left_s, _ANSWER_S)) as response:
                content = response.read(most_bytes + 1)
        except urllib.error.HTTPError as error:
            phase = "authenticate" if error.code in (401, 403) else "collect"
            raise NoAnswer(
                phase, f"eAPI answered with HTTP {error.code} {quoted(str(error.reason).encode())}"
            ) from None
        except urllib.error.URLError as error:
            raise _failure(host, error.reason) from None
        except OSError as error:
            raise _failure(host, error) from None
        if len(content) > most_bytes:
            return None
        return _result(command, content)


def _failure(host: str, error: object) -> NoAnswer:
    if isinstance(error, ssl.SSLCertVerificationError):
        return NoAnswer("host-key", f"the certificate of {host} is not valid: {error.verify_message}; set `eapi_ca`")
    if isinstance(error, TimeoutError):
        return NoAnswer("connect", f"{host} did not answer in time")
    return NoAnswer("connect", f"{host} cannot be reached over eAPI: {error}")


def _result(command: str, content: bytes) -> bytes:
    """Return the answer to the command, or its errors, as JSON; raises NoAnswer."""
    try:
        reply = json_limits.text(content.decode("utf-8", "replace"))
    except ValueError as error:
        raise NoAnswer("read", f"{command}: the answer is not JSON ({error}): {quoted(content[:200])}") from None
    result: Any = reply.get("result") if isinstance(reply, dict) else None
    if isinstance(result, list) and len(result) == 1:
        return json.dumps(result[0]).encode()
    refused = reply.get("error") if isinstance(reply, dict) else None
    if isinstance(refused, dict):
        return json.dumps({"errors": [str(refused.get("message", "unknown error"))[:300]]}).encode()
    raise NoAnswer("read", f"{command}: the answer has no result: {quoted(content[:200])}")


def _file() -> Path:
    return Path(os.environ.get("NETRC") or Path.home() / ".netrc")


def _accounts() -> netrc.netrc:
    path = _file()
    try:
        if stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise TransportError(f"{path} can be read by others: chmod 600 {path}")
        return netrc.netrc(str(path))
    except OSError as error:
        raise TransportError(f"eAPI needs an account for each switch in {path}: {error.strerror}") from None
    except netrc.NetrcParseError as error:
        raise TransportError(f"{path}: line {error.lineno}: {error.msg}") from None
