"""Secrets recognised by shape: service keys, URL passwords, random strings."""

import re

from .secret_names import MARK

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_KEY_BLOCK = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----.*?"
    r"(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)",
    re.S,
)
_VAULT_BLOCK = re.compile(
    r"\$ANSIBLE_VAULT;[^\n\0\\]{1,80}(?:(?:\r?\n|(?:\\r)?\\n)(?:>[ ])?[ \t]{0,40}[0-9a-f]{2,200}){1,100000}"
)
_URL_PASSWORD = re.compile(r"(://[^\s/:@\0]{0,256}:)[^\s/\0]+@")
_URL_TOKEN = re.compile(r"(://)(?=[^@]{0,100}[0-9])[A-Za-z0-9_-]{20,200}(?=@)")
#: URLs that are secrets themselves: anyone who knows one can post to it.
_WEBHOOK = re.compile(
    r"""(
    /services/T[A-Z0-9]{5,20}/B[A-Z0-9]{5,20}/
    |/(?:triggers|workflows)/T[A-Z0-9]{5,20}/
    |discord(?:app)?\.com/api/(?:v[0-9]{1,2}/)?webhooks/[0-9]{5,30}/
    |(?:webhook\.office\.com/webhookb2|outlook\.office(?:365)?\.com/webhook)/
    |(?:hooks\.zapier\.com/hooks/catch|maker\.ifttt\.com/trigger/[\w-]{1,64}/with/key)/
    |api\.telegram\.org/bot
    |events\.pagerduty\.com/(?:integration|x-ere)/
    |/hooks/(?=[a-z0-9]{20})
    )[^\s\0"'<>?&]+""",
    re.X,
)
_SHAPES = re.compile(
    r"""(?<![A-Za-z0-9_-])(?:
    eyJ[\w-]{5,}\.[\w-]{5,}(?:\.[\w-]*)?
    |(?:
        (?:A[KS]IA|ABIA|ACCA)[0-9A-Z]{16}
        |gh[pousr]_[A-Za-z0-9]{20,}
        |github_pat_\w{20,}
        |gl(?:pat|rt|dt|soat|cbt|ptt|ft|imt|agent|oas)-[\w.-]{16,}
        |xox[a-z](?:\.xox[a-z])?-[\w-]{10,}
        |xapp-[\w-]{10,}
        |hf_[A-Za-z0-9]{16,}
        |(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{8,}
        |whsec_[A-Za-z0-9+/=]{16,}
        |sk-(?=[\w-]*(?:[0-9]|[a-z][A-Z]))[\w-]{20,}
        |nvapi-[\w-]{16,}
        |lsv2_(?:pt|sk)_[A-Za-z0-9]{16,}_[A-Za-z0-9]{4,}
        |AIza[\w-]{30,}
        |ya29\.[\w-]{16,}
        |GOCSPX-[\w-]{16,}
        |SG\.[\w-]{16,}\.[\w-]{16,}
        |(?:npm|dckr_pat|dckr_oat|dop_v1|doo_v1|r8|gsk|rpa|glc|glsa|pul|sbp|ntn|lin_api|figd|shp(?:at|ca|pa|ss)
          |sntry[su]|hv[sbr]|tskey-[a-z]{2,9}|wandb_v1|api_org|xkeysib|PMAK|NRAK|CFPAT|pplx|dapi)
          (?:[_-]|(?<=hv[sbr])\.|(?<=dapi))(?=[\w-]*(?:[0-9]|[a-z][A-Z]))[\w-]{20,}
        |pypi-[\w-]{30,}
        |key-[0-9a-f]{32}
        |[0-9]{8,10}:AA[\w-]{33}
    )(?![A-Za-z0-9]))""",
    re.X | re.A,
)
#: Long runs of base64 characters. Those of a fixed length after a name, such as Azure's passwords, are found by the
#: name.
_RUN = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{32,}={0,2}")
_PART = re.compile(r"[A-Za-z0-9+]{32,}={0,2}")
_LOWER, _UPPER, _DIGIT = re.compile("[a-z]"), re.compile("[A-Z]"), re.compile("[0-9]")
_PAST_HEX = (re.compile("[g-z]"), re.compile("[G-Z]"))
#: Runs of characters that look like a word, an abbreviation or a number: a random string has one for every two
#: characters, a name one for five.
_WORDS = re.compile("[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_VOWEL, _CONSONANTS = re.compile("[aeiouAEIOU]"), re.compile("[b-df-hj-np-tv-zB-DF-HJ-NP-TV-Z]{7}")
#: A part of a path that is a word, a number or an abbreviation: most parts of a path match, but few of a random string.
_PLAIN = re.compile("[a-z]{2,}[0-9]{0,2}|[A-Z]?[a-z]{3,}|[0-9]*|[A-Z]{2,8}")
#: A part of a path that is a hexadecimal checksum.
_SUM_IN_PATH = re.compile("(?<![A-Za-z0-9])(?:[0-9a-f]{12,}|[0-9A-F]{12,})(?![A-Za-z0-9])")
#: Text before the checksum of a file, or the fingerprint of a key.
_SUM = re.compile(r"(?:sha(?:1|224|256|384|512)|md5|sum|digest|fingerprint|integrity)[\"']?[:=\s-]{1,3}\Z", re.I)
#: Lengths of 30, 32 and 64 bytes in base64, with and without padding.
_LENGTHS = (40, 43, 44, 86, 88)

#: Length of the shortest secret with a known shape: ``eyJ``, five characters, a dot, and five characters.
_SHORTEST = 14


def in_shapes(text: str) -> str:
    """Return the text without the secrets recognised by their shape."""
    if "://" in text:
        text = _URL_PASSWORD.sub(r"\1" + MARK + "@", text)
        text = _URL_TOKEN.sub(r"\1" + MARK, text)
        text = _WEBHOOK.sub(r"\1" + MARK, text)
    if len(text) < _SHORTEST:  # most output consists of words and numbers
        return text
    if "PRIVATE KEY" in text:
        text = _KEY_BLOCK.sub(MARK, text)
    if "$ANSIBLE_VAULT" in text:
        text = _VAULT_BLOCK.sub(MARK, text)
    text = _SHAPES.sub(MARK, text)
    return _RUN.sub(_random, text)


def _random(found: "Any") -> str:
    """Redact a run of at least 32 characters if it is random.

    Words, C++ symbols, checksums and paths are not random.
    """
    run = found.group()
    body = run.rstrip("=")
    if not _UPPER.search(body) or not _LOWER.search(body):
        return str(run)
    if body[:3].lower() in ("sha", "md5") and re.match("sha[0-9]{1,3}-|md5-", body, re.I):
        return str(run)
    if _SUM.search(found.string, max(0, found.start() - 16), found.start()):
        return str(run)
    if re.search("(?:^|[^A-Za-z0-9])_Z[A-Z0-9]", body) or (
        body[0] == "Z" and found.string[: found.start()][-1:] == "_"
    ):
        return str(run)  # a mangled symbol of C++
    if _is_random(_SUM_IN_PATH.sub("", body), len(run)):
        return MARK
    return _PART.sub(_part, run)


def _is_random(body: str, length: int) -> bool:
    past_hex = all(part.search(body) for part in _PAST_HEX)
    longest = max(map(len, re.split("[-_]", body)))
    if len(body) < 24 or longest < 12 or not past_hex or not (_DIGIT.search(body) or length in _LENGTHS):
        return False
    plain = sum(len(part) for part in re.split("[/_-]", body) if _PLAIN.fullmatch(part))
    if length in _LENGTHS and 20 * plain < 7 * len(body) and _is_unspeakable(body):
        return True
    return 100 * len(_WORDS.findall(body)) >= 26 * len(body) and 10 * plain < 3 * len(body)


def _is_unspeakable(body: str) -> bool:
    """Return whether letters form no word: few vowels, or seven consonants in a row."""
    return not re.search("[_-]", body) and (
        4 * len(_VOWEL.findall(body)) < len(body) or _CONSONANTS.search(body) is not None
    )


def _part(found: "Any") -> str:
    """Redact a random string that is part of a path or joined by dashes."""
    run = found.group()
    mixed = _UPPER.search(run) and _LOWER.search(run) and (_DIGIT.search(run) or "+" in run)
    if not mixed or not re.search("[g-zG-Z+]", run) or 100 * len(_WORDS.findall(run)) < 22 * len(run):
        return str(run)
    return MARK
