"""Node names in preflight's own output, in each of its formats."""

from __future__ import annotations

import html
import re
from collections.abc import Callable

Learn = Callable[[str, str], str]

#: Owner categories of an incident. They have the same key as the owner of a waiver, but are not persons.
OWNERS = frozenset(("node", "network", "site", "job"))

_ITEM = r"(?:[\w.:-]|\[[0-9][0-9, \r\n-]{0,100000}\]){1,100000}"
_LIST = rf"{_ITEM}(?:, ?{_ITEM}){{0,100000}}"
#: A list that may be wrapped. The text before it must not look like a part of the list.
_LINES = rf"{_ITEM}(?:,[ ]?\r?\n?{_ITEM}){{0,100000}}"

#: (format, pattern that identifies it, patterns of its node names). A list of names may span several lines.
_FORMATS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    ("text report", r"(?m)^coverage: |node-checks planned\b", (
        rf"(?m)^nodes: (?P<names>{_LINES})\s*?$",
        rf"(?m)^ {{0,2}}\d{{1,3}}  (?:blocks job|slows job|redundancy|drifts) {{2,12}}(?P<names>{_LIST}) {{2}}",
        rf"(?m)^  \? (?P<names>{_LIST})  \S",
        rf"(?m)^(?:FAIL|WARN|UNKNOWN|NO ANSWER|pass|skip|n/a)\s{{1,8}}(?P<names>{_LINES})(?:\s{{2}}|\n)\S",
        r"(?m)^FAIL: [^\n]{0,200} failed on (?P<names>[^\s;,]{1,255})",
        rf"\bin\s+no\s+class\s+of\s+[^\n:]{{1,255}}:\s(?P<names>{_LINES})",
        rf"\bnot\s+(?:judged|collected):\s(?P<names>{_LINES})",
    )),
    ("comparison", r"(?m)^(?:NO WORSE|WORSE|UNKNOWN|COULD NOT TELL|NOT COMPARED): ", (
        rf"(?m)^(?P<names>{_LIST}): (?:(?:answered )?only in the |answer again|answered before|did not answer"
        r"|gave no answer)",
        rf"(?m)^  (?:new|worse|changed|first judged|unclear|gone) {{2,5}}(?P<names>{_LIST}) {{2}}\S",
        rf"(?m)^(?:NEW|WORSE|UNCLEAR|still failing|better|gone)\s{{2}}(?P<names>{_LIST})\s{{2}}\S",
        rf"(?m)^\s{{2}}(?P<names>{_LIST})\s{{2}}\S[^\n]{{0,400}}: ",
    )),
    ("HTML report", r"<!DOCTYPE html>[^\0]{0,2000}Content-Security-Policy|class=\"(?:names|where)\"", (
        r'class="(?:names|where)"(?:>| [^<>]{0,80}>)(?P<names>[^<>]{1,100000})<',
        r'aria-label="Topology of (?P<names>[^"]{1,100000})"',
        r"<summary>What was read: (?P<names>[^<]{1,100000})</summary>",
        r'"names":\[(?P<names>"[^\]]{1,4000000})\]',
        r"<figcaption>(?P<names>[^<]{1,255}): <code>",
    )),
    ("JUnit report", r"<testsuites name=\"preflight\"", (
        r'<testcase name="(?P<names>[^"]{1,1000})" classname=',
    )),
    ("metrics", r"(?m)^preflight_\w+(?:\{| )", (
        r'(?m)^preflight_\w{1,80}\{(?:[^\n]{0,400},)?node="(?P<names>[^"\n]{1,300})"',
    )),
    ("gate", r"(?m)(?:^|\s)preflight: ", (
        r"\bpreflight: (?:DRY RUN: )?(?P<names>[^\W_][\w.-]{0,252}): "
        r"(?:pass|fail|warn|unknown|not judged|error|PASS|FAIL|NOT JUDGED|CONFIGURATION)\b",
    )),
    ("lint", r"(?m)^\d{1,7} of \d{1,7} nodes? (?:would fail|unknown)|only with(?:out)? this file: |"
             r"these nodes fail or warn: |(?:without expectations|no expectations apply): ", (
        rf"(?:fail or warn|only with(?:out)? this file(?:: [a-z ]{{1,20}})?|without expectations|"
        rf"no expectations apply): (?P<names>{_LIST})",
        rf"(?m)\d nodes, (?P<names>{_LIST})$",
        rf"(?m)^  [a-z-]{{2,40}}\.[a-z-]{{2,60}}  (?P<names>{_LIST})  \S",
    )),
    ("learnt file", r"Learnt by `preflight learn`", (
        rf"(?m)^#[^\n]*?(?:: | on )(?P<names>{_LIST})$",
        r"(?m)^#   (?P<names>[^\s,:]*\d[^\s:]*)$",
    )),
    ("cluster file", r"(?m)^\s{0,8}(?:nodes|exclude|hosts|switches)\s{0,8}=", (
        r"(?m)^\s{0,8}(?:nodes|exclude|hosts|switches)\s{0,8}=\s{0,8}(?P<names>\"[^\"\n]{1,100000}\"|\[[^\]=]{1,100000}\])",
    )),
)  # fmt: skip
_SHOWN = tuple((name, re.compile(sign), tuple(map(re.compile, places))) for name, sign, places in _FORMATS)

#: Host in a finding of the NCCL checks, followed by its ranks; the line may be wrapped.
_RANKED = re.compile(r"\bof\s{1,40}(?P<names>[^\W_][\w.-]{0,252})\s{1,40}\((?:ranks?\s{1,40}\d|\d{1,7}\s{1,40}ranks\))")

#: Texts that occur instead of node names.
_NO_NODES = ("the run's logs", "the fabric", "@")
_SPACES = re.compile(r"\s+")
_ONE = re.compile(r"(?:[^\s,\[\]\"']|\[[^\[\]]*\])+")

#: Keys in preflight's documents whose values are node names.
KEYS = frozenset(
    (
        "node",
        "nodes",
        "peer",
        "came",
        "came_silent",
        "went",
        "fell_silent",
        "silent_in_both",
        "answer_again",
        "without_class",
        "without_evidence",
    )
)


def in_text(text: str, found: Learn, formats: set[str]) -> None:
    """Pass the node names in preflight's output to ``found``.

    ``formats`` contains the formats recognised in earlier pieces of the file, and is updated.
    """
    for name, sign, places in _SHOWN:
        if name not in formats and not sign.search(text):
            continue
        formats.add(name)
        for place in places:
            for match in place.finditer(text):
                listed = html.unescape(match["names"]) if name in ("HTML report", "JUnit report") else match["names"]
                for item in names(listed):
                    found("host", item)
    for match in _RANKED.finditer(text):
        found("host", match["names"])


def names(listed: str) -> list[str]:
    """Return the items of a list of names, folded or not; empty if it has no nodes."""
    listed = listed.strip()
    if re.match(r"\[?\s*[\"']", listed):  # a TOML list
        listed = listed.strip("[]")
    if listed.startswith(_NO_NODES):
        return []
    return [_SPACES.sub("", item) for item in _ONE.findall(listed)]
