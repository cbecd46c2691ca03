"""The verdict on one node: the document ``preflight.verdict/1``.

It is strict in both directions: an invalid verdict cannot be created, and a document with unexpected content is
rejected. Imported before every job, so it imports neither ``dataclasses`` nor ``typing``.
"""

from __future__ import annotations

from preflight.errors import PreflightError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn

SCHEMA = "preflight.verdict/1"

#: Statuses of a verdict; error: the configuration is wrong, and the node was not judged by it.
STATUSES = ("pass", "fail", "unknown", "error")

#: Owner of a failure: the node, the job, or the site (fabric, file server, common settings).
OWNERS = ("node", "job", "site")

#: Maximum length of a scheduler's reason; the most important words come first.
REASON_MOST = 200

#: Prefix of reasons set by preflight: an administrator who changes the reason takes over the drain.
PREFIX = "preflight: "

#: Maximum length of a node's name; a host name has up to 253 characters, a list of nodes is truncated.
NAME_MOST = 255

_ID_MOST, _LIST_MOST = 100, 4096

#: Actions of a verdict, the weakest first; a copy of ``preflight.model.ACTIONS``, which would be slow to import.
ACTIONS = ("none", "monitor", "fix-job", "fix-site", "reset", "reboot", "isolate", "replace")

#: Action for a status if none is given, as in documents of older versions.
_USUAL = {"pass": "none", "fail": "isolate", "unknown": "monitor", "error": "monitor"}

#: Attributes with another name in the document.
_KEYS = {"owner": "whose"}


class UnusableVerdict(PreflightError, ValueError):
    """The document is not a verdict; the text gives the reason."""


class Verdict:
    """Result on a node, short enough for a scheduler.

    ``at`` is in seconds since 1970 UTC, ``seconds`` the duration of judging. ``cause`` is the id of the most urgent
    gating check that failed ("" if none did), ``causes`` all of them, ``unknowns`` those that were unknown, ``off``
    those that are disabled or set to shadow. ``policy`` is a hash of the judgement's inputs, ``action`` the required
    action.
    """

    __slots__ = (
        "action", "at", "boot_id", "cause", "causes", "node", "off", "owner", "policy", "reason", "seconds", "status",
        "unknowns",
    )  # fmt: skip

    node: str
    status: str
    at: int
    boot_id: str
    policy: str
    cause: str
    reason: str
    owner: str
    action: str
    causes: tuple[str, ...]
    unknowns: tuple[str, ...]
    off: tuple[str, ...]
    seconds: float

    def __init__(
        self,
        node: str,
        status: str,
        at: int,
        *,
        boot_id: str = "",
        policy: str = "",
        cause: str = "",
        reason: str = "",
        owner: str = "node",
        action: str = "",
        causes: tuple[str, ...] = (),
        unknowns: tuple[str, ...] = (),
        off: tuple[str, ...] = (),
        seconds: float = 0.0,
    ) -> None:
        """Raise UnusableVerdict for contradictory values."""
        values = {
            "node": node, "status": status, "at": at, "boot_id": boot_id, "policy": policy, "cause": cause,
            "reason": reason, "owner": owner, "action": action or _USUAL.get(status, ""),
            "causes": causes, "unknowns": unknowns, "off": off, "seconds": seconds,
        }  # fmt: skip
        _validate(values)
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"a verdict is immutable: {name}")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Verdict) and to_document(self) == to_document(other)

    def __hash__(self) -> int:
        return hash((self.node, self.at, self.status, self.reason))

    def __repr__(self) -> str:
        return f"Verdict({', '.join(f'{name}={value!r}' for name, value in to_document(self).items())})"


def ascii_reason(text: str, most: int = REASON_MOST) -> str:
    """Return text as one line of at most ``most`` printable ASCII characters.

    Longer text ends in dots.
    """
    plain = " ".join(text.split()).encode("ascii", "backslashreplace").decode("ascii")
    plain = "".join(letter if letter.isprintable() else f"\\x{ord(letter):02x}" for letter in plain)
    return plain if len(plain) <= most else plain[: most - 3].rstrip() + "..."


