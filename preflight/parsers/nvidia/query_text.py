"""The text of ``nvidia-smi -q``, complete or in part."""

from __future__ import annotations

import re
from collections.abc import Sequence

from preflight.parsers.nvidia.query_glued import apart, is_glued
from preflight.parsers.nvidia.query_log import DEEPEST, QueryLog, Tree, gaps, key
from preflight.parsers.nvidia.query_sections import (
    HEADS,
    NAMES,
    TOP,
    FieldLine,
    is_flat,
    is_section,
    is_top,
    orphans,
    place,
)
from preflight.parsers.parsed import Parsed, ParseGap
from preflight.parsers.text_block import is_prompt
from preflight.textprep.lines import Line, Lines
from preflight.textprep.numbered_text import left_out

_LOG = re.compile(r"\s*=+\s*NVSMI LOG\s*=+\s*")
_TEXT_GPU = re.compile(r"\s*GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])\s*")
_ATTACHED = re.compile(r"\s*Attached GPUs\s+:\s")
_DRIVER = re.compile(r"\s*Driver Version\s+:\s")
_TEXT_FIELD = re.compile(r"(\s*)(\S[^:]{0,70}?)\s*(?::\s?(.*))?")

_GPU_OR_HEAD = re.compile(rf"{_LOG.pattern}|{_TEXT_GPU.pattern}|{_ATTACHED.pattern}|{_DRIVER.pattern}")

#: Names that occur only in this output; three close to each other identify an excerpt.
_OWN_NAMES = re.compile(
    r"\s*(Product (?:Name|Brand|Architecture)|GPU UUID|Minor Number|VBIOS Version|MultiGPU Board|Board ID"
    r"|(?:Board|GPU|FRU) Part Number|Inforom Version|Image Version|(?:OEM|ECC) Object|Power Management Object"
    r"|GPU (?:Operation|Virtualization) Mode|GSP Firmware Version|GPU Reset Status|GPU Link Info|PCIe Generation"
    r"|Link Width|Bridge Chip|Replays Since Reset|Replay Number Rollovers|Clocks (?:Throttle|Event) Reasons"
    r"|(?:FB|BAR1) Memory Usage|E(?:cc|CC) Mode|ECC Errors|Retired Pages|Pending Page Blacklist|Remapped Rows"
    r"|Remapping Failure Occurred|GPU (?:Current|Shutdown|Slowdown|Max Operating) Temp|(?:GPU )?Power Readings"
    r"|(?:Default|Enforced|Min|Max|Current) Power Limit|(?:Applications|Max|Max Customer Boost) Clocks"
    r"|HW (?:Thermal |Power Brake )?Slowdown|SW (?:Power Cap|Thermal Slowdown)|Sync Boost|CliqueId|ClusterUUID"
    r"|Texture (?:Memory|Shared)|L[12] Cache|CBU|SRAM (?:Parity|SEC-DED|Correctable|Uncorrectable.*))\s*(?::(?:\s.*)?)?"
)
_OWN_NEAR, _OWN_LEAST = 14, 3
#: Maximum lines of an unknown section.
_NEW = 20
#: Maximum length of a section heading.
_HEAD = 50
_REASONS_HEAD = re.compile(r"Clocks (?:Throttle|Event) Reasons")


def _headless(lines: Lines, at: int) -> bool:
    """Return whether an excerpt that lacks the output's head starts at a line."""
    first = _TEXT_FIELD.fullmatch(lines[at].text)
    if not first or key(first[2]) not in NAMES or not first[2][0].isalnum():
        return False
    near = {key(match[1]) for line in lines[at : at + _OWN_NEAR] if (match := _OWN_NAMES.fullmatch(line.text))}
    # an unindented line needs stronger evidence
    if len(near) >= _OWN_LEAST + (not first[1] and not _REASONS_HEAD.fullmatch(first[2])):
        return True
    if first[3] is not None:
        return bool(first[1]) and _ends_section(lines, at, len(first[1].expandtabs(4)))
    return is_section(_entry(first), _below(lines, at))


