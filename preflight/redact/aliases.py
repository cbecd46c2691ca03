"""Names and their aliases; hosts retain their numbers, so that lists still fold."""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterator
from itertools import chain, count

from preflight.redact.address_aliases import Keyed
from preflight.redact.public_words import ACCOUNTS, SELF, is_public, vocabulary

#: Kind of name -> prefix of its aliases, and alternatives if a name of the site starts with that.
_STEMS = {
    "host": ("node", "machine", "box"), "switch": ("switch", "bridge", "hub"), "user": ("user", "login", "account"),
    "name": ("name", "label", "word"), "domain": ("site", "zone", "realm"), "path": ("dir", "folder", "entry"),
    "person": ("person", "human", "individual"),
}  # fmt: skip

#: Words within names; letters of different alphabets belong to different words.
WORD = re.compile(r"[A-Za-z0-9]+|[^\W_A-Za-z0-9]+")
_NUMBER = re.compile("[0-9]+")
_OCTET = r"(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)"
_DASHED_ADDRESS = re.compile(rf"(?<!\d){_OCTET}(?:-{_OCTET}){{3}}(?!\d)", re.A)

#: Maximum numbers in a host name, and maximum digits of each, that are preserved: rack, chassis, node. More would
#: identify the host.
_MOST_NUMBERS, _MOST_DIGITS = 3, 5

#: Names that tools number from zero; a host with such a name looks like a device.
_DEVICE = re.compile(r"(?:gpu|cpu|nic|nv|rank|hca|cuda)[0-9]{1,2}")

#: Minimum letters of a host name before its number for unlisted names with other numbers to be hosts as well.
_LEAST_STEM = 3


def letters(number: int) -> str:
    """Convert a number to letters: 0 to 25 are a to z, then aa, ab and so on."""
    made = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        made = chr(ord("a") + rest) + made
    return made


