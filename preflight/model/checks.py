"""Checks as data, and the decorator that makes them."""

from __future__ import annotations

import enum
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol, cast

from preflight._startup.lightclass import dataclass
from preflight.model.findings import ACTIONS, IMPACTS, OWNERS, Finding

#: Relations between the subjects of two findings, one of which is required for one to explain the other.
RELATIONS = ("part", "node", "missing", "names", "cable", "switch", "parts", "ended", "unknown", "log")


@dataclass(frozen=True)
class Relation:
    """Relation between findings: this check explains findings of ``effect``.

    ``on`` is one of ``RELATIONS``. ``cause`` and ``about`` are ``fnmatch`` patterns for the subject or message of the
    explaining and of the explained finding.
    """

    effect: str
    on: str
    cause: str = "*"
    about: str = "*"


class Scope(str, enum.Enum):
    """Scope of a check: one node, all nodes together, or the logs of a run."""

    NODE = "node"
    FLEET = "fleet"
    RUN = "run"

    def __str__(self) -> str:
        return self.value


class CheckFunction(Protocol):
    """The function of a check.

    Called with ``(facts, site)`` for a node or a run, ``(nodes, sites)`` for a fleet, ``(sweep, fabric)`` for a
    sweep, ``(ethernet, site)`` for switches.
    """

    __name__: str

    def __call__(self, facts: Any, site: Any, /) -> Iterator[Finding]:
        """Yield findings; pure: no I/O, no state."""
        ...


class Applicability(Protocol):
    """A function that returns a finding if a check does not apply, else None."""

    __name__: str

    def __call__(self, node: Any, site: Any, /) -> Finding | None:
        """Return the finding that replaces the check's, or None; pure."""
        ...


