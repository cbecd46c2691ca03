"""Rules for single names and values: unknown, not in this version, misread."""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.facts.nccl_environment import NcclEnvironment, Setting
from preflight.facts.nccl_settings.catalogue import Version, dotted, nearest, table
from preflight.facts.nccl_settings.leftovers import of_googles_plugin
from preflight.facts.nccl_settings.value_grammar import faults
from preflight.facts.nccl_settings.violation import SettingScope, Violation

#: First release that strips blanks and carriage returns at the end of a line.
TRIMMING = (2, 30, 0)

#: A name that is meant for NCCL, possibly misspelled.
NCCL_NAME = re.compile(r"N{1,2}C{1,2}L{1,2}[_ -]|\W*(?:export\s+)?NCCL", re.I)


def _settings(env: NcclEnvironment) -> Iterator[Setting]:
    return (setting for setting in env.settings if setting.name.startswith("NCCL_"))


def unknown_names(env: NcclEnvironment, here: SettingScope) -> Iterator[Violation]:
    """Yield names that no program reads: misspelt, invented, or with a blank.

    In a file, ``export`` before a name becomes part of the name.
    """
    known = table()
    for setting in env.settings:
        name = setting.name
        if not NCCL_NAME.match(name) or known.owner(name):
            continue
        shown = name if name.isprintable() and name == name.strip() else repr(name)
        if name in known.invented:
            meant = known.invented[name]
            what, expected = (
                "is a variable that has never existed",
                meant or "unset: the time limit is the framework's",
            )
        elif meant := nearest(name):
            what, expected = "is read by no known program", meant
            if name.strip().upper() == meant:
                blank = name.strip() != name
                why = "NCCL treats the blank as part of the name" if blank else "names are case-sensitive"
                what = f"is ignored, because {why}"
            elif name.split()[-1:] == [meant]:
                what = f"is ignored, because no known program reads a line that begins with {name.split()[0]!r}"
        else:
            what, expected = "is read by no program that preflight knows", "a name from the user guide or a plug-in"
        yield Violation("unknown-name", (setting,), f"{shown} in {setting.where} {what}", expected)


def version_names(env: NcclEnvironment, here: SettingScope) -> Iterator[Violation]:
    """Yield names that this NCCL no longer reads, does not yet read, or deprecates."""
    known = table()
    for setting in env.settings:
        if (variable := known.variables.get(setting.name)) is None:
            continue
        place = f"{setting.name} in {setting.where}"
        if variable.ended in ("removed", "renamed"):
            if here.versions and all(variable.is_read_by(version) for version in here.versions):
                continue
            if not here.versions and variable.last is not None and variable.last[:2] == known.newest[:2]:
                continue  # the newest series reads it, so nearly every NCCL in use does
            until = f"was {variable.ended} in NCCL {variable.ended_in}" if variable.ended_in else "is not read by NCCL"
            if not variable.ended_in and variable.last is not None:
                until = f"was last read by NCCL {dotted(variable.last)}"
            yield Violation("ended-name", (setting,), f"{place} {until}", variable.instead or "unset")
        elif variable.ended and all(version >= _ended(variable.ended_in) for version in here.versions):
            if of_googles_plugin(env, setting):
                continue
            instead = variable.instead or "unset"
            what = f"{place} has been deprecated since NCCL {variable.ended_in}"
            yield Violation("deprecated-name", (setting,), what, instead)
        elif here.versions and not any(variable.is_read_by(version) for version in here.versions):
            versions = " and ".join(dotted(version) for version in sorted(set(here.versions)))
            first = dotted(variable.since) if variable.since else "?"
            what = f"{place} is not read by NCCL {versions}; NCCL {first} is the first to read it"
            yield Violation("too-new-name", (setting,), what, f"NCCL {first}, or unset")


def _ended(text: str) -> Version:
    numbers = [int(part) for part in text.split(".")] + [0, 0]
    return numbers[0], numbers[1], numbers[2]


# --- values ----------------------------------------------------------------------------------------


def bad_values(env: NcclEnvironment, here: SettingScope) -> Iterator[Violation]:
    """Yield values that NCCL rejects or does not parse as intended."""
    known = table()
    for setting in _settings(env):
        variable = known.variables.get(setting.name)
        if variable is None or variable.ended in ("removed", "renamed"):
            continue
        trimmed = setting.line is not None and here.version is not None and here.version >= TRIMMING
        value = setting.value.rstrip() if trimmed else setting.value
        for fault in faults(variable, value, here.version):
            what = f"{setting.text} in {setting.where} {fault.what}"
            yield Violation("bad-value", (setting,), what, fault.expected, fault.fatal)


def repeats_default(env: NcclEnvironment) -> tuple[str, ...]:
    """Return the names that are set to their default, which is harmless."""
    known = table().variables
    return tuple(
        setting.name for setting in _settings(env)
        if (variable := known.get(setting.name)) is not None
        and setting.value == (str(variable.number) if variable.number is not None else variable.default)
    )  # fmt: skip
