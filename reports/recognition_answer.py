"""The short answer of `preflight read`, and its Markdown output."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from preflight.reports.markdown import code, plain, prose
from preflight.reports.sanitize import one_line

#: Statuses, the worst first.
_ORDER = ("fail", "warn", "unknown", "pass")

#: Name used for findings about all sources.
ALL_SOURCES = "all sources"

#: Maximum number of findings in Markdown; the rest is counted.
_MOST_LISTED = 40

_COMMAND = re.compile(r"`([^`]{3,120})`")
#: Programs of fixes. Other text between backticks is a setting, an option or a line of a file.
_PROGRAMS = (
    "preflight", "nvidia-smi", "nvidia-ctk", "dcgmi", "amd-smi", "nvbandwidth", "py-spy", "torchrun", "all_reduce_perf",
    "dmesg", "journalctl", "systemctl", "timedatectl", "chronyc", "sysctl", "ulimit", "unset", "export", "env", "ps",
    "top", "cat", "ls", "grep", "df", "du", "lfs", "lctl", "getent", "nc", "ssh",
    "mount", "findmnt", "ldd", "ldconfig", "numactl", "cpupower", "dmidecode",
    "ipmitool", "ras-mc-ctl", "smartctl", "nvme", "mdadm", "zpool", "lspci", "lsmod", "modprobe", "kubectl", "scontrol",
    "sinfo", "sdiag", "sacct", "sacctmgr", "ethtool", "ip", "ping", "iperf3", "devlink", "rdma", "show", "show_gids",
    "cma_roce_mode", "mst", r"mlx\w{3,20}", r"ib\w{3,20}", "perfquery", "sminfo", "saquery", "fi_info",
)  # fmt: skip
_PROGRAM = re.compile(rf"(?:sudo )?(?:{'|'.join(_PROGRAMS)})(?: .*)?")
#: Words of commands that interrupt jobs or remove something; the user should read the finding before running one.
_DISRUPTIVE = re.compile(
    r"(?<![\w-])(?:-r|-mig|-pl|-rac|--gpu-reset|\w*reset|reboot|makestep|restart|stop|drain|delete|cordon|kill|-w|set"
    r"|power \w+|down)(?![\w-])"
)
#: A word that stands for a name: `nvidia-smi -q -i N`, `smartctl -x DEVICE`.
_PLACEHOLDER = re.compile(r"(?<![\w./=:-])(?!(?:POWER|CLOCK|PERFORMANCE|ECC)\b)[A-Z]{1,12}(?:=[A-Z]{1,12})?(?![\w./])")
#: A fix that begins with a command.
_BEGINS = re.compile(r"((?:nvidia-smi|systemctl|journalctl|dmesg|dcgmi|lspci|scontrol|kubectl|ibstat) [^;(.,]{1,100})")


#: The start of the commands of a signature, whose programs may be any.
_RUN = "Run: "
#: The end of a sentence. Maximum length of a sentence shown as the next step.
_SENTENCE, _LONGEST_STEP = re.compile(r"(?<=[.!?])\s+(?=[A-Z`])"), 300
#: Kinds of output that are named differently from the command that prints them.
_PRINTED_BY = {"kernel log": "dmesg"}


class Answer(NamedTuple):
    """Short answer: the verdict on a text, a remark, and the next step."""

    status: str  # fail, warn, unknown or pass
    verdict: str
    rest: str  # remark on further results; may be empty
    command: str  # empty if there is none
    step: str = ""  # the next step in words; empty if there is a command


def answer(document: Mapping[str, Any], missing: str) -> Answer:
    """Return the short answer; ``missing`` describes what was not judged."""
    pairs = list(findings(document))
    counts = Counter(finding["status"] for _, finding in pairs)
    status = next((status_ for status_ in _ORDER if counts[status_]), "unknown")
    if missing and not sum(counts[status_] for status_ in ("fail", "warn", "unknown")):
        return Answer("unknown", f"Not judged: {missing}.", _read(document), _suggested(document))
    if status == "pass":
        parts = sum(len(source["parts"]) for source in document["sources"])
        return Answer("pass", f"No fault found: {_count(counts['pass'], 'check')} passed.",
                      f"{_count(parts, 'part')} recognised.", "preflight check")  # fmt: skip
    kinds = {id(finding): part["kind"] for source in document["sources"] for part in source["parts"]
             for finding in part["findings"]}  # fmt: skip
    source, worst = _first([pair for pair in pairs if pair[1]["status"] == status])
    node = next((name for name in worst.get("nodes") or () if name not in ("@run", source)), "")
    groups = [same for name in dict.fromkeys(name for name, _ in pairs)
              for same in alike_of(finding for place, finding in pairs if place == name)]  # fmt: skip
    message = one_message(next(same for same in groups if worst in same), _FEW_SUBJECTS)
    named = "" if not node or node in message else f"{one_line(node)}: "
    return Answer(
        status,
        f"{named}{message} [{worst['check']}].",
        _rest(Counter(same[0]["status"] for same in groups), status),
        *_next(worst, kinds.get(id(worst), "")),
    )


def findings(document: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each finding with its source; those about all sources come first."""
    for finding in document.get("findings", ()):
        yield ALL_SOURCES, finding
    for source in document["sources"]:
        for part in source["parts"]:
            for finding in part["findings"]:
                yield source["name"], finding


