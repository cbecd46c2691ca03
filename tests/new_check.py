"""The scaffold of a check: ``python -m tests.new_check ID --module host.limits --record file:/proc/…``.

It writes the function, the probe if no probe collects the record yet, and one file with three cases, the record of a
healthy node and a planted fault; then it runs the tests of that check. The written check passes: it compares a number
in a file with a limit. Change it as needed, and run ``--test ID`` again. See docs/adding-a-check.md.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import subprocess
import sys
from fnmatch import fnmatchcase
from pathlib import Path

from preflight.checks import MODULES
from preflight.probes.node import PROBES
from tests.support.paths import ROOT

#: Imports that a module of checks needs for such a function.
_IMPORTS = {
    "collections.abc": ("Iterator",),
    "preflight.expectations": ("Site",),
    "preflight.facts.node": ("NodeFacts",),
    "preflight.model": ("Finding", "check", "passed", "warned"),
    "preflight.textprep.plain_text": ("integer",),
}

_FUNCTION = '''

@check(
    "{id}",
    title="{subject} is at most {limit}",
    fault="{subject} is above {limit}",
    source="proc(5)",
    fix="`{show}`, and compare it with a healthy node.",
    impact="slows-job",
)
def {function}(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the number in `{path}` with {limit}.

    ## Why it matters
    Write here what happens to a job above {limit}: which operation waits, fails or slows down, and by how much.

    ## Verdicts
    More than {limit} warns; write here why the limit is there.

    ## False alarms
    Write here on which healthy node it would warn.
    """
    key = "{record}"
    number = node.parsed(key, {parser})
    if number > {limit}:
        yield warned(f"{subject}: {{number}}", found=number, expected="at most {limit}", evidence=[key])
    else:
        yield passed(f"{subject}: {{number}}", found=number, evidence=[key])
