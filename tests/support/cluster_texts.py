"""Cluster files that several tests use."""

from __future__ import annotations

GOOD = '[class.a]\ngpus = 8\n[class.a.ports]\ncompute = "mlx5_[0,3-6,9-11]"\nrate_gbps = 400\n'
