"""Pages for users: links resolve, cluster files are valid, commands and options exist, output is real."""

from __future__ import annotations

import re
import subprocess
import sys
import textwrap
from fnmatch import fnmatchcase
from pathlib import Path

import click
import pytest

from preflight.checks import registry
from preflight.cli.app import COMMANDS, main
from preflight.expectations.cluster_file import decode
from preflight.gate.policy import HOOKS
from tests.support import picture
from tests.support.paths import ROOT

README = ROOT / "README.md"
PAGES = (
    *sorted(path for path in ROOT.glob("*.md") if path.name != "CHANGELOG.md"),
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "deploy").rglob("*.md")),
    ROOT / "benchmarks/README.md",
)
pages = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))

#: Context that a block of a page takes from another page: a class with expectations for the gate.
CLASS = "[class.all]\ngpus = 0\nhcas = 0\n"

#: The reference that the page on fabrics names: a switch and a host in ``ibnetdiscover`` format, made by hand.
SWEEP = """\
Switch\t2 "S-0000000000200000"\t\t# "leaf" base port 0 lid 1 lmc 0
[1]\t"H-0000000000100000"[1](100001) \t\t# "gpu001 mlx5_0" lid 2 4xNDR

Ca\t1 "H-0000000000100000"\t\t# "gpu001 mlx5_0"
[1](100001) \t"S-0000000000200000"[1]\t\t# lid 2 lmc 0 "leaf" lid 1 4xNDR
"""


def blocks(page: Path, language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^ *```$", page.read_text("utf-8"), re.M | re.S)
    return [textwrap.dedent(text) for _, text in found]


@pages
def test_links_lead_somewhere(page: Path) -> None:
    for target, _, anchor in (link.partition("#") for link in re.findall(r"\]\(([^)]+)\)", page.read_text("utf-8"))):
        if target.startswith("https://"):
            continue
        file = page.parent / target if target else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), f"{target}#{anchor}"


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as forges and the site generate them."""
    text = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.M | re.S)
    headings = (re.sub(r"[^\w\s-]", "", heading) for heading in re.findall(r"^#+ (.+)$", text, re.M))
    return {heading.strip().lower().replace(" ", "-") for heading in headings}


def test_an_anchor_is_made_of_a_heading(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# `read`: what it is\n\n```sh\n# no heading\n```\n")
    assert anchors(page) == {"read-what-it-is"}


#: Top-level folders with which a path may begin.
FOLDERS = tuple(path.name for path in ROOT.iterdir() if path.is_dir() and not path.name.startswith("."))
#: Files that exist only in examples.
EXAMPLES = {
    "fixtures/host.hugepages/CASE.json", "fixtures/ID/cases.json", "fixtures/ID/CASE.json", "our_checks.py",
    "test_our_checks.py", "preflight/parsers/host/pressure.py",
}  # fmt: skip


def source_paths(text: str) -> list[str]:
    """Return the Python files and paths within the tree that a text names in code."""
    codes = re.findall(r"(?<!`)`([A-Za-z_][\w./-]*)`(?!`)", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S))
    return [code for code in codes if code.endswith(".py") or (code.split("/")[0] in FOLDERS and "/" in code)]


def is_source(path: str, page: Path = README) -> bool:
    """Return whether a path exists, relative to the root, its page, ``preflight`` or ``tests``."""
    return any((folder / path).exists() for folder in (ROOT, page.parent, ROOT / "preflight", ROOT / "tests"))


@pages
def test_named_paths_exist(page: Path) -> None:
    text = page.read_text("utf-8")
    missing = [path for path in source_paths(text) if not is_source(path, page) and path not in EXAMPLES]
    assert not missing, f"{page.relative_to(ROOT)} names {', '.join(missing)}"


def test_a_fragment_of_a_path_is_missing() -> None:
    row = "| `preflight/run/check.py`, `fleet.py`, `preflight/run/session.py`, `checks/` | x |"
    assert source_paths(row) == ["preflight/run/check.py", "fleet.py", "preflight/run/session.py", "checks/"]
    assert [is_source(path) for path in source_paths(row)] == [True, False, False, True]


def test_the_readme_links_every_page() -> None:
    linked = set(re.findall(r"\]\((docs/[^)#]+)", README.read_text("utf-8")))
    assert linked == {str(page.relative_to(ROOT)) for page in (ROOT / "docs").iterdir()}


def test_contributing_lists_the_packages_of_the_tests() -> None:
    page, script = ((ROOT / name).read_text("utf-8") for name in ("CONTRIBUTING.md", ".ci/run"))
    (listed,) = re.findall(r"apt-get install --no-install-recommends ([^`]+)", page)
    (packages,) = re.findall(r"^packages=\(([^)]+)\)", script, re.M)
    assert set(listed.replace("\\\n", " ").split()) == {*packages.split(), "kubernetes-client"}


def test_the_readme_stays_short() -> None:
    assert len(README.read_text("utf-8").splitlines()) <= 150


def test_the_picture_is_that_of_the_demo() -> None:
    assert picture.PICTURE.read_text("utf-8") == picture.picture(), "write it anew: python -m tests.support.picture"


@pytest.mark.parametrize("name", ["cluster-file", "fabric", "gate"])
def test_cluster_files_are_valid(name: str, tmp_path: Path) -> None:
    (tmp_path / "DIR").mkdir()
    (tmp_path / "DIR" / "gpu001.json").write_text(SWEEP)
    found = blocks(ROOT / "docs" / f"{name}.md", "toml")
    assert found
    for text in found:
        decode((text if "[class." in text else f"{CLASS}{text}").encode(), str(tmp_path / f"{name}.toml"))


