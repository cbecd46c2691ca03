"""Table of changes between two statuses."""

from __future__ import annotations

import math
import re

#: The check was not judged: off, without its input, or of another version.
ABSENT = ""

#: Statuses from good to bad; the order picks the worst of several findings.
ORDER = {"skip": 0, "pass": 1, "warn": 2, "unknown": 3, "fail": 4}
GOOD = ("pass", "skip")

#: Before -> after -> kind of change: ``new`` and ``worse`` (exit status 1), ``unclear`` (3), ``better`` and ``gone``
#: (0); empty: no change worth reporting. A failure is gone only if the check passes: one that is now unknown, or no
#: longer applies (the device is gone), was not fixed. A failure with another value is ``still`` (0); with fewer
#: devices, more defects, or a tie that a majority now decides against the node, it is ``worse``.
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

#: Checks whose figures are a number of devices, links or lanes that are there, answer or are up, or a rate in use. The
#: figure of gpu.pcie-link without an x is a generation, which varies with the load.
_LESS_IS_WORSE = (*_COUNTS, "gpu.driver", "nvlink.links", "gpu.pcie-link x", "pcie.nic-link", "rdma.port-rate")

#: Checks whose figures count defects that stay until a reset or repair. Figures of other checks vary from run to run.
_MORE_IS_WORSE = ("gpu.ecc-uncorrected", "gpu.retired-pages")

#: Check whose last figure is the most severe: memory banks with few spare rows, and with none.
_LAST_IS_WORST = "gpu.row-remap"

_FIGURE = re.compile(r"\d+(?:\.\d+)?")


def is_worse_figure(check: str, was: str, now: str) -> bool:
    """Return whether a failed check found fewer devices, or more defects, than before.

    Figures are compared only between texts with the same words.
    """
    words = _FIGURE.sub("", was)
    if words != _FIGURE.sub("", now):
        return False
    before, after = (list(map(float, _FIGURE.findall(text))) for text in (was, now))
    if check in _LESS_IS_WORSE or f"{check} {words}" in _LESS_IS_WORSE:
        return math.prod(after) < math.prod(before)  # of lanes and their speed
    if check == _LAST_IS_WORST:
        return after[::-1] > before[::-1]
    return check in _MORE_IS_WORSE and sum(after) > sum(before)


def change(check: str, before: str, after: str) -> str:
    """Return the kind of change between two statuses; empty if none is reported."""
    if check in _COUNTS and (before, after) == ("pass", "skip"):
        return "unclear"
    return _STEPS[before].get(after, "")
