"""Secrets recognised by context: command arguments, `.netrc`, SNMP, X11."""

import re

from .secret_names import MARK, WEAK, is_secret_value

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Dict, List, Tuple

#: Command -> the options before its password. After an option that ends in ``:``, ``%`` or ``,``, the password follows
#: a user and that character.
_OPTIONS: "Dict[str, Tuple[str, ...]]" = {
    "sshpass": ("-p",),
    "ipmitool": ("-P", "-k"),
    "ipmi-sensors": ("-p",),
    "ipmipower": ("-p",),
    "bmc-info": ("-p",),
    "curl": ("-u:", "--user:", "-U:", "--proxy-user:", "--pass"),
    "wget": ("--password", "--http-password"),
    "docker": ("-p",),
    "podman": ("-p",),
    "nerdctl": ("-p",),
    "buildah": ("-p",),
    "skopeo": ("-p", "--creds:"),
    "apptainer": ("-p",),
    "singularity": ("-p",),
    "oras": ("-p",),
    "helm": ("-p",),
    "crane": ("-p",),
    "mysql": ("-p",),
    "mysqldump": ("-p",),
    "mariadb": ("-p",),
    "mysqladmin": ("-p",),
    "mongo": ("-p",),
    "mongosh": ("-p",),
    "redis-cli": ("-a",),
    "ldapsearch": ("-w",),
    "ldapadd": ("-w",),
    "ldapmodify": ("-w",),
    "smbclient": ("-U%", "--user%"),
    "snmpwalk": ("-c", "-A", "-X"),
    "snmpget": ("-c", "-A", "-X"),
    "snmpset": ("-c", "-A", "-X"),
    "snmpbulkwalk": ("-c", "-A", "-X"),
    "snmptable": ("-c", "-A", "-X"),
    "wandb": ("login",),
    "ngc": (),
    "racadm": ("-p",),
    "sqlcmd": ("-P",),
    "xfreerdp": ("/p:",),
    "zip": ("-P",),
    "unzip": ("-P",),
    "7z": ("-p",),
    "plink": ("-pw",),
    "pscp": ("-pw",),
    "lftp": ("-u,",),
    "http": ("-a:",),
    "https": ("-a:",),
    "aria2c": (),
    "mc": (),
    "az": ("-p",),
    "oc": ("-p",),
    "argocd": (),
    "netexec": ("-p",),
    "redfishtool": ("-p",),
    "ilorest": ("-p",),
    "storcli": (),
    "kinit": (),
    "htpasswd": (),
    "wpa_passphrase": (),
    "ssh-keygen": ("-N", "-P"),
    "hydra": ("-p",),
    "vault": ("login",),
}
#: Commands whose `-p` is a password only after `login` or `--creds`: in `docker run -p 80:80`, it is a port.
_AFTER_LOGIN = frozenset(
    [
        "docker",
        "podman",
        "nerdctl",
        "buildah",
        "apptainer",
        "singularity",
        "oras",
        "helm",
        "crane",
        "az",
        "oc",
        "skopeo",
    ]
)
_GLUED = frozenset(["sshpass", "mysql", "mysqldump", "mariadb", "mysqladmin", "mongo", "mongosh", "7z"])
_COMMAND = re.compile(
    r"(?<![\w.-])(?:{})(?![\w.-])".format(
        "|".join(sorted((name for name, of in _OPTIONS.items() if of), key=len, reverse=True))
    )
)
_ARGUMENT = re.compile(
    r"""\\?["'](?P<quoted>(?:[^"'\\\n\0]|\\[^"'\n\0])*)\\?["']|(?P<bare>[^\s\0"'|;&`]+(?:[^\s\0|;`"',]|,(?=[^\s\0"']))*)
    |(?P<end>[\n|;&`])""",
    re.X,
)
_END_OF_LINE = re.compile("[\n|]|;|&&")

