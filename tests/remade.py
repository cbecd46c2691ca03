"""What the re-made texts still share with those that they were made from: ``python -m tests.remade --base REV``.

Each line of a text as it stood at REV that stands in the text of today too is put into a class: it may stay because all
of it belongs to a tool, a format or a part, or it is a violation. A line that no class knows is one, and so is each
line with an address, an identifier, a pid or a time. Such tokens are looked for in the whole texts as well.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
FOLDER = "tests/data/outside/pasted"
TABLE = "remade.md"
CLASSES = tomllib.loads((ROOT / "tests/data/outside/remade.toml").read_text(encoding="utf-8"))
MARKS = re.compile(CLASSES["marks"])
MESSAGES = tuple(CLASSES["messages"])
IDENTIFIERS = {name: re.compile(pattern) for name, pattern in CLASSES["identifiers"].items()}
ALLOWED = {name: re.compile(pattern) for name, pattern in CLASSES["allowed"].items()}
HEAD = "| text | kinds | bad | facts |\n|---|---|---|---|\n"


def stripped(line: str) -> str:
    """Return a line without what mails, lists, pages and terminals put around it."""
    while (less := MARKS.sub("", line)) != line:
        line = less
    return line


def reason(line: str) -> tuple[bool, str]:
    """Return whether a shared line may stay, and why or why not."""
    for name, pattern in IDENTIFIERS.items():
        if pattern.search(line):
            return False, name
    inner = stripped(line)
    if not re.search(r"\w\w", inner):
        return True, "no more than a sign"
    for name, pattern in ALLOWED.items():
        if pattern.fullmatch(inner):
            return True, name
    if inner.startswith(MESSAGES):
        return True, "words of a tool or a library"
    return False, "known to no class"


def at(base: str, path: str) -> str:
    """Return a file as it stood at a commit, or nothing where it did not exist."""
    done = subprocess.run(["git", "-C", str(ROOT), "show", f"{base}:{path}"], capture_output=True, check=False)
    return done.stdout.decode("utf-8") if done.returncode == 0 else ""


def shared(old: str, new: str) -> list[tuple[int, str]]:
    """Return the lines of the old text, with their numbers, that stand in the new one too."""
    left = {line.strip() for line in new.splitlines()}
    return [(number, line) for number, line in enumerate(old.splitlines(), 1) if line.strip() and line.strip() in left]


def tokens(old: str, new: str) -> list[tuple[str, str]]:
    """Return the identifiers of the old text, by class, that stand anywhere in the new one."""
    found = {(name, hit.group()) for name, pattern in IDENTIFIERS.items() for hit in pattern.finditer(old)}
    return sorted((name, token) for name, token in found if token in new)


def counts(entry: dict[str, Any]) -> tuple[int, int, int]:
    """Return how many kinds, failing checks (one more for the list itself) and facts an entry asserts."""
    return len(entry.get("kinds", ())), len(entry["bad"]) + 1 if "bad" in entry else 0, len(entry.get("facts", ()))


def table(before: dict[str, dict[str, Any]], after: dict[str, dict[str, Any]]) -> str:
    """Return the assertions of each text before and after, as a table in Markdown."""
    rows = []
    for name in sorted(before):
        pairs = zip(counts(before[name]), counts(after.get(name, {})), strict=True)
        rows.append(f"| {name} | " + " | ".join(f"{was} → {now}" for was, now in pairs) + " |\n")
    return HEAD + "".join(rows)


def main() -> int:
    """Print the report; end with 1 if there is a violation."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--base", required=True, help="the commit with the texts before")
    parser.add_argument("--folder", default=FOLDER, help="the folder of the texts, below the repository")
    parser.add_argument("--write", action="store_true", help=f"write the table of assertions, {TABLE}")
    parser.add_argument("--lines", action="store_true", help="print the lines that may stay as well")
    options = parser.parse_args()
    folder = ROOT / options.folder
    kept: Counter[str] = Counter()
    wrong: list[str] = []
    texts = same = lines = 0
    for path in sorted(folder.glob("*.txt")):
        old, new = at(options.base, f"{options.folder}/{path.name}"), path.read_text(encoding="utf-8")
        if not old:
            continue
        texts += 1
        same += old == new
        for number, line in shared(old, new):
            lines += 1
            fine, why = reason(line)
            if fine:
                kept[why] += 1
            else:
                wrong.append(f"{path.name}:{number}: {why}: {line.strip()[:120]}")
            if fine and options.lines:
                print(f"{path.name}:{number}: {why}: {line.strip()[:120]}")
        wrong += [f"{path.name}: {why} in both: {token}" for why, token in tokens(old, new)]
    print("\n".join(wrong))
    print(f"{texts} texts, {same} of them unchanged; {lines} lines shared with {options.base}; those that may stay:")
    print("\n".join(f"{number:6} {why}" for why, number in kept.most_common()))
    print(f"{len(wrong)} violations")
    if options.write:
        before = tomllib.loads(at(options.base, f"{options.folder}/index.toml"))
        after = tomllib.loads((folder / "index.toml").read_text(encoding="utf-8"))
        title = "# Assertions of each text, before and after it was re-made\n\n"
        (folder / TABLE).write_text(title + table(before, after), encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
