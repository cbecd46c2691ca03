"""Failures in a log, causes before consequences."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from functools import cache

from preflight.parsers.nccl_log import signatures
from preflight.parsers.nccl_log.counters import LogCounters, Occurrence
from preflight.parsers.nccl_log.model import Failure, LogLine, ProcessFailure
from preflight.parsers.nccl_log.ranks import Members
from preflight.parsers.nccl_log.signatures import Signature
from preflight.textprep.prose import is_explanation, is_heading, is_prose, is_quoting

_SHOWN = 20
#: Rank names in prefixes of PyTorch and mpirun: `rank3`, `1,3`. A bare number may be a rank, as with srun.
_TAG_RANK = re.compile(r"(?:\d+,(?:mpirank:)?|rank)(\d{1,7})(?:,.*)?")
_TEXT_RANK = re.compile(r"\[[Rr]ank ?(\d{1,7})\]|\bRank (\d{1,7})\]")
_FAILING_HOST = re.compile(
    r"([A-Za-z][\w.-]{0,254}): Test (?:NCCL|CUDA) failure |([A-Za-z][\w.-]{0,254}): Test timeout "
)


def failures(
    tally: LogCounters, conditions: Collection[str], members: Members
) -> tuple[tuple[Failure, ...], tuple[Failure, ...]]:
    """Return the failures, root cause first, and the hints (severity "info")."""
    by_name: dict[str, list[Occurrence]] = {}
    for key, seen in tally.seen.get("failure", {}).items():
        named = str(key[0]) in _named_by_people()
        if is_explanation(seen.first.text) or (tally.lines and (is_prose if named else is_quoting)(seen.first.text)):
            continue  # a manual's sentence; or prose about the log, which is ignored if the log itself is in the text
        by_name.setdefault(str(key[0]), []).append(seen)
    holds = set(conditions)
    known = list(signatures.by_id(by_name))
    described = [one for one in known if one.when != "unexplained" and one.severity != "info"]
    if any(signature.severity == "fatal" for signature in described):
        holds.add("fatal")
    if described and all(signature.echo for signature in described):
        holds.add("unexplained")
    if not any(one.severity == "fatal" and (not one.when or one.when in holds) for one in known):
        holds.add("silent")
    applicable = [signature for signature in known if not signature.when or signature.when in holds]
    timed = all(seen.first.time for signature in applicable for seen in by_name[signature.id])
    found = [_failure(signature, by_name[signature.id], members, timed) for signature in applicable]
    explains = {signature.id: signature.explains for signature in known}
    serious = _ordered([failure for failure in found if failure.severity != "info"], explains, timed)
    return serious, tuple(sorted((f for f in found if f.severity == "info"), key=lambda f: _when(f.line, timed)))


def _failure(signature: Signature, found: list[Occurrence], members: Members, timed: bool) -> Failure:
    found = sorted(found, key=lambda seen: (_prose_rank(seen.first.text), _when(seen.first, timed)))
    line = found[0].first
    hosts = dict.fromkeys(host for seen in found if (host := _host(seen.first)) is not None)
    rank, host = _rank(line, members, signature), _host(line)
    if host is None and len(hosts) == 1:
        # the first occurrence lacks its host, such as one in a title or in a framework's message
        host = next(iter(hosts))
        known = {rank for seen in found if (rank := _rank(seen.first, members, signature)) is not None}
        rank = known.pop() if rank is None and len(known) == 1 else rank
    if line.host is None and host is not None:
        line = LogLine(**{**{name: getattr(line, name) for name in line.__dataclass_fields__}, "host": host})
    return Failure(
        id=signature.id,
        layer=signature.layer,
        severity=signature.severity,
        echo=signature.echo,
        line=line,
        rank=rank,
        count=sum(seen.count for seen in found),
        hosts=tuple(hosts)[:_SHOWN],
        cause=signature.cause,
        remedy=signature.remedy,
        collect=signature.collect,
        processes=tuple(
            ProcessFailure(own.first, _rank(own.first, members, signature), own.count) for own in found[:_SHOWN]
        ),
    )


def _ordered(found: Iterable[Failure], explains: dict[str, tuple[str, ...]], timed: bool) -> tuple[Failure, ...]:
    """Sort failures: fatal ones first, consequences last, otherwise by time.

    A cause precedes a failure that it explains, unless it was logged later. Summaries, which name only the kind of
    error, follow other consequences, although a framework prints the kind before the message.
    """
    rest = sorted(found, key=lambda f: (f.echo, f.severity != "fatal", f.layer == "summary", _when(f.line, timed)))
    order: list[Failure] = []
    while rest:
        first = rest[0]
        for other in rest[1:]:
            earlier = _when(other.line, timed) <= _when(first.line, timed)
            if first.id in explains[other.id] and not other.echo and earlier:
                first = other
        rest.remove(first)
        order.append(first)
    return tuple(order)


def _when(line: LogLine, timed: bool) -> tuple[str, int]:
    return (line.time or "", line.number) if timed else ("", line.number)


@cache
def _named_by_people() -> frozenset[str]:
    """Return the ids of failures that people also name in sentences."""
    return frozenset(one.id for one in signatures.all_signatures() if one.layer in ("summary", "framework"))


def _prose_rank(text: str) -> int:
    """Return 0 for a program's output, 1 for a title, 2 for a sentence."""
    return 2 if is_prose(text) else int(is_heading(text))


def _host(line: LogLine) -> str | None:
    if line.host is not None:
        return line.host
    match = _FAILING_HOST.search(line.text)
    return (match[1] or match[2]) if match else None


def _rank(line: LogLine, members: Members, signature: Signature) -> int | None:
    """Return the failed rank, from its process, the launcher's prefix or the text.

    A named rank in the prefix takes precedence over the text, since a rank in PyTorch's text is its number in a process
    group. A bare number in the prefix is used last, since it may not be a rank. None if unknown.
    """
    known = members.rank_of((line.host or line.tag, line.pid, line.device))
    if known is not None:
        return known
    tags = line.tag.split()
    if marked := [match for tag in tags if (match := _TAG_RANK.fullmatch(tag))]:
        return int(marked[-1][1])
    if match := _TEXT_RANK.search(line.text):
        return int(match[1] or match[2])
    if "rank" in signature.pattern.groupindex and (match := signature.pattern.search(line.message)) and match["rank"]:
        return int(match["rank"])
    numbers = [int(tag) for tag in tags if tag.isdecimal() and int(tag) < members.nranks]
    return numbers[-1] if numbers else None
