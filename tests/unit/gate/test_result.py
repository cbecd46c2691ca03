"""From a gate's progress to its one result: in time, late, killed, crashed, from the cache."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from preflight.evidence.document import no_answer, to_document
from preflight.expectations.cluster_file import decode
from preflight.gate import node_hook, policy, verdict_cache
from preflight.gate.cache_writer import CacheWriter
from preflight.gate.configuration import Configuration
from preflight.gate.options import Options
from preflight.gate.request import GateRequest, changed, from_options
from preflight.gate.result import GateRules, Judgement, Progress, begun, in_time, late, served, written
from preflight.gate.slurm import SlurmResult
from preflight.gate.state_dir import StateDir
from preflight.gate.values import dataclass, replace
from preflight.gate.verdict import UnusableVerdict, Verdict
from preflight.gate.watchdog import Watch
from preflight.probes.node import PROBES
from preflight.transport.local import node

FAIL = Verdict("n1", "fail", 1000, cause="xid.gpu", causes=("xid.gpu",), reason="preflight: xid.gpu: found XID 79")
WHY = "the deadline of 2 s was exceeded after 2.0 s while judging"


def request(hook: str = "slurm-prolog", **options: Any) -> GateRequest:
    return from_options(Options(hook, node="n1", **options))


def judged(hook: str = "slurm-prolog", **options: Any) -> Progress:
    return replace(begun(request(hook, **options)), judgement=Judgement(FAIL, ("  FAIL xid.gpu",)))


@pytest.mark.parametrize(
    ("hook", "killed", "status"),
    [("slurm-prolog", False, 0), ("slurm-prolog", True, 3), ("slurm-step", False, 3), ("slurm-healthcheck", True, 3),
     ("slurm-controller", False, 0), ("ci", False, 3)],
)  # fmt: skip
def test_without_a_verdict_the_deadline_gives_unknown(hook: str, killed: bool, status: int) -> None:
    result = late(begun(request(hook)), WHY, killed)
    check = "gate.interrupted" if killed else "gate.deadline"
    assert (result.verdict.status, result.verdict.unknowns) == ("unknown", (check,))
    assert result.exit_status == status
    assert f"NOT JUDGED: {check}: {WHY}" in result.text
    assert result.lines == ()


def test_a_verdict_outlives_the_deadline_with_a_note_of_what_was_not_done() -> None:
    result = late(judged(), WHY, killed=False)
    assert (result.verdict, result.exit_status) == (FAIL, 1)
    assert result.lines == (f"preflight: n1: incomplete: {WHY}", "  FAIL xid.gpu")


def test_after_slurm_nothing_is_missing_but_for_a_signal() -> None:
    done = replace(judged(), slurm=SlurmResult("n1 drained", True, 0))
    result = late(done, WHY, killed=False)
    assert (result.exit_status, result.slurm_line) == (0, "preflight: n1 drained")
    assert result.lines == ("preflight: n1 drained", "  FAIL xid.gpu")
    assert late(done, WHY, killed=False) == in_time(done)
    killed = late(done, "SIGTERM", killed=True)
    assert killed.lines == ("preflight: n1: incomplete: SIGTERM", "preflight: n1 drained", "  FAIL xid.gpu")
    assert killed.exit_status == 3  # slurmd does not take a killed prolog for a pass


def test_an_incomplete_verdict_is_written_and_never_served(tmp_path: Path) -> None:
    store = StateDir(str(tmp_path / "state"), create=True)
    progress = replace(begun(request()), cache=CacheWriter(store, "", None))
    assert late(progress, WHY, killed=False).troubles == ()
    assert WHY in (tmp_path / "state" / "verdict.json").read_text()
    with pytest.raises(UnusableVerdict, match="another cluster file"):
        verdict_cache.look(store, "n1", None)


def test_a_verdict_that_cannot_be_written_is_reported() -> None:
    progress = replace(judged(), cache=CacheWriter(None, "state directory /s: does not exist yet", None))
    result = in_time(written(progress, complete=True))
    assert result.troubles == ("preflight: the verdict is not saved: state directory /s: does not exist yet",)
    assert in_time(written(judged(), complete=True)).troubles == ()


def test_a_cached_verdict_brings_its_rules() -> None:
    hooks = {"slurm-prolog": {"strict": True, "cached": True, "actions": {"fail": "record"}}}
    cached = verdict_cache.Cached(FAIL, 12.0, 300.0, hooks, "preflight: CONFIGURATION ERROR: x")
    progress = served(request(), cached)
    assert progress.rules == GateRules(True, False, {"fail": "record"}, "preflight: CONFIGURATION ERROR: x")
    result = in_time(progress)
    assert (result.exit_status, "judged 12 s ago" in result.text) == (0, True)
    assert result.troubles == ("preflight: CONFIGURATION ERROR: x",)


def test_a_wrong_cluster_file_drains_no_node() -> None:
    assert GateRules().rule("slurm-prolog", "fail") == policy.PolicyRule(1, "drain")
    assert GateRules(error="x").rule("slurm-prolog", "fail") == policy.PolicyRule(1, "refuse")


def test_a_crash_ends_with_the_rules_that_were_read() -> None:
    progress = replace(judged("slurm-step"), rules=GateRules(dry_run=True))
    result = in_time(progress.unjudged("gate.crash", "preflight itself failed: ValueError: x (y.py:1)"))
    assert (result.verdict.unknowns, result.exit_status) == (("gate.crash",), 0)
    assert result.text.startswith("preflight: DRY RUN: n1: NOT JUDGED: gate.crash")
    assert result.lines == ("  FAIL xid.gpu",)


def test_a_result_needs_a_verdict() -> None:
    with pytest.raises(ValueError, match="needs a verdict"):
        in_time(begun(request()))


def test_options_are_copied_not_changed() -> None:
    options = Options("slurm-healthcheck", cluster="/c", deadline=2.0)
    other = changed(options, refresh=True, deadline=60.0)
    assert (other.hook, other.cluster, other.refresh, other.deadline) == ("slurm-healthcheck", "/c", True, 60.0)
    assert (options.refresh, options.deadline) == (False, 2.0)


def test_a_value_is_made_once() -> None:
    @dataclass(frozen=True)
    class Point:
        x: int
        y: int = 0

    made = Point(1)
    assert (made.x, made.y, replace(made, y=2).y, made.y) == (1, 0, 2, 0)
    assert made == Point(x=1)
    assert made != Point(2)
    assert repr(Point(1, 2)) == "Point(x=1, y=2)"
    with pytest.raises(AttributeError, match="does not change: x"):
        setattr(made, "x", 2)  # noqa: B010 - a type checker refuses the plain assignment
    with pytest.raises(AttributeError, match="does not change: x"):
        delattr(made, "x")
    args: Any
    for args, named in (((), {}), ((1,), {"x": 2}), ((1,), {"z": 2}), ((1, 2, 3), {})):
        with pytest.raises(TypeError, match="Point takes x, y"):
            Point(*args, **named)


def test_a_gate_collects_by_the_plan_of_the_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tools of the class are searched as by ``check``; environments of other jobs are not read."""
    plans: list[Any] = []

    def collect(plan: Any, meanwhile: Any) -> Any:
        plans.append(plan)
        return to_document(no_answer(plan["node"], "collect", "as planned", ""))

    monkeypatch.setattr(node, "collect", collect)
    cluster = decode(b'[class.a]\nnodes = "n1"\ntools = ["/opt/site/bin"]\ngpus = 8\n', "cluster.toml")
    wanted = request()
    watch = Watch(wanted.began, 10.0, begun(wanted), lambda progress, why, killed: 0)
    config = Configuration(cluster, b"", None)
    evidence = node_hook._collect(wanted, watch, PROBES, config, lambda: None)
    assert evidence.no_answer is not None
    (plan,) = plans
    assert (plan["node"], plan["tools"]) == ("n1", ["/opt/site/bin"])
    assert 0.5 <= plan["deadline_s"] <= 10.0 - 4.0
    assert not any(entry["kind"] == "env" and entry["target"] == "ranks" for entry in plan["probes"])
