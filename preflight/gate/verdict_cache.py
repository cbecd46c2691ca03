"""Cached verdicts in the state directory.

A cached verdict is valid for the same node and boot if it has not expired, is not dated in the future, and its inputs
are unchanged: the cluster file, the files that it names, the checks and the plug-ins.

Imported before every job. ``verdict.json`` is for people and tools; ``verdict.cached`` is read back. Each of its lines
has a key and a value, because importing ``json`` takes half as long as starting Python.
"""

from __future__ import annotations

import os
import sys
import time

from preflight.gate import policy, verdict
from preflight.gate.state_dir import StateDir, StateDirError
from preflight.gate.verdict import UnusableVerdict, Verdict
from preflight.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    #: device, inode, bytes, times of the last change of content and inode in ns; None: no such file.
    Stamp = Sequence[int] | None

SCHEMA, END = "preflight.cached/1", "end"
FILE, DOCUMENT = "verdict.cached", "verdict.json"

#: Default refresh interval in seconds: HealthCheckInterval is often 300.
REFRESH_S = 300.0

#: Maximum age of a verdict in refresh intervals: one refresh may be late.
INTERVALS = 2

_MOST_BYTES = 1 << 20
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_LISTS = ("causes", "unknowns", "off")
_TEXTS = ("node", "status", "boot_id", "policy", "cause", "reason", "whose")


class Cached:
    """A cached verdict, its age in seconds, and the rules at the time of judging.

    ``hooks`` is hook -> {"strict": bool, "cached": bool, "actions": {status: action}}; ``error`` is the error in
    the cluster file if its last valid copy was used.
    """

    __slots__ = ("age_s", "error", "hooks", "refresh_s", "verdict")

    def __init__(
        self, verdict: Verdict, age_s: float, refresh_s: float, hooks: Mapping[str, Mapping[str, Any]], error: str = ""
    ) -> None:
        self.verdict, self.age_s, self.refresh_s, self.hooks, self.error = verdict, age_s, refresh_s, hooks, error

    @property
    def due(self) -> bool:
        """Whether it is time to judge the node again."""
        return self.age_s >= self.refresh_s

    def allowed(self, hook: str) -> bool:
        """Return whether the cluster file allows a hook to use this verdict."""
        return bool(self.hooks.get(hook, {}).get("cached", True))

    def rule(self, hook: str, strict: bool = False) -> policy.PolicyRule:
        """Return a hook's rule for this verdict."""
        rules = self.hooks.get(hook, {})
        return policy.rule(hook, self.verdict.status, rules.get("actions"), strict or bool(rules.get("strict")))


def boot_id() -> str:
    """Return the identifier of this boot; "" if it cannot be read."""
    try:
        with open(_BOOT_ID, "rb", buffering=0) as stream:
            return stream.read(64).decode("ascii", "replace").strip()
    except OSError:
        return ""


def stamp(path: str) -> Stamp:
    """Return a stamp that changes when a file is written, replaced or removed."""
    try:
        info = os.stat(path)
    except OSError:
        return None
    return [info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns]