#: White space between the words of a `.netrc`, also as escaped in JSON or quoted in a mail; and a word.
_GAP, _WORD = r"(?:[ \t\r\n\0]|\\[nrt]|(?<=\n)> ?){1,16}", r"[^\s\0\"'\\]{1,256}"
_NETRC = re.compile(
    r"(\b(?:(?:machine|login|account){gap}{word}|default){gap}(?:(?:login|account){gap}{word}{gap})?password{gap})"
    r"([^\s\0\"'\\]+)".format(gap=_GAP, word=_WORD)
)
#: The password before the login, as allowed in `.netrc`.
_NETRC_FIRST = re.compile(r"(\bpassword{gap})({word})(?={gap}(?:login|account){gap}\S)".format(gap=_GAP, word=_WORD))
_SNMP = re.compile(
    r"(\b(?:snmp(?:-server|d|v[123]c?)?[ \t]{1,8}community|r[ow]community6?|snmp[ \t]{1,4}(?:server[ \t]{1,4})?"
    r"community(?:[ \t]{1,4}string)?"
    r"|community[ -]string)(?:[ \t]{1,8}(?:name|is|ro|rw))?[ \t]{0,8}[:=]?[ \t]{1,8}[\"']?)([^\s\0\"';<]{3,})",
    re.I,
)
_X11 = re.compile(r"(MIT-MAGIC-COOKIE-1[ \t]{1,8})([0-9a-fA-F]{16,})")
#: A key of Weights & Biases has no distinctive form: 40 hexadecimal digits on a line that names the service.
_WANDB = re.compile(r"(?i)(wandb[^\n]{0,160}?(?<![0-9a-f]))([0-9a-f]{40})(?![0-9a-f])")
_OPENSSL = re.compile(r"(-pass(?:in|out)?[ \t=]{1,8}[\"']?pass:)([^\s\0\"'|;&`\\]+)")
_CHPASSWD = re.compile(
    r"(\becho (?:-\w{1,4} )?(?:\\?[\"'])?[A-Za-z_][\w.-]{0,63}:)([^\s\0|]{1,256}?)"
    r"(?=(?:\\?[\"'])?[ \t]{0,8}\|[ \t]{0,8}(?:sudo )?(?:/usr/sbin/)?chpasswd)"
)
#: `echo x | docker login --password-stdin`
_STDIN = re.compile(
    r"(\becho (?:-\w{1,4} )?(?:\\?[\"'])?)([^\s\0|$\"'][^\s\0|]{0,255}?)"
    r"(?=(?:\\?[\"'])?[ \t]{0,8}\|[^\n|]{0,200}--(?:password-)?stdin\b)"
)
#: Sentences: `the password for x is y`, `secret was: y`; and the second of two: `user/pass: x / y`.
_SENTENCE = re.compile(
    r"(\b(?:passw(?:or)?d|passphrase|passcode|pwd?|secret|token|credentials?|(?:api|access|private|secret)[ _-]key)"
    r"(?:[ ](?:for|of|on|to|at)[ ](?:[^\n.;:=]|\.(?=\w)){1,60}?)?[ ](?:is|was|are)[:=]?[ \t]{1,4})"
    r"(?P<sign>\\?[\"'`]?)([^\s\0\"'`]{6,200})",
    re.I,
)
_SECOND_OF_TWO = re.compile(
    r"(\b(?:user(?:name|id)?|login)[ ]?[/,&+:][ ]?(?:pass(?:w(?:or)?d)?|pwd?|secret)\b[ \t]{0,8}[:=][ \t]{0,8}"
    r"[^\s\0/:,<]{1,64}[ \t]{0,4}[/:,][ \t]{0,4})([^\s\0\"'<]{4,200})",
    re.I,
)
#: Words of network devices, databases and tools that precede a secret, which must also look like one.
_WORDED = re.compile(
    r"((?:\b(?:tacacs|radius)(?:-server)?[ ](?:host[ ]\S{1,64}[ ])?key|\bkey-string|\bplain-text-password(?:-value)?"
    r"|\b(?:enable|username[ ]\S{1,64}(?:[ ]privilege[ ][0-9]{1,2})?)[ ]secret|\bpassphrase[ ]for[ ][^\n:]{1,100}:"
    r"|\bauth(?:entication)?[ ](?:md5|sha(?:-?[0-9]{1,3})?)|\bpriv(?:acy)?[ ](?:3?des|aes(?:[ -]?[0-9]{3}(?:-cfb)?)?)"
    r"|\bmasterauth|\brequirepass|\bsend(?:[ ]--)?)"
    r"[ \t]{1,8}(?:[0-9][ \t]{1,4})?)(?P<sign>\\?[\"'`]?)([^\s\0\"'`;<]{4,200})",
    re.I,
)
_WORDED_SIGNS = re.compile(
    "tacacs|radius|key-string|plain-text|secret|auth |auth[em]|priv|requirepass|passphrase for|send", re.I
)
#: Arguments that are secret, regardless of their form.
_ARGUED = re.compile(
    r"((?:\bidentified[ ](?:with[ ]\S{1,64}[ ])?by|\brclone[ ]obscure"
    r"|\bmc[ ](?:alias|config[ ]host)[ ](?:set|add)(?:[ ]\S{1,300}){3}"
    r"|\bhtpasswd[ ](?:-[A-Za-z]{1,8}[ ]){0,4}-[A-Za-z]{0,6}b[A-Za-z]{0,6}(?:[ ]\S{1,300}){2}"
    r"|\bnet[ ]use[ ]\S{1,8}[ ]\\\\\S{1,300})[ \t]{1,8}\\?[\"']?)([^\s\0\"'\\;<]{4,200})",
    re.I,
)
_ARGUED_SIGNS = re.compile("identified|rclone|mc |htpasswd|net use", re.I)
#: `AUTH x` in a Redis session; a line of `.pgpass`; the response of HTTP digest authentication.
_REDIS = re.compile(r"((?<![\w-])AUTH[ ](?:default[ ])?)(?P<sign>\\?\"?)([^\s\0\"<)]{6,200})")
_PGPASS = re.compile(
    r"(?m)((?:^|[\s\"'(>])[\w.*-]{1,100}:(?:[0-9]{4,5}|\*):[\w.*-]{1,64}:[\w.*-]{1,64}:)(?P<sign>)"
    r"([^\s\0:\"'<)}\\]{6,200})(?![:\w])"
)
_DIGEST = re.compile(r"(\b[Dd]igest[ ][^\n\0]{0,400}?\bresponse=\\?[\"']?)([0-9a-f]{32,64})")
_LETTER, _DIGIT = re.compile("[A-Za-z]"), re.compile("[0-9]")
_SHADOW = re.compile(r"(?<![\w$])\$(?:1|2[aby]?|5|6|y|7|gy|apr1)\$[./A-Za-z0-9,=$]{12,}")