#: Maximum number of subjects that the verdict lists, and that a message lists elsewhere.
_FEW_SUBJECTS, _MOST_SUBJECTS = 4, 16


def alike_of(findings: Iterable[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Group findings with the same message about several subjects, in order."""
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for finding in findings:
        subject, message = finding.get("subject"), finding["message"]
        rest = message.removeprefix(subject) if subject and message.startswith((f"{subject}:", f"{subject} ")) else ""
        same = (rest or message, *(finding.get(key) for key in ("status", "check", "found", "expected", "why", "fix")))
        groups.setdefault(same, []).append(finding)
    return list(groups.values())


def one_message(alike: Sequence[Mapping[str, Any]], most: int = _MOST_SUBJECTS) -> str:
    """Return the message of findings that differ only in their subjects."""
    message, subjects = alike[0]["message"], list(dict.fromkeys(finding.get("subject") or "" for finding in alike))
    if len(subjects) == 1:
        return one_line(message)
    rest = message.removeprefix(subjects[0])
    more = f" and {len(subjects) - most} more" if len(subjects) > most else ""
    return one_line(f"{'' if rest[0] == ':' else 'each of '}{', '.join(subjects[:most])}{more}{rest}")


#: Checks of what a bad link does, and the check of the link itself, which is the cause.
_OF_LINK, _LINK = frozenset({"counters.loss", "counters.receiver", "counters.congestion"}), "counters.link-quality"


def _first(pairs: Sequence[tuple[str, Mapping[str, Any]]]) -> tuple[str, Mapping[str, Any]]:
    """Return the first finding, or the cause that the same source shows."""
    source, first = pairs[0]
    if first["check"] not in _OF_LINK:
        return pairs[0]
    same = (pair for pair in pairs if pair[0] == source and pair[1]["subject"] == first["subject"])
    return next((pair for pair in same if pair[1]["check"] == _LINK), pairs[0])


def _read(document: Mapping[str, Any]) -> str:
    """Return what was read in the first parts of a text without a finding."""
    parts = [part for source in document["sources"] for part in source["parts"]][:2]
    return one_line(f"Read: {'; '.join(part['summary'] for part in parts)}.") if parts else ""


def _rest(counts: Mapping[str, int], shown: str) -> str:
    words = {"fail": "failure", "warn": "warning", "unknown": "unknown result"}
    left = {status: counts.get(status, 0) - (status == shown) for status in words}
    listed = [_count(number, words[status]) for status, number in left.items() if number > 0]
    return f"In addition: {', '.join(listed)}." if listed else ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _next(finding: Mapping[str, Any], kind: str) -> tuple[str, str]:
    """Return the first command in the finding's fix, or the fix's first sentence.

    Commands without a placeholder come first. Those that interrupt jobs are left to the finding, and the command that
    printed this text is not repeated. Commands after the first sentence are taken only from a signature's fix: in
    others, they follow the step that this sentence describes.
    """
    fix = one_line(finding.get("fix") or "")
    first = _SENTENCE.split(fix, maxsplit=1)[0]
    _, run, own = fix.partition(_RUN)
    begins = _BEGINS.match(fix)
    listed = [words.strip() for words in ((begins[1],) if begins else ()) + tuple(_COMMAND.findall(own or first))]
    commands = [words for words in listed
                if (run or _PROGRAM.fullmatch(words)) and not _DISRUPTIVE.search(words)
                and not _printed(words, kind, finding["message"])]  # fmt: skip
    commands.sort(key=lambda words: _PLACEHOLDER.search(words) is not None)
    if commands or not first:
        return next(iter(commands), f"preflight explain {finding['check']}"), ""
    return "", first if len(first) <= _LONGEST_STEP else f"{first[:_LONGEST_STEP]} …"


def _printed(command: str, kind: str, message: str) -> bool:
    """Return whether a command prints only the pasted kind of output again."""
    printed = _PRINTED_BY.get(kind, kind).split()
    named = {word.strip(",:") for word in message.split()} | {"sudo", "show"}
    words = [word for word in command.split() if word not in named or word in printed]
    return words == printed


def _suggested(document: Mapping[str, Any]) -> str:
    guesses: Sequence[Mapping[str, Any]] = [source["guess"] for source in document["sources"] if source.get("guess")]
    return guesses[0]["run"][0] if guesses else "preflight check"


# --- Markdown -----------------------------------------------------------------------------------------


def markdown(document: Mapping[str, Any], missing: str) -> str:
    """Return the document as Markdown."""
    verdict = answer(document, missing)
    lines = [f"**{verdict.status.upper()}** {plain(verdict.verdict)} {plain(verdict.rest)}".rstrip()]
    lines += ["", f"Next: {code(verdict.command) if verdict.command else prose(verdict.step)}"]
    urgent = [pair for pair in findings(document) if pair[1]["status"] != "pass"]
    if urgent:
        lines.append("")
    sources = dict.fromkeys(source for source, _ in urgent)
    grouped = [
        (source, same) for source in sources for same in alike_of(item for name, item in urgent if name == source)
    ]
    grouped.sort(key=lambda pair: _ORDER.index(pair[1][0]["status"]))
    for source, same in grouped[:_MOST_LISTED]:
        finding = same[0]
        lines.append(f"- **{finding['status']}** {plain(one_message(same))} ({code(finding['check'])}, "
                     f"{plain(source)})")  # fmt: skip
        lines += [f"  - {label}: {prose(finding[key]) if key == 'fix' else plain(finding[key])}"
                  for label, key in (("found", "found"), ("expected", "expected"), ("next", "fix"))
                  if finding.get(key)]  # fmt: skip
    if len(grouped) > _MOST_LISTED:
        lines.append(f"- and {len(grouped) - _MOST_LISTED} more; `--json` lists them")
    lines.append("")
    for source in document["sources"]:
        for part in source["parts"]:
            first, last = part["lines"]
            lines.append(f"- {plain(source['name'])}, lines {first}-{last}: {code(part['kind'])}, "
                         f"{plain(part['summary'])}")  # fmt: skip
        if not source["parts"]:
            guess = source.get("guess") or {}
            looks = f"; it looks like {plain(guess['looks_like'])}" if guess.get("looks_like") else ""
            run = ", ".join(code(command) for command in guess.get("run", ()))
            lines.append(f"- {plain(source['name'])}: not recognised{looks}. Paste the output of: {run}")
    return "\n".join(lines) + "\n"
