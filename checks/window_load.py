"""Limits of port load over a window: under load, and idle."""

from __future__ import annotations

#: Fractions of a port's rate above which a window was under load and below which it was idle: judgement calls.
LOADED, IDLE = 0.5, 0.05

UNDER_LOAD = "run it while a job or all_reduce_perf runs: preflight check --window 60"