class Names:
    """The learned names of a site, and their aliases."""

    def __init__(self, keyed: Keyed) -> None:
        self._keyed = keyed
        self._kinds: dict[str, str] = {}  # normalised name -> kind
        self._series: dict[str, str] = {}  # pattern of names that differ only in numbers -> kind
        self._aliases: dict[tuple[str, str], str] = {}
        self._used: dict[str, int] = {}
        self._taken: set[str] = set()
        self._given: set[str] = set()  # aliases of serial numbers
        self._stems: dict[str, str] = {}
        self.stems: dict[str, str] = {}  # start of a host name, up to a number -> that name
        self.uses: Counter[str] = Counter()  # kind -> number of replacements
        self.found: Counter[str] = Counter()  # kind -> number of distinct replaced names
        self.only_in_place: set[str] = set()  # common words, replaced only where the context shows a name
        self.hosts_in_place: set[str] = set()  # those common words that are hosts
        self.longest = 1  # maximum words in a name

    # --- known names -------------------------------------------------------------------------------

    def learn(self, kind: str, name: str) -> None:
        """Add a name, unless it is generic."""
        name = name.strip().strip(".\"'")
        if not name or len(name) > 255 or name.lower() in SELF or not re.search(r"[^\W_]", name):
            return
        if kind == "user" and name.lower() in ACCOUNTS:
            return
        if kind in ("host", "switch") and "." in name:
            name, _, domain = name.partition(".")
            if name.isdigit():  # an address
                return
            self.learn("domain", domain)
        if kind == "domain" and is_public(name):
            return
        self._taken.add(name.lower())
        if kind != "path" and self._is_common(kind, name):
            self.only_in_place.add(name)
            if kind == "host":
                self.hosts_in_place.add(name)
            return
        self._kinds.setdefault(name.lower(), kind)
        self.longest = max(self.longest, len(WORD.findall(name)))
        if kind in ("host", "switch"):
            for number in _NUMBER.finditer(name):
                self.stems.setdefault(name[: number.start()].lower(), name)
        if kind in ("host", "switch") and self._counts(name):
            self._series.setdefault(_NUMBER.sub("#", name.lower()), kind)

    def learn_surely(self, kind: str, name: str) -> None:
        """Add a name given by the user, which is replaced everywhere as a word."""
        self._taken.add(name.lower())
        self._kinds[name.lower()] = kind
        self.longest = max(self.longest, len(WORD.findall(name)))

    @staticmethod
    def is_everywhere(user: str) -> bool:
        """Return whether an account is one that exists on every system."""
        return user.lower() in ACCOUNTS

    @staticmethod
    def _is_common(kind: str, name: str) -> bool:
        """Return whether a name is also a word of a tool, or not distinctive enough."""
        lower = name.lower()
        return (
            lower in vocabulary()
            or len(lower) < 3
            or (lower.isdigit() and kind != "serial")
            or _DEVICE.fullmatch(lower) is not None
        )

    def _counts(self, name: str) -> bool:
        """Return whether names that differ only in their numbers are hosts of the site."""
        stem = _NUMBER.split(name, maxsplit=1)[0].strip("-_")
        return self._plain(name) and len(stem) >= _LEAST_STEM and stem.lower() not in vocabulary()

    @staticmethod
    def _plain(name: str) -> bool:
        numbers = _NUMBER.findall(name)
        return 0 < len(numbers) <= _MOST_NUMBERS and all(len(number) <= _MOST_DIGITS for number in numbers)

    def kind(self, name: str) -> str | None:
        """Return the kind of a name; None if the name is unknown."""
        lower = name.lower()
        if (kind := self._kinds.get(lower)) is not None:
            return kind
        return self._series.get(_NUMBER.sub("#", lower)) if self._plain(lower) else None

    def all(self) -> Iterator[tuple[str, str]]:
        """Yield the known names with their kinds."""
        yield from self._kinds.items()

    def aliases(self) -> Iterator[tuple[str, str]]:
        """Yield the replaced names with their aliases."""
        yield from ((name, alias) for (kind, name), alias in self._aliases.items() if kind != "series")

    # --- aliases -----------------------------------------------------------------------------------

    def alias(self, kind: str, name: str) -> str:
        """Return the alias of a name, which is always the same within a run."""
        self.uses[kind] += 1
        key = ("host" if kind == "switch" else kind, name.lower())
        if key not in self._aliases:
            self.found[kind] += 1
            self._aliases[key] = self._new(kind, name)
        return self._aliases[key]

    def _new(self, kind: str, name: str) -> str:
        if kind == "serial":
            return self._serial(name)
        if kind in ("host", "switch"):
            return self._host(kind, name.lower())
        alias = self._numbered(kind)
        return f"{alias}.example" if kind == "domain" else alias

    def _host(self, kind: str, name: str) -> str:
        if found := _DASHED_ADDRESS.search(name):
            alias = self._keyed.ipv4(ipaddress.IPv4Address(found[0].replace("-", ".")))
            pattern = f"{name[: found.start()]}#.#{name[found.end() :]}"
            return f"{self._series_alias(kind, pattern)}-{str(alias).replace('.', '-')}"
        if not self._plain(name):
            return self._numbered(kind)
        numbers = "-".join(_NUMBER.findall(name))
        return f"{self._series_alias(kind, _NUMBER.sub('#', name))}{numbers}"

    def _series_alias(self, kind: str, pattern: str) -> str:
        key = ("series", pattern)
        if key not in self._aliases:
            self._aliases[key] = self._numbered(kind)
        return self._aliases[key]

    def _numbered(self, kind: str) -> str:
        stem = self._stem(kind)
        number = self._used.get(stem, 0)
        self._used[stem] = number + 1
        return f"{stem}-{letters(number)}"

    def _stem(self, kind: str) -> str:
        """Return the prefix of a kind's aliases; no name of the site starts with it."""
        if kind not in self._stems:
            stems = _STEMS.get(kind, _STEMS["name"])
            more = (f"{stems[0]}{letters(number)}" for number in count())
            free = (stem for stem in chain(stems, more) if not any(name.startswith(stem) for name in self._taken))
            self._stems[kind] = next(free)
        return self._stems[kind]

    def _serial(self, name: str) -> str:
        """Return an unused serial number of the same form."""
        for again in count():
            alias = self._keyed.alike(f"serial {again}", name)
            if alias.lower() not in self._taken and alias not in self._given:
                self._given.add(alias)
                return alias
        raise AssertionError  # cannot happen: learnt serial numbers have at least five characters, including a digit
