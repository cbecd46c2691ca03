"""How NCCL parses a value, and whether it accepts the result.

Numbers are parsed as by C's ``strtoll(…, 0)``: ``true`` is 0, ``4M`` is 4, ``010`` is 8. Most words that NCCL does not
know are ignored without a message. Sources: NCCL user guide, "Environment Variables"; src/misc/param.cc.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator

from preflight._startup.lightclass import dataclass
from preflight.facts.nccl_environment import strtoll
from preflight.facts.nccl_settings.catalogue import Variable, Version, dotted, nearest

#: Distances in NCCL (src/graph/topo.h) and ``nvidia-smi topo -m``, from near to far.
LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")

#: First release in which NCCL fails on an unknown algorithm or protocol.
STRICT = (2, 24, 0)

_TRUE = re.compile(r"['\"\s]*(?:true|yes|on|enabled?|t|y)['\"\s]*", re.I)
_QUOTED = re.compile(r"(['\"]).*\1", re.S)


@dataclass(frozen=True)
class InvalidValue:
    """What is wrong with one value."""

    what: str  # follows "NAME=VALUE in WHERE "
    expected: str
    fatal: bool = False  # the job fails at start


def faults(variable: Variable, value: str, version: Version | None = None) -> Iterator[InvalidValue]:
    """Yield what is wrong with a value; nothing if NCCL uses it as written."""
    if not value:
        if not (variable.kind == "text" or variable.name.startswith("NCCL_DEBUG_TIMESTAMP")):
            yield InvalidValue("is empty, so NCCL uses its default, and files cannot override it", "a value, or unset")
    elif variable.kind in ("switch", "number", "bytes", "truth"):
        yield from _number(variable, value)
    elif _QUOTED.fullmatch(value.strip()) and len(value.strip()) > 1:
        yield InvalidValue("has quotes, which NCCL treats as part of the value", value.strip()[1:-1] or "a value")
    elif value != value.strip() and variable.name != "NCCL_DEBUG_TIMESTAMP_FORMAT":
        end = "a carriage return" if value.endswith("\r") else "a blank"
        yield InvalidValue(f"begins or ends with {end}, which NCCL treats as part of the value", repr(value.strip()))
    else:
        yield from _text(variable, value, version)


# --- numbers ---------------------------------------------------------------------------------------


def _number(variable: Variable, value: str) -> Iterator[InvalidValue]:
    wanted = _wanted(variable)
    plain = value.strip()
    if variable.kind == "truth" and re.fullmatch(r"1|t|true|0|f|false", value, re.I):
        return
    number = strtoll(value)
    if number is None:
        yield InvalidValue("exceeds 64 bits, so NCCL uses its default", wanted)
    elif not re.match(r"[+-]?[0-9]", plain):
        meant = ", where 1 was meant" if _TRUE.fullmatch(value) or re.fullmatch(r"['\"]\s*1\s*['\"]", plain) else ""
        yield InvalidValue(f"is not a number, so NCCL reads it as 0{meant}", wanted)
    elif re.fullmatch(r"[+-]?0[0-9]+", plain) and number != int(plain):
        yield InvalidValue(f"begins with 0, so NCCL reads it as an octal number, {number}", f"{int(plain)} or {number}")
    elif not re.fullmatch(r"[+-]?(?:0[xX][0-9a-fA-F]+|[0-9]+)", plain):
        yield InvalidValue(f"is read as {number}: NCCL stops at the first character that is not a digit", wanted)
    elif not _in_range(variable, number):
        yield InvalidValue(_out_of_range(variable, number), wanted)
    else:
        yield from _advice(variable, number)


def _in_range(variable: Variable, number: int) -> bool:
    if number == variable.number or (number in (-1, -2) and variable.number is None and variable.default):
        return True  # NCCL's own values for "automatic"
    if variable.kind in ("switch", "truth"):
        return number in (0, 1)
    if variable.values:
        return number in variable.values
    return (variable.min is None or number >= variable.min) and (variable.max is None or number <= variable.max)


def _out_of_range(variable: Variable, number: int) -> str:
    if variable.name == "NCCL_IB_TIMEOUT":
        return "waits forever, so a dead peer hangs the job" if number >= 32 else "is not a time-out"
    if variable.kind in ("switch", "truth"):
        return "is neither 0 nor 1"
    return "is not a value that NCCL accepts" if variable.values else "is out of range"


def _wanted(variable: Variable) -> str:
    if variable.kind in ("switch", "truth"):
        return "0 or 1"
    if variable.values:
        return ", ".join(map(str, variable.values))
    if variable.min is not None and variable.max is not None:
        return f"{variable.min} to {variable.max}"
    return f"a number from {variable.min}" if variable.min is not None else "a number"


def _advice(variable: Variable, number: int) -> Iterator[InvalidValue]:
    """Yield faults of values that NCCL accepts but a job should not use."""
    if variable.name == "NCCL_IB_TIMEOUT" and number == 0:
        yield InvalidValue("waits forever, so a dead peer hangs the job", "18 to 22; 20 is the default")
    elif variable.name == "NCCL_IB_TIMEOUT" and number < 18:
        seconds = 4.096e-6 * 2**number * 7
        yield InvalidValue(
            f"gives up after {seconds:.2g} s, so a link flap ends the job", "18 to 22; 20 is the default"
        )
    elif variable.name == "NCCL_IB_RETRY_CNT" and number != 7:
        yield InvalidValue("makes NCCL give up early; the default is the maximum", "7")
    elif variable.name == "NCCL_BUFFSIZE" and (number < 2**20 or number & (number - 1)):
        yield InvalidValue(
            "is not a power of two of at least 1 MiB, so it does not divide evenly into chunks and slots",
            "4194304, the default",
        )


# --- text ------------------------------------------------------------------------------------------


def _text(variable: Variable, value: str, version: Version | None) -> Iterator[InvalidValue]:
    kind = variable.kind
    if kind == "level":
        yield from _level(value)
    elif kind == "word":
        yield from _word(variable, value)
    elif kind == "words":
        yield from _words(variable, value, version)
    elif kind == "flags":
        if any(not _known(variable, part) for part in value.split("|")):
            yield InvalidValue("is not a word that NCCL accepts", ", ".join(map(str, variable.values)))
    elif kind == "path":
        if value.startswith("~") or "$" in value:
            yield InvalidValue("is used literally: NCCL does not expand ~ or $", "an absolute path")
    elif kind == "network":
        if not _is_network(value):
            yield InvalidValue("is not a network in CIDR form", "10.0.0.0/8, or IPv6")
    elif kind in ("ports", "interfaces") and any(item != item.strip() for item in value.split(",")):
        yield InvalidValue(
            "has a blank in its list, which NCCL treats as part of a name", re.sub(r"\s*,\s*", ",", value)
        )
    elif kind == "address" and not re.fullmatch(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s:\[\]]+):[0-9]{1,5}", value):
        yield InvalidValue("is not host:port", "localhost:28028; an IPv6 address in square brackets")


def _known(variable: Variable, word: str) -> bool:
    return word in map(str, variable.values) if variable.exact else _known_folded(variable, word)


def _word(variable: Variable, value: str) -> Iterator[InvalidValue]:
    wanted = ", ".join(map(str, variable.values))
    if variable.name == "NCCL_NETDEVS_POLICY" and re.fullmatch(r"MAX:[0-9]{1,9}", value, re.I):
        return
    if not _known(variable, value):
        case = " in this letter case" if _known_folded(variable, value) else ""
        yield InvalidValue(f"is not a word that NCCL accepts{case}, so NCCL uses its default", wanted)


def _known_folded(variable: Variable, value: str) -> bool:
    return any(str(one).casefold() == value.casefold() for one in variable.values)


def _level(value: str) -> Iterator[InvalidValue]:
    if value in LEVELS or re.fullmatch(r"[0-9]{1,3}", value):
        return
    upper = value.strip().upper()
    if upper in LEVELS:
        yield InvalidValue("is silently ignored, because values are case-sensitive", upper)
    elif upper == "NODE":
        yield InvalidValue(
            "is silently ignored, because NODE is a term of nvidia-smi", "PHB (one CPU) or SYS (across CPUs)"
        )
    else:
        yield InvalidValue(
            "is silently ignored, because it is not a distance", ", ".join(("LOC", "NVL", "PIX", "PXB", "PHB", "SYS"))
        )


def _words(variable: Variable, value: str, version: Version | None) -> Iterator[InvalidValue]:
    """Yield the first fault in a list of words.

    From 2.24 on, there may be a list for each function: ``allreduce:tree;broadcast:ring``.
    """
    pinned = variable.name in ("NCCL_ALGO", "NCCL_PROTO")
    by_function = pinned and ":" in value
    if by_function and version is not None and version < STRICT:
        yield InvalidValue("is in the form of NCCL 2.24 and later", "a plain list")
        return
    known = {str(word).casefold() for word in variable.values}
    since = {word.casefold(): first for word, first in variable.values_since}
    for part in value.split(";") if by_function else (value,):
        for item in part.rpartition(":")[2].removeprefix("^").split(","):
            first = since.get(item.casefold())
            if item and item.casefold() not in known:
                yield _unknown_word(variable, item[:60], pinned, version)
                return
            if first is not None and version is not None and version < first:
                yield InvalidValue(
                    f"names {item}, which NCCL {dotted(version)} does not support", f"NCCL {dotted(first)}"
                )
                return


def _unknown_word(variable: Variable, item: str, pinned: bool, version: Version | None) -> InvalidValue:
    near = nearest(item, [str(one) for one in variable.values])
    wanted = near or ", ".join(map(str, variable.values))
    if not pinned:
        return InvalidValue(f"names {item!r}, which NCCL ignores", wanted)
    fatal = version is not None and version >= STRICT
    fails = "makes the job fail at start"
    ends = fails if fatal else f"NCCL before 2.24 ignores; from 2.24 on, it {fails}"
    return InvalidValue(f"names {item!r}, which {ends}", wanted, fatal)


def _is_network(value: str) -> bool:
    try:
        ipaddress.ip_network(value, strict=False)
    except ValueError:
        return False
    return True


def same_number(variable: Variable, value: str) -> int | None:
    """Return the number that NCCL parses; None for text, or if unset."""
    numeric = variable.kind in ("switch", "number", "bytes")
    return strtoll(value) if value and numeric else None
