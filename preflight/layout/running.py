"""The order of a running job's ranks, from the environments of its processes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from preflight.facts.nccl_settings.collect import Ranks
from preflight.facts.rank_binding import first_count
from preflight.layout.job import LayoutError
from preflight.nodeset import fold

#: Variables with a rank's number, each with the variables that have the number of ranks. The most specific is first,
#: since processes that srun starts may themselves start ranks.
VARIABLES = {
    "RANK": ("WORLD_SIZE",),
    "OMPI_COMM_WORLD_RANK": ("OMPI_COMM_WORLD_SIZE",),
    "PMIX_RANK": ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
    "SLURM_PROCID": ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"),
}

#: Maximum number of ranks.
MOST_RANKS = 1 << 18


class RunningRanks:
    """Collector of the ranks that run on the nodes of a job."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[int, list[str]]] = {name: {} for name in VARIABLES}
        self._jobs: set[str] = set()
        self._sizes: dict[str, set[int]] = {name: set() for name in VARIABLES}
        self._without: list[str] = []

    def add(self, node: str, ranks: Ranks) -> None:
        """Add the ranks of a node."""
        numbered = [own for own in ranks.environments if any(own.numbers.values())]
        if not numbered:
            self._without.append(node)
        for own in numbered:
            self._jobs |= {own.variables["SLURM_JOB_ID"]} if "SLURM_JOB_ID" in own.variables else set()
            for variable, sizes in VARIABLES.items():
                for number in own.numbers.get(variable, ()):
                    self._numbers[variable].setdefault(number, []).append(node)
                if own.numbers.get(variable) and (size := first_count(own.variables, sizes)) is not None:
                    self._sizes[variable].add(size)

    def nodes(self) -> Sequence[str]:
        """Return the node of each rank, in the order of ranks.

        Raises LayoutError if ranks are missing, or belong to several jobs.
        """
        variable, places = next(((name, own) for name, own in self._numbers.items() if own), ("", {}))
        if not places:
            raise LayoutError(
                "no rank of a job was running, or its processes belong to another user: collect as that user or as root"
            )
        if len(self._jobs) > 1:
            raise LayoutError(f"ranks of {len(self._jobs)} jobs were running: {', '.join(sorted(self._jobs)[:4])}; "
                              "choose the nodes of one with --nodes")  # fmt: skip
        if self._without:
            raise LayoutError(f"no rank was running on {fold(self._without)}; choose the job's nodes with --nodes")
        _check_complete(variable, places, self._sizes[variable])
        return [places[number][0] for number in sorted(places)]


def _check_complete(variable: str, places: Mapping[int, Sequence[str]], sizes: set[int]) -> None:
    """Raise LayoutError unless the ranks are 0 to N - 1, and each is on one node."""
    twice = [number for number, nodes in sorted(places.items()) if len(set(nodes)) > 1]
    if twice:
        where = fold(sorted(set(places[twice[0]])))
        raise LayoutError(
            f"{variable}={twice[0]} runs on {where}: these are two jobs; choose the nodes of one with --nodes"
        )
    if len(sizes) != 1:
        why = "report different job sizes" if sizes else "do not state the size of their job"
        raise LayoutError(f"the ranks {why} ({' or '.join(VARIABLES[variable])}); write the order to a --hostfile")
    (expected,) = sizes
    if expected > MOST_RANKS:
        raise LayoutError(f"the job has {expected:,} ranks; at most {MOST_RANKS:,} are placed")
    missing = sorted(set(range(expected)) - places.keys())
    if missing or max(places) >= expected:
        absent = (
            f"rank {missing[0]} of {expected} was not running"
            if missing
            else f"{variable} goes up to {max(places)} for a job of {expected} ranks"
        )
        raise LayoutError(f"{absent} on these nodes: {len(places)} ranks were found")