def installed() -> list[str]:
    """Return the directories that change when checks or plug-ins are installed."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not os.path.isdir(ours):  # preflight as a single file
        return [os.path.dirname(ours)]
    domains = sorted(entry.path for entry in os.scandir(f"{ours}/checks") if entry.is_dir())
    domains = [path for path in domains if not path.endswith("__pycache__")]
    return [
        f"{ours}/checks",
        *domains,
        *dict.fromkeys(path for path in sys.path[1:] if path.startswith("/") and path != ours),
    ]


def put(
    store: StateDir, found: Verdict, refresh_s: float, hooks: Mapping[str, Any], inputs: Iterable[tuple[str, Stamp]],
    error: str = "",
) -> None:  # fmt: skip
    """Write a verdict; raises StateDirError.

    ``inputs`` are the input files of the judgement, the cluster file first.
    """
    import json

    document = verdict.to_document(found)
    lines = [SCHEMA, f"version {VERSION}", f"refresh_s {refresh_s!r}", f"error {_quoted(error)}"]
    lines += [f"{name} {document[name]}" for name in (*_TEXTS, "at", "seconds")]
    lines += [f"{name} {' '.join(document[name])}" for name in _LISTS]
    for name, rules in hooks.items():
        actions = [f"{status}={action}" for status, action in rules["actions"].items()]
        lines.append(
            " ".join(("hook", name, f"strict={int(rules['strict'])}", f"cached={int(rules['cached'])}", *actions))
        )
    inputs = list(inputs)
    lines.append(f"counts {len(hooks)},{len(inputs)}")
    for path, was in inputs:
        lines.append(f"input {_stamp_text(was)} {_quoted(path)}")
    store.write(FILE, "".join(f"{line}\n" for line in (*lines, END)).encode("ascii"))
    store.write(DOCUMENT, json.dumps(document, indent=1).encode("ascii") + b"\n")


def look(store: StateDir, node: str, cluster: str | None) -> Cached:
    """Return the cached verdict on this node for this cluster file.

    Raises UnusableVerdict with the reason if none is valid.
    """
    try:
        raw = store.read(FILE, _MOST_BYTES)
    except FileNotFoundError:
        raise UnusableVerdict("none has been written yet") from None
    except StateDirError as error:
        raise UnusableVerdict(str(error)) from None
    try:
        found, version, inputs = decode(raw)
    except UnusableVerdict as error:
        raise UnusableVerdict(f"{store.path}/{FILE}: {error}") from None
    stored = found.verdict
    if stored.node != node:
        raise UnusableVerdict(f"it is for node {stored.node}")
    if not stored.boot_id or stored.boot_id != boot_id():
        raise UnusableVerdict("it is from another boot")
    if found.age_s < 0:
        raise UnusableVerdict(f"it is {-found.age_s:.0f} s in the future: the clock was set back")
    if found.age_s > INTERVALS * found.refresh_s:
        raise UnusableVerdict(f"it is {found.age_s:.0f} s old, but valid for only {INTERVALS * found.refresh_s:.0f} s")
    if version != VERSION:
        raise UnusableVerdict("another version of preflight wrote it")
    if not inputs or inputs[0][1] != (cluster or ""):
        raise UnusableVerdict("it was judged with another cluster file")
    for was, path in inputs:
        if path and _stamp_text(stamp(path)) != was:
            raise UnusableVerdict(f"{path} has changed since")
    return found


def decode(raw: bytes) -> tuple[Cached, str, list[tuple[str, str]]]:
    """Decode a verdict, its version, and its inputs as (stamp, path).

    Raises UnusableVerdict.
    """
    try:
        return _decoded(raw)
    except UnusableVerdict:
        raise
    except (ValueError, KeyError, IndexError, TypeError):
        raise UnusableVerdict("it is not a complete verdict") from None


def _decoded(raw: bytes) -> tuple[Cached, str, list[tuple[str, str]]]:
    lines = raw.decode("ascii").split("\n")
    if lines[0] != SCHEMA or lines[-2:] != [END, ""]:
        raise UnusableVerdict("it is empty, or incomplete")
    values: dict[str, str] = {}
    hooks: dict[str, Mapping[str, Any]] = {}
    inputs: list[tuple[str, str]] = []
    for line in lines[1:-2]:
        key, _, value = line.partition(" ")
        if key == "hook":
            name, *words = value.split(" ")
            if name in hooks:
                raise UnusableVerdict(f"it has two rules for {name[:40]!a}")
            hooks[name] = _hook_rules(dict(word.split("=") for word in words))
        elif key == "input":
            was, _, path = value.partition(" ")
            inputs.append((was, _unquoted(path)))
        elif key in values:
            raise UnusableVerdict(f"it has {key[:40]!a} twice")
        else:
            values[key] = value
    document: dict[str, Any] = {"schema": verdict.SCHEMA, "at": int(values.pop("at"))}
    document["seconds"] = float(values.pop("seconds"))
    for name in _LISTS:
        document[name] = values.pop(name).split()
    version, refresh_s, error = values.pop("version"), float(values.pop("refresh_s")), _unquoted(values.pop("error"))
    if values.pop("counts") != f"{len(hooks)},{len(inputs)}":
        raise UnusableVerdict("rules or inputs are missing")
    if not 0 < refresh_s < 1e6:
        raise UnusableVerdict("its refresh interval is not a number of seconds")
    found = verdict.from_document({**document, **values})  # unknown fields remain
    return Cached(found, time.time() - found.at, refresh_s, hooks, error), version, inputs


def _hook_rules(words: dict[str, str]) -> Mapping[str, Any]:
    flags = {name: {"0": False, "1": True}[words.pop(name)] for name in ("strict", "cached")}
    if any(action not in policy.OVERRIDES[status] for status, action in words.items()):
        raise UnusableVerdict("its rules are incomplete")
    return {**flags, "actions": words}


def _stamp_text(was: Stamp) -> str:
    return "-" if was is None else ",".join(map(str, was))


def _quoted(text: str) -> str:
    """Return any text as printable ASCII without spaces."""
    raw = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if 0x20 < byte < 0x7F and byte != 0x25 else f"%{byte:02x}" for byte in raw)


def _unquoted(text: str) -> str:
    first, *rest = text.split("%")
    raw = first.encode() + b"".join(bytes((int(part[:2], 16),)) + part[2:].encode() for part in rest)
    return raw.decode("utf-8", "surrogateescape")
