"""Names that mark secrets, and values that are never secret: counters, paths."""

import functools
import re

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import FrozenSet, Tuple

MARK = "[redacted]"

#: How strongly a name marks a secret: never; only if its value looks like one; always; always, as a password.
NONE, WEAK, STRONG, PASSWORD = range(4)

#: Substrings of which every name of a secret contains one; texts without any are not examined.
HINT = re.compile(
    "token|secret|pass|pwd|pw(?![a-z])|key|auth|cookie|session|sig|cred|bearer|jwt|psk|communit|_PAT(?![A-Za-z])", re.I
)


def _words(text: str) -> "FrozenSet[str]":
    return frozenset(text.split())


_WORDS = re.compile("[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ANYWHERE = re.compile(
    "secret|passw(?:or)?d|passphrase|credential|authorization|bearer|token(?!s|iz)"
    "|(?:api|access|private|secret)[ _.-]?key",
    re.I,
)
#: Last words of names that only describe a secret, or belong to something else.
_ABOUT = _words(
    "file files path paths dir directory folder url uri type name count counts total size len length ttl expiry age "
    "limit max min rate bucket buckets drop drops error errors wait waits violation violations version format policy "
    "method methods mode sock socket agent provider helper store manager header algorithm endpoint timeout interval "
    "enabled disabled required allowed index level class field label prefix suffix server host hosts port ring pool "
    "parallelism authentication quality strength retries attempts check checks changes usage used free wait rotation "
    "sec second seconds ms us ns minutes hours days bytes kb mb gb packets frames events prompt env var variable "
    "authenticator minlen maxlen history stalls stall credits ids"
)
#: Words before `key` that do not name a secret.
_OPEN_KEYS = _words(
    "public pub sort primary foreign partition cache host hash index group row column object join dict map shard rss "
    "gpg pgp ssh known p m q b r l hot meta metric label config setting registry lookup route routing message event "
    "record field data json yaml dictionary the a this no any each mgmt arrow function shift ctrl alt escape home kv "
    "i o memory protection entry trace toeplitz ib next stats counter option param parameter"
)
#: Words before `key` that always name a secret.
_SECRET_KEYS = _words(
    "api access private secret auth signing sign encryption encrypt storage account license licence activation master "
    "session shared service deploy admin root hmac aes rsa crypto cipher wandb openai anthropic hf ngc comet neptune "
    "aws azure gcp minio redis stripe datadog dd sentry nvapi bmc user client server ssl tls app application bot "
    "subscription webhook product serial"
)
_KEY_ENDS = ("apikey", "accesskey", "secretkey", "privatekey", "privkey", "authkey", "licensekey", "signingkey")
_NOT_PASS = _words("bypass compass encompass surpass trespass underpass overpass multipass askpass nopasswd")
_PASSWORDS = ("password", "passwd", "passphrase", "passcode", "pwd", "bindpw", "rootpw", "authtok", "passkey")

#: Values that are never secret.
_PLAIN = _words(
    "true false yes no on off none null nil enabled disabled enable disable unset set unknown default auto required "
    "optional sufficient requisite missing empty absent present ok valid invalid expired accepted rejected denied "
    "failed success successful files file systemd sss compat ldap nis winbind prompt ask never always any all not "
    "supported unsupported active inactive available unavailable loaded unlimited sys munge kerberos password "
    "publickey basic digest plain simple anonymous public bool string str int integer float object number "
    "nan inf inherit hidden "
    "masked redacted agent keyring env stdin pass fail passed total optional n/a auth/munge auth/none auth/slurm "
    "keyboard-interactive"
)
_FIGURE = re.compile(
    r"[-+]?[0-9]{1,20}(?:[.,:][0-9]{1,9}){0,8}(?:[eE][-+]?[0-9]{1,3})?"
    r"(?:%|x|[kKMGTP]?i?[bB]?(?:it)?(?:/s|ps)?|[mun]?s|min|[hdWCV]|m?W|[MG]?Hz|(?:pkt|page|time|entr)[a-z]{0,4})?"
    r"(?:/(?:s|sec|step|[0-9]{1,12}))?[,;.)]?"
)
_INTEGER = re.compile("[0-9]{1,20}")
_HEX = re.compile(r"0x[0-9a-fA-F]{1,16}[,;.)]?")
_OCTETS = re.compile(r"[0-9A-Fa-f]{2}(?:[:-][0-9A-Fa-f]{2}){2,}:?")
_ALGORITHM = re.compile(
    r"(?:sha|md|hmac|rsa|dsa|ecdsa|ed|aes|krb|ntlm|tls|ssl|oauth|saml|x|pkcs|jwt|scram|chap|pam|auth)[-_#/]?[0-9v.]{0,6}"
    r"(?:(?:[-_/+]|with)?(?:sha|md|hmac|rsa|dsa|ecdsa|encryption|munge|none|slurm|cbc|gcm|ctr|pss|ssp|nistp|i|p|plus|"
    r"with)[-_/]?[0-9.]{0,5}){0,5}",
    re.I,
)
_REFERENCE = re.compile(
    r"\$\{?[A-Za-z_]\w{0,100}\}?|\$\(.{0,200}|%\(?\w{0,40}\)?s?|\{\{.{0,200}|<[A-Za-z][\w .-]{0,60}>"
    r"|\([a-z]{2,20}\)?|[*x.•…]{2,}|\[[A-Za-z]{1,20}\]"
    r"|[|>][-+=0-9]{0,3}|\{[\w.()\[\]]{1,80}\}.{0,3}|#[0-9a-fA-F]{3,8};?|[a-z-]{2,20}:|[\[{(<]{1,3}[\])}>]{0,3},?"
)
_CALL, _MEMBER = re.compile(r"[A-Za-z_][\w.]{0,100}\("), re.compile(r"[a-z]\w{0,40}\.[A-Za-z][A-Za-z_.]{0,40}")
#: The name of a tensor: `model.layers.0.mlp.gate_proj.weight`.
_DOTTED = re.compile(r"[a-z_]{1,40}[0-9]{0,2}(?:\.(?:[a-z_]{1,40}[0-9]{0,2}|[0-9]{1,6})){2,20}")
_PATHS = ("/", "~/", "./", "../", "file:", "http://", "https://")


