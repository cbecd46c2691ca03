"""A gate's verdict from findings, its document, and the table of rules."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight._startup.lightclass import replace
from preflight.evidence.document import Evidence, from_document, no_answer
from preflight.expectations import Cluster
from preflight.expectations import gate_table as tables
from preflight.expectations.cluster_file import ClusterFileError, decode
from preflight.facts.node import NodeFacts
from preflight.gate import announce, evaluate, options, policy, policy_table, scheduler_env, verdict
from preflight.gate.configuration import UnknownCheck
from preflight.gate.ownership import owner_of
from preflight.gate.verdict import UnusableVerdict, Verdict
from preflight.model import Check, Finding, Scope, Status, worst
from tests.support import paths

NODES = paths.ROOT / "fixtures" / "nodes"
AT = "2026-11-21T12:00:00Z"
KNOWN = b"[class.all]\ngpus = 0\nhcas = 0\n"
SCHEMA = jsonschema.Draft202012Validator(json.loads((files("preflight.schemas") / "verdict-1.json").read_text()))
FAILED = Verdict("n1", "fail", 7, cause="gpu.count", causes=("gpu.count",), reason="preflight: gpu.count: found 7")


def made(number: int, statuses: Sequence[Status], gating: bool = True, subject: str = "", crash: bool = False) -> Check:
    def run(facts: Any, site: Any) -> Iterator[Finding]:
        if crash:
            raise TypeError("a fault of the check")
        for status in statuses:
            yield Finding(status, f"said {status}", subject, "7", "8")

    return Check(f"made.number-{number}", "Made", Scope.NODE, "here", "mend it", (), gating, run)


def judged(
    checks: Sequence[Check], evidence: Evidence | None = None, raw: bytes = KNOWN, **more: Any
) -> evaluate.NodeEvaluation:
    cluster = decode(raw, "cluster.toml")
    seen = evidence or Evidence("n1", AT, {"file:/x": {"status": "ok", "out": ""}})
    selection = evaluate.CheckSelection(tuple(checks), (), ())
    return evaluate.evaluate_node(
        seen, cluster, selection, **{"hook": "slurm-prolog", "expects": True, "gpus": None, **more}
    )


# --- the verdict ------------------------------------------------------------------------------------

STATUSES = st.lists(st.sampled_from(Status), max_size=3)
CHECKS = st.lists(st.tuples(STATUSES, st.booleans(), st.booleans()), min_size=1, max_size=5)


@given(CHECKS)
def test_a_verdict_is_never_better_than_any_gating_finding(outcomes: list[tuple[list[Status], bool, bool]]) -> None:
    """L10, L06, L56: a check without a result, or that crashes, is unknown."""
    checks = [made(n, statuses, gating, crash=crash) for n, (statuses, gating, crash) in enumerate(outcomes)]
    found = judged(checks)
    gating = [set() if crash else set(statuses) for statuses, counts, crash in outcomes if counts]
    results = {worst(statuses) for statuses, _, crash in outcomes if not crash}
    vague = any(not statuses or Status.UNKNOWN in statuses for statuses in gating) or any(
        crash for *_, crash in outcomes
    )
    if any(Status.FAIL in statuses for statuses in gating):
        assert found.status == "fail"
    elif vague or not results & {Status.PASS, Status.WARN, Status.FAIL}:
        assert found.status == "unknown"
    else:
        assert found.status == "pass"
    cached = Verdict("n1", found.status, 1, off=found.off, cause=found.cause, reason=found.reason, owner=found.owner,
                   causes=found.causes, unknowns=found.unknowns)  # fmt: skip
    document = json.loads(json.dumps(verdict.to_document(cached)))
    assert verdict.from_document(document) == cached
    SCHEMA.validate(document)


@pytest.mark.parametrize(("raw", "lacking"), [
    (b"[class.a]\ngpus = 0\n", ["class.a.hcas"]),
    (b"[class.a]\nhcas = 0\n", ["class.a.gpus"]),
    (b'[class.a]\nnodes = "other"\ngpus = 0\nhcas = 0\n', ["n1 is in no class of cluster.toml"]),
])  # fmt: skip
def test_who_does_not_know_how_many_to_expect_cannot_pass(raw: bytes, lacking: list[str]) -> None:
    good = [made(1, [Status.PASS])]
    found = judged(good, raw=raw)
    assert (found.status, found.unknowns) == ("unknown", (evaluate.EXPECTATIONS,))
    assert all(key in found.reason for key in lacking)
    assert judged(good, raw=raw, expects=False).status == "pass"
    assert judged([made(1, [Status.FAIL])], raw=raw).status == "fail"


def test_a_node_without_an_answer_is_not_judged() -> None:
    """L07."""
    found = judged([made(1, [Status.PASS])], no_answer("n1", "collect", "no answer within 7 s", AT))
    assert (found.status, found.unknowns) == ("unknown", ("gate.no-answer",))
    assert found.reason == "preflight: gate.no-answer: collect: no answer within 7 s"


def test_the_reason_names_check_subject_and_fault_first() -> None:
    """L47, L48: in sixty characters, in ASCII, also for hostile text from the node."""
    finding = {"check": "gpu.row-remap", "subject": "0000:3b:00.0", "found": "1 pending", "expected": "none",
               "message": "GPU3: a row waits to be remapped"}  # fmt: skip
    reason = evaluate.reason(finding)
    assert reason.startswith("preflight: gpu.row-remap: 0000:3b:00.0: found 1 pending, expected none")
    assert "GPU3" in reason
    hostile = evaluate.reason({**finding, "found": "\x1b[31m" + "ß\n`$(reboot)`" * 90, "expected": None})
    assert hostile.isascii()
    assert hostile.isprintable()
    assert len(hostile) <= verdict.REASON_MOST


@pytest.mark.parametrize(("change", "value"), [
    ("status", "good"), ("status", None), ("node", ""), ("node", "n1\nn2"), ("node", 7), ("at", 1.5), ("at", True),
    ("at", -1), ("seconds", math.nan), ("seconds", -1), ("reason", "x"), ("reason", "preflight: " + "x" * 200),
    ("reason", "preflight: ü"), ("cause", ""), ("cause", "xid.gpu"), ("causes", "gpu.count"), ("causes", [1]),
    ("whose", "nobody"), ("schema", "preflight.verdict/2"), ("off", None), ("unknowns", ["a\x1b[1m"]), ("more", 1),
])  # fmt: skip
def test_what_is_odd_is_no_verdict(change: str, value: object) -> None:
    document = verdict.to_document(FAILED)
    assert verdict.from_document(document) == FAILED
    with pytest.raises(UnusableVerdict):
        verdict.from_document({**document, change: value})
    with pytest.raises(UnusableVerdict):
        verdict.from_document({key: value for key, value in document.items() if key != "node"})


def test_a_verdict_does_not_contradict_itself_and_does_not_change() -> None:
    with pytest.raises(UnusableVerdict, match="passes"):
        Verdict("n1", "pass", 1, unknowns=("gpu.count",))
    with pytest.raises(UnusableVerdict, match="cause"):
        Verdict("n1", "unknown", 1, cause="gpu.count", causes=("gpu.count",), reason="preflight: x")
    with pytest.raises(AttributeError):
        FAILED.status = "pass"


def test_a_failure_of_the_node_comes_before_that_of_the_job() -> None:
    checks = [made(1, [Status.FAIL]), made(2, [Status.FAIL])]
    raw = KNOWN + b'[gate]\njob = ["made.number-1"]\n'
    found = judged(checks, raw=raw)
    assert (found.cause, found.owner, found.causes) == ("made.number-2", "node", ("made.number-2", "made.number-1"))
    assert judged(checks[:1], raw=raw).owner == "job"


def test_the_owner_of_a_problem_depends_on_the_hook() -> None:
    assert owner_of("host.memlock", "slurm-prolog") == "node"
    assert owner_of("host.memlock", "init-container") == "job"
    assert owner_of("fabric.link-errors", "slurm-prolog") == "site"
    assert owner_of("gpu.memory-headroom", "slurm-prolog") == "job"
    assert owner_of("xid.gpu", "slurm-step") == "node"
    assert owner_of("xid.gpu", "slurm-step", {"site": ["xid.*"]}) == "site"


# --- which checks -----------------------------------------------------------------------------------


def test_switched_off_and_shadow_checks_are_off_by_choice() -> None:
    """L54: without a release, and never silently."""
    raw = KNOWN + b'[gate]\nskip = ["made.number-1"]\nshadow = ["made.number-2"]\n'
    gate = decode(raw, "x").gate
    assert gate is not None
    checks = [made(1, [Status.FAIL]), made(2, [Status.FAIL]), made(3, [Status.PASS])]
    selection = evaluate.select(checks, gate, gate.hook("slurm-prolog"), "slurm-prolog")
    assert (selection.off, selection.shadow) == (("made.number-1",), ("made.number-2",))
    seen = Evidence("n1", AT, {"file:/x": {"status": "ok", "out": ""}})
    found = evaluate.evaluate_node(seen, decode(raw, "x"), selection, hook="slurm-prolog", expects=True, gpus=None)
    assert found.status == "pass"
    assert found.report["coverage"]["off"] == ["made.number-1"]
    assert [f["check"] for f in found.report["findings"] if f["status"] == "fail"] == ["made.number-2"]
    line = announce.line(Verdict("n1", "pass", 1, off=found.off), "slurm-prolog")
    assert "off by choice: made.number-1, made.number-2" in line


@pytest.mark.parametrize(("text", "place"), [
    *((f'[gate]\n{key} = ["gpu.cuont"]\n', f"x:5: gate.{key}: ")
      for key in ("only", "skip", "shadow", "job", "site", "node")),
    *((f'[gate.ci]\n{key} = ["gpu.cuont"]\n', f"x:5: gate.ci.{key}: ") for key in ("only", "skip")),
])  # fmt: skip
def test_a_check_that_is_misspelt_is_an_error_of_the_file(text: str, place: str) -> None:
    """L22: it drains no node. In a file read by itself, or if ids are unknown, names are not checked."""
    with pytest.raises(ClusterFileError) as caught:
        decode(KNOWN + text.encode(), "x", lambda: ["gpu.count", "xid.gpu"])
    assert f'{place}no check is called "gpu.cuont" - did you mean "gpu.count"?' in str(caught.value)
    decode(KNOWN + text.encode(), "x", list)


@pytest.mark.parametrize(("text", "message"), [
    ('[gate]\nonly = ["gpu.*"]\nskip = ["gpu.count"]\n', "x:6: gate.skip: only and skip together leave no check"),
    ('[gate]\nonly = ["gpu.*"]\n[gate.ci]\nskip = ["gpu.*"]\n',
     "x:7: gate.ci.skip: only and skip together leave no check"),
])  # fmt: skip
def test_a_table_that_leaves_no_check_is_an_error_of_the_file(text: str, message: str) -> None:
    raw = KNOWN + text.encode()
    with pytest.raises(ClusterFileError, match=message):
        decode(raw, "x", lambda: ["gpu.count", "xid.gpu"])
    gate = decode(raw, "x").gate
    assert gate is not None
    with pytest.raises(UnknownCheck):
        evaluate.select([Check(**{**vars(made(1, [])), "id": "gpu.count"})], gate, gate.hook("ci"), "ci")


def test_what_runs_on_the_gpus_is_no_matter_of_the_health_check() -> None:
    """A job may be running; in a prolog its processes would be left over."""
    gate = tables.Gate()
    checks = [Check(**{**vars(made(1, [])), "id": name}) for name in (*evaluate.BUSY, "gpu.count")]
    assert evaluate.select(checks, gate, gate.hook("slurm-prolog"), "slurm-prolog").off == ()
    assert evaluate.select(checks, gate, gate.hook("slurm-healthcheck"), "slurm-healthcheck").off == evaluate.BUSY


# --- GPUs of other jobs -----------------------------------------------------------------------------


def node(name: str = "hgx-h100") -> Evidence:
    return from_document(json.loads((NODES / f"{name}.json").read_text()), name)


def test_gpus_of_other_jobs_do_not_hold_this_one_back() -> None:
    evidence = node()
    facts = NodeFacts(evidence)
    first, last = facts.gpu_health.gpus[0], facts.gpu_health.gpus[7]
    raw = b"[class.a]\ngpus = 8\nhcas = 8\n"
    for gpu, gpus, status in itertools.product((first, last), (None, frozenset({0, 1})), (Status.FAIL, Status.UNKNOWN)):
        check = made(1, [status], subject=gpu.address)
        found = judged([check, made(2, [Status.PASS])], evidence, raw, gpus=gpus)
        expected = str(status) if gpus is None or gpu is first else "pass"
        assert found.status == expected, (gpu.index, gpus)
        assert found.all_gpus is (gpus is None)
        assert f"said {status}" in json.dumps(found.report["findings"])


def test_a_step_that_sees_its_own_gpus_only_is_not_blamed_for_the_others() -> None:
    """A cgroup hides the other GPUs from the driver, and the PCI bus shows them all."""
    evidence = node()
    value = dict(evidence.record("nvml:gpus").value)
    value["gpus"] = value["gpus"][:2]
    confined = replace(evidence, records={**evidence.records, "nvml:gpus": {"status": "ok", "value": value}})
    check = Check(**{**vars(made(1, [Status.FAIL])), "id": "gpu.driver"})
    raw = b"[class.a]\ngpus = 8\nhcas = 8\n"
    assert judged([check, made(2, [Status.PASS])], confined, raw, gpus=frozenset({4, 5})).status == "pass"
    assert judged([check, made(2, [Status.PASS])], confined, raw).status == "fail"
    assert judged([check, made(2, [Status.PASS])], confined, raw, gpus=frozenset({4})).status == "fail"


@pytest.mark.parametrize(("environ", "gpus"), [
    ({}, None), ({"SLURM_JOB_GPUS": ""}, None), ({"SLURM_JOB_GPUS": "0,1"}, {0, 1}),
    ({"SLURM_JOB_GPUS": "0-2,5"}, {0, 1, 2, 5}), ({"SLURM_JOB_GPUS": "0,1", "SLURM_STEP_GPUS": "1"}, {1}),
    ({"SLURM_JOB_GPUS": "GPU-5f"}, None), ({"SLURM_JOB_GPUS": "0-"}, {0}), ({"SLURM_JOB_GPUS": "9" * 99}, None),
])  # fmt: skip
def test_the_gpus_of_a_job(environ: dict[str, str], gpus: set[int] | None) -> None:
    assert scheduler_env.gpus(environ) == gpus


#: A heterogeneous job as set by Slurm 22.05.8 in a step of its first part: the number is that of this part.
PARTS = {
    "SLURM_JOB_ID": "1", "SLURM_HET_SIZE": "2", "SLURM_JOB_NUM_NODES": "1", "SLURM_STEP_ID": "0",
    "SLURM_JOB_NODELIST_HET_GROUP_0": "n1", "SLURM_JOB_NODELIST_HET_GROUP_1": "n[2-3]",
}  # fmt: skip


@pytest.mark.parametrize(("environ", "covered"), [
    ({}, True), ({"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "1"}, True),
    ({"SLURM_JOB_ID": "1", "SLURM_JOB_NUM_NODES": "4"}, False),
    ({"SLURM_JOB_ID": "1", "SLURM_NNODES": "4", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "3"}, False),
    ({"SLURM_JOB_ID": "1", "SLURM_NNODES": "4", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": "4"}, True),
    ({**PARTS, "SLURM_STEP_NUM_NODES": "1", "SLURM_STEP_NODELIST": "n1"}, False),
    ({**PARTS, "SLURM_STEP_NUM_NODES": "3", "SLURM_STEP_NODELIST": "n[1-3]"}, True),
    ({**PARTS, "SLURM_JOB_NODELIST_HET_GROUP_1": "", "SLURM_STEP_NODELIST": "n[1-3]"}, False),
])  # fmt: skip
def test_a_step_has_to_cover_all_nodes_of_its_job(environ: dict[str, str], covered: bool) -> None:
    assert (scheduler_env.uncovered(environ) == "") is covered


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("PrologEpilogTimeout=5\n", 5), ("Prolog=/p PROLOGEPILOGTIMEOUT = 7 # s\n", 7), ("PrologTimeout=9\n", 9),
        ("PrologEpilogTimeout=60\nPrologTimeout=20\n", 20), ("#PrologEpilogTimeout=5\n", 0), ("", 0),
        ("XPrologEpilogTimeout=5\n", 0), ("PrologEpilogTimeout=soon\n", 0), ("PrologEpilogTimeout=5x\n", 0),
    ],
)  # fmt: skip
def test_the_time_that_slurmd_gives_a_prolog(tmp_path: Path, text: str, seconds: float) -> None:
    (tmp_path / "slurm.conf").write_text(text)
    prolog = {"SLURM_CONF": f"{tmp_path}/slurm.conf", "SLURM_SCRIPT_CONTEXT": "prolog_slurmd"}
    assert scheduler_env.time_limit(prolog) == seconds
    assert scheduler_env.time_limit({**prolog, "SLURM_SCRIPT_CONTEXT": "prolog_slurmctld"}) == 0
    assert scheduler_env.time_limit({**prolog, "SLURM_CONF": f"{tmp_path}/none"}) == 0
    assert scheduler_env.time_limit({**prolog, "SLURM_CONF": f"{tmp_path}"}) == 0


# --- the table --------------------------------------------------------------------------------------


def test_the_default_policy() -> None:
    stop = {"pass": (0, "allow"), "fail": (1, "refuse"), "unknown": (3, "refuse"), "error": (2, "refuse")}
    record = {"unknown": (0, "record"), "error": (0, "record")}
    expected = {
        "slurm-prolog": {**stop, **record, "fail": (1, "drain")},
        "slurm-healthcheck": {**stop, "fail": (1, "drain"), "unknown": (3, "record"), "error": (2, "record")},
        "slurm-step": stop, "init-container": stop, "ci": stop, "slurm-controller": {**stop, **record},
    }  # fmt: skip
    found = {hook: {s: policy.rule(hook, s) for s in verdict.STATUSES} for hook in policy.HOOKS}
    assert {hook: {s: (r.exit, r.action) for s, r in rules.items()} for hook, rules in found.items()} == expected
    assert tuple(policy.HOOKS) == tables.HOOKS


ACTIONS = st.fixed_dictionaries({}, optional={
    status: st.sampled_from(actions) for status, actions in policy.OVERRIDES.items()
})  # fmt: skip


@given(st.sampled_from(tuple(policy.HOOKS)), ACTIONS, st.booleans())
def test_only_a_failure_drains_and_nothing_but_a_pass_is_silent(hook: str, actions: Any, strict: bool) -> None:
    rules = {status: policy.rule(hook, status, actions, strict) for status in verdict.STATUSES}
    assert rules["pass"] == policy.PolicyRule(0, "allow")
    assert "drain" not in {rules[status].action for status in ("pass", "unknown", "error")}
    for status, rule in rules.items():
        assert (rule.exit == 0) == (rule.action in ("allow", "record")) or status in ("unknown", "error")
        if strict and status == "unknown" and status not in actions:
            assert rule == policy.PolicyRule(3, "refuse")


def test_the_table_is_printed_as_the_cluster_file_changes_it() -> None:
    usual = policy_table.text()
    assert all(name in usual for name in policy.HOOKS)
    raw = KNOWN + b'[gate]\ndry_run = true\nrefresh_s = 60\n[gate.slurm-prolog]\nunknown = "refuse"\ndeadline_s = 5\n'
    changed = policy_table.text(decode(raw, "x").gate)
    (row,) = [line for line in changed.splitlines() if line.startswith("slurm-prolog ")]
    assert row.split() == ["slurm-prolog", "0", "allow", "1", "drain", "3", "refuse", "0", "record", "3", "refuse",
                           "5", "s"]  # fmt: skip
    assert "dry_run is on" in changed
    assert "after 60 s and valid for 120 s" in changed


@pytest.mark.parametrize(("body", "message"), [
    ("strict = 1", "c.toml:5: gate.strict: has the value 1 - takes true or false"),
    ('[gate.slurm-prolg]\nfail = "drain"', "c.toml:5: gate.slurm-prolg: unknown key - did you mean slurm-prolog?"),
    ('[gate.slurm-step]\nfail = "drain"', "c.toml:6: gate.slurm-step.fail: this hook cannot drain a node"),
    ('[gate.slurm-prolog]\nunknown = "drain"', "c.toml:6: gate.slurm-prolog.unknown:"),
    ('slurm_bin = "bin"', "c.toml:5: gate.slurm_bin: has the value"),
    ("refresh_s = 1", "c.toml:5: gate.refresh_s: has the value 1 - takes a number from 5 to 86400"),
    ('skip = ["gpu count"]', "c.toml:5: gate.skip:"),
])  # fmt: skip
def test_errors_in_the_table_have_line_key_and_fix(body: str, message: str) -> None:
    with pytest.raises(ClusterFileError) as caught:
        decode(KNOWN + b"[gate]\n" + body.encode(), "c.toml")
    assert message in str(caught.value)


def test_a_hook_inherits_settings_it_does_not_set() -> None:
    gate = decode(KNOWN + b'[gate]\nstrict = true\nskip = ["xid.*"]\n[gate.ci]\nstrict = false\n', "x").gate
    assert gate is not None
    assert (gate.hook("ci").strict, gate.hook("ci").skip) == (False, ("xid.*",))
    assert gate.hook("slurm-step").strict is True
    assert Cluster().gate is None


# --- the text ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("words", [
    "", "ci ci", "nowhere", "ci --nothing", "ci --cluster", "ci --cluster --strict", "ci --deadline 0",
    "ci --deadline x", "ci --strict=yes", "--policy", "ci -h", "ci --cluster=",
])  # fmt: skip
def test_what_is_not_plain_is_left_to_click(words: str) -> None:
    assert options.parse_plain(words.split()) is None


def test_plain_words() -> None:
    found = options.parse_plain(["ci", "--cluster=c.toml", "--strict", "--deadline", "5", "--node", "n1"])
    assert found is not None
    assert (found.hook, found.cluster, found.strict, found.dry_run, found.deadline, found.node) == (
        "ci", str(Path("c.toml").resolve()), True, False, 5.0, "n1",
    )  # fmt: skip
