"""``torch.placement``: the place of a late rank in its host, where a trace is missing."""

from __future__ import annotations

from preflight.checks import registry
from preflight.evidence.document import Evidence
from preflight.judge import judge
from tests.support.training_job import JobPlan, Layout, traces

CHECKS = [check for check in registry().checks if check.id == "torch.placement"]


def statuses(late: tuple[int, int], missing: int | None = None) -> list[str]:
    plan = JobPlan(Layout(data=6), layers=4, ranks_per_host=3, slow=dict.fromkeys(late, 1.4))
    records = {
        f"log:rank{rank}.json": {"status": "ok", "out": text}
        for rank, text in enumerate(traces(plan)) if rank != missing
    }  # fmt: skip
    return [finding["status"] for finding in judge([], CHECKS, run=Evidence("@run", "", records))["findings"]]


def test_places_are_counted_from_the_first_rank_of_a_host() -> None:
    assert statuses((1, 4)) == ["warn"]
    assert statuses((1, 5), missing=3) == ["unknown", "unknown"]
