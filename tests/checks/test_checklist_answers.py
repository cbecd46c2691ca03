"""Answers of the checklists: no item passes with an unanswered question."""

from __future__ import annotations

import json
from collections.abc import Mapping
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from preflight._startup.lightclass import replace
from preflight.checklist import answers
from preflight.checklist.answers import answer
from preflight.checklist.item import CONTAINER, ELSEWHERE, ENVIRONMENT, INFINIBAND, ROCE, ChecklistItem
from preflight.checklist.items import ITEMS
from preflight.checks import registry
from preflight.cli.app import main
from preflight.evidence.document import from_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import load
from preflight.judge import judge
from preflight.model import Check, Status, worst
from preflight.parsers.network.lldp import LLDP
from tests.checks import test_checklist_items
from tests.support.fixture import FIXTURES, cases, whole_node

CHECKS = registry().checks
NODES = sorted(path.stem for path in (FIXTURES / "nodes").glob("*.json"))
STATUSES = tuple(Status)


def invoked(*words: str) -> str:
    done = CliRunner().invoke(main, list(words), catch_exceptions=False)
    assert done.exit_code in (0, 1, 3), done.output
    return done.stdout


def keeps_its_word(line: Mapping[str, Any]) -> None:
    """Fail if an item of a report claims more than its questions."""
    questions = line["questions"]
    assert questions
    assert line["status"] == str(worst(Status(question["status"]) for question in questions))
    for question in questions:
        if question["status"] in ("pass", "warn"):
            assert question["checks"]
            assert not question["missing"]
        if question["status"] == "unknown":
            assert question["missing"]
        assert set(question["checks"]) <= set(line["checks"])
    if line["status"] in ("pass", "warn", "skip"):
        assert not line["missing"], line
    if line["status"] == "unknown":
        assert line["missing"], line


# --- for all results of the checks ----------------------------------------------------------------


def drawn(draw: st.DrawFn, item: ChecklistItem) -> dict[tuple[str, str], Status]:
    """Draw results for the checks of an item; some of them did not run."""
    found: dict[tuple[str, str], Status] = {}
    for check in dict.fromkeys((*item.checks, *ELSEWHERE)):
        status = draw(st.sampled_from((None, *STATUSES)))
        if status is not None:
            found[check, ""] = status
            found |= {(check, item.id): status} if check in item.checks else {}
    return found


@given(st.data())
def test_an_item_is_as_good_as_its_questions(data: st.DataObject) -> None:
    item = data.draw(st.sampled_from(ITEMS))
    found = st.composite(drawn)(item)
    statuses = data.draw(found)
    (line,) = (line for line in answer(CHECKS, statuses) if line["id"] == item.id)
    keeps_its_word(line)
    skipped = {check for check in ELSEWHERE if statuses.get((check, "")) is Status.SKIP}
    applicable = [question for question in item.questions if question.where not in skipped]
    ran = {check: statuses[check, item.id] for check in item.checks if (check, item.id) in statuses}
    mine = {check for question in applicable for check in question.checks}
    if any(ran.get(check) is Status.FAIL for check in mine):
        assert line["status"] == "fail"
    elif not all(question.checks for question in applicable) or any(
        ran.get(check, Status.UNKNOWN) is Status.UNKNOWN for check in mine
    ):
        assert line["status"] == "unknown"
    elif applicable:
        assert line["status"] == str(worst(ran[check] for check in mine))
    else:
        assert line["status"] == "skip"


@pytest.mark.parametrize("item", ITEMS, ids=lambda item: item.id)
def test_with_every_check_passing_only_items_without_open_questions_pass(item: ChecklistItem) -> None:
    """They include the audit's rows that passed too easily: see ``test_checklist_items``."""
    statuses = {(check.id, one): Status.PASS for check in CHECKS for one in ("", *check.answers)}
    (line,) = (line for line in answer(CHECKS, statuses) if line["id"] == item.id)
    assert line["status"] == ("unknown" if item.open else "pass")
    assert all(question.missing in line["missing"] for question in item.open) or not item.checks


def test_a_check_that_is_switched_off_leaves_its_question_open() -> None:
    without = [check for check in CHECKS if check.id != "rdma.registered"]
    statuses = {(check.id, one): Status.PASS for check in without for one in ("", *check.answers)}
    (line,) = (line for line in answer(without, statuses) if line["id"] == "PA-13")
    assert (line["status"], line["missing"]) == ("unknown", "not judged: rdma.registered")


def test_a_check_of_a_plug_in_is_a_question_of_its_own() -> None:
    """It can fail an item, and answers no question that it does not name."""
    own = replace(CHECKS[0], id="site.queues", title="Queues are short", answers=("NT-SHP-5",))
    for status, expected in ((Status.PASS, "unknown"), (Status.FAIL, "fail")):
        found = {("site.queues", "NT-SHP-5"): status, ("site.queues", ""): status}
        (line,) = (line for line in answer([*CHECKS, own], found) if line["id"] == "NT-SHP-5")
        keeps_its_word(line)
        assert line["status"] == expected
        assert line["checks"] == ["site.queues"]
        assert line["questions"][-1] == {
            "text": "Queues are short", "status": str(status), "checks": ["site.queues"], "missing": "",
        }  # fmt: skip