def _ends_section(lines: Lines, at: int, depth: int) -> bool:
    """Return whether a section ends within the next lines, and another one follows."""
    for end in range(at + 1, min(at + _OWN_NEAR, len(lines))):
        match = _TEXT_FIELD.fullmatch(lines[end].text)
        if not match:
            return False
        if (entry := _entry(match)).depth < depth:
            lost = [_entry(one) for line in lines[at:end] if (one := _TEXT_FIELD.fullmatch(line.text))]
            return is_section(entry, _below(lines, end)) and orphans([*lost, entry])[1] is not None
    return False


def _entry(match: re.Match[str]) -> FieldLine:
    return FieldLine(len(match[1].expandtabs(4)), match[2], match[3])


def _below(lines: Lines, at: int) -> list[FieldLine]:
    """Return the fields in the three lines below a line, up to the first other line."""
    found = []
    for line in lines[at + 1 : at + 4]:
        if not (match := _TEXT_FIELD.fullmatch(line.text)) or match[3] is None:
            break
        found.append(_entry(match))
    return found


#: Fields above the first GPU.
_GENERAL = ("timestamp", "driver_version", "cuda_version", "attached_gpus")
_OTHERS = re.compile(r"[^\s:][^:]*(?<!\s):(?:\s|$)")


def begins(lines: Lines, at: int) -> bool:
    """Return whether the output, or an excerpt of it, starts at a line."""
    text = lines[at].text
    if _ATTACHED.match(text):
        return any(_TEXT_GPU.fullmatch(line.text) for line in lines[at + 1 : at + 3])
    if _headless(lines, at):
        return True
    if _LOG.fullmatch(text) or is_glued(text):
        return True
    if _TEXT_GPU.fullmatch(text):
        return any(
            re.match(r"\s+[A-Z][\w ]+?\s*(?::\s|$)", line.text) or key(line.text.partition(":")[0]) in NAMES
            for line in lines[at + 1 : at + 3]
        )
    if _DRIVER.match(text):
        return any("Attached GPUs" in line.text or "CUDA Version" in line.text for line in lines[at + 1 : at + 3])
    return False


def parse_lines(lines: Lines, at: int) -> Parsed[QueryLog]:
    """Read the output or excerpt that starts at a line."""
    end = next((end for end in range(at, len(lines)) if not is_glued(lines[end].text)), len(lines))
    if end == at:
        return _parse(lines, at, _headless(lines, at))
    split_lines = [Line(line.number, one) for line in lines[at:end] for one in apart(line.text)]
    found = _parse(split_lines, 0, not any(_GPU_OR_HEAD.match(line.text) for line in split_lines))
    return Parsed(found.value, found.gaps, end)


def _parse(lines: Lines, at: int, headless: bool) -> Parsed[QueryLog]:
    general: list[FieldLine] = []
    gpus: list[tuple[str, list[FieldLine]]] = []
    here = general
    end, empty, last, bare = at, 0, at, False
    if headless:
        here = []
        gpus.append(("", here))
    while end < len(lines):
        text = lines[end].text.expandtabs(4)
        if not text.strip():
            empty += 1
        elif (end > at and _LOG.fullmatch(text)) or is_prompt(text):
            break
        elif (headless and text == "--") or left_out(text):
            empty = 0  # a mark of grep -A or of a user for omitted lines
        elif match := _TEXT_GPU.fullmatch(text):
            here = []
            gpus.append((match[1], here))
            empty, last, bare = 0, end, True
        elif not _LOG.fullmatch(text):
            match = _TEXT_FIELD.fullmatch(text)
            opens = match and (match[1] or match[3] is not None or _opens(lines, end) or _resumes(lines, end, here))
            if not match or empty > 3 or not opens:
                break
            entry = _entry(match)
            if here is general and not entry.depth and _OTHERS.match(text) and key(entry.name) not in _GENERAL:
                break  # a field of another tool: nvidia-smi puts spaces before the colon
            if here is not general and not entry.depth and here and here[-1].depth and not _of_gpu(lines, end):
                break  # unrelated text starts at the margin
            if (
                headless
                and is_top(entry)
                and any((one.depth, key(one.name)) == (entry.depth, key(entry.name)) and is_top(one) for one in here)
            ):
                here = []  # the next GPU: grep left only this section of each GPU
                gpus.append(("", here))
            here.append(entry)
            empty, last, bare = 0, end, not match[3]
        end += 1
    trees = tuple((bus_id, _tree(entries, headless and not bus_id)) for bus_id, entries in gpus)
    log = QueryLog(_tree(general, False), trees)
    found = gaps(log, lines[last].number)
    if bare:
        found.append(ParseGap(lines[last].number, "no value follows the last name"))
    return Parsed(log, tuple(found), last + 1)


