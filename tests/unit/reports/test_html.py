"""The HTML page: complete, honest, self-contained, and safe with hostile text."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import re
import time
from collections import Counter
from html.parser import HTMLParser
from importlib import resources
from typing import Any

import jsonschema
import pytest

from preflight.reports import page_cards, page_model
from preflight.reports.html_page import render
from preflight.reports.sanitize import fold, one_line, visible
from preflight.reports.topology_svg import draw
from preflight.reports.verdict_line import headline
from tests.support import report_samples as samples

VOID = {"meta", "link", "br", "img", "input", "hr"}
RAW = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff]")


class Page(HTMLParser):
    """A parsed page; raises if tags do not balance."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag, self.getpos()

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def count(self, tag: str) -> int:
        return sum(name == tag for name, _ in self.tags)

    def ids(self) -> list[str]:
        return [found for _, attrs in self.tags if (found := attrs.get("id"))]


@pytest.fixture(scope="module")
def sick() -> Page:
    return Page(render(samples.sick()))


DOCUMENTS = ("healthy", "sick", "empty", "hostile")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_is_self_contained(name: str) -> None:
    text = render(getattr(samples, name)())
    page = Page(text)
    assert page.count("iframe") == page.count("img") == page.count("object") == page.count("base") == 0
    assert [attrs.get("type") for tag, attrs in page.tags if tag == "script"] == ["application/json", None]
    for _, attrs in page.tags:
        assert "style" not in attrs
        assert not [key for key in attrs if key.startswith("on")]
        assert "src" not in attrs
        for key in ("href", "xlink:href"):
            assert (attrs.get(key) or "#").startswith(("#", "data:,"))
    css = text[text.index("<style>") + 7 : text.index("</style>")]
    assert "@import" not in css
    assert set(re.findall(r"url\(([^)]*)\)", css)) == {"#hatch"}
    policy = next(attrs["content"] for tag, attrs in page.tags if tag == "meta" and "http-equiv" in attrs)
    assert policy is not None
    assert policy.startswith("default-src 'none';")
    assert f"'sha256-{base64.b64encode(hashlib.sha256(css.encode()).digest()).decode()}'" in policy
    assert "unsafe" not in policy
    script = text[text.rindex("<script>") + 8 : text.rindex("</script>")]
    assert f"script-src 'sha256-{base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy
    for word in (
        "innerHTML",
        "outerHTML",
        "insertAdjacentHTML",
        "document.write",
        "eval(",
        "Function(",
        "fetch(",
        "://",
    ):
        assert word not in script.replace("http://www.w3.org/2000/svg", ""), word


@pytest.mark.parametrize("name", DOCUMENTS)
def test_links_and_headings_hold(name: str) -> None:
    page = Page(render(getattr(samples, name)()))
    ids = Counter(page.ids())
    assert max(ids.values()) == 1
    for tag, attrs in page.tags:
        if tag in ("a", "use"):
            assert (attrs["href"] or "").removeprefix("#") in ids
    levels = [int(tag[1]) for tag, _ in page.tags if re.fullmatch("h[1-6]", tag)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in itertools.pairwise(levels))


def test_hostile_text_shows_as_text() -> None:
    text = render(samples.hostile())
    assert RAW.search(text) is None
    text.encode()  # no lone surrogate
    assert text.count("<script") == text.count("</script") == 2
    page = Page(text)
    shown = one_line(samples.HOSTILE)
    assert "alert(1)" in shown
    # title, origin, run, off, logs, silence, four kinds of finding, excerpts, checklist, node, picture …
    assert page.text.count(shown) >= 30


