"""One run of redaction: what is learnt from all that is to be redacted, then everything replaced alike everywhere."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from preflight.collector.redact import redact as without_secrets
from preflight.redact import find, tables
from preflight.redact.keyed import Keyed
from preflight.redact.names import WORD, Names
from preflight.redact.shapes import SHAPES, Shapes
from preflight.redact.words import is_domain, vocabulary

#: What separates, other than a character that no name has: colours, escapes of JSON and HTML, `%2F` of addresses.
_SEPARATES = (
    r"(?:\x1b|\\x1b|\\u001b|␛)?\[[0-9;?]{1,32}m|\x1b\[(?:[0-9;?]{1,32}[A-Za-z]|[mKHJ])|\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[nrtbf])|"
    r"&(?:#x?[0-9a-fA-F]{1,6}|[a-z]{2,6});|%[0-9A-F]{2}"
)
_HOME = r"/(?:home|Users)/[^\s/\"'\\:;,<>()\[\]{}|&=]+(?:/[^\s/\"'\\:;,<>()\[\]{}|&=]+)*"
#: Paths of the kernel: `/sys/devices/system/node/node1` is no host, whatever hosts are called.
_SYSTEM = r"/(?:sys|proc|dev)/[^\s\"'\\,;<>]*"
_PIECE = re.compile(
    rf"(?P<separates>{_SEPARATES})|(?P<home>{_HOME})|(?P<system>{_SYSTEM})|(?P<run>\w[\w.:@%+-]*|::[\w.:%]+)"
)
_HOME_OWNER = re.compile(r"/(?:home|Users)/([^\s/\"'\\:;,<>()\[\]{}|&=]+)")
_NAME = re.compile(r"[^\W_][\w-]*(?:\.[\w-]+)*")
_RANGE = r"\[[0-9][0-9,-]{0,4000}\]"
_FOLDED = re.compile(rf"(?<![\w.-])[^\W\d_][\w.-]{{0,200}}{_RANGE}(?:[\w.-]|{_RANGE}){{0,200}}")

#: Labels of a dotted name that are looked at together.
_MOST_LABELS = 16

#: Records that list a directory of the kernel, and keys of a report under which preflight's own words stand.
_LISTINGS = ("dir:/sys/", "dir:/proc/", "dir:/dev/")
_OUR_WORDS = frozenset(("title", "why", "fix", "supply", "missing"))

#: Different runs of characters whose aliases are remembered.
_REMEMBERED = 200_000

#: Names that a folded list may stand for.
_MOST_FOLDED = 20_000


class Redactor:
    """Replaces what identifies a site: the same by the same, in one run.

    ``learn`` is given everything first, then ``value`` or ``text`` replaces; a name that stands in one file
    only is then known in all.
    """

    def __init__(self, key: bytes | None = None, also: tuple[str, ...] = (), hosts: tuple[str, ...] = ()) -> None:
        """Take more words to replace, and names of hosts; with the same ``key`` aliases are the same again."""
        self.keyed = Keyed(key)
        self.names = Names(self.keyed)
        self.counts: Counter[str] = Counter()
        self.shapes = Shapes(self.keyed, self.counts)
        self._runs: dict[str, str] = {}
        self.asked = frozenset(word.lower() for word in also)
        for word in also:
            self.names.learn_surely("name", word)
        for name in hosts:
            self.names.learn("host", name)

    # --- learning ----------------------------------------------------------------------------------

    def learn(self, text: str) -> None:
        """Learn the names that a text shows to be such by their places."""
        if len(text) < 3:
            return
        self.shapes.learn(text)
        find.in_text(text, self._learn)
        for name in find.domains(text):
            first, _, rest = name.partition(".")
            self.names.learn(
                "domain", rest if is_domain(rest) and self.names.kind(first) in ("host", "switch") else name
            )
        for match in _HOME_OWNER.finditer(text):
            self.names.learn("user", match[1])

    def learn_value(self, value: Any, key: str = "") -> None:
        """Learn from a JSON value: evidence, a report, anything; ``key`` is under which it stood."""
        if isinstance(value, str):
            find.by_key(key, value, self._learn)
            self.learn(value)
        elif isinstance(value, dict):
            if "schema" in value:
                find.in_document(value, self._learn)
            if isinstance(value.get("netmask"), str) and isinstance(value.get("address"), str):
                self.shapes.learn_network(value["address"], tables.prefix_length(value["netmask"]))
            for name, part in value.items():
                if len(name) > 24:
                    self.learn(name)
                self.learn_value(part, name)
        elif isinstance(value, list):
            for part in value:
                self.learn_value(part, key)

    def _learn(self, kind: str, name: str) -> str:
        names = tables.unfolded(name, _MOST_FOLDED) if "[" in name else [name]
        for one in names:
            if not SHAPES.fullmatch(one):
                self.names.learn(kind, one)
        return name

    # --- replacing ---------------------------------------------------------------------------------

    def value(self, value: Any, key: str = "") -> Any:
        """Return a JSON value with aliases, also in its keys."""
        if isinstance(value, str):
            return self._string(value, key)
        if isinstance(value, dict):
            made = {}
            for name, part in value.items():
                put = self._shaped(part) if name.startswith(_LISTINGS) else tables.record(self.shapes, name, part)
                made[self.text(name)] = self.value(part, name) if put is None else put
            return made
        if isinstance(value, list):
            return [self.value(part, key) for part in value]
        return value

    def _shaped(self, value: Any) -> Any:
        """Return what a directory of the kernel holds: no names, but an interface may be called by its MAC."""
        if isinstance(value, str):
            return SHAPES.sub(self.shapes.replace, value)
        if isinstance(value, dict):
            return {self._shaped(name): self._shaped(part) for name, part in value.items()}
        return [self._shaped(part) for part in value] if isinstance(value, list) else value

    def _string(self, value: str, key: str) -> str:
        put = find.by_key(key, value, self._in_place)
        return self.text(value, secrets=key not in _OUR_WORDS) if put == value else put

    def text(self, text: str, secrets: bool = True) -> str:
        """Return a text with aliases, and without its ``secrets``."""
        if not text or (len(text) < 3 and not text.isalpha()):
            return text
        text = tables.in_text(self.shapes, without_secrets(text) if secrets else text)
        if self.names.only_in_place:
            text = find.in_text(text, self._in_place)
        if "[" in text:
            text = _FOLDED.sub(self._folded, text)
        return _PIECE.sub(self._piece, text)

    def _in_place(self, kind: str, name: str) -> str:
        """Replace a name that its place shows to be one, though it is a word of a tool."""
        if "[" in name or name not in self.names.only_in_place:
            return name
        return self.names.alias(kind, name)

    def _piece(self, match: re.Match[str]) -> str:
        if (run := match["run"]) is not None:
            if (known := self._runs.get(run)) is not None:
                return known
            made = self._run(match)
            if "." not in run and len(self._runs) < _REMEMBERED:  # what looks like a version depends on its place
                self._runs[run] = made
            return made
        if match["home"]:
            return self._home(match["home"])
        return SHAPES.sub(self.shapes.replace, match[0]) if match["system"] else match[0]

    def _run(self, match: re.Match[str]) -> str:
        """Return a run of characters without spaces, with what is known in it replaced."""
        run, start = match["run"], match.start("run")
        before = match.string[max(0, start - 40) : start]
        pieces, done = [], 0
        for shape in SHAPES.finditer(run):  # apart from its text: the `m` of a colour before it is none of its letters
            pieces += [_NAME.sub(self._name, run[done : shape.start()]), self.shapes.replace(shape, before)]
            done = shape.end()
        return "".join(pieces) + _NAME.sub(self._name, run[done:])

    def _name(self, match: re.Match[str]) -> str:
        """Return the alias of a name, or a text with those that are known in it."""
        text = match[0]
        if (kind := self.names.kind(text)) is not None:
            return self.names.alias(kind, text)
        if "." in text:
            labels = text.split(".")
            parts = [labels[at : at + _MOST_LABELS] for at in range(0, len(labels), _MOST_LABELS)]
            return ".".join(self._dotted(part) for part in parts)
        return self._words(text)

    def _dotted(self, labels: list[str]) -> str:
        """Return labels with the domain among them replaced, and the host in it: `nccl.gpu001.example.net.log`."""
        host = next((at for at, label in enumerate(labels) if self.names.kind(label) in ("host", "switch")), None)
        for end in range(len(labels), 1, -1):
            if host is not None and end > host + 1:
                domain = ".".join(labels[host + 1 : end])
                if is_domain(domain) or self.names.kind(domain) == "domain":
                    before = [self._words(label) for label in labels[: host + 1]]
                    after = [self._words(label) for label in labels[end:]]
                    return ".".join([*before, self.names.alias("domain", domain), *after])
            whole = ".".join(labels[:end])
            if is_domain(whole) or self.names.kind(whole) == "domain":
                return ".".join([self.names.alias("domain", whole), *(self._words(label) for label in labels[end:])])
        return ".".join(self._words(label) for label in labels)

    def _words(self, text: str) -> str:
        """Replace the names among the words of a text, the longest first: `report_gpu001-ib0.txt`."""
        words = [match.span() for match in WORD.finditer(text)]
        pieces, done, place = [], 0, 0
        while place < len(words):
            for last in range(min(place + self.names.longest, len(words)) - 1, place - 1, -1):
                name = text[words[place][0] : words[last][1]]
                if (kind := self.names.kind(name)) is not None:
                    pieces += [text[done : words[place][0]], self.names.alias(kind, name)]
                    done, place = words[last][1], last
                    break
            place += 1
        return "".join(pieces) + text[done:]

    def _folded(self, match: re.Match[str]) -> str:
        """Return a folded list of hosts as one of their aliases: `gpu[001-064]`."""
        names = tables.unfolded(match[0], _MOST_FOLDED)
        kinds = {self.names.kind(name) for name in names[:1]} & {"host", "switch"}
        if not kinds:
            return match[0]
        from preflight.nodeset import fold

        kind = kinds.pop() or "host"
        return fold(self.names.alias(kind, name) for name in names)

    def _home(self, path: str) -> str:
        """Return a path below somebody's home, with aliases; folders that every home has keep their names."""
        _, top, user, *rest = path.split("/")
        kept = [user if self.names.is_everywhere(user) else self.names.alias("user", user)]
        for part in rest:
            kept.append(self._words(part) if self._is_usual(part) else self._entry(part))
        return "/".join(["", top, *kept])

    @staticmethod
    def _is_usual(part: str) -> bool:
        return all(
            word in vocabulary() or word.isdigit() or re.fullmatch("[a-z]{1,3}[0-9]{1,4}", word)
            for word in (match[0].lower() for match in WORD.finditer(part))
        )

    def _entry(self, part: str) -> str:
        stem, dot, ending = part.partition(".")
        known = dot and stem and self._is_usual(ending)
        return self.names.alias("path", stem if known else part) + (f".{self._words(ending)}" if known else "")

    def aliases(self) -> Iterator[tuple[str, str]]:
        """Yield what was replaced and by what, for the one who keeps the original."""
        yield from self.shapes.aliases()
        yield from self.names.aliases()

    # --- telling -----------------------------------------------------------------------------------

    def told(self) -> Mapping[str, int]:
        """Return how many different identifiers of each kind were replaced."""
        words = {"host": "host", "switch": "switch", "user": "user", "name": "job, account or other name",
                 "domain": "domain", "path": "path below /home", "serial": "serial number"}  # fmt: skip
        found = Counter(self.counts)
        for kind, number in self.names.found.items():
            found[words.get(kind, kind)] += number
        return dict(sorted(found.items()))