@dataclass(frozen=True)
class Check:
    """A check as data: id, title, source, fix, and the checklist items it answers."""

    id: str
    title: str
    scope: Scope
    source: str
    fix: str
    answers: tuple[str, ...]
    gating: bool
    run: CheckFunction
    sweep: bool = False  # judges a fabric sweep, once for all nodes, if there is one
    window: bool = False  # judges growth of counters, if they were read twice
    pair: str = ""  # judges this test between two nodes, if it was run
    reads: tuple[str, ...] = ()  # records read only on rare machines; others are found by running it
    needs: tuple[str, ...] = ()  # for a run: planned only with one of these kinds of logs (RunFacts.kinds)
    history: bool = False  # judges trends over earlier runs, if there is a history
    unless: tuple[Applicability, ...] = ()  # the first finding of these functions is reported instead
    action: str = ""  # action of a failure, one of ACTIONS
    impact: str = ""  # impact of a failure, one of IMPACTS
    owner: str = ""  # owner, one of OWNERS; empty: by the action
    explains: tuple[tuple[str, ...], ...] = ()  # findings of other checks that this one explains; see Relation
    fault: str = ""  # the title of a failure or a warning
    separate: bool = False  # whether similar findings on several nodes are separate incidents
    switches: bool = False  # judges all Ethernet switches together, once, if there are any

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The relations of this check to the findings that it explains."""
        return tuple(Relation(*words) for words in self.explains)

    def findings(self, facts: Any, site: Any) -> Iterator[Finding]:
        """Yield the findings of the check, or the finding that it does not apply."""
        for applicability in self.unless:
            if finding := applicability(facts, site):
                yield finding
                return
        yield from self.run(facts, site)

    @property
    def doc(self) -> str:
        """The docstring of the check, without its indentation."""
        return _page(self.run)

    @property
    def page(self) -> dict[str, str]:
        """The check's page: heading -> text, in the order in which it is printed.

        The text before the first heading of the docstring is *What it does*. In a docstring without headings, as in
        older plug-ins, the second paragraph is *Why it matters*.
        """
        head, *parts = _HEADING.split("\n" + self.doc)
        sections = dict(zip(parts[::2], (part.strip("\n") for part in parts[1::2]), strict=True))
        what = "\n".join(line for line in head.split("\n") if line.strip())
        if WHY not in sections:
            what, why, verdicts = (*head.strip("\n").split("\n\n", 2), "", "")[:3]
            sections = {WHY: why, **({VERDICTS: verdicts} if verdicts else {}), **sections}
        return {WHAT: what, **sections, SOURCES: self.source}

    @property
    def why(self) -> str:
        """The effect on a job: the text of *Why it matters*, as one paragraph."""
        return " ".join(self.page[WHY].split())


#: The headings of a check's page. A docstring has the middle three as `## Why it matters`, …
WHAT, WHY, VERDICTS = "What it does", "Why it matters", "Verdicts"
FALSE_ALARMS, SOURCES = "False alarms", "Sources"
_HEADING = re.compile(r"\n## (.+)\n")


def docstring(function: Any) -> str | None:
    """Return the docstring of a function, also under ``python -OO``.

    That option drops docstrings, so the source is read instead. None if there is no docstring.
    """
    if function.__doc__ or sys.flags.optimize < 2:
        return cast("str | None", function.__doc__)
    import ast
    import inspect
    import textwrap

    try:
        (written,) = ast.parse(textwrap.dedent(inspect.getsource(function))).body
    except (OSError, TypeError, SyntaxError, ValueError):
        return None
    return ast.get_docstring(written, clean=False) if isinstance(written, ast.FunctionDef) else None


def _page(function: Any) -> str:
    """Return the docstring of a function without its indentation.

    ``inspect.getdoc`` does the same, but imports the compiler.
    """
    first, *others = (docstring(function) or "").expandtabs().split("\n")
    margin = min((len(line) - len(line.lstrip()) for line in others if line.strip()), default=0)
    return "\n".join([first.lstrip(), *(line[margin:] for line in others)]).strip("\n").rstrip()


_ID = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")


def check(
    id: str,
    *,
    title: str,
    source: str,
    fix: str,
    answers: Sequence[str] = (),
    scope: str = "node",
    gating: bool = True,
    sweep: bool = False,
    window: bool = False,
    pair: str = "",
    reads: Sequence[str] = (),
    needs: Sequence[str] = (),
    history: bool = False,
    unless: Sequence[Applicability] = (),
    action: str = "",
    impact: str = "",
    owner: str = "",
    explains: Sequence[Sequence[str]] = (),
    fault: str = "",
    separate: bool = False,
    switches: bool = False,
) -> Callable[[CheckFunction], Check]:
    """Create a Check from a function; an invalid declaration fails at import.

    ``unless`` declares when the check does not apply: functions of ``preflight.checks.applicability``, which do not
    import the check's module, then functions of that module. ``action`` is the action of a failure (default: isolate
    the node), ``impact`` its impact (default: it blocks a job if the check is gating, else it drifts), ``owner`` who
    acts on it (default: by the action), ``explains`` the arguments of a :class:`Relation` for each check that this one
    explains. ``title`` states the good state, ``fault`` the failure. ``separate`` makes similar findings on several
    nodes separate incidents; otherwise they are one wrong setting (``fix-site``, ``fix-job``).
    """
    if not _ID.fullmatch(id):
        raise ValueError(f"check id {id!r} is not of the form subject.what")
    if action and action not in ACTIONS:
        raise ValueError(f"check {id}: action {action!r} is none of {', '.join(ACTIONS)}")
    if impact and impact not in IMPACTS:
        raise ValueError(f"check {id}: impact {impact!r} is none of {', '.join(IMPACTS)}")
    if owner and owner not in OWNERS:
        raise ValueError(f"check {id}: owner {owner!r} is none of {', '.join(OWNERS)}")
    for words in explains:
        if not 2 <= len(words) <= 4 or words[1] not in RELATIONS:
            raise ValueError(f"check {id}: {tuple(words)!r} has none of {', '.join(RELATIONS)}")

    def decorate(function: CheckFunction) -> Check:
        made = Check(id, title, Scope(scope), source, fix, tuple(answers), gating, function, sweep, window,
                     pair, tuple(reads), tuple(needs), history, tuple(unless), action, impact, owner,
                     tuple(map(tuple, explains)), fault, separate, switches)  # fmt: skip
        if all(line.strip() for line in (docstring(function) or "").strip().split("\n")):  # one paragraph, or none
            raise ValueError(f"check {id}: its docstring has no section `## {WHY}`")
        return made

    return decorate
