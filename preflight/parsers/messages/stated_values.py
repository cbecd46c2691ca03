"""Values in log lines: hosts, ranks, processes, quantities, named fields.

They are found in any message: ``rank 5``, ``pid=912``, ``loss scale: 1.0``, ``78.4 GiB``, ``30/32``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from preflight.parsers.text_block import prompt_host

#: Maximum number of examined characters of a line, of field names, and of values per name (the first and last ones).
_LONGEST, _NAMES, _VALUES = 1200, 120, (12, 12)

_WORD = r"[A-Za-z_(][\w./()%\[\]-]{0,40}"
#: ``name: value`` or ``name = value``; the value is a number, with or without a unit, a list, a quoted text or a word.
_FIELD = re.compile(
    rf"(?<![\w.$-])(?P<q>[\"']?)(?P<name>{_WORD}(?: {{1,2}}{_WORD}){{0,5}})(?P=q) {{0,24}}[:=]{{1,2}} {{0,12}}"
    r"(?:\[(?P<list>[^\[\]]{0,400})\]|\"(?P<text>[^\"]{1,200})\"|'(?P<other>[^']{1,200})'"
    r"|(?P<number>[-+]?\d{1,20}(?:,\d{3}){0,5}(?:\.\d{1,18})?(?:[eE][-+]?\d{1,3})?)(?![\w.:-]|,\d|/\d)"
    r"(?: ?(?P<unit>(?:[KMGTP]i?B|[kKMG]bytes|bytes|[mun]?s|sec(?:onds?)?|%|[KMGT]?[bB](?:/s|ps)|tokens/s)(?![\w/])))?"
    r"|(?P<word>(?:(?!/\w{1,40}=)[^\s,;|\"'\[\](){}<>]){1,120}))"
)
#: A word with numbers: ``rank 5``, ``ranks 3, 6``, ``signal 6``, ``port 29500``.
_NUMBERED = re.compile(
    r"(?i)(?<![\w.])(?P<name>(?:local |global )?ranks?|pids?|process(?:es)?|tasks?|jobs?(?: ?ids?)?|steps?|iterations?"
    r"|epochs?|signals?|(?:exit ?|status |return )?codes?|exit(?:ed)?(?: with)?(?: status)?|status|errno|error|ports?"
    r"|gpus?|devices?|nodes?|hosts?|workers?|tids?|threads?|attempts?|retry|retries|restarts?|layers?|stages?|shards?"
    r"|uid|gid|seq(?:num)?|reading|threshold|limit|count|lid|vl|queue|qpn?|numa(?: node)?|sockets?|cpus?|slots?|engine"
    r"|xid|batch|version|line)s?"
    r"(?:['\"]?[:=] ?|[ #]{1,2}|\[|\(s\) |: \[?)(?P<values>\d{1,20}(?:(?:, ?| and |, and |-)\d{1,20}){0,63})(?![\w.])"
)
_SHARE = re.compile(r"(?<![\w./:-])(\d{1,9}) ?(?:/| of | out of ) ?(\d{1,9})(?![\w./:-])")
_QUANTITY = re.compile(
    r"(?<![\w.-])(-?\d[\d,]{0,15}(?:\.\d{1,9})?) ?((?:[KMGTP]i?B|[kKMGT]?[bB]ytes|[KMGT]?[Bb](?:its?|ytes?)?"
    r"(?:/s(?:ec)?|ps)|GT/s|[mun\u00b5\u03bc]?s|ms|sec(?:onds?)?|min(?:utes?)?|hours?|h|days?|W|C|\u00b0C|MHz|GHz|RPM"
    r"|%|TFLOP/?s?|[a-z]{2,10}/s(?:ec)?|tok(?:ens)?/s|it/s|s/it|ranks?|gpus?|GPUs?|nodes?|hosts?|process(?:es)?"
    r"|workers?|tasks?|slots?|devices?|errors?|times|pods?|steps?|retries|attempts|CPUs?))(?![\w])"
)
_SIGNAL = re.compile(r"\bSIG(?:KILL|TERM|SEGV|ABRT|BUS|INT|HUP|ILL|FPE|PIPE|USR1|USR2|QUIT|CONT|STOP|XCPU|TRAP)\b")
_SIGNAL_NAMES = re.compile(r"(?i)\b(segmentation fault|bus error|killed|aborted|terminated|illegal instruction)\b")
_ADDRESS = re.compile(
    r"(?<![\w.])((?:25[0-5]|2[0-4]\d|1?\d?\d)(?:\.(?:25[0-5]|2[0-4]\d|1?\d?\d)){3})(?:[:/<](\d{1,5}))?(?![\w.])"
)
_VERSION = re.compile(
    r"(?<![\w./:-])[vV]?(\d{1,4}\.\d{1,5}(?:\.\d{1,6}){1,3}"
    r"(?:[-+.~]?(?:rc|dev|post|cu|cuda|a|b|ubuntu|el|g)[\w.]{0,24}|-\d{1,6}(?:[-.]\w{1,20})?)?)(?![\w:/])"
)
_PATH = re.compile(r"(?<![\w.:/<-])(\.{0,2}/(?:[\w.@%+-]{1,80}/){0,15}[\w.@%+-]{1,120})")
_DEVICE = re.compile(
    r"(?<![\w.-])((?:mlx[45]|bnxt_re|irdma|efa|rdmap\d{1,3}s|hfi1|qedr|erdma|roce[a-z\d]{0,8}|rocep[a-z\d]{1,12})_?\d{0,3}(?::\d{1,2})?"
    r"|(?:eth|ib|en[opsx]\d|bond|rail|nvme|nvidia|rdma|enp\d|ibp\d|ens)\w{1,14}|[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"
    r"|GPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12})(?![\w-])"
)
#: Contexts in which a message names a host: the prefix of a journal or of MPI, ``on node X``, ``host: X``.
_HOSTS = (
    re.compile(
        r"^(?:[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\S{0,16})"
        r" (?P<host>[\w.-]{1,64}) [\w./@-]{1,64}(?:\[\d{1,10}\])?: "
    ),
    re.compile(
        r"(?i)(?<![\w-])(?:node|host(?:name)?|nodename|machine|server|peer|agent|worker|launcher"
        r"|on|from|to|at)(?:s? (?:name|is))?"
        r"['\"]?[:=]? {0,12}['\"\[]?(?P<host>[a-z](?=[\w.-]*\d)[a-z0-9]{0,30}[a-z0-9.-]{0,60})(?![\w(/\\])"
    ),
    re.compile(r"\[(?P<host>[a-zA-Z](?=[\w.-]*\d)[\w.-]{1,62}):\d{1,8}(?::\w{1,16})?(?:, ?\d{1,6})?\]"),
    re.compile(r"(?:^|\s)(?P<host>[a-zA-Z](?=[\w.-]*\d)[\w.-]{1,62}):\d{2,8}:\d{1,8}(?=[ :\]])"),
    re.compile(r"^\[(?P<time>\d{2,20}[\d. :-]{0,20})\] \[(?P<host>[\w.-]{1,62}):\d{1,8} {0,3}:\d{1,6}\]"),
)
_NO_HOST = re.compile(
    r"(?i)(?:rank|gpu|node|step|line|python|mlx|nic|ib|eth|en[ops]|cuda|task|worker|port|device|v|sm_|h|a|b|nccl|utf|int|fp|bf|float|cu)-?"
    r"\d[\d.]*(?:p\d+)?|(?:mlx5|mlx4|bnxt_re)_\d.*|.*\.(?:py|cc|cpp|c|h|so|cu|go|rs|json|ya?ml|log|pt|txt|bin)(?:\.\d.*)?|.*\.(?:com|org|net|io)"
)
_RANGE = re.compile(r"(\d+)(?:-(\d+))?")
#: A Slurm node list: ``gx[01-04,07]``.
_NODE_SET = re.compile(r"(?<![\w.])([a-zA-Z][\w.-]{0,40}\[\d[\d,-]{0,200}\][\w.-]{0,40})")
#: NCCL's version as a number: 22105 is 2.21.5, 2708 is 2.7.8.
_NCCL_NUMBER = re.compile(r"(?i)\b(?:nccl|version)\w{0,20}[ :=]{1,3}(2\d{3,4})(?![\w.])")
#: A rank with its tensors, as Horovod prints it: ``3: [allreduce.grad, …]``.
_OF_RANK = re.compile(r"(?:^|>: ?)(\d{1,6}): \[[A-Za-z]")
#: Words in messages, and the names under which their numbers are stored.
_LISTS = {
    "process": "pids", "pid": "pids", "rank": "ranks", "global rank": "ranks", "local rank": "local_ranks",
    "signal": "signals", "errno": "errnos", "job": "jobs", "jobid": "jobs", "job id": "jobs", "port": "ports",
    "gpu": "gpus", "task": "tasks", "step": "steps", "iteration": "steps", "epoch": "epochs",
    **dict.fromkeys(("code", "exit code", "exitcode", "exit", "exited", "exited with", "exit status",
                     "exited with status", "status", "status code", "return code"), "exit_codes"),
}  # fmt: skip


class StatedValues:
    """The values in a text by name, each once, in order of occurrence."""

    def __init__(self) -> None:
        self._lists: dict[str, dict[Any, None]] = {}
        self._fields: dict[str, dict[Any, None]] = {}

    def add(self, text: str) -> None:
        """Add the values of one line."""
        text = text[:_LONGEST]
        for name, value in _values(text):
            _put(self._lists.setdefault(name, {}), value)
        for name, value in _fields(text):
            if name in self._fields or len(self._fields) < _NAMES:
                _put(self._fields.setdefault(name, {}), value)

    def document(self) -> dict[str, Any]:
        """Return lists of values by name; ``fields`` has the ``name: value`` fields."""
        lists: dict[str, Any] = {name: list(values) for name, values in self._lists.items() if values}
        fields = {name: list(values) for name, values in self._fields.items()}
        return lists | ({"fields": fields} if fields else {})


def stated(texts: Iterable[str]) -> dict[str, Any]:
    """Return the values in some lines, by name."""
    values = StatedValues()
    for text in texts:
        values.add(text)
    return values.document()


def _put(values: dict[Any, None], value: Any) -> None:
    """Add a value; if there are too many, drop one between the first and last ones."""
    if value in values:
        return
    first, last = _VALUES
    if len(values) >= first + last:
        del values[next(key for at, key in enumerate(values) if at == first)]
    values[value] = None


def _values(text: str) -> Iterator[tuple[str, Any]]:
    for pattern in _HOSTS:
        for match in pattern.finditer(text):
            host = match["host"].rstrip(".-")
            if not _NO_HOST.fullmatch(host):
                yield "hosts", host
    if host := prompt_host(text):
        yield "hosts", host
    for match in _NUMBERED.finditer(text):
        name = " ".join(match["name"].lower().split())
        name = _LISTS.get(name) or _LISTS.get(name.removesuffix("es")) or _LISTS.get(name.removesuffix("s"), name)
        for value in _numbers(match["values"]):
            yield name, value
    for match in _ADDRESS.finditer(text):
        yield "addresses", match[1]
        if match[2] and match[0][-len(match[2]) - 1] == ":":
            yield "ports", int(match[2])
    for match in _SHARE.finditer(text):
        yield "shares", f"{match[1]}/{match[2]}"
    for match in _QUANTITY.finditer(text):
        yield "quantities", f"{match[1]} {match[2]}"
    for match in _NCCL_NUMBER.finditer(text):
        yield "versions", _nccl_version(int(match[1]))
    for name, pattern in _PLAIN:
        for match in pattern.finditer(text):
            if pattern is not _VERSION or not _ADDRESS.fullmatch(match[1]):
                yield name, int(match[1]) if pattern is _OF_RANK else match[match.lastindex or 0]


_PLAIN: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("signal_names", _SIGNAL), ("signal_names", _SIGNAL_NAMES), ("versions", _VERSION), ("paths", _PATH),
    ("devices", _DEVICE), ("node_sets", _NODE_SET), ("ranks", _OF_RANK),
)  # fmt: skip


def _nccl_version(number: int) -> str:
    major = 10_000 if number >= 10_000 else 1000
    return f"{number // major}.{number % major // 100}.{number % 100}"


def _numbers(text: str) -> Iterator[int]:
    """Yield the numbers of ``3, 6`` and ``3-6``; only the ends of a long range."""
    for first, last in _RANGE.findall(text):
        if last and int(first) < int(last) <= int(first) + 64:
            yield from range(int(first), int(last) + 1)
        else:
            yield from (int(number) for number in (first, last) if number)


def _fields(text: str) -> Iterator[tuple[str, Any]]:
    for match in _FIELD.finditer(text):
        name = match["name"].strip("([")
        if match["list"] is not None:
            for value in match["list"].split(",")[:32]:
                if value.strip():
                    yield name, _plain(value.strip().strip("'\""))
        elif match["number"]:
            yield name, _plain(match["number"]) if not match["unit"] else f"{match['number']} {match['unit']}"
        else:
            yield name, _plain(next(match[group] for group in ("text", "other", "word") if match[group]).rstrip(".:"))


def _plain(text: str) -> Any:
    """Return the number that a string represents, or else the string."""
    for kind in _KINDS:
        try:
            value = kind(text.replace(",", ""))
        except ValueError:
            continue
        return value if value == value and abs(value) < float("inf") else text
    return text


_KINDS: tuple[Callable[[str], Any], ...] = (int, float)
