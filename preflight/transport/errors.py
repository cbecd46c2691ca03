"""Failures of collecting from a node, and the document that reports one."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from preflight.errors import PreflightError
from preflight.evidence import document as evidence
from preflight.evidence import safe_read

#: Phases of a collection in which it can fail, in order.
PHASES = ("queue", "resolve", "connect", "banner", "host-key", "authenticate", "start", "collect", "read")


class TransportError(PreflightError):
    """The run cannot start, for example because a configuration file is unusable.

    No node was contacted.
    """


class NoAnswer(PreflightError):
    """One node did not answer.

    ``phase`` is one of PHASES or ``interrupted``; ``reason`` is the cause and its fix.
    """

    def __init__(self, phase: str, reason: str) -> None:
        super().__init__(f"{phase}: {reason}")
        self.phase = phase
        self.reason = reason

    def document(self, node: str, at: str) -> dict[str, Any]:
        """Return the Evidence document of the node; ``at`` is the time of collection."""
        return evidence.to_document(evidence.no_answer(node, self.phase, self.reason, at))


class OpenSshRequired(NoAnswer):
    """The host or its configuration needs a feature of the system's ``ssh``.

    ``why`` names it. Not raised for a wrong host key, a deadline, or a login that was refused for every key.
    """

    def __init__(self, phase: str, why: str) -> None:
        super().__init__(phase, f"{why}; use --via auto or openssh")
        self.why = why


def check_readable(configuration: Path) -> None:
    """Raise TransportError for an unreadable or endless SSH configuration.

    Pipes and devices are endless.
    """
    try:
        safe_read.content(configuration, safe_read.BY_HAND)
    except OSError as error:
        raise TransportError(f"cannot read the SSH configuration {configuration}: {error.strerror}") from None


def utc_now() -> str:
    """Return the current time in the format of documents."""
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def quoted(raw: bytes, limit: int = 300) -> str:
    """Return a node's output as one line of printable text, for use in a reason.

    Long text loses its beginning.
    """
    text = " ".join(raw.decode("utf-8", "backslashreplace").split())
    shown = "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
    return shown if len(shown) <= limit else "… " + shown[-limit:]