def line_of(item: str, unjudged: str) -> Mapping[str, Any]:
    """Answer an item for which all checks pass, except one that did not run."""
    found = {(check.id, one): Status.PASS for check in CHECKS for one in ("", *check.answers) if check.id != unjudged}
    (line,) = (line for line in answer(CHECKS, found) if line["id"] == item)
    keeps_its_word(line)
    return line


def test_questions_about_infiniband_do_not_apply_where_all_ports_are_roce() -> None:
    """Without a sweep they used to be unknown and to request one."""
    sweeps = [question for item in ITEMS for question in item.questions if any(
        check.sweep for check in CHECKS if check.id in question.checks)]  # fmt: skip
    assert sweeps
    assert {question.where for question in sweeps} == {INFINIBAND}
    found = {(INFINIBAND, ""): Status.SKIP, (ROCE, ""): Status.PASS}
    for line in answer(CHECKS, found):
        assert "--fabric" not in line["supply"], line["id"]
    (line,) = (line for line in answer(CHECKS, {(INFINIBAND, ""): Status.PASS}) if line["id"] == "FP-BW-3")
    assert line["supply"] == "preflight check --fabric"


def test_what_needs_a_history_or_the_cluster_file_names_it() -> None:
    without = [item.id for item in ITEMS if "trend.temperature" in item.checks]
    for item in without:
        assert line_of(item, "trend.temperature")["supply"] == "preflight check --history FILE"
    for item in ("FP-LOSS-4", "PA-26"):
        line = line_of(item, "checkpoint.age")
        assert (line["status"], line["supply"]) == ("unknown", "preflight check --cluster cluster.toml")
        statuses = {("checkpoint.age", one): Status.UNKNOWN for one in ("", item)}
        (line,) = (line for line in answer(CHECKS, statuses) if line["id"] == item)
        assert "interval_min" in line["missing"]


def test_every_kind_of_evidence_has_a_name() -> None:
    assert {kind for item in ITEMS for kind in item.by} <= answers.SUPPLY.keys()


# --- healthy nodes and the demo -------------------------------------------------------------------


@pytest.mark.parametrize("name", NODES)
def test_no_item_of_a_full_node_passes_with_an_unanswered_question(name: str) -> None:
    file = FIXTURES / "nodes" / f"{name}.toml"
    cluster = load(file) if file.exists() else Cluster()
    found = judge([from_document(whole_node(name), name)], CHECKS, cluster)["checklists"]
    assert len(found) == len(ITEMS)
    for line in found:
        keeps_its_word(line)
        if line["status"] == "pass":
            assert {question["status"] for question in line["questions"]} <= {"pass", "skip"}


def test_no_item_of_the_demo_passes_with_an_unanswered_question() -> None:
    found = json.loads(invoked("demo", "--json", "-"))["checklists"]
    assert {line["status"] for line in found} >= {"pass", "fail", "unknown", "skip"}
    for line in found:
        keeps_its_word(line)


OPEN_ROWS = [item for item in test_checklist_items.PASSED_TOO_EASILY if item not in test_checklist_items.CLOSED]


@pytest.mark.parametrize("item", OPEN_ROWS)
def test_no_recording_passes_an_item_with_an_open_question(item: str) -> None:
    """Uses every recording of every relevant check."""
    (known,) = (one for one in ITEMS if one.id == item)
    bearing = [check for check in CHECKS if check.id in known.checks]
    for check in bearing:
        for case in cases(check.id):
            assert status_of(item, case, check, bearing) in ("fail", "unknown", "skip"), case.name


def status_of(item: str, case: Any, check: Check, checks: list[Check]) -> str:
    run, nodes = case.run() if str(check.scope) == "run" else (None, case.evidences())
    lines = judge(nodes, checks, case.cluster(), run=run)["checklists"]
    return next(str(line["status"]) for line in lines if line["id"] == item)


@pytest.mark.parametrize("declared", [False, True], ids=["of-many", "the-only-one"])
def test_one_node_does_not_answer_what_all_nodes_have_in_common(declared: bool) -> None:
    """It used to be skipped, so the item passed; only a class of one node may skip it."""
    cluster = load(FIXTURES / "nodes" / "hgx-h100-roce.toml") if declared else Cluster()
    lines = judge([from_document(whole_node("hgx-h100-roce"), "hgx-h100-roce")], CHECKS, cluster)["checklists"]
    items = {line["id"]: line for line in lines}
    for item in ("PA-01", "PA-16", "NT-FAB-3", "NT-FAB-4", "NT-PIT-4"):
        open_parts = [one["missing"] for one in items[item]["questions"] if one["status"] == "unknown"]
        assert any("fleet." in part for part in open_parts) is not declared, item
        assert (items[item]["status"] == "pass") is declared, item


# --- logs of another kind -------------------------------------------------------------------------


