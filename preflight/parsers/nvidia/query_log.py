"""``nvidia-smi -q`` as trees of names, from its text or its XML.

Names are looked up in lower case with underscores: ``GPU T.Limit Temp`` is ``gpu_t_limit_temp``, in all versions
since R450.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.parsed import ParseGap

#: Name -> text, a tree, or, for processes and MIG instances, a list of trees.
Tree = dict[str, Any]

#: Maximum levels of a tree: the tool prints five; deeper ones are read as siblings of the last.
DEEPEST = 32

_NOT_REPORTED = r"n/a|not supported|requested functionality has been deprecated"
_NO_ANSWER = r"gpu is lost|gpu requires reset|unknown error|err!"
#: Words printed instead of a value that the driver does not report.
NOT_REPORTED = re.compile(rf"(?i)\[?(?:{_NOT_REPORTED})\]?")
#: Words printed instead of a value if the driver or the GPU did not answer.
NO_ANSWER = re.compile(rf"(?i)\[?({_NO_ANSWER})\]?")
#: All words printed instead of a value.
NO_DATA = re.compile(rf"(?i)\[?(?:{_NOT_REPORTED}|{_NO_ANSWER}|insufficient permissions|not found)\]?|")
#: A sentence printed instead of a value.
REFUSAL = re.compile(r"(?is).*(?:error|lost|requires reset|insufficient permissions|not found|err!).*")
#: Text that ends a GPU's list in all versions; ``-d`` prints sections without the product name.
_LAST = frozenset({"processes", "compute_processes"})
_NO_LETTERS = re.compile(r"[^a-z0-9]+")
_NUMBER = re.compile(r"(-?\d{1,18}(?:\.\d{1,6})?)(?: ?(?:MiB|MB|KB/s|W|C|MHz|mV|%|x|us|bank\(s\)|errors?))?")
_FLAGS = {"enabled": True, "yes": True, "active": True, "disabled": False, "no": False, "not active": False}
_STATE = re.compile(r"P([0-9]{1,2})")
_DRIVER = re.compile(r"[0-9]{3}(?:\.[0-9]{1,4}){1,2}")
#: The start of a version and of a PCI address: the text was truncated within it.
_VERSION_BEGUN = re.compile(r"\d{1,4}\.?")
_BUS_ID_BEGUN = re.compile(r"[0-9A-Fa-f]{1,8}(?::[0-9A-Fa-f]{0,2}){0,2}\.?")


@dataclass(frozen=True)
class QueryLog:
    """One output: the head, and each GPU's tree."""

    general: Tree
    gpus: tuple[tuple[str, Tree], ...]  # PCI address as printed, empty if the text lacks it


def key(name: str) -> str:
    """Return the lookup form of a name."""
    return _NO_LETTERS.sub("_", name.lower()).strip("_")


def value_at(tree: Mapping[str, Any], path: str) -> Any:
    """Return the item at a path (names joined by ``/``); None if the text lacks it."""
    here: Any = tree
    for name in path.split("/"):
        here = here.get(name) if isinstance(here, dict) else None
    return here


def has_data(value: Any) -> bool:
    """Return whether a text is a value, and not a word for its absence."""
    return isinstance(value, str) and not NO_DATA.fullmatch(value)


def errors_in(tree: Tree) -> frozenset[str]:
    """Return the errors printed instead of values, in lower case."""
    return frozenset(match[1].lower() for _, value in leaves(tree) if (match := NO_ANSWER.fullmatch(value)) is not None)


def leaves(tree: Tree, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield each value of a tree with its path.

    Lists, which have processes and instances, are left out.
    """
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from leaves(value, (*path, name))
        elif isinstance(value, str):
            yield (*path, name), value


def numbers(tree: Any) -> dict[str, Any] | None:
    """Return the numbers and flags of a section by name, nested sections as objects.

    None if the section is missing or is N/A; other values are texts.
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
    """Return a number without its unit, a flag as a bool, otherwise the text.

    None without data.
    """
    if (measured := measure(value)) is not None:
        return measured
    if (state := flag(value)) is not None:
        return state
    return value if has_data(value) else None


def measure(value: str) -> int | float | None:
    """Return a number without its unit (``67.03 W``, ``16x``); None for no number."""
    if match := _NUMBER.fullmatch(value):
        return float(match[1]) if "." in match[1] else int(match[1])
    return None


def flag(value: str) -> bool | None:
    """Return a yes or no in any of the tool's spellings; None for any other text."""
    return _FLAGS.get(value.lower())


def performance_state(value: str) -> int | None:
    """Return the number of a state, ``P0``; None for any other text."""
    return int(match[1]) if (match := _STATE.fullmatch(value)) else None


def driver_version(log: QueryLog) -> str | None:
    """Return the complete version of the driver; None if the head has none."""
    value = log.general.get("driver_version")
    return value if isinstance(value, str) and _DRIVER.fullmatch(value) else None


def complete_version(value: Any) -> str | None:
    """Return a version, unless it is truncated."""
    return value if isinstance(value, str) and not _VERSION_BEGUN.fullmatch(value) else None


def complete_bus_id(value: Any) -> str | None:
    """Return a PCI address, unless it is truncated."""
    return value if isinstance(value, str) and not _BUS_ID_BEGUN.fullmatch(value) else None


def attached(log: QueryLog) -> int | None:
    """Return the number of GPUs in the head."""
    value = log.general.get("attached_gpus")
    return int(value) if isinstance(value, str) and re.fullmatch(r"\d{1,4}", value) else None


def gaps(log: QueryLog, last: int) -> list[ParseGap]:
    """Return the gaps of an output that ends at the line ``last``."""
    values = []
    count = attached(log)
    if count is None:
        values.append(ParseGap(last, "the head with the number of GPUs is missing", beside=True))
    elif count != len(log.gpus):
        values.append(ParseGap(last, f"{count} GPUs are attached, but {len(log.gpus)} are listed"))
    if log.gpus and len({len(str(tree)) > 600 for _, tree in log.gpus}) > 1:
        values.append(ParseGap(last, f"only the beginning of GPU {log.gpus[-1][0]} is shown"))
    elif log.gpus and "product_name" in log.gpus[-1][1] and not log.gpus[-1][1].keys() & _LAST:
        values.append(ParseGap(last, "the processes at the end of a GPU's list are missing", beside=True))
    return values
