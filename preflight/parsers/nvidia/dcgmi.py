"""``dcgmi diag``, ``health``, ``discovery`` and ``nvlink --link-status``."""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.textprep.lines import Lines

_RULE = re.compile(r"[\s|+=-]{3,}")
_SECTION = re.compile(r"[|+]?-{3,}\s+(\w[\w /]{0,40}?)\s+-{3,}.*")
_RESULT = re.compile(r"(?i)(pass|fail(?:ed)?|warn(?:ing)?|skip(?:ped)?|error|not run)\b(?:\s*[-:]\s*(.*))?")
_GPU_RESULT = re.compile(r"(?i)GPUs? ?([\d, -]{1,60}?)\s*:\s*(pass|fail(?:ed)?|warn(?:ing)?|skip(?:ped)?)\b.*")
_WORDS = {"failed": "fail", "warning": "warn", "skipped": "skip", "error": "fail", "not run": "skip"}


@dataclass(frozen=True)
class DiagTest:
    """One test of ``dcgmi diag``."""

    section: str
    name: str
    result: str  # pass, fail, warn, skip
    gpus: str  # numbers as printed; empty if the result names none, or all GPUs
    messages: tuple[str, ...]
    line: int


@dataclass(frozen=True)
class Diag:
    """The versions and results that one run of ``dcgmi diag`` printed."""

    versions: Mapping[str, str]
    tests: tuple[DiagTest, ...]


def cells_of(text: str) -> list[str] | None:
    """Return the cells of a row; None if the line is not a row."""
    if "|" not in text:
        return None
    cells = [cell.strip() for cell in text.strip().strip("|").split("|")]
    return cells if len(cells) >= 2 else None


def diag_begins(lines: Lines, at: int) -> bool:
    """Return whether a report of ``dcgmi diag`` begins at a line."""
    text = lines[at].text
    if "Successfully ran diagnostic for group" in text:
        return True
    cells = cells_of(text)
    return cells is not None and cells[0] == "Diagnostic" and cells[1] == "Result"


#: The part of the label ``Warning: GPU 6`` after its colon.
_OF_GPU = re.compile(r"\s*GPUs?\s+\d[\d, ]*")


def parse_diag(lines: Lines, at: int) -> Parsed[Diag]:
    """Read the report that begins at a line."""
    versions: dict[str, str] = {}
    tests: list[DiagTest] = []
    section, end, last = "", at, at
    while end < len(lines) and end - last < 3:
        text = lines[end].text
        if match := _SECTION.fullmatch(text.strip()):
            section = match[1]
        elif (cells := cells_of(text)) is not None:
            _add_row(cells, section, lines[end].number, versions, tests)
        elif end > at and text.strip() and not _RULE.fullmatch(text) and not diag_begins(lines, end):
            break
        if text.strip():
            last = end
        end += 1
    gaps = () if tests else (ParseGap(lines[last].number, "the results of the tests are missing"),)
    if tests and not _RULE.fullmatch(lines[last].text) and "|" in lines[last].text:
        gaps = (ParseGap(lines[last].number, "the end of the table is missing"),)
    return Parsed(Diag(versions, tuple(tests)), gaps, last + 1)


def _add_row(cells: list[str], section: str, line: int, versions: dict[str, str], tests: list[DiagTest]) -> None:
    label, value = cells[0], cells[1]
    head, _, rest = label.partition(":")
    name = head if head in ("Warning", "Error", "Info") and _OF_GPU.fullmatch(rest) else label
    if name in ("Warning", "Error", "Info", "") or name.startswith("->"):
        if tests and value:
            test = tests[-1]
            result, gpus = test.result, test.gpus
            if not name and (more := _RESULT.fullmatch(value)):  # Fail - GPU: 3, below Pass - GPUs: 0, 1, 2
                tests[-1] = _joined(test, _test_of(section, test.name, more, line))
                return
            if name in ("Warning", "Error") and result == "pass":
                result = "warn"
            if (read := _GPU_RESULT.fullmatch(value)) and (word := read[2].lower()):
                word = _WORDS.get(word, word)
                if word == "fail":
                    gpus = f"{gpus}, {read[1]}".strip(", ")
                result = "fail" if "fail" in (result, word) else "warn" if "warn" in (result, word) else result
            messages = test.messages if read else (*test.messages, value)
            tests[-1] = DiagTest(test.section, test.name, result, gpus, messages, test.line)
    elif match := _RESULT.fullmatch(value):
        tests.append(_test_of(section, name, match, line))
    elif name != "Diagnostic":
        versions[name] = value


def _test_of(section: str, name: str, result: re.Match[str], line: int) -> DiagTest:
    word = result[1].lower()
    gpus = re.sub(r"(?i)^GPUs?:?\s*", "", result[2] or "")
    return DiagTest(section, name, _WORDS.get(word, word), "" if gpus == "All" else gpus, (), line)


def _joined(first: DiagTest, other: DiagTest) -> DiagTest:
    """Merge two results of one test into the worse one, with the GPUs that have it."""
    worst = next(word for word in ("fail", "warn", "pass", first.result) if word in (first.result, other.result))
    worse = [test for test in (first, other) if test.result == worst]
    gpus = ", ".join(test.gpus for test in worse if test.gpus)
    return DiagTest(first.section, first.name, worst, gpus, first.messages, first.line)


@dataclass(frozen=True)
class HealthReport:
    """One report of ``dcgmi health -c``."""

    overall: str
    problems: tuple[tuple[str, str, str, str, int], ...]  # entity, system, state, message, line


def health_begins(lines: Lines, at: int) -> bool:
    """Return whether a report of ``dcgmi health`` begins at a line."""
    return re.match(r"\|?\s*(?:Health Monitor Report|Overall Health)\b", lines[at].text) is not None