def _opens(lines: Lines, at: int) -> bool:
    """Return whether an unindented name is the heading of a section.

    It is the name of a known section, or has a field below it.
    """
    if key(lines[at].text) in HEADS:
        return True
    match = _TEXT_FIELD.fullmatch(lines[at + 1].text) if at + 1 < len(lines) else None
    if not match or match[3] is None or not re.fullmatch(r"[A-Z][\w ()/-]{1,60}", match[2]):
        return False
    # an unindented field must have a known name
    return bool(match[1]) or (key(match[2]) in NAMES and len(lines[at].text) < _HEAD)


def _of_gpu(lines: Lines, at: int) -> bool:
    """Return whether an unindented name belongs to this output.

    An unknown name, such as that of a newer driver, is accepted if a known name follows.
    """
    here, *after = (_TEXT_FIELD.fullmatch(line.text) for line in lines[at : at + 2])
    if here and key(here[2]) in NAMES:
        return True
    return any(match and not match[1] and key(match[2]) in (HEADS if match[3] is None else TOP) for match in after)


def _resumes(lines: Lines, at: int, here: Sequence[FieldLine]) -> bool:
    """Return whether an unindented name is the heading of a newer driver's section.

    Unindented lines must precede it, and a known name must follow within a few lines.
    """
    if len(here) < _OWN_LEAST or any(entry.depth for entry in here[-_OWN_LEAST:]):
        return False
    if not re.fullmatch(r"[A-Z][\w ()/-]{1,60}", lines[at].text.strip()):
        return False
    for line in lines[at + 1 : at + _NEW]:
        match = _TEXT_FIELD.fullmatch(line.text)
        if not match or is_prompt(line.text):
            return False
        if key(match[2]) in (HEADS if match[3] is None else TOP):
            return True
    return False


def _tree(entries: Sequence[FieldLine], headless: bool) -> Tree:
    """Build a tree: a field is below the nearest preceding one with less indentation."""
    tree: Tree = {}
    lost, section = orphans(entries) if headless else (0, None)
    if section:
        place(tree, entries[:lost], section)
    if is_flat(entries[lost:]):
        place(tree, entries[lost:])
        return tree
    stack: list[tuple[int, Tree]] = [(-1, tree)]
    for entry in entries[lost if section else 0 :]:
        _put(stack, entry)
    return tree


def _put(stack: list[tuple[int, Tree]], entry: FieldLine) -> None:
    """Add a field to the tree, below the last one with less indentation."""
    while len(stack) > 1 and stack[-1][0] >= entry.depth:
        stack.pop()
    del stack[DEEPEST:]
    tree, name = stack[-1][1], key(entry.name)
    if entry.value is not None:
        tree.setdefault(name, entry.value.strip())
        stack.append((entry.depth, tree))  # HW Slowdown has a value as well as sub-reasons below it
        return
    below = tree.get(name)
    below = below if isinstance(below, dict) else {}
    tree[name] = below
    stack.append((entry.depth, below))


HINTS: tuple[str, ...] = ()
