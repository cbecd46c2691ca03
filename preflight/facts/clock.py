"""Clock discipline: ``chronyc -n tracking``, else ``timedatectl show``.

Sources: chronyc(1); timedatectl(1). The kernel's flag, printed by timedatectl, also covers PTP and ntpd; only chrony
reports the offset.
"""

from __future__ import annotations

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError, with_subject
from preflight.parsers.host.clock_reading import parse_show, parse_tracking

CHRONYC = "cmd:chronyc -n tracking"
TIMEDATECTL = "cmd:timedatectl show"


@dataclass(frozen=True)
class Clock:
    """Whether the clock is synchronised, and its offset."""

    synchronised: bool
    offset_s: float | None  # seconds, positive: ahead of true time; None if the tool does not print it
    evidence: str


def clock(evidence: Evidence) -> Clock:
    """Return the clock's state from the first tool that answers.

    Raises an EvidenceError that names both tools if neither answers.
    """
    refusals = []
    for key, parse in ((CHRONYC, parse_tracking), (TIMEDATECTL, parse_show)):
        try:
            status = parse(evidence.text(key))
            return Clock(bool(status.synchronised), status.offset_s, key)
        except EvidenceError as error:
            refusals.append(error)
        except ValueError as error:
            refusals.append(EvidenceError(key, str(error)))
    reasons = "; ".join(with_subject(refusal.key.removeprefix("cmd:"), refusal.why) for refusal in refusals)
    raise EvidenceError(refusals[0].key, reasons)
