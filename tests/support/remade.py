"""Comparison of re-made texts with their originals: ``python -m tests.support.remade --base REV``.

Each line of a text at REV that is also in the current text is classified: it may stay if all of it belongs to a tool, a
format or a part; otherwise it is a violation. A line of no class is a violation, and so is each line with an address,
an identifier, a pid or a time. The complete texts are also searched for such tokens. An address on the PCI bus counts
as an identifier of a machine, except those of bus 0, where chipsets place their ports.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from tests.support import external_texts
from tests.support.assertion_counts import counts, in_tests, statements
from tests.support.paths import ROOT

PLACE = "tests/data/outside"
PASTED = f"{PLACE}/pasted"
TABLE = "remade.md"
CLASSES = tomllib.loads((ROOT / PLACE / "remade.toml").read_text(encoding="utf-8"))
MARKS = re.compile(CLASSES["marks"])
LONG = 40  # a message of this length is a prefix, a shorter one a complete line
MESSAGES = frozenset(CLASSES["messages"])
BEGINNINGS = tuple(message for message in MESSAGES if len(message) >= LONG)
FIELD = "(?:" + "|".join(name.strip() for name in CLASSES["fields"].replace("\n", " ").split(";")) + ")"
IDENTIFIERS = {name: re.compile(pattern) for name, pattern in CLASSES["identifiers"].items()}
ALLOWED = {name: re.compile(pattern.replace("{field}", FIELD)) for name, pattern in CLASSES["allowed"].items()}
#: Modules with assertions on a text: their paths, and their paths before the tests had folders.
TESTS = {
    "golden/test_external_texts": "test_outside",
    "golden/test_nccl_logs": "test_nccl_log_outside",
    "golden/test_nccl_tests": "test_nccl_tests_outside",
    "unit/recognition/test_recognition": "test_reading",
    "support/pasted_texts": "test_reading",
    "robustness/recognition/test_recognition": "test_reading",
    "integration/local/test_read": "test_reading",
}


def origins() -> dict[str, str]:
    """Return the recorded origin of each text below the folder: "re-made", or where it was recorded."""
    found = {
        sample.file: "re-made" if sample.remade else f"recorded: {sample.origin}" for sample in external_texts.every()
    }
    entries = tomllib.loads((ROOT / PASTED / "index.toml").read_text(encoding="utf-8"))
    found |= {f"pasted/{name}": entry["text"] for name, entry in entries.items()}
    for readme in (ROOT / PLACE).glob("*/README.md"):
        words = readme.read_text(encoding="utf-8")
        names = re.findall(r"`([\w.-]+\.\w+)`", "\n".join(re.findall(r"^\| (.*?) \|", words, re.M)))
        kind = "re-made" if "\nRe-made from" in words else "recorded: PyTorch" if ": recorded\n" in words else ""
        found |= {f"{readme.parent.name}/{name}": kind for name in names if kind}
    return found


def texts() -> list[str]:
    """Return the paths of all texts below the folder, without descriptions."""
    files = (path.relative_to(ROOT / PLACE).as_posix() for path in sorted((ROOT / PLACE).rglob("*")) if path.is_file())
    return [name for name in files if not name.endswith(("index.toml", ".md")) and name != "remade.toml"]


def stripped(line: str) -> str:
    """Return a line without the marks of emails, lists, pages and terminals."""
    while (less := MARKS.sub("", line)) != line:
        line = less
    return line


def bare(line: str) -> str:
    """Return the compared part of a line: without marks around it, and with single blanks."""
    return " ".join(stripped(line).split()) or line.strip()


def reason(line: str) -> tuple[bool, str]:
    """Return whether a shared line may stay, and the reason."""
    for name, pattern in IDENTIFIERS.items():
        if pattern.search(line):
            return False, name
    inner = stripped(line)
    if not re.search(r"\w\w|\d[.:]\d", inner):
        return True, "no more than a sign"
    for name, pattern in ALLOWED.items():
        if pattern.fullmatch(inner):
            return True, name
    if bare(line) in MESSAGES or bare(line).startswith(BEGINNINGS):
        return True, "words of a tool or a library"
    return False, "known to no class"


def at(base: str, path: str) -> str:
    """Return a file at a commit, or nothing if it did not exist."""
    done = subprocess.run(["git", "-C", str(ROOT), "show", f"{base}:{path}"], capture_output=True, check=False)
    return done.stdout.decode("utf-8") if done.returncode == 0 else ""


def shared(old: str, new: str) -> list[tuple[int, str]]:
    """Return the numbered lines of the old text that are also in the new one."""
    left = {bare(line) for line in new.splitlines()}
    return [(number, line) for number, line in enumerate(old.splitlines(), 1) if line.strip() and bare(line) in left]


def tokens(old: str, new: str) -> list[tuple[str, str]]:
    """Return the identifiers of the old text, by class, that occur anywhere in the new one."""
    found = {(name, hit.group()) for name, pattern in IDENTIFIERS.items() for hit in pattern.finditer(old)}
    return sorted((name, token) for name, token in found if re.search(rf"(?<!\w){re.escape(token)}(?!\w)", new))


def row(cells: list[tuple[int, int]]) -> str:
    """Return counts before and after as cells of a table."""
    return " | ".join(f"{was} → {now}" for was, now in cells)


def pasted_table(base: str) -> str:
    """Return the assertions of each pasted text before and after, from the index, in Markdown."""
    path = f"{PASTED}/index.toml"
    before, after = tomllib.loads(at(base, path)), tomllib.loads((ROOT / path).read_text(encoding="utf-8"))
    rows = (f"| {name} | {row(list(zip(counts(before[name]), counts(after.get(name, {})), strict=True)))} |\n"
            for name in sorted(before))  # fmt: skip
    return "| text | kinds | bad | facts |\n|---|---|---|---|\n" + "".join(rows)


def other_table(base: str) -> str:
    """Return the same for all other texts, from the test modules with their assertions, in Markdown."""
    before = statements(at(base, f"tests/{name}.py") for name in dict.fromkeys(TESTS.values()))
    after = statements((ROOT / f"tests/{name}.py").read_text(encoding="utf-8") for name in TESTS)
    rows = []
    for name, origin in sorted(origins().items()):
        if name.startswith("pasted/"):
            continue
        cells = row(list(zip(in_tests(before, name), in_tests(after, name), strict=True)))
        rows.append(f"| {name} | {origin} | {cells if origin == 're-made' else '– | –'} |\n")
    return "| text | origin | stated values | assertions |\n|---|---|---|---|\n" + "".join(rows)


def write_tables(base: str) -> None:
    """Write both tables of assertions."""
    title = "# Assertions of each text, before and after it was re-made\n\n"
    (ROOT / PASTED / TABLE).write_text(title + pasted_table(base), encoding="utf-8")
    (ROOT / PLACE / TABLE).write_text(title + other_table(base), encoding="utf-8")


def main() -> int:
    """Print the report; return 1 if there is a violation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", required=True, help="the commit with the texts before")
    parser.add_argument("--write", action="store_true", help=f"write the tables of assertions, {TABLE}")
    parser.add_argument("--lines", action="store_true", help="print the lines that may stay as well")
    options = parser.parse_args()
    stay: Counter[str] = Counter()
    seen: Counter[str] = Counter()
    wrong: list[str] = []
    origin = origins()
    for name in texts():
        path = f"{PLACE}/{name}"
        if not origin.get(name):
            wrong.append(f"{name}: neither on record as re-made nor as recorded")
        old = at(options.base, path) if origin.get(name) == "re-made" else ""
        seen[name.split("/")[0] if "/" in name else "."] += bool(old)
        if not old:
            continue
        new = (ROOT / path).read_text(encoding="utf-8")
        seen["unchanged"] += old == new
        for number, line in shared(old, new):
            fine, why = reason(line)
            stay[why] += fine
            shown = f"{name}:{number}: {why}: {line.strip()[:120]}"
            if not fine:
                wrong.append(shown)
            elif options.lines:
                print(shown)
        wrong += [f"{name}: {why} in both: {token}" for why, token in tokens(old, new)]
    print("\n".join(wrong))
    unchanged = seen.pop("unchanged", 0)
    where = ", ".join(f"{folder}: {number}" for folder, number in sorted(seen.items()) if number)
    print(f"{sum(seen.values())} texts re-made ({where}), {unchanged} of them unchanged")
    print(f"{stay.total()} lines shared with {options.base} may stay:")
    print("\n".join(f"{number:6} {why}" for why, number in stay.most_common() if number))
    print(f"{len(wrong)} violations")
    if options.write:
        write_tables(options.base)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
