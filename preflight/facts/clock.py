"""Clock discipline: ``chronyc -n tracking``, else ``timedatectl show``.

Sources: chronyc(1); timedatectl(1). The kernel's own flag, which timedatectl prints, holds for PTP and ntpd too; only
chrony reports the offset.
"""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import Evidence, EvidenceError

CHRONYC = "cmd:chronyc -n tracking"
TIMEDATECTL = "cmd:timedatectl show"


@dataclass(frozen=True)
class Clock:
    """What is known of the clock."""

    synchronised: bool
    offset_s: float | None  # seconds, positive: ahead of true time; None if the tool does not print it
    evidence: str


def clock(evidence: Evidence) -> Clock:
    """Return the clock from the tool that answered; raises EvidenceError for both."""
    refusals = []
    for key, parse in ((CHRONYC, parse_tracking), (TIMEDATECTL, parse_timedatectl)):
        try:
            synchronised, offset_s = parse(evidence.text(key))
            return Clock(synchronised, offset_s, key)
        except EvidenceError as error:
            refusals.append(error)
        except ValueError as error:
            refusals.append(EvidenceError(key, str(error)))
    reasons = "; ".join(f"{refusal.key.removeprefix('cmd:')}: {refusal.why}" for refusal in refusals)
    raise EvidenceError(refusals[0].key, reasons)


def parse_tracking(text: str) -> tuple[bool, float | None]:
    """Read ``chronyc tracking``: synchronised, offset in seconds; raises ValueError."""
    leap = re.search(r"^Leap status[ \t]*:([^\n]*)$", text, re.MULTILINE)
    time = re.search(
        r"^System time[ \t]*:[ \t]*([0-9]{1,12}\.[0-9]{1,12}) seconds (fast|slow) of NTP time", text, re.MULTILINE
    )
    if not leap or not time:
        raise ValueError(f"{text.strip()[:80]!r} has no lines 'System time' and 'Leap status'")
    status = leap[1].strip()
    if status not in ("Normal", "Insert second", "Delete second", "Not synchronised"):
        raise ValueError(f"the leap status {status[:40]!r} is not known")
    offset_s = float(time[1]) * (1 if time[2] == "fast" else -1)
    synchronised = status != "Not synchronised"
    return synchronised, offset_s if synchronised else None


def parse_timedatectl(text: str) -> tuple[bool, float | None]:
    """Read ``timedatectl show``: synchronised, and no offset; raises ValueError."""
    if not (match := re.search(r"^NTPSynchronized=(yes|no)\s*$", text, re.MULTILINE)):
        raise ValueError(f"{text.strip()[:80]!r} has no line 'NTPSynchronized'")
    return match[1] == "yes", None
