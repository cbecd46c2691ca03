"""Explanation of benchmark runs between nodes, and choice of the next runs.

The modules have no side effects:

- ``observation``: one run on a group of nodes, built from nccl-tests reports;
- ``baseline``: rates of good runs in an earlier campaign;
- ``reference``: the reference rate of each kind of run, and the limit for slow runs;
- ``factors``: the parts that a run uses: nodes, GPUs, rails, leaves, uplinks;
- ``explanation``: the factors that explain slow runs (``factor_runs``), with their evidence in bits (``bits``);
- ``comparison``: the runs of one kind, with rate levels and ``blocks`` of nodes connected by good pairs;
- ``distance``: rates that distance explains; ``nic_rates``: the rate of each NIC in a run;
- ``planner``: the next pairs to run, given the plan and the previous runs;
- ``campaign``: a plan, its journal, and the runs of its launches;
- ``shared_uplinks``: runs of all pairs at once, compared with one pair at a time;
- ``document``: the result as ``preflight.bench/1``; ``picture``: heat maps as data.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight._startup.lazy_package import submodules

if TYPE_CHECKING:
    from preflight.bench import (  # noqa: F401
        baseline,
        campaign,
        comparison,
        document,
        nic_rates,
        observation,
        picture,
        planner,
        shared_uplinks,
    )
else:
    __getattr__ = submodules(__name__)
