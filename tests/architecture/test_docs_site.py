"""Generated pages of the documentation site; ``.ci/run`` builds the site itself."""

from __future__ import annotations

import re
from functools import cache

import pytest

from preflight.checklist.items import ITEMS
from preflight.checks import registry
from preflight.cli.app import COMMANDS
from tests.support import docs_pages
from tests.support.in_process import run
from tests.support.paths import ROOT


@cache  # not at import: every worker imports every module, and the pages run all checks
def pages() -> dict[str, str]:
    return dict(docs_pages.pages())


def test_each_check_has_the_page_that_explain_prints() -> None:
    checks = registry().checks
    for check in checks[::15]:
        page = " ".join(re.sub(r"[`*]", "", pages()[f"checks/{check.id}.md"].replace("&lt;", "<")).split())
        title, *lines = run("explain", check.id).splitlines()
        assert check.title in title
        assert check.title in page
        for line in lines:
            text = line.partition(": ")[2] if re.match(r"\S.*: ", line) else line
            assert re.sub(r"[`*]", "", text.strip()) in page, f"{check.id}: {line}"


def test_each_item_schema_and_command_has_a_page() -> None:
    assert {f"items/{item.id}.md" for item in ITEMS} <= set(pages())
    schemas = {f"schemas/{path.stem}.md" for path in (ROOT / "preflight/schemas").glob("*.json")}
    assert schemas <= set(pages())
    assert set(re.findall(r"^## (\w+)$", pages()["commands.md"], re.M)) == set(COMMANDS)


def test_each_field_of_a_report_is_on_its_page() -> None:
    page = pages()["schemas/report-1.md"]
    assert "| `exit_status` | `0`, `1`, `3` |" in page
    assert "| `fabrics` | array of *fabric* | optional; " in page


def test_the_menu_has_every_page_of_docs() -> None:
    menu = set(re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.M))
    assert {path.name for path in (ROOT / "docs").glob("*.md")} <= menu
    assert set(docs_pages.ELSEWHERE.values()) - {"license.md"} <= menu


def test_ids_become_links_outside_code_headings_and_links() -> None:
    text = "# `gpu.count`\n`gpu.count` `no.such` **FP-BW-1** [`gpu.count`](x)\n```sh\n`gpu.count`\n```\n"
    linked = docs_pages.linked(text, "../")
    assert linked == (
        "# `gpu.count`\n[`gpu.count`](../checks/gpu.count.md) `no.such` [**FP-BW-1**](../items/FP-BW-1.md) "
        "[`gpu.count`](x)\n```sh\n`gpu.count`\n```\n"
    )
    assert docs_pages.linked("`gpu.count`", "", itself="gpu.count") == "`gpu.count`"


def test_links_of_the_tree_become_links_of_the_site() -> None:
    text = "[a](../README.md#install) [b](nodes.md) [c](../.ci/run) [d](https://e.org/x) [e](#here) ![f](demo-node.svg)"
    assert docs_pages.moved(text, "docs/index.md") == (
        "[a](readme.md#install) [b](nodes.md) c [d](https://e.org/x) [e](#here) ![f](demo-node.svg)"
    )
    assert (
        docs_pages.moved("[x](docs/gate.md) [y](deploy/slurm/README.md)", "README.md") == "[x](gate.md) [y](slurm.md)"
    )


@pytest.mark.parametrize(("text", "loads"), [
    ('<script src="https://cdn.example/x.js">', True), ("<link rel=stylesheet href=//cdn.example/x.css>", True),
    ("@import 'https://cdn.example/x.css'", True), ("src: url(//cdn.example/x.woff)", True),
    ('<a href="https://example.org">', False), ('<script src="js/theme.js">', False), ("url(../fonts/x.woff)", False),
])  # fmt: skip
def test_what_is_loaded_from_the_network_is_found(text: str, loads: bool) -> None:
    assert bool(docs_pages.network_loads(text)) == loads