@functools.lru_cache(maxsize=2048)
def strength(name: str) -> "Tuple[int, bool]":
    """Return how strongly a name marks a secret, and whether its last word does."""
    words = [word.lower() for word in _WORDS.findall(name)]
    while len(words) > 1 and words[-1].isdigit():
        words.pop()
    if not words:
        return NONE, False
    last, before = words[-1], words[-2] if len(words) > 1 else ""
    variable = len(words) > 1 and name.isupper()
    if last in ("token", "tokens") and before in (
        "eos", "bos", "pad", "unk", "sep", "cls", "mask", "special", "stop", "next", "max", "num", "total", "image"
    ):  # fmt: skip
        return NONE, False
    if name.upper() in ("PWD", "OLDPWD"):  # a folder
        return (WEAK if name.islower() else NONE), True
    if last.endswith(_PASSWORDS) or last == "pw" or (last.endswith("pass") and (len(last) > 4 or before)):
        return (NONE, False) if last in _NOT_PASS else (PASSWORD, True)
    if last in ("key", "keys"):
        return _key(before, variable, last == "keys")
    if last in ("token", "tokens", "secret", "secrets", "credential", "credentials", "creds", "cred", "authorization",
                "bearer", "jwt", "psk") or last.endswith((*_KEY_ENDS, "token", "secret")):  # fmt: skip
        return STRONG, True
    if last == "id" and before == "session":
        return WEAK, False
    if last == "auth" or (last == "pat" and variable):
        return (STRONG if variable else WEAK), True
    if last in ("cookie", "cookies", "session", "sig", "signature", "community", "pass"):
        return WEAK, True
    if last not in _ABOUT and _ANYWHERE.search(name):
        return STRONG, False
    return NONE, False


def _key(before: str, variable: bool, many: bool) -> "Tuple[int, bool]":
    if before in _SECRET_KEYS:
        return STRONG, True
    if not before or before in _OPEN_KEYS or many:
        return NONE, False
    return (STRONG if variable else WEAK), True


def is_secret(name: str, value: str, tight: bool = True) -> bool:
    """Return whether the value of a name is a secret.

    ``tight`` means that it was assigned by a bare ``=``.
    """
    how, last = strength(name)
    return how != NONE and is_secret_value(value.strip(), how, last, tight, name.lower().endswith("s"))


def is_secret_value(value: str, how: int, last: bool, tight: bool, many: bool = False) -> bool:
    """Return whether a value is a secret, given how strongly its name marks one."""
    lower = value.lower().rstrip(",;.)")
    if (
        not lower
        or value in (MARK, MARK[:-1])
        or lower in _PLAIN
        or any(map(_REFERENCE.fullmatch, (value, value.rstrip(".,;)\"'"))))
    ):
        return False
    if _FIGURE.fullmatch(value):
        if not _INTEGER.fullmatch(lower):
            return how == PASSWORD and len(lower) > 7 and not re.search("[.,:%/ ]", lower)
        return last and not many and len(lower) >= (4 if how == PASSWORD else 7)
    if how != PASSWORD and _HEX.fullmatch(value):
        return False
    if value.startswith(_PATHS) and (not last or how == WEAK):
        return False
    if how == WEAK:
        return _looks_secret(value, tight)
    return True


def _looks_secret(value: str, tight: bool) -> bool:
    """Return whether a value looks random: no word, algorithm or fingerprint."""
    value = value.rstrip(",;.)")
    if (
        len(value) < 6
        or _CALL.match(value)
        or (not tight and _MEMBER.fullmatch(value))
        or _DOTTED.fullmatch(value)
        or _ALGORITHM.fullmatch(value)
        or _OCTETS.fullmatch(value)
    ):
        return False
    if value.isalpha():
        return tight or not (value.islower() or value.isupper() or value.istitle())
    return bool(re.search("[0-9A-Z]", value)) and not re.fullmatch("[0-9.:/-]+", value)
