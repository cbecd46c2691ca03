"""Verdicts of a little while ago, as they lie in the state directory.

A verdict is as good as new where node and boot are the same, it is not from the future and not too old, and nothing
that it was judged by has changed: the cluster file and what that names, the checks, the plug-ins.

Imported before every job. ``verdict.json`` is for people and tools; what is read back is ``verdict.cached``, lines of a
key and a value, since importing ``json`` takes half as long as Python's own start.
"""

from __future__ import annotations

import os
import sys
import time

from preflight.gate import policy, verdict
from preflight.gate.state_dir import StateDirError, Store
from preflight.gate.verdict import UnusableVerdict, Verdict
from preflight.version import VERSION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    #: device, inode, bytes, time of the last change of content and of inode in ns; None: there is no such file.
    Stamp = Sequence[int] | None

SCHEMA, END = "preflight.cached/1", "end"
FILE, DOCUMENT = "verdict.cached", "verdict.json"

#: Seconds between refreshes where the cluster file does not say: HealthCheckInterval is often 300.
REFRESH_S = 300.0

#: A verdict is used up to this many refresh intervals: one may be late, two are not.
INTERVALS = 2

_MOST_BYTES = 1 << 20
_BOOT_ID = "/proc/sys/kernel/random/boot_id"
_LISTS = ("causes", "unknowns", "off")
_TEXTS = ("node", "status", "boot_id", "policy", "cause", "reason", "whose")


class Cached:
    """A verdict, how old it is in seconds, and the rules that held when it was judged.

    ``seats`` is seat -> {"strict": bool, "cached": bool, "actions": {status: action}}; ``error`` is what was wrong with
    the cluster file, if an older one was judged by.
    """

    __slots__ = ("age_s", "error", "refresh_s", "seats", "verdict")

    def __init__(
        self, verdict: Verdict, age_s: float, refresh_s: float, seats: Mapping[str, Mapping[str, Any]], error: str = ""
    ) -> None:
        self.verdict, self.age_s, self.refresh_s, self.seats, self.error = verdict, age_s, refresh_s, seats, error

    @property
    def due(self) -> bool:
        """Whether it is time to judge anew."""
        return self.age_s >= self.refresh_s

    def allowed(self, seat: str) -> bool:
        """Tell whether the cluster file lets this seat believe it."""
        return bool(self.seats.get(seat, {}).get("cached", True))

    def rule(self, seat: str, strict: bool = False) -> policy.Rule:
        """Return what the seat does about it."""
        said = self.seats.get(seat, {})
        return policy.rule(seat, self.verdict.status, said.get("actions"), strict or bool(said.get("strict")))


def boot_id() -> str:
    """Return what tells this boot from all others; "" where the kernel does not say."""
    try:
        with open(_BOOT_ID, "rb", buffering=0) as stream:
            return stream.read(64).decode("ascii", "replace").strip()
    except OSError:
        return ""