def test_a_log_without_a_benchmark_answers_no_item_of_benchmarks() -> None:
    """It used to be skipped, as if benchmarks did not apply; without a measurement it is unknown."""
    case = next(case for case in cases("nccl-tests.curve") if case.path.stem == "no-report-in-the-log")
    run, nodes = case.run()
    found = judge(nodes, CHECKS, case.cluster(), run=run)["checklists"]
    items = {line["id"]: line["status"] for line in found}
    for item in ("FP-LAT-4", "NT-NCCL-3", "NT-NCCL-4", "PA-18", "GS-3"):
        assert items[item] == "unknown", item


# --- what an operator sees ------------------------------------------------------------------------


def lines_of(name: str, **evidence: Any) -> dict[str, dict[str, Any]]:
    """Judge a full node with some replaced records, and without ``site`` if it is False."""
    document = dict(whole_node(name))
    document["records"] = {**document["records"], **evidence.get("records", {})}
    cluster = load(FIXTURES / "nodes" / f"{name}.toml") if evidence.get("site", True) else Cluster()
    found = judge([from_document(document, name)], CHECKS, cluster)["checklists"]
    return {line["id"]: line for line in found}


@pytest.mark.parametrize("item", ["NT-ENV-3", "PA-15", "NT-ROL-1"])
def test_without_a_list_of_compute_ports_their_use_by_nccl_is_unknown(item: str) -> None:
    """Both used to pass on a node whose cluster file declares no roles of ports."""
    line = lines_of("hgx-h100", site=False)[item]
    assert line["status"] == "unknown"
    assert "it needs `compute` in [class.NAME.ports] of the cluster file" in line["missing"]
    assert line["questions"][-1 if item != "NT-ROL-1" else 0]["missing"].startswith("unknown by nccl.ib-hca; it needs")


@pytest.mark.parametrize("item", ["NT-CTR-1", "NT-CTR-4", "NT-PIT-3"])
def test_items_about_containers_are_skipped_on_a_machine(item: str) -> None:
    """All three used to pass on machines without a container."""
    line = lines_of("hgx-h100")[item]
    assert line["status"] == "skip"
    assert {one["elsewhere"] for one in line["questions"]} == {ELSEWHERE[CONTAINER]}
    pod = lines_of("hgx-h100-pod")[item]
    assert (pod["status"], [one for one in pod["questions"] if "elsewhere" in one]) == ("pass", [])


@pytest.mark.parametrize(("item", "question"), [("NT-FAB-4", 0), ("PA-14", 1), ("PA-14", 4)])
def test_without_lldp_nothing_is_known_of_the_switch_port(item: str, question: int) -> None:
    """NT-FAB-4 used to pass although no daemon had received the switch's announcements."""
    unheard = {LLDP: {"status": "missing", "why": "there is no such tool"}}
    assert lines_of("hgx-h100-roce")[item]["questions"][question]["status"] == "pass"
    line = lines_of("hgx-h100-roce", records=unheard)[item]
    assert (line["status"], line["questions"][question]["status"]) == ("unknown", "unknown")


def test_a_domain_of_nvlink_that_spans_nodes_is_not_counted() -> None:
    line = lines_of("gb200-tray")["GS-1"]
    assert line["status"] == "unknown"
    assert "the GPUs of each domain" in line["missing"]
    assert lines_of("hgx-h100")["GS-1"]["status"] == "pass"


def test_the_bound_of_an_answer_is_printed_beside_it(tmp_path: Path) -> None:
    """An item used to pass with its limits stated only on its documentation page."""
    node, page = FIXTURES / "nodes" / "hgx-h100.json", tmp_path / "page.html"
    cluster = ["--cluster", str(node.with_suffix(".toml"))]
    text = invoked("checklist", str(node), *cluster).splitlines()
    at = next(place for place, line in enumerate(text) if " NT-ENV-4 " in line)
    assert text[at].split()[0] == "pass"
    assert text[at + 2].strip() == f"within: {ENVIRONMENT}"
    invoked("judge", str(node), *cluster, "--html", str(page), "--json", str(tmp_path / "report.json"))
    html = unescape(page.read_text(encoding="utf-8"))
    bounds = {
        line["id"]: line.get("within", "") for line in json.loads((tmp_path / "report.json").read_text())["checklists"]
    }
    assert bounds == {item.id: item.within for item in ITEMS}
    assert all(within in html for within in bounds.values())


def test_the_command_prints_each_question_with_its_answer() -> None:
    node = FIXTURES / "nodes" / "hgx-h100-roce.json"
    lines = invoked("checklist", str(node), "--cluster", str(node.with_suffix(".toml"))).splitlines()
    at = next(place for place, line in enumerate(lines) if "FP-LOSS-2" in line)
    assert [line.split()[0] for line in lines[at : at + 5]] == ["unknown", "pass", "skip", "pass", "unknown"]
    assert "(roce.chain)" in lines[at + 1]
    assert lines[at + 4].endswith(": not judged: link.pfc, link.dscp")