def test_shows_the_verdict_first_and_everything_in_order(sick: Page) -> None:
    text = sick.text[sick.text.index("Skip to the nodes") :]
    expected = [
        "FAIL",
        "3 of 43 nodes have problems; the run's logs show 1 problem;",
        "unknown for 4 nodes; 3 nodes gave no answer",
        samples.RUN["command"],
        samples.ORIGIN,
        "GPUs that answer: found 7, expected 8",
        "since 2026-02-27T22:10:00Z",
        "Nodes to keep off 6 nodes",
        "gpu[031-036]",
        "the host key changed",
        "Topology: 8 GPUs and 12 NICs on 2 NUMA nodes",
        "Unknown is not pass.",
        "would resolve 4 results",
        "mlx5_5:1 runs at 200 Gb/s, its peers at 400 Gb/s",
        "rdma.port-rate: RDMA ports run at the expected rate",
        "at least 400 Gb/s (cluster.toml class.h100.rate_gbps)",
        "Shared memory is large enough",
        "checks passed on every node to which they apply",
        "Results, one for each node and check",
        "FP-BW-1",
        "a gating check failed",
    ]
    place = 0
    for each in expected:
        place = text.index(str(each), place)


def test_the_title_of_a_card_is_what_is_wrong(sick: Page) -> None:
    """Not the title of the check, which is next to its id."""
    fault = samples.finding("a.one", "fail", ["n1"], "found 7", title="All is well", fault="A GPU is missing")
    both = [samples.finding("a.two", "fail", [name], f"{name} differs", title="All are alike") for name in ("n1", "n2")]
    cards = page_cards.cards([fault, *both, samples.finding("a.3", "fail", ["n1"], "x is down", title="Up")], "fail")
    assert [(card.title, card.aim) for card in cards] == [
        ("A GPU is missing", "All is well"), ("not met: All are alike", ""), ("x is down", "Up"),
    ]  # fmt: skip


def test_incidents_come_first_with_what_they_cost_and_who_acts(sick: Page) -> None:
    start = sick.text.index("Incidents 3, the most severe first")
    text = " ".join(sick.text[start : sick.text.index("Unknown is not pass.")].split())
    first, second, third = (text.index(f"#{cause['fingerprint']}") for cause in samples.sick()["incidents"])
    assert first < second < third
    assert "blocks a job owner: node since 2026-02-27T22:10:00Z" in text[:first]
    assert "slows a job down: 8 of 248 GPUs; all-reduce between nodes at about 50% owner: network" in text[second:]
    assert "the run's logs" in text[first:second]
    for cause in samples.sick()["incidents"]:
        assert f"incident-{cause['fingerprint']}" in sick.ids()


def test_incidents_beyond_ten_are_folded_and_a_report_without_any_states_why() -> None:
    report = samples.sick()
    many = [{**report["incidents"][0], "fingerprint": f"{number:012x}"} for number in range(25)]
    text = render({**report, "incidents": many})
    assert "15 other incidents" in text
    assert text.count('<article class="card incident') == 25
    older = {key: value for key, value in report.items() if key != "incidents"}
    assert "written by a version without incidents" in render(older)
    assert "No finding fails or warns." in render(samples.healthy())


def test_coverage_adds_up(sick: Page) -> None:
    coverage = samples.sick()["coverage"]
    parts = page_model.counts(coverage)
    assert sum(part.number for part in parts) == coverage["planned"]
    assert sum(part.number for part in parts if part.ran) == coverage["ran"]
    assert sum(part.share for part in parts) == pytest.approx(100)
    assert page_model.adds_up(coverage)
    assert "do not add up" not in sick.text
    for key in ("planned", "ran", "passed", "failed"):
        assert str(coverage[key]) in sick.text
    assert "gpu.ecc-pages" in sick.text
    assert "nccl-run.busbw" in sick.text


def test_damaged_numbers_are_called_so() -> None:
    document = samples.healthy(2)
    document["coverage"]["passed"] -= 1
    assert "do not add up" in Page(render(document)).text


def test_every_checklist_item_is_there(sick: Page) -> None:
    for item in samples.items():
        assert item["id"] in sick.text
        assert item["title"] in sick.text
        for question in item["questions"]:
            assert question["text"] in sick.text
            assert question["missing"] in sick.text
        assert item["supply"] in sick.text


def test_findings_of_one_check_make_one_card() -> None:
    cards = page_cards.cards(samples.sick()["findings"], "fail")
    assert [card.check for card in cards] == [
        "rdma.port-rate", "rdma.port-state", "topology.nvlink", "gpu.count", "nccl-run.socket",
    ]  # fmt: skip
    nvlink = cards[2]
    assert nvlink.nodes == "gpu[032-033]"
    assert len(nvlink.instances) == 8
    # the seven findings of gpu032 have the same passage, which is printed once
    assert [one.evident for one in nvlink.instances] == [False] * 6 + [True, True]
    assert cards[4].nodes == "the run's logs"


