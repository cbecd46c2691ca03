"""The page's script in a real browser: search, filters, panel, permalinks, copying, keyboard, print, hostile text."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from preflight.checks import registry
from preflight.evidence.document import read
from preflight.expectations.cluster_file import load
from preflight.judge import judge
from preflight.reports.html_page import render
from tests.support import paths
from tests.support import report_samples as samples
from tests.support.browser import BROWSER, BrowserPage, browser

pytestmark = pytest.mark.skipif(BROWSER is None, reason="chromium-headless-shell or chromium is not installed")

DEMO = paths.ROOT / "preflight" / "demo"
SIZES = ((1280, 800), (390, 844))


@cache
def demo() -> dict[str, Any]:
    """Return the report of the demo, without its job's log."""
    evidences = [read(path) for path in sorted(DEMO.glob("gpu*.json"))]
    report = judge(evidences, registry().checks, load(DEMO / "cluster.toml"))
    return report | {"run": samples.RUN}


def fleet(count: int = 300) -> dict[str, Any]:
    """Return a fleet with a port down on each node of two leaves, and one node that lacks a GPU."""
    nodes = [samples.node(f"gpu{number:05d}", samples.hgx()) for number in range(1, count + 1)]
    for number, node in enumerate(nodes):
        for nic in (nic for numa in node["topology"]["numa"] for switch in numa["switches"] for nic in switch["nics"]):
            if nic["compute"]:
                nic |= {"leaf": f"leaf-{number // 32:02d}-{nic['name']}", "leaf_port": f"Ethernet{number % 32 + 1}"}
    down = [node["name"] for node in nodes[32:64]]
    lost = [nodes[7]["name"]]
    for name, check in ((down, "rdma.port-state"), (lost, "gpu.count")):
        for node in nodes:
            if node["name"] in name:
                node["status"] = node["checks"][check] = "fail"
    findings = [
        samples.finding("rdma.port-state", "fail", down, "mlx5_5:1 is DOWN, expected ACTIVE", subject="mlx5_5:1"),
        samples.finding("gpu.count", "fail", lost, "GPUs on the PCI bus: found 7, expected 8", fix="`lspci -d 10de:`"),
    ]  # fmt: skip
    incidents = [
        samples.incident("0a1b2c3d4e5f", findings, 1),
        samples.incident("1b2c3d4e5f60", findings, 0, impact="slows-job", owner="network"),
    ]
    return samples.report(nodes, findings, 1, incidents=incidents)


@pytest.fixture(scope="module")
def tab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrowserPage]:
    with browser(tmp_path_factory.mktemp("profile")) as page:
        yield page


@pytest.fixture
def show(tab: BrowserPage, tmp_path: Path) -> Any:
    def show_report(report: dict[str, Any], fragment: str = "", width: int = 1280, height: int = 800) -> BrowserPage:
        path = tmp_path / "report.html"
        path.write_text(render(report), "utf-8")
        tab.screen(width, height)
        tab.open(path, fragment)
        return tab

    return show_report


def visible_incidents(page: BrowserPage) -> Any:
    return page.run("[...document.querySelectorAll('.incident')].filter(e => e.checkVisibility()).map(e => e.id)")


def search(page: BrowserPage, text: str) -> str:
    """Type into the search field and return the count that the page shows."""
    page.run("search.focus(); search.value = ''")
    page.type(text)
    return str(page.run("counted.textContent"))


def choose(page: BrowserPage, name: str, label: str) -> str:
    page.run(f"""(() => {{
        const select = controls.querySelector('select[name={name}]');
        select.value = [...select.options].find(option => option.text === {json.dumps(label)}).value;
        select.dispatchEvent(new Event('input', {{bubbles: true}}));
    }})()""")
    return str(page.run("counted.textContent"))


def test_filters(show: Any) -> None:
    page = show(fleet())
    assert page.errors() == []
    lost, down = "incident-0a1b2c3d4e5f", "incident-1b2c3d4e5f60"
    assert visible_incidents(page) == [lost, down]
    assert search(page, "gpu00008") == "1 of 2 incidents, 1 of 300 nodes"
    assert visible_incidents(page) == [lost]
    assert search(page, "gpu[00060-00070]") == "1 of 2 incidents, 11 of 300 nodes"
    assert visible_incidents(page) == [down]
    assert search(page, "gpu00008, gpu00033") == "2 of 2 incidents, 2 of 300 nodes"
    assert search(page, "is down, expected") == "1 of 2 incidents, 32 of 300 nodes"  # words of an incident: its nodes
    assert search(page, "no such thing") == "0 of 2 incidents, 0 of 300 nodes"
    assert page.run("document.querySelector('#incidents .nothing').checkVisibility()")
    page.run("reset.click()")
    page.run("new Promise(resolve => setTimeout(resolve, 50))")
    assert visible_incidents(page) == [lost, down]
    assert page.run("counted.textContent") == ""
    assert choose(page, "owner", "network") == "1 of 2 incidents, 32 of 300 nodes"
    assert choose(page, "owner", "all") == ""
    assert choose(page, "leaf", "leaf-00-mlx5_5") == "1 of 2 incidents, 32 of 300 nodes"
    assert visible_incidents(page) == [lost]
    page.run("reset.click(); document.querySelector('input[value=pass]').click()")
    page.run("new Promise(resolve => setTimeout(resolve, 50))")
    assert page.run("counted.textContent") == "0 of 2 incidents, 267 of 300 nodes"