'''

#: Test files, and the part of each that concerns one check.
_TESTS = ("tests/checks/test_checks.py", "tests/checks/test_checks_count.py", "tests/checks/test_pages.py")


def main() -> int:
    """Write a check and run its tests; return the exit status."""
    options = _options()
    if options.test:
        return run_tests(options.id)
    if not re.fullmatch(r"[a-z0-9-]+\.[a-z0-9-]+", options.id):
        sys.exit(f"{options.id!r} is not of the form subject.what")
    if options.module not in MODULES:
        sys.exit(f"no module of checks is called {options.module!r}; one of: {', '.join(MODULES)}")
    folder = ROOT / "fixtures" / options.id
    if folder.exists():
        sys.exit(f"{folder.relative_to(ROOT)} already exists")
    kind, _, path = options.record.partition(":")
    if not path or kind not in ("file", "cmd") or (kind == "file" and not path.startswith("/")):
        sys.exit(
            f"--record {options.record}: give a file or a command: file:/proc/sys/vm/nr_hugepages, 'cmd:tool --option'"
        )
    written = [_write_function(options, path), _write_cases(options, folder)]
    if not any(probe.kind == kind and _collects(probe.target, path) for probe in PROBES):
        written.append(_write_probe(options, path))
    print("\n".join(f"wrote {file}" for file in written), flush=True)
    return run_tests(options.id)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.new_check", description=__doc__.splitlines()[0])
    parser.add_argument("id", help="subject.what, such as host.hugepages")
    parser.add_argument("--module", default="host.limits", help="module in checks/ (default: %(default)s)")
    parser.add_argument(
        "--record", default="file:/proc/sys/vm/nr_hugepages", help="a file, or a command as cmd:TOOL ARGUMENTS"
    )
    parser.add_argument("--limit", type=int, default=1024, help="more than this warns (default: %(default)s)")
    parser.add_argument("--parser", default="", metavar="MODULE.FUNCTION",
                        help="parser of the record in preflight.parsers, such as host.services.parse")  # fmt: skip
    parser.add_argument("--good", metavar="TEXT", help="the record of a healthy node (default: the limit)")
    parser.add_argument("--bad", metavar="TEXT", help="the record of a faulty node (default: the limit and one)")
    parser.add_argument("--node", default="hgx-h100", help="node of fixtures/nodes that gets the fault")
    parser.add_argument("--test", action="store_true", help="only run the tests of the check")
    return parser.parse_args()


def _collects(pattern: str, path: str) -> bool:
    """Return whether a probe's pattern matches a path."""
    if braces := re.search(r"\{([^{}]+)\}", pattern):
        before, after = pattern[: braces.start()], pattern[braces.end() :]
        return any(_collects(before + word + after, path) for word in braces[1].split(","))
    return fnmatchcase(path, pattern)


def _write_function(options: argparse.Namespace, path: str) -> Path:
    subject, _, what = options.id.partition(".")
    words, imports, parser = (
        f"{subject} {what}".replace("-", " "),
        dict(_IMPORTS),
        f'lambda text: integer(text, "{what}")',
    )
    if options.parser:
        module, _, function = options.parser.rpartition(".")
        del imports["preflight.textprep.plain_text"]
        package, _, name = f"preflight.parsers.{module}".rpartition(".")
        imports[package], parser = (name,), f"{name}.{function}"
    file = ROOT / "checks" / f"{options.module.replace('.', '/')}.py"
    text = file.read_text(encoding="utf-8")
    function = what.replace("-", "_")
    if function in _names(text) | {name for names in imports.values() for name in names}:
        function = f"{function}_of_{subject.replace('-', '_')}"
    body = _FUNCTION.format(id=options.id, subject=words, limit=options.limit, path=path, record=options.record,
                            show=path if options.record.startswith("cmd:") else f"cat {path}",
                            parser=parser, function=function)  # fmt: skip
    file.write_text(_with_imports(text, imports) + body, encoding="utf-8")
    ruff = [sys.executable, "-m", "ruff", "check", "-q", "--no-cache", "--select", "I", "--fix", str(file)]
    subprocess.run(ruff, cwd=ROOT, check=True)
    return file.relative_to(ROOT)


def _names(text: str) -> set[str]:
    """Return the names that a module imports or defines as functions and classes."""
    names = set()
    for node in ast.parse(text).body:
        if isinstance(node, ast.Import | ast.ImportFrom):
            names |= {alias.asname or alias.name for alias in node.names}
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
    return names


def _with_imports(text: str, wanted: dict[str, tuple[str, ...]]) -> str:
    """Return a module's source with the imports that it lacks, one line each; ruff sorts them."""
    there = {
        (node.module, alias.name)
        for node in ast.parse(text).body if isinstance(node, ast.ImportFrom) for alias in node.names
    }  # fmt: skip
    lines = [
        f"from {module} import {name}\n" for module, names in wanted.items() for name in names
        if (module, name) not in there
    ]  # fmt: skip
    at = re.search(r"^from preflight", text, re.M)
    place = at.start() if at else text.index("import annotations\n") + len("import annotations\n")
    return text[:place] + "".join(lines) + text[place:]


def _write_cases(options: argparse.Namespace, folder: Path) -> Path:
    key, limit = options.record, options.limit
    good, bad = (text or f"{number}\n" for text, number in ((options.good, limit), (options.bad, limit + 1)))
    document = {
        "origin": "made by hand, after proc(5)",
        "cases": {
            "low": {"records": {key: good}, "findings": [{"status": "pass"}]},
            "high": {"records": {key: bad}, "findings": [{"status": "warn"}]},
            "not-read": {"records": {key: {"denied": "Permission denied"}}, "findings": [{"status": "unknown"}]},
        },
        "healthy": {key: options.good or "0\n"},
        "fault": {"name": "too high", "node": options.node, "records": {key: bad}, "status": "warn"},
    }
    folder.mkdir()
    file = folder / "cases.json"
    file.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    return file.relative_to(ROOT)


def _write_probe(options: argparse.Namespace, path: str) -> Path:
    file = ROOT / "preflight" / "probes" / "node.py"
    text = file.read_text(encoding="utf-8")
    kind = options.record.partition(":")[0]
    line = f'    Probe("{kind}", "{path}", "the number that {options.id} judges"),\n'
    before = '    Probe("file", "/proc/self/limits"'
    file.write_text(text.replace(before, line + before, 1), encoding="utf-8")
    return file.relative_to(ROOT)


def run_tests(check: str) -> int:
    """Run the tests of one check."""
    command = [sys.executable, "-m", "pytest", "-q", "--durations=0", "-p", "no:cacheprovider", *_TESTS, "-k", check]
    return subprocess.run(command, cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
