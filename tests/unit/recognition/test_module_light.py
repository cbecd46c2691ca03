"""Received light of each lane of a pasted module (made by hand)."""

from __future__ import annotations

import pytest

from preflight.recognition import read_text


def _text(powers: list[float], lost: str = "None", threshold: float | None = None) -> str:
    lines = [
        ("Identifier", "0x19 (OSFP 8X Pluggable Transceiver)"), ("Vendor name", "ACME"), ("Vendor PN", "OSFP-DR4"),
        ("Module temperature", "47.12 degrees C / 116.82 degrees F"), ("Rx loss of signal", lost),
        *((f"Rcvr signal avg optical power (Channel {lane})", f"{power:.4f} mW / -1.00 dBm")
          for lane, power in enumerate(powers, 1)),
        *([("Laser rx power low alarm threshold", f"{threshold:.4f} mW / -9.00 dBm")] if threshold else []),
    ]  # fmt: skip
    return "".join(f"\t{name:<42}: {value}\n" for name, value in lines)


CASES = {
    "all lanes lit": (_text([0.81, 0.79, 0.84, 0.80]), {"pass"}),
    "one lane of four is dark": (_text([0.81, 0.0001, 0.84, 0.80]), {"warn"}),
    "a loss on each lane, of a search": (_text([], "[ Yes, Yes, Yes, Yes ]"), {"unknown"}),
    "one lane of eight reports a loss": (_text([0.8] * 8, "[ No, No, No, No, No, No, Yes, No ]"), {"warn"}),
    "below the module's own threshold": (_text([0.81, 0.11, 0.84, 0.80], threshold=0.126), {"warn"}),
    "weak, and above the module's own threshold": (_text([0.06, 0.07, 0.06, 0.07], threshold=0.05), {"pass"}),
    "weak, without a threshold": (_text([0.81, 0.02, 0.84, 0.80]), {"unknown"}),
    "half of the lanes, as of a breakout cable": (_text([0.8, 0.8, 0.0001, 0.0001]), {"unknown"}),
    "no light at all": (_text([0.0001] * 4, "[ Yes, Yes, Yes, Yes ]"), {"unknown"}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_light_of_each_lane_is_judged(case: str) -> None:
    text, expected = CASES[case]
    (part,) = read_text(text, "pasted")
    assert {finding["status"] for finding in part.findings} == expected