def test_the_name_of_a_node_finds_that_node_alone(show: Any) -> None:
    report = fleet()
    report["findings"][0]["message"] += "; gpu00001 and gpu000011 are healthy"
    page = show(report)
    assert search(page, "gpu00001") == "0 of 2 incidents, 1 of 300 nodes"
    assert search(page, "GPU[00001-00002]") == "0 of 2 incidents, 2 of 300 nodes"
    assert search(page, "gpu00033") == "1 of 2 incidents, 1 of 300 nodes"
    assert search(page, "gpu000011") == "1 of 2 incidents, 32 of 300 nodes"  # no node: a word of the incident


def test_incidents_beyond_the_page(show: Any) -> None:
    report = fleet(64)
    many = [{**report["incidents"][0], "fingerprint": f"{number:012x}"} for number in range(1260)]
    page = show(report | {"incidents": many}, f"#incident-{1259:012x}")
    assert "not among the 250 on this page" in page.run("toast.textContent")
    assert search(page, "gpu00001") == "0 of the 250 incidents on this page (1,260 in the report), 1 of 64 nodes"


def test_the_panel_of_a_node(show: Any) -> None:
    page = show(demo())
    page.run("[...document.querySelectorAll('a[data-node]')].find(a => a.textContent.includes('gpu005')).focus()")
    page.press("Enter")
    assert page.run("panel.open && location.hash") == "#node=gpu005"
    text = " ".join(page.run("panel.innerText").split())
    for words in ("gpu005", "GPU6: 0 of 18 NVLinks are up", "mlx5_10:1 runs at 200 Gb/s", "NUMA node 0", "leaf-"):
        assert words in text
    # Faulty parts are marked by a sign, not only by colour.
    assert page.run("panel.querySelectorAll('.t-mark').length") >= 2
    marked = page.run(
        "[...panel.querySelectorAll('.t-mark')].map(m => m.parentElement.querySelector('title').textContent)"
    )
    assert any(title.startswith("GPU6") for title in marked)
    assert any(title.startswith("mlx5_10") for title in marked)
    for _ in range(12):  # the focus stays in the panel, or goes to the browser itself
        page.press("Tab")
        assert page.run("panel.contains(document.activeElement) || document.activeElement === document.body")
    page.press("Escape")
    page.run("new Promise(resolve => setTimeout(resolve, 50))")
    assert page.run("!panel.open && location.hash === '' && document.activeElement.dataset.node !== undefined")


def test_the_map_by_keyboard(show: Any) -> None:
    page = show(fleet())
    page.run("document.getElementById('node-map').focus()")
    for key in ("ArrowDown", "ArrowRight", "ArrowRight", "ArrowLeft"):
        page.press(key)
    columns = page.run("Number(document.getElementById('node-map').dataset.columns)")
    name = f"gpu{columns + 2:05d}"
    assert page.run("document.getElementById('map-name').textContent") == f"{name}: fail"
    page.press("Enter")
    assert page.run("document.getElementById('panel-name').textContent") == name


def test_permalinks(show: Any) -> None:
    report = fleet(64)
    many = [{**report["incidents"][0], "fingerprint": f"{number:012x}"} for number in range(30)]
    folded = f"{27:012x}"
    for fragment in (f"#incident-{folded}", f"#incident={folded}"):
        page = show(report | {"incidents": many}, fragment)
        assert page.run(f"document.getElementById('incident-{folded}').checkVisibility()")
    page = show(report, "#incident-ffffffffffff")
    assert "not in this report" in page.run("toast.textContent")
    page = show(report, "#node=gpu00008")
    assert page.run("panel.open")
    page = show(report, "#node=%E0%A4%A")  # no UTF-8
    assert page.errors() == []
    assert not page.run("panel.open")


def test_copies(show: Any) -> None:
    page = show(fleet())
    page.call("Browser.setPermission", permission={"name": "clipboard-write"}, setting="granted")
    page.call("Browser.setPermission", permission={"name": "clipboard-read"}, setting="granted")

    def copied(label: str) -> str:
        page.run(f"[...document.querySelectorAll('button')].find(b => b.textContent === {json.dumps(label)}).click()")
        page.run("new Promise(resolve => setTimeout(resolve, 100))")
        return str(page.run("navigator.clipboard.readText()"))

    assert copied("Copy command") == "lspci -d 10de:"
    assert copied("Copy sbatch option") == "sbatch --exclude=gpu[00008,00033-00064]"
    assert copied("Copy link").endswith("report.html#incident-0a1b2c3d4e5f")
    assert copied("Copy as Markdown").splitlines()[0] == (
        "- **GPUs on the PCI bus: found 7, expected 8** on `gpu00008`: blocks job, owner: node"
    )


