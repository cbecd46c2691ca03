"""Lists of NCCL settings: ``env``, job scripts, ``mpirun -x``, manifests."""

from __future__ import annotations

from preflight.facts.nccl_settings import collect
from preflight.parsers.setting_lines import (
    ParsedAssignment,
    in_command,
    is_setting,
    may_stand_among,
    on_lines,
    several,
)
from preflight.parsers.text_block import block
from preflight.recognition.detector import OutputFormat, ParsedPart, TextPart
from preflight.textprep.lines import Line, Lines

NCCL_ENV = "nccl-env"

#: Text that the name of every setting contains.
SETTING = "CCL_"

#: Number of lines within which a second setting must occur: a single one may be part of a sentence or a command.
_NEAR = 6


def _spelled(lines: Lines, at: int) -> ParsedAssignment | None:
    """Return the setting that a line of a script or manifest assigns, or None.

    Settings on command lines are left to ``commands``.
    """
    if SETTING not in lines[at].text or lines[at].text.endswith("\\"):
        return None
    return on_lines(lines[at].text, lines[at + 1].text if at + 1 < len(lines) else "")


def _begins(lines: Lines, at: int) -> bool:
    text = lines[at].text
    if text.endswith("\\") or (at and lines[at - 1].text.endswith("\\")):
        return False
    if SETTING in text and len(several(text)) > 1:
        return True
    if SETTING not in text or not (listed := is_setting(text) or _spelled(lines, at)):
        return False
    near = [place for place in range(at + 1, min(at + _NEAR, len(lines))) if lines[place].text.strip()]
    if not near:  # a single setting, or the end of a sentence
        return listed is True and not any(line.text.strip() for line in lines[max(0, at - _NEAR) : at])
    texts = ((lines[place].text, _spelled(lines, place)) for place in near)
    return any(is_setting(text) or one or several(text) for text, one in texts)


def _take(lines: Lines, at: int) -> ParsedPart:
    end, taken = block(lines, at, may_stand_among, blanks=1)
    env = {name: value for name, value, _ in _settings(taken)}
    return ParsedPart(end, {"env": env}, f"{len(env)} settings: {', '.join(list(env)[:6])}")


def _settings(lines: Lines) -> list[tuple[str, str, bool]]:
    """Return (name, value, is literal) of each setting, in the order of the lines.

    The values of an ``env`` listing are taken as printed.
    """
    found = []
    for at, line in enumerate(lines):
        one = _spelled(lines, at)
        if one is not None:
            found.append((one.name, one.value, one.is_literal))
        elif among := several(line.text):
            found += [(one.name, one.value, one.is_literal) for one in among]
        elif listing := collect.of_listing(line.text, "read"):
            known = (ParsedAssignment(setting.name, setting.value) for setting in listing.settings)
            found += [(one.name, one.value, one.is_literal) for one in known]
    return found


def judged(text: str, first: int) -> str:
    """Return a part's settings for the check, line by line.

    Each line is ``NAME=value``, or empty if the source line does not assign exactly one literal value. Empty lines
    stand for those before the part, so that line numbers are the source's.
    """
    lines = [Line(number, line) for number, line in enumerate(text.split("\n"), first)]
    assignments = []
    for at, line in enumerate(lines):
        own = _settings(lines[at : at + 2])[:1] if SETTING in line.text and not several(line.text) else []
        assignments.append(f"{own[0][0]}={own[0][1]}" if own and own[0][2] else "")
    return "\n" * (first - 1) + "\n".join(assignments)


def commands(lines: Lines) -> list[TextPart]:
    """Return the settings on command lines, one part per command with at least two.

    Used for a text without any other part. The user chose them for one run, so they are listed but not judged.
    """
    found = []
    at = 0
    while at < len(lines):
        end = at + 1
        while end < len(lines) and lines[end - 1].text.endswith("\\"):
            end += 1
        command = " ".join(line.text.rstrip("\\") for line in lines[at:end])
        env = {one.name: one.value for one in in_command(command)} if SETTING in command else {}
        if len(env) > 1:
            taken = ParsedPart(end, {"env": env}, f"{len(env)} settings of a command: {', '.join(list(env)[:6])}")
            found.append(TextPart(NCCL_ENV, lines[at].number, lines[end - 1].number, "", taken, ""))
        at = end
    return found


KINDS = (OutputFormat(NCCL_ENV, _begins, _take, hints=(SETTING,)),)
