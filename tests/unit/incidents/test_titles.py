"""Titles of incidents: true of all parts, and grammatical."""

from __future__ import annotations

import pytest

from preflight.incidents.titles import title


@pytest.mark.parametrize(
    ("subject", "messages", "others", "expected"),
    [
        ("mlx5_5:1", ["mlx5_5:1 is DOWN"], 0, "mlx5_5:1 is DOWN"),
        ("mlx5_5:1", ["mlx5_5:1 is DOWN", "mlx5_6:1 is DOWN"], 1, "mlx5_5:1 (and 1 other) are DOWN"),
        ("mlx5_5:1", ["mlx5_5:1 runs at 200 Gb/s"], 3, "mlx5_5:1 (and 3 others) run at 200 Gb/s"),
        ("mlx5_5:1", ["mlx5_5:1 went down"], 3, "mlx5_5:1 (and 3 others) went down"),
        ("mlx5_5:1", ["the link of mlx5_5:1 has errors"], 1, "the link of mlx5_5:1 (and 1 other) has errors"),
        ("leaf1", ["leaf1: ECN is off"], 3, "leaf1 (and 3 others): ECN is off"),
        ("mlx5_5", ["mlx5_5's PCIe link carries 126 Gb/s"], 2,
         "mlx5_5's PCIe link carries 126 Gb/s; 2 others likewise"),
        ("0000:d1:00.0", ["GPU6: no margin (0 C)"], 2, "GPU6: no margin (0 C); 2 others likewise"),
        ("GPU6", ["no margin"], 0, "GPU6: no margin"),
        # figures that differ
        ("0000:d1:00.0", ["GPU6: 17 of 18 NVLinks are up", "GPU2: 0 of 18 NVLinks are up"], 1,
         "GPU6: 0 to 17 of 18 NVLinks are up; 1 other likewise"),
        ("p", ["p runs at 200 Gb/s, its peers at 400 Gb/s", "p runs at 100 Gb/s, its peers at 400 Gb/s"], 0,
         "p runs at 100 to 200 Gb/s, its peers at 400 Gb/s"),
        ("", ["hot (0 C), 9%", "hot (12 C), 10%"], 0, "hot (0 to 12 C), 9 to 10%"),
        ("", ["limited to 8 MiB, not more", "limited to 64 KiB, not more"], 0, "limited to 64 KiB to 8 MiB, not more"),
        ("", ["1 error", "2 errors"], 0, "1 to 2 errors"),
        ("", ["driver 570.86.10 here", "driver 550.90.07 here"], 0, "driver 570.86.10 or 550.90.07 here"),
        ("", [f"(570.86.{patch}), not 580.1" for patch in range(5)], 0, "(570.86.0 or 4 others), not 580.1"),
        # not comparable: another form
        ("", ["1 error", "2 errors and more"], 0, "1 error"),
        ("", ["2 V", "2 A"], 0, "2 V"),
        ("", ["2 V", "3 A"], 0, "2 V"),
    ],
)  # fmt: skip
def test_title(subject: str, messages: list[str], others: int, expected: str) -> None:
    assert title({"subject": subject}, messages, others) == expected