def test_unknowns_are_grouped_by_their_fix() -> None:
    nodes = ["n1", "n2", "n3"]
    findings = [
        samples.finding("a.one", "unknown", ["n1"], "denied", fix="run as root"),
        samples.finding("a.two", "unknown", nodes, "no tool", fix="install it"),
        samples.finding("a.three", "unknown", ["n2"], "denied", fix="run as root"),
    ]
    gaps = page_cards.gaps(findings)
    assert [(gap.fix, gap.results, len(gap.cards)) for gap in gaps] == [("install it", 3, 1), ("run as root", 2, 2)]


def test_heat_map_folds_equal_rows_worst_first() -> None:
    heat = page_model.heat_map(samples.sick()["nodes"])
    assert [row.nodes for row in heat.rows] == [
        "gpu031", "gpu032", "gpu033", "gpu[040-043]", "dgx2", "a100,gpu[001-030]", "storage1",
    ]  # fmt: skip
    checks = [check for group in heat.subjects for check in group]
    assert sorted(checks) == sorted(samples.CHECKS)
    assert all(len(row.cells) == len(checks) for row in heat.rows)
    assert heat.rows[0].cells[checks.index("rdma.port-rate")] == "fail"
    columns = zip(*(row.cells for row in heat.rows), strict=True)
    troubled = [bool({"fail", "unknown", "warn"}.intersection(column)) for column in columns]
    assert troubled == sorted(troubled, reverse=True)  # problems are visible without scrolling


def test_one_node_has_no_heat_map() -> None:
    assert "Nodes and checks" in render(samples.healthy(2))
    assert "Nodes and checks" not in render(samples.healthy(1))


def test_each_picture_is_drawn_once(sick: Page) -> None:
    healthy = Page(render(samples.healthy(64)))
    assert sum(attrs.get("class") == "topo" for _, attrs in healthy.tags) == 1
    assert sum(attrs.get("class") == "topo" for _, attrs in sick.tags) == 7
    assert "the same picture as gpu[040-043]" in sick.text


def test_what_one_prints_is_what_is_open() -> None:
    older = {key: value for key, value in samples.sick().items() if key != "incidents"}
    for report, opened in ((samples.sick(), 0), (samples.healthy(), 0), (older, 3)):
        assert sum(tag == "details" and "open" in attrs for tag, attrs in Page(render(report)).tags) == opened


def test_empty_report() -> None:
    page = Page(render(samples.empty()))
    assert "NOT JUDGED" in page.text
    assert "nothing was judged" in page.text
    assert "The report has no nodes." in page.text
    assert "PASS" not in page.text


def test_hundreds_of_nodes_stay_quick() -> None:
    nodes = [
        samples.node(f"gpu{n:04d}", samples.hgx(down=n % 8), rdma__port_state=("fail", "unknown", "pass")[n % 3])
        for n in range(600)
    ]
    findings = [samples.finding("rdma.port-state", "fail", [f"gpu{n:04d}"], f"port {n}") for n in range(600)]
    started = time.process_time()
    text = render(samples.report(nodes, findings, 1))
    assert time.process_time() - started < 5
    assert len(text) < 2_000_000


# --- the verdict -----------------------------------------------------------------------------------


def _of(exit_status: int, *nodes: dict[str, Any], findings: Any = ()) -> str:
    return headline(samples.report(list(nodes), list(findings), exit_status))


