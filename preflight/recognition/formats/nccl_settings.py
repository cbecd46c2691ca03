"""Lists of NCCL settings: ``env``, job scripts, ``mpirun -x``, manifests."""

from __future__ import annotations

from collections.abc import Sequence

from preflight.facts.nccl_environment import Setting
from preflight.facts.nccl_settings import collect
from preflight.facts.nccl_settings.collect import CollectedSettings
from preflight.model import counted
from preflight.parsers.setting_lines import (
    ParsedAssignment,
    begins_command,
    in_command,
    in_yaml,
    is_setting,
    may_stand_among,
    on_lines,
    on_one_node,
    several,
)
from preflight.parsers.text_block import block
from preflight.recognition.detector import OutputFormat, ParsedPart, TextPart
from preflight.recognition.evidence_adapter import key_of
from preflight.recognition.formats.typed import TypedPart
from preflight.textprep.lines import Lines

NCCL_ENV = "nccl-env"
_KEY = key_of(NCCL_ENV)

#: A setting, and where it is set.
_Listed = tuple[ParsedAssignment, str]

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
    above, after = (lines[place].text if 0 <= place < len(lines) else "" for place in (at - 1, at + 1))
    if SETTING in text and in_yaml(text, after, above):
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
    return _part(end, _settings(taken))


def _part(end: int, listed: Sequence[_Listed], of: str = "", nodes: int | None = None) -> TypedPart:
    env = {setting.name: setting.value for setting, _ in listed}
    literal = tuple(
        Setting(setting.name, setting.value, _KEY, holder=where) for setting, where in listed if setting.is_literal
    )
    placeholders = tuple(setting.name for setting, _ in listed if not setting.is_literal)
    value = CollectedSettings(literal, placeholders, nodes)
    return TypedPart(end, {"env": env}, f"{counted(len(env), 'setting')}{of}: {', '.join(list(env)[:6])}", value=value)


def _settings(lines: Lines) -> list[_Listed]:
    """Return each setting and its line, in the order of the lines.

    The values of an ``env`` listing are taken as printed.
    """
    settings: list[_Listed] = []
    for at, line in enumerate(lines):
        where = f"line {line.number}"
        if spelled := _spelled(lines, at):
            settings.append((spelled, where))
        elif among := several(line.text):
            settings += [(setting, where) for setting in among]
        elif listing := collect.of_listing(line.text, _KEY):
            settings += [(ParsedAssignment(setting.name, setting.value), where) for setting in listing.settings]
    return settings


def commands(lines: Lines, alone: bool) -> list[TextPart]:
    """Return the settings on command lines, one part per command.

    ``alone`` states that the text has no other part. Otherwise, or for a single setting, the line must be a command
    from its first word on, because a sentence may also contain a setting.
    """
    found = []
    at = 0
    while at < len(lines):
        end = at + 1
        while end < len(lines) and lines[end - 1].text.endswith("\\"):
            end += 1
        command = " ".join(line.text.rstrip("\\") for line in lines[at:end])
        if SETTING in command:
            settings = tuple(in_command(command))
            if settings and (begins_command(command) or (alone and len(settings) > 1)):
                where = f"the command on line {lines[at].number} (not seen in force)"
                nodes = 1 if on_one_node(command) else None
                taken = _part(end, [(setting, where) for setting in settings], " of a command", nodes)
                found.append(TextPart(NCCL_ENV, lines[at].number, lines[end - 1].number, "", taken, ""))
        at = end
    return found


KINDS = (OutputFormat(NCCL_ENV, _begins, _take, hints=(SETTING,)),)
