"""Records as the collector writes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Records = dict[str, Any]


def ok(text: str) -> dict[str, Any]:
    return {"status": "ok", "out": text}


def ran(text: str, rc: int = 0, err: str = "") -> dict[str, Any]:
    record: dict[str, Any] = {"status": "ok", "rc": rc, "seconds": 0.1}
    return record | ({"out": text} if text else {}) | ({"err": err} if err else {})


def link(target: str) -> dict[str, Any]:
    return {"type": "link", "mode": "0777", "uid": 0, "gid": 0, "access": "r", "target": target}


def listing(entries: Mapping[str, Any]) -> dict[str, Any]:
    return {"status": "ok", "entries": dict(entries)}


#: Ends of a window on the node's monotonic clock.
BEGAN_S, WINDOW_S = 421000.5, 60.0


def twice(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Write a record that was read at both ends of a window."""
    return {**first, "at_s": BEGAN_S, "again": {**second, "at_s": BEGAN_S + WINDOW_S}}


DIRECTORY = {"type": "dir", "mode": "0755", "uid": 0, "gid": 0, "access": "r"}
#: A GID with its interface in another network namespace.
ELSEWHERE = {"status": "error", "why": "Invalid argument"}
MISSING = {"status": "missing", "why": "No such file or directory"}