@pytest.mark.parametrize(
    "command", ["a $(id)", "a `id`", "a; id", "a | sh", "a\nid", "a && b", "a > /etc/passwd", "$x y"]
)
def test_a_command_that_a_shell_would_take_apart_has_no_button(command: str) -> None:
    report = fleet(64)
    report["incidents"][0]["next"] = f"run `{command}` now"
    assert "Copy command" not in render(report)


@pytest.mark.parametrize("sample", ["hostile", "sick", "empty", "healthy"])
def test_no_text_of_the_report_is_taken_for_code(sample: str, show: Any) -> None:
    report = getattr(samples, sample)()
    page = show(report)
    assert page.errors() == []
    assert page.run("document.documentElement.classList.contains('js')")
    for place in range(min(5, len(report["nodes"]))):
        page.run(f"openNode({place})")
        assert page.run("panel.open")
    page.run("panel.close()")
    search(page, samples.HOSTILE[:200])
    assert page.errors() == []
    assert page.run("document.scripts.length") == 2
    assert page.run("document.querySelectorAll('img, iframe, object, embed, base, link[rel=stylesheet]').length") == 0
    assert page.run(
        "[...document.querySelectorAll('*')].every(e => e.getAttributeNames().every(n => !n.startsWith('on')))"
    )
    assert page.run("[...document.querySelectorAll('a')].every(a => a.getAttribute('href').startsWith('#'))")


def test_injected_script_is_refused(show: Any) -> None:
    """The policy admits only the page's own script: an injected element would not run."""
    page = show(samples.healthy(2))
    page.run("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hit = 1'}))")
    assert page.run("window.hit === undefined")
    assert any("Content Security Policy" in error for error in page.errors())


@pytest.mark.parametrize("size", SIZES, ids=["desk", "phone"])
def test_the_first_incident_is_above_the_fold(size: tuple[int, int], show: Any) -> None:
    for report in (demo(), fleet()):
        page = show(report, width=size[0], height=size[1])
        place = page.run("(() => { const b = document.querySelector('.incident h3').getBoundingClientRect();"
                         "return [b.top, b.bottom, document.documentElement.scrollWidth]; })()")  # fmt: skip
        assert 0 < place[0] < place[1] < size[1] - 60
        assert place[2] == size[0]


def test_readable_without_script(show: Any, tab: BrowserPage) -> None:
    tab.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        page = show(demo())
        text = page.run("document.body.innerText")
        assert "need JavaScript" in text
        for words in (
            "GPUs on the PCI bus: found 7, expected 8",
            "Nodes to keep off",
            "Coverage",
            "Checklists",
            "rail 0",
        ):
            assert words in text
        assert page.run("[...document.querySelectorAll('button, .controls, dialog')].every(e => !e.checkVisibility())")
    finally:
        tab.call("Emulation.setScriptExecutionDisabled", value=False)


def test_eight_nodes_print_on_six_pages(show: Any) -> None:
    printed = show(demo()).pdf()
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", printed)) <= 6


@pytest.mark.axe
@pytest.mark.parametrize("size", SIZES, ids=["desk", "phone"])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("name", ["demo", "fleet", "healthy", "panel"])
def test_axe_reports_nothing(name: str, dark: bool, size: tuple[int, int], show: Any) -> None:
    made = {"fleet": fleet, "healthy": samples.healthy}.get(name, demo)()
    page = show(made, "#node=gpu005" if name == "panel" else "", *size)
    page.screen(*size, dark=dark)
    if name != "panel":
        page.run("document.querySelectorAll('details').forEach(fold => { fold.open = true; })")
    page.run(Path(os.environ["AXE"]).read_text("utf-8") + "; 0")
    violations = page.run(
        "axe.run().then(found => found.violations.map(v => [v.impact, v.id, v.nodes[0].html.slice(0, 200)]))"
    )
    assert violations == []


def test_the_focus_is_seen_wherever_it_goes(show: Any) -> None:
    page = show(demo())
    stops = []
    for _ in range(40):
        page.press("Tab")
        stops.append(
            page.run("""(() => {
            const at = document.activeElement;
            const style = getComputedStyle(at.matches('.chip input') ? at.parentElement : at);
            return [at.outerHTML.slice(0, 90), style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 2];
        })()""")
        )
    assert stops[0][0].startswith('<a class="skip-link"')
    assert [what for what, outlined in stops if not outlined] == []
    assert len({what for what, _ in stops}) > 25