def test_the_pages_show_a_waiver_and_the_gate() -> None:
    cluster = decode("\n".join(blocks(ROOT / "docs/cluster-file.md", "toml")).encode(), "x")
    assert [waiver.check for waiver in cluster.waivers] == ["rdma.port-state"]
    (text,) = blocks(ROOT / "docs/gate.md", "toml")
    gate = decode(f"{CLASS}{text}".encode(), "x").gate
    assert gate is not None
    assert (gate.refresh_s, gate.hook("slurm-prolog").strict) == (300, True)
    assert all(f"`{hook}`" in (ROOT / "docs/gate.md").read_text("utf-8") for hook in HOOKS)


@pages
def test_commands_and_options_exist(page: Path) -> None:
    """Every command on a page, in a block or in a line of code, exists in this version."""
    text = page.read_text("utf-8")
    code = [*blocks(page, "sh"), *re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]
    for line in (line.partition(" #")[0] for piece in code for line in piece.splitlines()):
        if shown := re.match(r"(?:sudo )?(?:\S+/)?preflight ([a-z]\S*)(.*)", line):
            assert_exists(shown[1], shown[2])


def assert_exists(name: str, arguments: str) -> None:
    """Fail if a command, one of its options, or a check of ``--only`` or ``--skip`` is missing."""
    line = f"preflight {name}{arguments}"
    assert name in COMMANDS, line
    command = main.get_command(click.Context(main), name)
    assert command is not None
    if isinstance(command, click.Group) and (words := arguments.split()):
        command = command.get_command(click.Context(command), words[0])
        assert command is not None, line
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)}
    assert set(re.findall(r"(?<=\s)--[a-z][a-z-]*", arguments)) <= known, line
    for pattern in re.findall(r"--(?:only|skip) '([^']+)'", arguments):
        assert any(fnmatchcase(check.id, pattern) for check in registry().checks), line


#: A command in a string of the source, as a fix or a next step: after a quotation mark, or in backticks.
_PRINTED = re.compile(
    r"""(?:(?<=")|(?<=`)|(?<!in): )(?:sudo )?preflight (?!(?:itself|judges|or|ran|reads|runs|tests)\b)"""
    r"""([a-z]+)(?![\w/]|: )([^"`\n]*)"""
)


def test_printed_commands_exist() -> None:
    """Every command in a fix or next step of checks, parsers and judges exists in this version."""
    sources = [*(ROOT / "checks").rglob("*.py"), *(ROOT / "preflight").rglob("*.py"),
               *(ROOT / "preflight/parsers").rglob("*.toml")]  # fmt: skip
    shown = {command for path in sources for command in _PRINTED.findall(path.read_text("utf-8"))}
    assert len(shown) > 60
    for name, arguments in sorted(shown):
        assert_exists(name, arguments)


def test_the_shown_output_is_the_demos() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "preflight", "demo"], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    for page in (README, ROOT / "docs/first-report.md"):
        shown = blocks(page, "text")
        assert shown
        for text in shown:
            assert text in done.stdout, (
                f"{page.relative_to(ROOT)} shows other output than `preflight demo`: copy it anew"
            )


def test_the_variables_that_leave_a_node_are_those_of_the_page() -> None:
    from preflight.collector.process_environments import _RANK
    from preflight.probes.probe import ENVIRONMENT

    page = (ROOT / "SECURITY.md").read_text()
    section = page.split("## What is collected from processes of other users")[1].split("\n## ")[0]
    assert (
        tuple(re.findall(r"`([A-Za-z_]+\*?)`", section.split("\n\n")[-2 if section.endswith("\n\n") else -1]))
        == ENVIRONMENT
    )
    assert set(re.findall(r"`([A-Z_]+)`", section.split("process with ")[1].split(".")[0])) == set(_RANK)


def from_an_index(text: str) -> list[str]:
    """Return the lines that install preflight by name from an index, where anyone can register a free name."""
    by_name = re.compile(r"\b(?:pip|pipx|uvx?)\b.*\b(?:install|download|run)\b.*\bgpu-preflight\b(?!\S*\.whl)")
    offline = re.compile(r"--no-index\b.*--find-links\b|--find-links\b.*--no-index\b")
    return [line for line in text.splitlines() if by_name.search(line) and not offline.search(line)]


def test_no_page_installs_from_an_index_by_name() -> None:
    for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*"), *(ROOT / "deploy").rglob("*")):
        if page.is_file():
            assert not from_an_index(page.read_text(errors="replace")), page


@pytest.mark.parametrize(("line", "count"), [
    ("python3 -m pip install gpu-preflight", 1), ("pip install -q --find-links wheels gpu-preflight", 1),
    ("pipx install gpu-preflight", 1), ("pip install --target app --no-deps gpu-preflight  # or a wheel", 1),
    ("pip install --no-index --find-links wheels gpu-preflight", 0), ("pip install .", 0),
])  # fmt: skip
def test_an_installation_by_name_is_found(line: str, count: int) -> None:
    assert len(from_an_index(line)) == count


def test_folders_for_kustomize_that_pages_name_are_there() -> None:
    named = re.findall(
        r"(?:-k|kubectl kustomize) (deploy/kubernetes/[\w-]+)", (ROOT / "docs" / "kubernetes.md").read_text()
    )
    assert named
    assert all((ROOT / folder / "kustomization.yaml").is_file() for folder in named)
