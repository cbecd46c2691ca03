"""Table of changes between two statuses."""

from __future__ import annotations

#: The check was not judged: off, without its input, or of another version.
ABSENT = ""

#: Statuses from good to bad; the order picks the worst of several findings.
ORDER = {"skip": 0, "pass": 1, "warn": 2, "unknown": 3, "fail": 4}
GOOD = ("pass", "skip")

#: Before -> after -> kind of change: ``new`` and ``worse`` (exit status 1), ``unclear`` (3), ``better`` and ``gone``
#: (0); empty: no change worth reporting. A failure is gone only if the check passes: one that is now unknown, or no
#: longer applies (the device is gone), was not fixed. A failure with another value is ``still`` (0); with fewer
#: devices, or a tie that a majority now decides against the node, it is ``worse``.
_STEPS = {
    "pass": {"skip": "", "warn": "new", "unknown": "unclear", "fail": "new", ABSENT: "unclear"},
    "skip": {"pass": "", "warn": "new", "unknown": "unclear", "fail": "new", ABSENT: ""},
    "warn": {"pass": "gone", "skip": "unclear", "unknown": "unclear", "fail": "worse", ABSENT: "unclear"},
    "unknown": {"pass": "gone", "skip": "gone", "warn": "better", "fail": "worse", ABSENT: "unclear"},
    "fail": {"pass": "gone", "skip": "unclear", "warn": "better", "unknown": "unclear", ABSENT: "unclear"},
    ABSENT: {"pass": "", "skip": "", "warn": "", "unknown": "", "fail": "unclear"},
}

#: Checks that count devices: if such a check passed but no longer applies, all devices have vanished.
_COUNTS = ("gpu.count", "rdma.device-count", "rdma.registered")

#: Checks whose figure is a number of devices that are there, answer or are up.
_FEWER_IS_WORSE = (*_COUNTS, "gpu.driver", "nvlink.links")


def has_fewer(check: str, was: str, now: str) -> bool:
    """Return whether a check found fewer devices than before.

    Both texts begin with their number.
    """
    numbers = [text.partition(" ")[0] for text in (was, now)]
    return check in _FEWER_IS_WORSE and all(map(str.isdecimal, numbers)) and int(numbers[1]) < int(numbers[0])


def change(check: str, before: str, after: str) -> str:
    """Return the kind of change between two statuses; empty if none is reported."""
    if check in _COUNTS and (before, after) == ("pass", "skip"):
        return "unclear"
    return _STEPS[before].get(after, "")
