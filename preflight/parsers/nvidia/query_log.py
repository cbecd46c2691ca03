"""``nvidia-smi -q`` as one tree of names per GPU, read from text or XML.

Names are in lower case with underscores: ``GPU T.Limit Temp`` is ``gpu_t_limit_temp``. This applies to all versions of
the driver since R450.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import ParseGap

#: Name -> a string, a tree, or, for processes and MIG instances, a list of trees.
Tree = dict[str, Any]

#: Maximum levels of a tree; the tool prints five. Deeper levels are merged with the last one (text) or left out (XML).
DEEPEST = 32

_NOT_REPORTED = r"n/a|not supported|requested functionality has been deprecated"
_NO_ANSWER = r"gpu is lost|gpu requires reset|unknown error|err!"
#: Text printed instead of a value that the driver does not report.
NOT_REPORTED = re.compile(rf"(?i)\[?(?:{_NOT_REPORTED})\]?")
#: Text printed instead of a value if the driver or the GPU does not answer.
NO_ANSWER = re.compile(rf"(?i)\[?({_NO_ANSWER})\]?")
#: All strings printed instead of a value, and the empty string.
NO_DATA = re.compile(rf"(?i)\[?(?:{_NOT_REPORTED}|{_NO_ANSWER}|insufficient permissions|not found)\]?|")
#: A sentence printed instead of a value.
REFUSAL = re.compile(r"(?is).*(?:error|lost|requires reset|insufficient permissions|not found|err!).*")
#: The last section of a GPU in all versions. Its absence is a gap only if there is a product name, which ``-d`` omits.
_LAST = frozenset({"processes", "compute_processes"})
_NO_LETTERS = re.compile(r"[^a-z0-9]+")
_NUMBER = re.compile(r"(-?\d{1,18}(?:\.\d{1,6})?)(?: ?(?:MiB|MB|KB/s|W|C|MHz|mV|%|x|us|bank\(s\)|errors?))?")
_FLAGS = {"enabled": True, "yes": True, "active": True, "disabled": False, "no": False, "not active": False}
_STATE = re.compile(r"P([0-9]{1,2})")
_DRIVER = re.compile(r"[0-9]{3}(?:\.[0-9]{1,4}){1,2}")
#: A truncated version, and a truncated PCI address.
_VERSION_BEGUN = re.compile(r"\d{1,4}\.?")
_BUS_ID_BEGUN = re.compile(r"[0-9A-Fa-f]{1,8}(?::[0-9A-Fa-f]{0,2}){0,2}\.?")


@dataclass(frozen=True)
class QueryLog:
    """One output of ``nvidia-smi -q``: its head, and a tree for each GPU."""

    general: Tree
    gpus: tuple[tuple[str, Tree], ...]  # PCI address as printed (empty if the text lacks it), and tree


def key(name: str) -> str:
    """Convert a name to lower case with underscores, the form used for lookups."""
    return _NO_LETTERS.sub("_", name.lower()).strip("_")


def value_at(tree: Mapping[str, Any], path: str) -> Any:
    """Return the item at a path (names joined by ``/``); None if it is missing."""
    here: Any = tree
    for name in path.split("/"):
        here = here.get(name) if isinstance(here, dict) else None
    return here


def has_data(value: Any) -> bool:
    """Return whether an item is a value, and not a message printed instead of one."""
    return isinstance(value, str) and not NO_DATA.fullmatch(value)


def errors_in(tree: Tree) -> frozenset[str]:
    """Return the errors printed in place of values, in lower case."""
    return frozenset(match[1].lower() for _, value in leaves(tree) if (match := NO_ANSWER.fullmatch(value)) is not None)


def leaves(tree: Tree, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the path and the value of each leaf of a tree.

    Lists (processes and MIG instances) are left out.
    """
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, name))
        elif isinstance(value, str):
            yield (*path, name), value


def numbers(tree: Any) -> dict[str, Any] | None:
    """Return the values of a section by name, as numbers, flags or strings.

    Nested sections are nested dictionaries. The result is None if the section is missing, N/A or empty.
    """
    if not isinstance(tree, dict):
        return None
    values: dict[str, Any] = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            values[name] = numbers(value)
        elif isinstance(value, str):
            values[name] = number(value)
    return values or None


def number(value: str) -> int | float | bool | str | None:
    """Convert a value to a number without its unit, or to a bool for a flag.

    Any other value is returned as text, or as None if the tool printed no data.
    """
    if (measured := measure(value)) is not None:
        return measured
    if (state := flag(value)) is not None:
        return state
    return value if has_data(value) else None


def measure(value: str) -> int | float | None:
    """Return a number without its unit (``67.03 W``, ``16x``); None for other text."""
    if match := _NUMBER.fullmatch(value):
        return float(match[1]) if "." in match[1] else int(match[1])
    return None


def flag(value: str) -> bool | None:
    """Convert the tool's words for yes and no to a bool; None for any other text."""
    return _FLAGS.get(value.lower())


def performance_state(value: str) -> int | None:
    """Return the number of a performance state such as ``P0``; None for other text."""
    return int(match[1]) if (match := _STATE.fullmatch(value)) else None


def driver_version(log: QueryLog) -> str | None:
    """Return the driver's version; None if the head lacks it or it is truncated."""
    value = log.general.get("driver_version")
    return value if isinstance(value, str) and _DRIVER.fullmatch(value) else None


def complete_version(value: Any) -> str | None:
    """Return a version; None if it is missing or truncated."""
    return value if isinstance(value, str) and not _VERSION_BEGUN.fullmatch(value) else None


def complete_bus_id(value: Any) -> str | None:
    """Return a PCI address; None if it is missing or truncated."""
    return value if isinstance(value, str) and not _BUS_ID_BEGUN.fullmatch(value) else None


def attached(log: QueryLog) -> int | None:
    """Return the number of attached GPUs in the head; None if it is missing."""
    value = log.general.get("attached_gpus")
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,4}", value) else None


def gaps(log: QueryLog, last: int) -> list[ParseGap]:
    """Return the gaps of an output whose last line has the number ``last``."""
    values = []
    count = attached(log)
    if count is None:
        values.append(ParseGap(last, "the header with the number of GPUs is missing", beside=True))
    elif count != len(log.gpus):
        values.append(ParseGap(last, f"{count} GPUs are attached, but only {len(log.gpus)} listed"))
    if log.gpus and len({len(str(tree)) > 600 for _, tree in log.gpus}) > 1:
        values.append(ParseGap(last, f"only the beginning of GPU {log.gpus[-1][0]} is shown"))
    elif log.gpus and "product_name" in log.gpus[-1][1] and not log.gpus[-1][1].keys() & _LAST:
        values.append(ParseGap(last, "the processes at the end of a GPU's list are missing", beside=True))
    return values
