"""Benchmarks between nodes: what was measured, and what explains it.

Every part is pure:

- ``observation``: one run of a group of nodes, made of the reports of nccl-tests;
- ``reference``: the rate that runs of one kind are compared with, and which of them are slow;
- ``factors``: what a run used: nodes, GPUs, rails, leaves, the links above them;
- ``explanation``: the factors that explain slow runs, with bits of evidence (``bits``);
- ``comparison``: the runs of one kind, with levels and ``blocks`` of nodes that good pairs join;
- ``planner``: which pairs to run next, by a plan and the runs so far;
- ``campaign``: a plan, its journal, and the runs that its launches were;
- ``document``: all of it as ``preflight.bench/1``, and ``picture``: heat maps as data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight._startup.lazy_package import submodules

if TYPE_CHECKING:
    from preflight.bench import campaign, comparison, document, observation, picture  # noqa: F401
else:
    __getattr__ = submodules(__name__)
