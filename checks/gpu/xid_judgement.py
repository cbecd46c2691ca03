"""Judgement of one Xid by the policy table and the event's context.

The context is the rest of the log and the recovery action that the driver requests.
"""

from __future__ import annotations

from preflight.checks.gpu.xid_policy import NVLINK, POLICY, RECOVERY, RESET, SUPPORT, Act, XidPolicy
from preflight.facts.xid import Events, XidEvent
from preflight.parsers.nvidia import xid_marks

#: Number of processes with graphics exceptions (Xid 13), all on one GPU, at which that GPU is suspect: a judgement
#: call.
SUSPICIOUS_PROCESSES = 3

#: Actions that take a GPU or its node out of service.
BAD = (Act.OUT, Act.RESET)


def judged(event: XidEvent, found: Events, recovery: str | None = None) -> XidPolicy:
    """Return the meaning and action of one Xid.

    ``recovery`` is the recovery action that the driver requests now; None if unknown.
    """
    policy = POLICY.get(event.code) or XidPolicy(f"unknown code ({event.text[:60]})", Act.WARN, SUPPORT, "monitor")
    if event.code == 45 and event.cause is not None and not found.counts.get((event.address, event.cause)):
        first = judged(XidEvent(event.at_s, event.address, event.cause, "", event.line), found, recovery)
        return XidPolicy(f"clean-up after Xid {event.cause} ({first.meaning})", first.act, first.fix, first.action)
    if event.code == 13 and _on_this_gpu_alone(event, found):
        test = "Run the vendor's field diagnostic on this GPU."
        return XidPolicy("graphics exceptions of several processes on this GPU alone", Act.WARN, test, "monitor")
    if policy.act is Act.READ:
        policy = _read(event, policy, found)
    if recovery == "None" and (policy.fix == RESET or event.code == 154) and policy.act in BAD:
        meaning = f"{policy.meaning}; the driver requests no recovery now"
        act, action = (Act.NOTE, "none") if event.code == 154 else (Act.WARN, "monitor")
        return XidPolicy(meaning, act, "Check whether the GPU was reset since; monitor it.", action)
    return policy


def _on_this_gpu_alone(event: XidEvent, found: Events) -> bool:
    processes = found.pids_by_code.get(event.code, ())
    return found.gpus_by_code.get(event.code) == frozenset({event.address}) and len(processes) >= SUSPICIOUS_PROCESSES


def _read(event: XidEvent, policy: XidPolicy, found: Events) -> XidPolicy:
    """Judge an Xid whose severity depends on its text or on repetitions."""
    if event.code == 154:
        named = xid_marks.required_recovery(event.text) or event.text[:60]
        return RECOVERY.get(named.lower()) or XidPolicy(f"{policy.meaning} to {named}", Act.WARN, SUPPORT, "monitor")
    if event.code == 74:
        repeated = found.counts.get((event.address, 74), 0) > 1 or bool(found.switches)
        return XidPolicy(policy.meaning + (", repeated or with an SXid" if repeated else ""),
                         Act.OUT if repeated else Act.WARN, NVLINK, "reset" if repeated else "monitor")  # fmt: skip
    fatal = xid_marks.is_fatal(event.text)
    if fatal is False:
        return XidPolicy(f"{policy.meaning}, not fatal", Act.NOTE)
    if fatal:
        return XidPolicy(f"{policy.meaning}, fatal", Act.OUT, policy.fix, "reset")
    return XidPolicy(f"{policy.meaning} of unknown severity", Act.WARN, SUPPORT, "monitor")