def to_document(verdict: Verdict) -> dict[str, Any]:
    """Return the document that ``from_document`` reads."""
    document: dict[str, Any] = {"schema": SCHEMA}
    for name in ("node", "status", "at", "boot_id", "policy", "cause", "reason", "owner", "action", "seconds"):
        document[_KEYS.get(name, name)] = getattr(verdict, name)
    for name in ("causes", "unknowns", "off"):
        document[name] = list(getattr(verdict, name))
    return document


_REQUIRED = frozenset(("schema", *(_KEYS.get(name, name) for name in Verdict.__slots__)))


def from_document(document: object) -> Verdict:
    """Decode a document; raises UnusableVerdict.

    Rejects anything that ``to_document`` would not write.
    """
    if not isinstance(document, dict) or document.get("schema") != SCHEMA:
        raise UnusableVerdict(f"it is not of the schema {SCHEMA}")
    if odd := _REQUIRED.symmetric_difference(document) - {"action"}:
        raise UnusableVerdict(f"keys are missing or unknown: {', '.join(sorted(map(str, odd)))[:200]}")
    values = {name: value for name, value in document.items() if name != "schema"}
    values["owner"] = values.pop("whose")
    for name in ("causes", "unknowns", "off"):
        if not isinstance(values[name], list):
            raise UnusableVerdict(f"{name} is not a list")
        values[name] = tuple(values[name])
    return Verdict(**values)


def _validate(values: Mapping[str, Any]) -> None:
    for name, most in (("node", NAME_MOST), ("boot_id", _ID_MOST), ("policy", _ID_MOST), ("cause", _ID_MOST),
                       ("reason", REASON_MOST)):  # fmt: skip
        _text(name, values[name], most)
    for name in ("causes", "unknowns", "off"):
        entries = values[name]
        if not isinstance(entries, tuple) or len(entries) > _LIST_MOST:
            raise UnusableVerdict(f"{name} is not a list of check ids")
        for entry in entries:
            _text(name, entry, _ID_MOST)
    status, at, seconds = values["status"], values["at"], values["seconds"]
    if not values["node"]:
        raise UnusableVerdict("it names no node")
    if status not in STATUSES:
        raise UnusableVerdict("its status is none of " + ", ".join(STATUSES))
    if values["owner"] not in OWNERS:
        raise UnusableVerdict("owner is none of " + ", ".join(OWNERS))
    if values["action"] not in ACTIONS:
        raise UnusableVerdict("action is none of " + ", ".join(ACTIONS))
    if type(at) is not int or not 0 <= at < 1 << 40:
        raise UnusableVerdict("at is not a time in seconds")
    if type(seconds) not in (int, float) or not 0 <= seconds < 1e9:  # NaN fails both comparisons
        raise UnusableVerdict("seconds is not a duration")
    if status == "pass" and (values["causes"] or values["unknowns"]):
        raise UnusableVerdict("it passes, but names checks that did not pass")
    if (status == "pass") != (values["action"] == "none"):
        raise UnusableVerdict("a verdict requires no action if and only if it passes")
    if (status == "fail") != bool(values["cause"]):
        raise UnusableVerdict("a verdict has a cause if and only if it fails")
    if values["cause"] and values["cause"] not in values["causes"]:
        raise UnusableVerdict("its cause is not among its causes")
    if status != "pass" and not values["reason"].startswith(PREFIX):
        raise UnusableVerdict(f"its reason does not begin with {PREFIX!r}")


def _text(name: str, value: object, most: int) -> None:
    if not isinstance(value, str) or len(value) > most or not value.isascii() or not value.isprintable():
        raise UnusableVerdict(f"{name} is not a short line of printable ASCII")