def test_headline() -> None:
    good, node, silent = samples.node("n1"), samples.node, samples.silent("n9")
    bad, vague = node("n2", gpu__count="fail"), node("n3", gpu__count="unknown")
    warned = node("n4", gpu__count="warn")
    assert _of(0, good) == "PASS: n1 passed every check that applies; 2 of 5 checklist items unknown"
    assert headline(samples.healthy(2)) == "PASS: all 2 nodes passed every check that applies"
    assert _of(0, good, warned).startswith("PASS: all 2 nodes passed every check that applies; 1 node with warnings")
    assert _of(1, bad) == "FAIL: 1 check failed on n2"
    assert _of(1, good, bad) == "FAIL: 1 of 2 nodes has problems"
    assert _of(1, bad, vague, silent) == ("FAIL: 1 of 3 nodes has problems; unknown for 1 node; 1 node gave no answer")
    assert _of(3, good, vague) == "NOT JUDGED: unknown for 1 of 2 nodes"
    assert _of(3, silent) == "NOT JUDGED: n9 gave no answer"
    assert _of(3, silent, samples.silent("n8")) == "NOT JUDGED: no node answered"
    assert _of(3) == "NOT JUDGED: nothing was judged"
    assert _of(0, good, bad).startswith("NO BLOCKER: no gating check failed; 1 non-gating result failed")


def test_a_non_gating_unknown_result_is_not_a_node_that_could_not_be_judged() -> None:
    bad, vague = samples.node("n1", gpu__count="fail"), [samples.node(f"n{n}", gpu__ecc="unknown") for n in (2, 3, 4)]
    idle = samples.finding("gpu.ecc", "unknown", ["n2", "n3", "n4"], "no record", gating=False)
    assert _of(1, bad, *vague, findings=[idle]) == "FAIL: 1 of 4 nodes has problems"
    gating = samples.finding("gpu.ecc", "unknown", ["n3"], "no other record", gating=True)
    assert _of(1, bad, *vague, findings=[idle, gating]).endswith("has problems; unknown for 1 node")
    assert _of(3, *vague, findings=[idle, gating]) == "NOT JUDGED: unknown for 1 of 3 nodes"
    assert _of(0, *vague, findings=[idle]) == "NO BLOCKER: no gating check failed; 3 non-gating results unknown"


def test_logs_that_lack_something_beside_nodes_that_passed() -> None:
    idle = samples.finding("nccl.rails", "unknown", ["@run"], "a.log: no rails", gating=False)
    gating = samples.finding("nccl.gpudirect-rdma", "unknown", ["@run"], "a.log: no channel line")
    good, vague = samples.node("n1"), samples.node("n2", gpu__count="unknown")
    assert _of(3, good, findings=[idle, gating]) == "NOT JUDGED: n1 passed; a.log: no channel line"
    both = [good, samples.node("n2", gpu__count="warn")]
    assert _of(3, *both, findings=[idle, gating]) == "NOT JUDGED: all 2 nodes passed; a.log: no channel line"
    assert _of(3, good, vague, findings=[gating]) == "NOT JUDGED: unknown for 1 of 2 nodes; a.log: no channel line"
    silent = "NOT JUDGED: a.log: no channel line; 1 node gave no answer"
    assert _of(3, good, samples.silent("n9"), findings=[gating]) == silent
    assert _of(3, findings=[gating]) == "NOT JUDGED: a.log: no channel line"
    assert _of(3, good, findings=[idle]) == "NOT JUDGED: n1 passed; results of the run's logs are unknown"


@pytest.mark.parametrize("status", ["fail", "unknown"])
def test_never_pass_while_something_is_open(status: str) -> None:
    for exit_status in (0, 1, 3):
        assert "PASS" not in _of(exit_status, samples.node("n1"), samples.node("n2", gpu__count=status))
        assert "PASS" not in _of(exit_status, samples.node("n1"), samples.silent("n2"))


