"""The site's reference sweep: `ibnetdiscover` output or an evidence document."""

from __future__ import annotations

from datetime import datetime

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import EvidenceError, decode
from preflight.facts.fabric.sweep import sweeps
from preflight.facts.node import NodeFacts
from preflight.parsers.infiniband import ibnetdiscover, ibqueryerrors


@dataclass(frozen=True)
class Reference:
    """A reference sweep, and where it comes from."""

    path: str
    net: ibnetdiscover.Net
    errors: ibqueryerrors.Errors | None = None  # None: output of ibnetdiscover has no counters
    at: str = ""  # when it was swept, ISO 8601; empty: unknown


def read(raw: bytes, path: str) -> Reference:
    """Parse a reference sweep; raises ValueError.

    ``path`` is used in error messages.
    """
    if not raw.lstrip().startswith(b"{"):
        return Reference(path, _require_complete(ibnetdiscover.parse(raw.decode("utf-8", "backslashreplace")), ""))
    evidence = decode(raw, path)
    found = next(sweeps([NodeFacts(evidence)], lambda node: ()), None)
    if found is None:
        raise ValueError("has no sweep: create one with `preflight check --fabric --save DIR`")
    try:
        net = _require_complete(found.net, found.partial)
    except EvidenceError as error:
        raise ValueError(f"has no complete sweep: {error}") from None
    try:
        errors = found.errors
    except EvidenceError:
        errors = None
    return Reference(path, net, errors, evidence.collected_at)


def _require_complete(net: ibnetdiscover.Net, partial: str) -> ibnetdiscover.Net:
    if partial or not net.links or any(link.seen_by == 1 for link in net.links):
        raise ValueError(f"is incomplete, so missing links cannot be found with it: {partial or 'links lack an end'}")
    return net


def hours(before: str, now: str) -> float | None:
    """Return the hours between two times in ISO 8601; None if either is unknown."""
    try:
        one, other = (datetime.fromisoformat(text.replace("Z", "+00:00")) for text in (before, now))
        return (other - one).total_seconds() / 3600
    except (ValueError, TypeError):  # TypeError: one names its zone, the other does not
        return None
