"""The steps of a campaign in a Slurm job, which are cancelled by name."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.bench.campaign import BenchLaunch, CampaignPlan
from preflight.campaign.command_lines import step_name
from preflight.nodeset import fold_for_slurm
from preflight.terminal import UsageError
from preflight.transport.errors import TransportError
from preflight.transport.slurm.srun import Srun


class SlurmSteps:
    """The steps of a campaign."""

    def __init__(self, plan: CampaignPlan) -> None:
        """Locate Slurm's commands. Raises UsageError if they are missing."""
        self._plan = plan
        try:
            self._srun = Srun(plan.job, fold_for_slurm)
        except TransportError as error:
            raise UsageError(str(error)) from None

    def away(self, nodes: Sequence[str]) -> dict[str, str]:
        """Return the nodes that accept no new Slurm jobs, each with the reason."""
        return self._srun.away(nodes)

    def cancel(self, launch: BenchLaunch) -> None:
        """Cancel a launch's step."""
        self._srun.cancel(step_name(self._plan, launch.number))