# --- topology --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("topology", "words"),
    [
        (samples.hgx(), "NVLink: NV18 all-to-all, all 28 pairs of 8 GPUs"),
        (samples.hgx(dead=3), "0000:48:00.0 (does not answer)"),
        (samples.hgx(down=2), "mlx5_2 (compute, InfiniBand down, down)"),
        (samples.hgx(apart={"NV6": [(0, 1)]}), "NV6 (fewer links than most): GPU0–GPU1."),
        (samples.hgx(apart={"SYS": [(4, n) for n in range(8) if n != 4]}), "SYS (over PCIe): GPU4 with GPU0, GPU1"),
        (samples.sixteen(), "NUMA node not known"),
        (samples.nics_only(), "Topology: 0 GPUs and 3 NICs on 1 NUMA node"),
        (samples.bridges(), "NV12 (linked): GPU0–GPU1, GPU2–GPU3."),
        ({"numa": [], "nvlink": []}, "Topology: 0 GPUs and 0 NICs"),
        ({**samples.hgx(), "nvlink": []}, "NVLink: not read"),
        ({**samples.hgx(), "nvlink": samples.nvlink(8, "PHB")}, "NVLink: none; GPUs reach each other over PCIe"),
    ],
)
def test_topology_is_described_in_words(topology: dict[str, Any], words: str) -> None:
    page = Page(draw(topology))
    assert words in page.text
    assert page.tags[0][1]["role"] == "img"
    numbers = [float(v) for _, attrs in page.tags for k, v in attrs.items() if k in ("x", "y") and v]
    assert all(number >= 0 for number in numbers)


def test_topology_shows_every_device() -> None:
    text = Page(draw(samples.hgx())).text
    for number in range(8):
        assert f"GPU{number}" in text
    for number in range(12):
        assert f"mlx5_{number}" in text
    assert text.count("400 Gb/s") >= 8


# --- foreign text ----------------------------------------------------------------------------------


def test_visible() -> None:
    assert visible("a\tb\nc") == "a\tb\nc"
    assert visible("\x1b[31m\x00\x7f\x85\r") == "\\x1b[31m\\x00\\x7f\\x85\\x0d"
    assert visible("\u202e\u2066\u061c\u200b\u2028\ufeff") == "\\u202e\\u2066\\u061c\\u200b\\u2028\\ufeff"
    assert visible("\ud800\U000e0041") == "\\ud800\\U000e0041"
    assert visible("Grüße, 漢字, Ω, …") == "Grüße, 漢字, Ω, …"
    assert visible(visible(samples.HOSTILE)) == visible(samples.HOSTILE)
    assert one_line("a\tb\nc") == "a\\tb\\nc"


def test_fold() -> None:
    assert fold([f"gpu{n:03d}" for n in range(1, 64)]) == "gpu[001-063]"
    assert fold(["n2", "n1", "n1"]) == "n[1-2]"
    assert fold([]) == ""
    assert fold(["only"]) == "only"
    assert fold(["@run"]) == "the run's logs"
    assert fold(["gpu1", "@all", "gpu2", "a[1", "x\x1b", "b,c"]) == "gpu[1-2], @all, a[1, x\\x1b, b,c"
    assert fold(["10.0.0.2", "10.0.0.1"]) == "10.0.0.[1-2]"
    assert fold(["n" + "9" * 240, "n1"])  # an index longer than any integer


# --- the schema ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def schema() -> jsonschema.Draft202012Validator:
    text = resources.files("preflight.schemas").joinpath("report-1.json").read_text("utf-8")
    document = json.loads(text)
    jsonschema.Draft202012Validator.check_schema(document)
    return jsonschema.Draft202012Validator(document)


@pytest.mark.parametrize("name", ["healthy", "sick"])
def test_samples_fit_the_schema(name: str, schema: jsonschema.Draft202012Validator) -> None:
    schema.validate(getattr(samples, name)())


@pytest.mark.parametrize(
    "damage",
    [
        lambda d: d.pop("run"),
        lambda d: d.update(exit_status=2),
        lambda d: d["coverage"].pop("skipped"),
        lambda d: d["coverage"].update(planned=-1),
        lambda d: d["nodes"][0].update(status="ok"),
        lambda d: d["nodes"][-1].update(checks={"gpu.count": "pass"}),
        lambda d: d["findings"][0].update(nodes=[]),
        lambda d: d["findings"][0].pop("excerpts"),
        lambda d: d["findings"][-1].update(why="since"),
        lambda d: d["checklists"][0].update(extra=1),
        lambda d: d.update(origins=[]),
    ],
)
def test_schema_is_strict(damage: Any, schema: jsonschema.Draft202012Validator) -> None:
    document = json.loads(json.dumps(samples.sick()))
    schema.validate(document)
    damage(document)
    assert not schema.is_valid(document)
