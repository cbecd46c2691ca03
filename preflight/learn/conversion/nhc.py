"""Conversion of NHC's configuration to a cluster file, without executing it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from preflight.learn.conversion.draft import Draft, Loss
from preflight.learn.conversion.groups import TargetGroup, group_nodes
from preflight.learn.conversion.nhc_checks import NHC_VARIABLES, convert_check
from preflight.learn.conversion.targets import Target, TargetSyntax, parse_target
from preflight.learn.conversion.writer import ConvertedClass
from preflight.parsers.host.nhc_config import ConfigLine, ShellSyntax, assignments, parse, words

#: Maximum number of lines of all classes together.
_MOST_CONVERSIONS = 2_000_000


def convert_nhc(text: str, hosts: Sequence[str]) -> tuple[list[ConvertedClass], list[Loss]]:
    """Return classes, and lines not converted, in order; raises ValueError."""
    lines = parse(text)
    losses: list[Loss] = []
    targets: list[tuple[int, Target]] = []
    for at, line in enumerate(lines):
        if reason := _unusable(line):
            losses.append(Loss(line.number, line.text, reason))
            continue
        try:
            targets.append((at, parse_target(line.target)))
        except TargetSyntax as error:
            losses.append(Loss(line.number, line.text, f"target {line.target[:80]} {error}"))
    grouping = group_nodes(targets, hosts)
    for at, target in targets:
        if target.text in grouping.uncertain:
            reason = f"target {target.text[:80]}: {grouping.uncertain[target.text]}"
            losses.append(Loss(lines[at].number, lines[at].text, reason))
    if sum(len(group.lines) for group in grouping.groups) > _MOST_CONVERSIONS:
        raise ValueError("has too many lines for too many different nodes")
    classes = []
    used: set[str] = set()
    assigned: dict[tuple[int, str], str] = {}
    for group in grouping.groups:
        draft = _draft((lines[at] for at in group.lines), used, assigned)
        losses += draft.losses
        classes.append((group, draft))
    losses += [Loss(at, text, _about_variable(name)) for (at, name), text in assigned.items() if name not in used]
    return _merged(classes), sorted(set(losses), key=lambda loss: (loss.line, loss.covered, loss.text, loss.reason))


def _unusable(line: ConfigLine) -> str:
    if not line.target and "||" not in line.text:
        return "has no `||`, so it applies to no node"
    if not line.target or not line.command:
        return "has no target or no check, and NHC skips it"
    return ""


def _about_variable(name: str) -> str:
    if name.startswith("MCELOG_MAX"):
        return f"{name}: kernel.events has its own limits for machine checks"
    if name in ("MAX_SYS_UID", "NHC_AUTH_USERS"):
        return f"{name}: allowed users cannot be declared; host.forbidden_users lists forbidden ones"
    if name in NHC_VARIABLES:
        return f"{name}: a setting of NHC itself"
    return f"{name}: a variable that no converted line depends on"


def _draft(lines: Iterable[ConfigLine], used: set[str], assigned: dict[tuple[int, str], str]) -> Draft:
    """Convert the lines of a node in order; variables apply to the lines after them."""
    draft = Draft()
    variables: dict[str, str] = {}
    for line in lines:
        draft.at(line.number, line.text)
        read = _Recorded(variables)
        try:
            parts = words(line.command, read)
        except ShellSyntax as error:
            draft.lose(str(error))
            continue
        finally:
            used |= read.names
        if not parts:
            draft.lose("has no check, and NHC skips it")
        elif (made := assignments(parts)) is not None:
            variables.update(made)
            assigned.update({(line.number, name): line.text for name in made})
        else:
            convert_check(parts[0], parts[1:], draft)
    draft.join_ports()
    return draft


class _Recorded(dict[str, str]):
    """Variables, and the names of those that were read."""

    def __init__(self, variables: dict[str, str]) -> None:
        super().__init__(variables)
        self.names: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.names.add(name)
        return super().__getitem__(name)


def _merged(classes: Iterable[tuple[TargetGroup, Draft]]) -> list[ConvertedClass]:
    """Merge nodes with equal expectations; leave out those without any."""
    joined: dict[str, tuple[list[str], str, Draft]] = {}
    for group, draft in classes:
        if not draft.entries:
            continue
        values = repr(sorted((path, entry.value) for path, entry in draft.entries.items()))
        key = f"{'nodes' if group.nodes else group.pattern or 'all'} {values}"
        joined.setdefault(key, ([], group.pattern, draft))[0].extend(group.nodes)
    return [ConvertedClass(tuple(nodes), pattern, draft.entries) for nodes, pattern, draft in joined.values()]