def in_places(text: str) -> str:
    """Return the text without the secrets recognised by their context."""
    if "$" in text:
        text = _SHADOW.sub(MARK, text)
    if "password" in text:
        text = _NETRC.sub(_second, text)
        text = _NETRC_FIRST.sub(_second, text)
    if "ommunity" in text or "OMMUNITY" in text:
        text = _SNMP.sub(_second, text)
    if "MAGIC" in text:
        text = _X11.sub(_second, text)
    if "pass:" in text:
        text = _OPENSSL.sub(_second, text)
    if "chpasswd" in text:
        text = _CHPASSWD.sub(_second, text)
    if "stdin" in text:
        text = _STDIN.sub(_second, text)
    if " is" in text or " was" in text or " are" in text:
        text = _SENTENCE.sub(_at_the_end, text)
    if "pass" in text or "pw" in text or "Pass" in text:
        text = _SECOND_OF_TWO.sub(_second, text)
    if "andb" in text or "ANDB" in text:
        text = _WANDB.sub(_second, text)
    if _WORDED_SIGNS.search(text):
        text = _WORDED.sub(_at_the_end, text)
    if _ARGUED_SIGNS.search(text):
        text = _ARGUED.sub(_second, text)
    if "AUTH " in text:
        text = _REDIS.sub(_at_the_end, text)
    if "response=" in text:
        text = _DIGEST.sub(_second, text)
    if text.count(":") > 3:
        text = _PGPASS.sub(_at_the_end, text)
    return _arguments(text)


def _second(found: "re.Match[str]") -> str:
    return found.group(1) + (
        found.group(2) if found.group(2).lower().rstrip(".,;)") in ("public", MARK, "is", "for") else MARK
    )


def _at_the_end(found: "re.Match[str]") -> str:
    """Redact the last word of a match if it looks like a secret."""
    value = found.group(3).rstrip(".,;!?)")
    mixed = _DIGIT.search(value) and _LETTER.search(value)
    if not mixed or not is_secret_value(value, WEAK, True, True):
        return found.group()
    return found.group(1) + found.group("sign") + MARK + found.group(3)[len(value) :]


def _arguments(text: str) -> str:
    """Redact passwords among the arguments of commands; each line is read once."""
    pieces, done, seen = [], 0, 0  # type: List[str], int, int
    for found in _COMMAND.finditer(text):
        if found.start() < seen:
            continue
        seen = found.end()
        if text[seen : seen + 1] in ("'", '"') and text[found.start() - 1 : found.start()] == text[seen]:
            seen += 1  # an item of a list, in quotes
        spans, seen = _of_command(text, found.group(), seen)
        for start, end in spans:
            if start < end and start >= done and text[start:end] != MARK:
                pieces += [text[done:start], MARK]
                done = end
    return "".join(pieces) + text[done:]


def _of_command(text: str, name: str, at: int) -> "Tuple[List[Tuple[int, int]], int]":
    """Return the spans of a command's passwords, and the end of its arguments."""
    options, wanted = _OPTIONS[name], ""
    login = name not in _AFTER_LOGIN
    spans = []
    for argument in _ARGUMENT.finditer(text, at):
        if argument.group("end") or argument.start() - at > 8000:
            at = argument.end()
            break
        form = "quoted" if argument.group("quoted") is not None else "bare"
        word, (start, end) = argument.group(form), argument.span(form)
        if not word.strip(",[]()"):
            continue
        if wanted:
            spans.append(_span(word, start, end, wanted, name))
            wanted = ""
            continue
        login = login or word in ("login", "--creds")
        for option in options if login else ():
            flag, mark = (option[:-1], option[-1]) if option[-1] in ":,%" and option != "/p:" else (option, " ")
            if word in (flag, flag + "="):
                wanted = mark
            elif word.startswith(flag + "=") and flag.startswith("--"):
                spans.append(_span(word[len(flag) + 1 :], start + len(flag) + 1, end, mark, name))
            elif len(flag) == 2 and word.startswith(flag) and (name in _GLUED or mark != " "):
                spans.append(_span(word[2:], start + 2, end, mark, name))
    else:
        at = len(text)
    return spans, at


def _span(word: str, start: int, end: int, mark: str, name: str) -> "Tuple[int, int]":
    """Return the password's span in an argument: all, or the part after the user."""
    if name in ("wandb", "vault"):
        return (start, end) if len(word) >= 16 and not word.startswith("-") else (0, 0)
    if mark == " ":
        return (0, 0) if word.startswith(("$", "-")) else (start, end)
    place = word.find(mark)
    return (start + place + 1, end) if place >= 0 and not word[place + 1 :].startswith("$") else (0, 0)
