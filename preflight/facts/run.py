"""Facts of a run: the logs that were handed over with ``--log``."""

from __future__ import annotations

from functools import cached_property

from preflight import facts
from preflight.evidence import Evidence

#: The node name under which the evidence of a run is kept; no host can be called that.
RUN = "@run"


class RunFacts:
    """Facts of the logs of one run; each log is a record ``log:NAME``."""

    def __init__(self, evidence: Evidence) -> None:
        self.evidence = evidence

    @property
    def logs(self) -> tuple[str, ...]:
        """Record keys of the logs."""
        return tuple(sorted(key for key in self.evidence.records if key.startswith("log:")))

    @cached_property
    def nccl_logs(self) -> dict[str, facts.nccl_log.NcclLog]:
        """Every log that holds lines of NCCL, by record key."""
        found = {key: facts.nccl_log.parse(self.evidence.text(key)) for key in self.logs}
        return {key: log for key, log in found.items() if log is not None}

    @cached_property
    def nccl_tests(self) -> dict[str, tuple[facts.nccl_tests.Report, ...]]:
        """The nccl-tests reports in each log, by record key."""
        found = {key: facts.nccl_tests.parse(self.evidence.text(key)) for key in self.logs}
        return {key: reports for key, reports in found.items() if reports}