def _heading(text: str) -> list[str] | None:
    """Return the cells of a heading that spans the table; None for any other line."""
    match = re.fullmatch(r"\s*\|\s{0,12}((?:-> )?[A-Za-z][\w ]{0,40}?)\s*\|\s*", text)
    return [match[1], ""] if match else None


def parse_health(lines: Lines, at: int) -> Parsed[HealthReport]:
    """Read the report that begins at a line."""
    overall, entity, kind, system, state = "", "", "", "", ""
    problems: list[tuple[str, str, str, str, int]] = []
    end = last = at
    while end < len(lines) and end - last < 3:
        text = lines[end].text
        if match := re.match(r"\|?\s*Overall Health:?\s*\|?\s*(\w+)", text):
            overall = match[1]
        elif (cells := cells_of(text) or _heading(text)) is not None:
            name, value = cells[0], cells[1]
            plain = name.replace("->", "").strip()
            if name in ("GPU", "NvSwitch", "CPU", "GPU ID"):
                kind = name.removesuffix(" ID")
            elif name.startswith("->") and plain.isdecimal():
                entity, system = f"{kind or 'GPU'} {plain}", ""
            elif name.startswith("->") and plain != "Errors":
                system, state = plain, value
                problems.append((entity, system, state, "", lines[end].number))
            elif not name and value and problems:
                was = problems[-1]
                problems[-1] = (*was[:3], f"{was[3]} {value}".strip(), was[4])
        elif end > at and text.strip() and not _RULE.fullmatch(text):
            break
        if text.strip():
            last = end
        end += 1
    gaps = () if overall else (ParseGap(lines[last].number, "the overall health is missing"),)
    return Parsed(HealthReport(overall, tuple(problems)), gaps, last + 1)


@dataclass(frozen=True)
class Discovery:
    """The GPUs and NVSwitches that ``dcgmi discovery -l`` lists."""

    gpu_count: int | None  # as printed; None if missing
    switch_count: int | None
    gpus: tuple[Mapping[str, str], ...]  # for each GPU, name -> value as printed


_FOUND = re.compile(r"\s*(\d{1,3}) (GPUs?|NvSwitche?s?) found\.?\s*")


def discovery_begins(lines: Lines, at: int) -> bool:
    """Return whether a list of ``dcgmi discovery`` begins at a line."""
    return bool(_FOUND.fullmatch(lines[at].text))


def parse_discovery(lines: Lines, at: int) -> Parsed[Discovery]:
    """Read the list that begins at a line."""
    counts: dict[str, int] = {}
    gpus: list[dict[str, str]] = []
    end = last = at
    while end < len(lines) and end - last < 3:
        text = lines[end].text
        if match := _FOUND.fullmatch(text):
            if match[2][:3] in counts:
                break
            counts[match[2][:3]] = int(match[1])
        elif (cells := cells_of(text)) is not None:
            name, _, value = cells[1].partition(":")
            if cells[0].isdecimal() and "Nvs" not in counts and "NvS" not in counts:
                gpus.append({"id": cells[0], name: value.strip()})
            elif not cells[0] and gpus and value and "NvS" not in counts:
                gpus[-1][name] = value.strip()
        elif text.strip() and not _RULE.fullmatch(text) and not re.match(r"[|+\s]", text):
            break
        if text.strip():
            last = end
        end += 1
    count = counts.get("GPU")
    gaps = []
    if count is None:
        gaps.append(ParseGap(lines[at].number, "the number of GPUs is missing"))
    elif count != len(gpus):
        gaps.append(ParseGap(lines[last].number, f"{count} GPUs were found, but {len(gpus)} are listed"))
    return Parsed(Discovery(count, counts.get("NvS"), tuple(gpus)), tuple(gaps), last + 1)


@dataclass(frozen=True)
class LinkStatus:
    """The NVLink states of GPUs and NVSwitches.

    U is up, D down, X disabled and _ not supported.
    """

    gpus: Mapping[str, str]  # number -> one letter per link
    switches: Mapping[str, str]


_ENTITY = re.compile(r"\s*(gpuId|physicalId|nvSwitchId)\s+(\d{1,4}):\s*")
_LINKS = re.compile(r"\s*[UDX_](?:\s+[UDX_]){0,200}\s*")


def links_begins(lines: Lines, at: int) -> bool:
    """Return whether ``dcgmi nvlink --link-status`` begins at a line."""
    text = lines[at].text
    if "NvLink Link Status" in text:
        return True
    return bool(_ENTITY.fullmatch(text)) and at + 1 < len(lines) and bool(_LINKS.fullmatch(lines[at + 1].text))


def parse_links(lines: Lines, at: int) -> Parsed[LinkStatus]:
    """Read the status that begins at a line."""
    read: dict[str, dict[str, str]] = {"gpuId": {}, "physicalId": {}, "nvSwitchId": {}}
    kind = number = ""
    end = last = at
    while end < len(lines) and end - last < 4:
        text = lines[end].text
        if match := _ENTITY.fullmatch(text):
            kind, number = match[1], match[2]
            read[kind][number] = ""
        elif number and _LINKS.fullmatch(text):
            read[kind][number] += "".join(text.split())
        elif (
            end > at
            and text.strip()
            and not re.match(r"\s*(?:GPUs:|NvSwitches:|Key:|[|+-])|.*NvLink Link Status", text)
        ):
            break
        if text.strip():
            last = end
        end += 1
    switches = read["physicalId"] or read["nvSwitchId"]
    gaps = tuple(ParseGap(lines[last].number, f"the links of {kind} {number} are missing")
                 for kind, entities in read.items() for number, links in entities.items() if not links)  # fmt: skip
    return Parsed(LinkStatus(read["gpuId"], switches), gaps, last + 1)
