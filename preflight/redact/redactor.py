"""A redaction run, which first learns all names and then replaces them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from typing import Any

from preflight.collector.redact import MARK, is_secret
from preflight.collector.redact import redact as without_secrets
from preflight.nodeset import fold
from preflight.redact import name_finder, own_output, structured_text, user_folders
from preflight.redact.address_aliases import Keyed
from preflight.redact.aliases import WORD, Names
from preflight.redact.identifier_patterns import SHAPES, Shapes
from preflight.redact.name_places import OWNER
from preflight.redact.public_words import TOPS, is_domain

#: Separators of names besides characters that no name contains: colours, escapes of JSON and HTML, `%2F` in URLs.
_COLOUR = re.compile(r"(?:\x1b|\\x1b|\\u001b|\\033|␛)\[(?:[0-9;?]{1,32}[A-Za-z]|[mKHJ])", re.I)
_ESCAPE = re.compile(r"\x1b\[(?:[0-9;?]{1,32}[A-Za-z]|[mKHJ])")
_SEPARATES = (
    r"(?:\x1b|\\x1b|\\u001b|␛)?\[[0-9;?]{1,32}m|\x1b\[(?:[0-9;?]{1,32}[A-Za-z]|[mKHJ])|\\(?:u[0-9a-fA-F]{4}|x[0-9a-fA-F]{2}|[nrtbf])|"
    r"&(?:#x?[0-9a-fA-F]{1,6}|[a-z]{2,6});|%[0-9A-F]{2}|(?<=/)home-(?=[A-Za-z_])"
)
_HOME = rf"/(?:{TOPS})/[^\s/\"'\\:;,<>()\[\]{{}}|&=]+(?:/[^\s/\"'\\:;,<>()\[\]{{}}|&=]+)*"
#: Kernel paths, and lines of lscpu: `node1` in `/sys/devices/system/node/node1` is not a host name.
_SYSTEM = r"/(?:sys|proc|dev)/[^\s\"'\\,;<>]*|\bNUMA node\d{1,4}\b"
#: The start of `C:\Users\bmueller`, in which `\b` belongs to the path; elsewhere it is an escape.
_PROFILE = r"\b[A-Za-z]:\\{1,2}Users\\{1,2}(?=[\w.])"
_PIECE = re.compile(
    rf"{_PROFILE}|(?P<separates>{_SEPARATES})|(?P<home>{_HOME})|(?P<system>{_SYSTEM})|(?P<run>\w[\w.:@%+-]*|::[\w.:%]+)"
)
_NAME = re.compile(r"[^\W_][\w-]*(?:\.[\w-]+)*")
_RANGE = r"\[[0-9](?:[0-9-]|,\s{0,20}){0,20000}\]"
_FOLDED = re.compile(
    rf"(?<![\w.\]-])(?:[^\W_][\w.-]{{0,200}}{_RANGE}|{_RANGE}(?=[A-Za-z-]))(?:[\w.-]|{_RANGE}){{0,200}}"
)
#: NCCL's version, followed directly by a name: the line feed is missing if ranks write at the same time.
_GLUED = re.compile(r"(\+cuda\d{1,2}\.\d{1,2})([A-Za-z][\w.-]{0,252})")
#: A fingerprint in a report.
_FINGERPRINT = re.compile(r"[0-9a-f]{12}")
_SPACES = re.compile(r"\s+")
#: The start of the names in a truncated folded list.
_CUT = re.compile(r"(?<![\w.-])[^\W_][\w.-]{0,200}(?=\[[0-9])")

#: Maximum labels of a dotted name that are examined together.
_MOST_LABELS = 16

#: Start of the keys of records that list a kernel directory; keys in reports with preflight's own text.
_LISTINGS = ("dir:/sys/", "dir:/proc/", "dir:/dev/")
_OUR_WORDS = frozenset(("title", "why", "fix", "supply", "missing"))

#: Maximum number of texts whose replacements are cached.
_REMEMBERED = 200_000

#: Minimum characters of a text that is not cached.
_SHORT = 100

#: Maximum names in a folded list.
_MOST_FOLDED = 20_000


def _named(of: Mapping[str, Any], key: str) -> str:
    """Return the key that states what a value is.

    For ``value`` beside a ``name``, it is that name. A ``name`` beside an ``asn``, or with no other member than
    ``admin_status``, is that of a BGP neighbour of SONiC.
    """
    if key == "name" and ("asn" in of or of.keys() <= {"name", "admin_status"}):
        return "systemname"
    return str(of["name"]) if key == "value" and isinstance(of.get("name"), str) else key


class Redactor:
    """Consistent replacement of the data that identifies a site, within one run.

    All input must be passed to ``learn`` before ``value`` or ``text`` is called, so that a name found in one file is
    replaced in all of them.
    """

    def __init__(self, key: bytes | None = None, also: tuple[str, ...] = (), hosts: tuple[str, ...] = ()) -> None:
        """Set extra words and hosts; the same ``key`` results in the same aliases."""
        self.keyed = Keyed(key)
        self.names = Names(self.keyed)
        self.counts: Counter[str] = Counter()
        self.shapes = Shapes(self.keyed, self.counts)
        self._runs: dict[str, tuple[str, int]] = {}  # run -> its replacement, and the number of hosts in it
        self._lists: dict[str, str] = {}
        self._learnt: set[str] = set()  # short texts, which are often repeated in a document
        self._texts: dict[tuple[str, bool], tuple[str, int]] = {}
        self._people: set[str] = set()  # names with spaces, replaced only in a known context
        self._shared: dict[tuple[int, str, bool], Any] | None = None  # object identity, key and ``ours`` -> result
        self.extra_words = frozenset(word.lower() for word in also)
        for word in also:
            self.names.learn_surely("name", word)
        for name in hosts:
            self.names.learn("host", name)

    # --- learning ----------------------------------------------------------------------------------

    def learn(self, text: str, formats: set[str] | None = None) -> None:
        """Learn names from their context; parts of one text share the set ``formats``."""
        if len(text) < 3 or text in self._learnt:
            return
        if len(text) < _SHORT and len(self._learnt) < _REMEMBERED:
            self._learnt.add(text)
        if "[" in text:
            text = _COLOUR.sub("", text)
        self.shapes.learn(text)
        name_finder.in_text(text, self._learn)
        own_output.in_text(text, self._learn, set() if formats is None else formats)
        for name in name_finder.domains(text):
            first, _, rest = name.partition(".")
            self.names.learn(
                "domain", rest if is_domain(rest) and self.names.kind(first) in ("host", "switch") else name
            )
        for match in OWNER.finditer(text):
            if user_folders.owns(match[1], bool(match[2])):
                self.names.learn("user", match[1])

    def learn_value(self, value: Any, key: str = "", ours: bool = False) -> None:
        """Learn names from a JSON value.

        ``key`` is the key of the value; ``ours`` means that it is in a document of preflight.
        """
        if isinstance(value, str):
            name_finder.by_key(key, value, self._learn, ours)
            self.learn(value)
        elif self._is_known(value, key, ours):
            pass
        elif isinstance(value, dict):
            if "schema" in value:
                ours = ours or str(value["schema"]).startswith("preflight.")
                name_finder.in_document(value, self._learn)
            if isinstance(value.get("netmask"), str) and isinstance(value.get("address"), str):
                self.shapes.learn_network(value["address"], structured_text.prefix_length(value["netmask"]))
            for name, part in value.items():
                if len(name) > 24:
                    self.learn(name)
                if name.startswith(name_finder.SONIC_NEIGHBOURS):
                    name_finder.in_sonic_table(name, part, self._learn)
                self.learn_value(part, name, ours)
        elif isinstance(value, list):
            for part in value:
                self.learn_value(part, key, ours)

    @contextmanager
    def sharing(self) -> Iterator[None]:
        """Process shared objects once; the document must not change meanwhile."""
        self._shared = {}
        try:
            yield
        finally:
            self._shared = None

    def _is_known(self, value: Any, key: str, ours: bool) -> bool:
        """Return whether an object was learnt under the same key before, and mark it."""
        if self._shared is None or not isinstance(value, dict | list):
            return False
        place = id(value), key, ours
        known = place in self._shared
        self._shared[place] = None
        return known

    def _learn(self, kind: str, name: str) -> str:
        if kind == "person":
            self._people.add(name)
            return name
        names = structured_text.unfolded(name, _MOST_FOLDED) if "[" in name else [name]
        for one in names:
            if not SHAPES.fullmatch(one):
                self.names.learn(kind, one)
        return name

    # --- replacing ---------------------------------------------------------------------------------

    def value(self, value: Any, key: str = "", ours: bool = False) -> Any:
        """Return a JSON value with aliases, also in its keys.

        ``ours`` means that the value is in a document of preflight.
        """
        if isinstance(value, str):
            return self._string(value, key, ours)
        if not isinstance(value, dict | list):
            return value
        if self._shared is None:
            return self._container(value, key, ours)
        place = id(value), key, ours
        if place not in self._shared:
            self._shared[place] = self._container(value, key, ours)
        return self._shared[place]

    def _container(self, value: Any, key: str, ours: bool) -> Any:
        if isinstance(value, dict):
            ours = ours or str(value.get("schema", "")).startswith("preflight.")
            made: dict[str, Any] = {}
            for name, part in value.items():
                put = (
                    self._shaped(part)
                    if name.startswith(_LISTINGS)
                    else structured_text.record(self.shapes, name, part)
                )
                alias = self._distinct(self.text(name), made)
                made[alias] = self.value(part, _named(value, name), ours) if put is None else put
            return made
        return [self.value(part, key, ours) for part in value]

    @staticmethod
    def _distinct(name: str, taken: Mapping[str, Any]) -> str:
        """Return a key that is not taken; two secrets as keys would otherwise become one."""
        return name if name not in taken else next(f"{name}{n}" for n in count(2) if f"{name}{n}" not in taken)

    def _shaped(self, value: Any) -> Any:
        """Return the listing of a kernel directory with aliases for addresses.

        An interface may be named after its MAC address.
        """
        if isinstance(value, str):
            return SHAPES.sub(self.shapes.replace, value)
        if isinstance(value, dict):
            return {self._shaped(name): self._shaped(part) for name, part in value.items()}
        return [self._shaped(part) for part in value] if isinstance(value, list) else value

    def _string(self, value: str, key: str, ours: bool = False) -> str:
        if ours and key == "fingerprint" and _FINGERPRINT.fullmatch(value):
            return self.keyed.digest("fingerprint", value)[:12]  # node names could be guessed from a fingerprint
        put = name_finder.by_key(key, value, self._in_place, ours)
        if put != value:
            return put
        if ours and key in _OUR_WORDS:
            return self.text(value, secrets=False)
        return MARK if is_secret(key, value) else self.text(value)

    def text(self, text: str, secrets: bool = True) -> str:
        """Return a text with aliases; ``secrets`` states whether secrets are removed too."""
        if not text or (len(text) < 3 and not text.isalpha()):
            return text
        if len(text) >= _SHORT:
            return self._redacted(text, secrets)
        if (known := self._texts.get((text, secrets))) is None:
            before = self.hosts_replaced
            made = self._redacted(text, secrets)
            known = made, self.hosts_replaced - before
            if len(self._texts) < _REMEMBERED:
                self._texts[text, secrets] = known
        else:
            self.names.uses["host"] += known[1]
        return known[0]

    def _redacted(self, text: str, secrets: bool) -> str:
        if (
            "\x1b[" in text and "\x1c" not in text and _ESCAPE.search(text)
        ):  # colour sequences become white space, and are restored in place
            colours = iter(_ESCAPE.findall(text))
            return re.sub("\x1c", lambda _: next(colours, ""), self._redacted(_ESCAPE.sub("\x1c", text), secrets))
        text = structured_text.in_text(self.shapes, without_secrets(text) if secrets else text)
        if self.names.only_in_place or self._people:
            text = name_finder.in_text(text, self._in_place)
        if "+cuda" in text:
            text = _GLUED.sub(lambda match: match[1] + _NAME.sub(self._name, match[2]), text)
        if "[" in text:
            text = _CUT.sub(self._stem, _FOLDED.sub(self._folded, text))
        return _PIECE.sub(self._piece, text)

    def _in_place(self, kind: str, name: str) -> str:
        """Replace a name that only its context identifies: a person's, or a tool's word."""
        if kind == "person":
            return self.names.alias(kind, name)
        if "[" in name:
            names = structured_text.unfolded(name, _MOST_FOLDED)
            return self._aliases(kind, names) if names[0] in self.names.only_in_place else name
        return self.names.alias(kind, name) if name in self.names.only_in_place else name

    def _aliases(self, kind: str, names: list[str]) -> str:
        return fold(self.names.alias(kind, name) for name in names)

    def _piece(self, match: re.Match[str]) -> str:
        if (run := match["run"]) is not None:
            if (known := self._runs.get(run)) is not None:
                self.names.uses["host"] += known[1]
                return known[0]
            before = self.hosts_replaced
            made = self._run(match)
            # the replacement of a version, a register or a commit depends on the context
            if "." not in run and len(run) != 16 and len(self._runs) < _REMEMBERED:
                self._runs[run] = made, self.hosts_replaced - before
            return made
        if match["home"]:
            return user_folders.aliased(match["home"], self.names, self._words)
        return SHAPES.sub(self.shapes.replace, match[0]) if match["system"] else match[0]

    def _run(self, match: re.Match[str]) -> str:
        """Return a run of characters without spaces, with its known names replaced."""
        run, start = match["run"], match.start("run")
        before = match.string[max(0, start - 40) : start]
        pieces, done = [], 0
        for shape in SHAPES.finditer(run):  # a shape excludes adjacent text, such as the `m` of a preceding colour
            if (alias := self.shapes.replace(shape, before)) == shape[0]:
                continue
            pieces += [_NAME.sub(self._name, run[done : shape.start()]), alias]
            done = shape.end()
        return "".join(pieces) + _NAME.sub(self._name, run[done:])

    def _name(self, match: re.Match[str]) -> str:
        """Return the alias of a known name, or the text with the names in it replaced."""
        text = match[0]
        if (kind := self.names.kind(text)) is not None:
            return self.names.alias(kind, text)
        if "." in text:
            labels = text.split(".")
            parts = [labels[at : at + _MOST_LABELS] for at in range(0, len(labels), _MOST_LABELS)]
            return ".".join(self._dotted(part) for part in parts)
        return self._words(text)

    def _dotted(self, labels: list[str]) -> str:
        """Join labels, with host and domain replaced, as in `nccl.gpu001.example.net.log`."""
        host = next((at for at, label in enumerate(labels) if self.names.kind(label) in ("host", "switch")), None)
        for end in range(len(labels), 1, -1):
            if host is not None and end > host + 1:
                domain = ".".join(labels[host + 1 : end])
                if is_domain(domain) or self.names.kind(domain) == "domain":
                    before = [self._words(label) for label in labels[: host + 1]]
                    after = [self._words(label) for label in labels[end:]]
                    return ".".join([*before, self.names.alias("domain", domain), *after])
            candidate = ".".join(labels[:end])
            if is_domain(candidate) or self.names.kind(candidate) == "domain":
                return ".".join(
                    [self.names.alias("domain", candidate), *(self._words(label) for label in labels[end:])]
                )
        return ".".join(self._words(label) for label in labels)

    def _words(self, text: str) -> str:
        """Replace the names in a text, longest first, as in `report_gpu001-ib0.txt`."""
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
        """Replace a folded host list, such as `gpu[001-064]`, with one of aliases."""
        if (known := self._lists.get(match[0])) is not None:
            self.names.uses["host"] += known != match[0]
            return known
        made = self._folded_anew(match)
        if len(self._lists) < _REMEMBERED:
            self._lists[match[0]] = made
        return made

    def _folded_anew(self, match: re.Match[str]) -> str:
        names = structured_text.unfolded(_SPACES.sub("", match[0]), _MOST_FOLDED)
        kinds = {self.names.kind(name) for name in names[:1]} & {"host", "switch"}
        if not kinds:
            return match[0]
        return self._aliases(kinds.pop() or "host", names)

    def _stem(self, match: re.Match[str]) -> str:
        """Return the alias of the start of the names in a truncated list."""
        if (name := self.names.stems.get(match[0].lower())) is None:
            return match[0]
        return re.sub(r"[0-9-]+\Z", "", self.names.alias(self.names.kind(name) or "host", name))

    def aliases(self) -> Iterator[tuple[str, str]]:
        """Yield each replaced text and its alias, for the owner of the data."""
        yield from self.shapes.aliases()
        yield from self.names.aliases()

    @property
    def hosts_replaced(self) -> int:
        """The number of host and switch names replaced, including repetitions."""
        return self.names.uses["host"] + self.names.uses["switch"]

    # --- counting ----------------------------------------------------------------------------------

    def counts_by_kind(self) -> Mapping[str, int]:
        """Return the number of distinct replaced identifiers, by kind in words."""
        words = {"host": "host", "switch": "switch", "user": "user", "name": "job, account or other name",
                 "domain": "domain", "path": "path below a user's folder", "person": "person",
                 "serial": "serial number"}  # fmt: skip
        found = Counter(self.counts)
        for kind, number in self.names.found.items():
            found[words.get(kind, kind)] += number
        return dict(sorted(found.items()))