def stamp(path: str) -> Stamp:
    """Return what changes when a file is written, replaced or removed."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return [found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns]


def installed() -> list[str]:
    """Return the directories that change when checks or plug-ins are installed."""
    ours = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    if not os.path.isdir(ours):  # preflight as one file
        return [os.path.dirname(ours)]
    domains = sorted(entry.path for entry in os.scandir(f"{ours}/checks") if entry.is_dir())
    domains = [path for path in domains if not path.endswith("__pycache__")]
    return [
        f"{ours}/checks",
        *domains,
        *dict.fromkeys(path for path in sys.path[1:] if path.startswith("/") and path != ours),
    ]


def put(
    store: Store, found: Verdict, refresh_s: float, seats: Mapping[str, Any], inputs: Iterable[tuple[str, Stamp]],
    error: str = "",
) -> None:  # fmt: skip
    """Write a verdict. ``inputs`` are the files that it was judged by, the cluster file first; raises StateDirError."""
    import json

    document = verdict.to_document(found)
    lines = [SCHEMA, f"version {VERSION}", f"refresh_s {refresh_s!r}", f"error {_quoted(error)}"]
    lines += [f"{name} {document[name]}" for name in (*_TEXTS, "at", "seconds")]
    lines += [f"{name} {' '.join(document[name])}" for name in _LISTS]
    for name, said in seats.items():
        actions = [f"{status}={action}" for status, action in said["actions"].items()]
        lines.append(
            " ".join(("seat", name, f"strict={int(said['strict'])}", f"cached={int(said['cached'])}", *actions))
        )
    inputs = list(inputs)
    lines.append(f"counts {len(seats)},{len(inputs)}")
    for path, was in inputs:
        lines.append(f"input {_told(was)} {_quoted(path)}")
    store.write(FILE, "".join(f"{line}\n" for line in (*lines, END)).encode("ascii"))
    store.write(DOCUMENT, json.dumps(document, indent=1).encode("ascii") + b"\n")


def look(store: Store, node: str, cluster: str | None) -> Cached:
    """Return the verdict on this node by this cluster file; raises UnusableVerdict with the reason why none is good."""
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
    told = found.verdict
    if told.node != node:
        raise UnusableVerdict(f"it is of the node {told.node}")
    if not told.boot_id or told.boot_id != boot_id():
        raise UnusableVerdict("it is of another boot")
    if found.age_s < 0:
        raise UnusableVerdict(f"it is of {-found.age_s:.0f} s in the future: the clock was set back")
    if found.age_s > INTERVALS * found.refresh_s:
        raise UnusableVerdict(f"it is {found.age_s:.0f} s old, and good for {INTERVALS * found.refresh_s:.0f}")
    if version != VERSION:
        raise UnusableVerdict("another version of preflight wrote it")
    if not inputs or inputs[0][1] != (cluster or ""):
        raise UnusableVerdict("it was judged by another cluster file")
    for was, path in inputs:
        if path and _told(stamp(path)) != was:
            raise UnusableVerdict(f"{path} has changed since")
    return found


def decode(raw: bytes) -> tuple[Cached, str, list[tuple[str, str]]]:
    """Read a verdict, the version that wrote it, and its inputs as (stamp, path); raises UnusableVerdict."""
    try:
        return _decoded(raw)
    except UnusableVerdict:
        raise
    except (ValueError, KeyError, IndexError, TypeError):
        raise UnusableVerdict("it is no whole verdict") from None


def _decoded(raw: bytes) -> tuple[Cached, str, list[tuple[str, str]]]:
    lines = raw.decode("ascii").split("\n")
    if lines[0] != SCHEMA or lines[-2:] != [END, ""]:
        raise UnusableVerdict("it is empty, or not whole")
    values: dict[str, str] = {}
    seats: dict[str, Mapping[str, Any]] = {}
    inputs: list[tuple[str, str]] = []
    for line in lines[1:-2]:
        key, _, value = line.partition(" ")
        if key == "seat":
            name, *words = value.split(" ")
            if name in seats:
                raise UnusableVerdict(f"it has two rules for {name[:40]!a}")
            seats[name] = _seat(dict(word.split("=") for word in words))
        elif key == "input":
            was, _, path = value.partition(" ")
            inputs.append((was, _unquoted(path)))
        elif key in values:
            raise UnusableVerdict(f"it says {key[:40]!a} twice")
        else:
            values[key] = value
    document: dict[str, Any] = {"schema": verdict.SCHEMA, "at": int(values.pop("at"))}
    document["seconds"] = float(values.pop("seconds"))
    for name in _LISTS:
        document[name] = values.pop(name).split()
    version, refresh_s, error = values.pop("version"), float(values.pop("refresh_s")), _unquoted(values.pop("error"))
    if values.pop("counts") != f"{len(seats)},{len(inputs)}":
        raise UnusableVerdict("rules or inputs are missing")
    if not 0 < refresh_s < 1e6:
        raise UnusableVerdict("its refresh interval is no number of seconds")
    found = verdict.from_document({**document, **values})  # what is left over is odd
    return Cached(found, time.time() - found.at, refresh_s, seats, error), version, inputs


def _seat(words: dict[str, str]) -> Mapping[str, Any]:
    flags = {name: {"0": False, "1": True}[words.pop(name)] for name in ("strict", "cached")}
    if any(action not in policy.OVERRIDES[status] for status, action in words.items()):
        raise UnusableVerdict("its rules are not whole")
    return {**flags, "actions": words}


def _told(was: Stamp) -> str:
    return "-" if was is None else ",".join(map(str, was))


def _quoted(text: str) -> str:
    """Return any text as printable ASCII without a space."""
    raw = text.encode("utf-8", "surrogateescape")
    return "".join(chr(byte) if 0x20 < byte < 0x7F and byte != 0x25 else f"%{byte:02x}" for byte in raw)


def _unquoted(text: str) -> str:
    first, *rest = text.split("%")
    raw = first.encode() + b"".join(bytes((int(part[:2], 16),)) + part[2:].encode() for part in rest)
    return raw.decode("utf-8", "surrogateescape")
