"""Parser of Python tracebacks, Go panics and uncaught C++ exceptions."""

from __future__ import annotations

import re

from preflight._startup.lightclass import dataclass
from preflight.textprep.lines import Lines

HINTS = ("Traceback (most recent call last", "panic: ", "terminate called after throwing")

_HEAD = "Traceback (most recent call last"
_FRAME = re.compile(r'(?P<before>.{0,200}?)(?P<indent>\s{2,12})File "(?P<file>[^"]{1,400})", line (?P<line>\d{1,7})'
                    r"(?:, in (?P<function>.{1,200}))?")  # fmt: skip
_EXCEPTION = re.compile(r"(?P<type>[A-Za-z_][\w.<>]{0,160}(?:\(\w{1,80}\))?)(?::\s?(?P<message>.*))?")
_CHAIN = re.compile(r"(?:During handling of the above exception, another|The above exception was the direct cause)")
#: Files of the interpreter and of installed packages, as opposed to the user's code.
_LIBRARY = re.compile(
    r"(?:^|/)(?:site-packages|dist-packages|lib(?:64)?/python\d[\d.]{0,6})/|^<(?:frozen|string"
    r"|stdin)"
)
_IGNORED = re.compile(
    r"(?i)exception ignored|--- Logging error|\bwarn(?:ing)?\b|ignor|retry|fall(?:ing)? back"
    r"|optional"
)
_MOST_LINES, _MOST_FOREIGN = 2000, 40

#: Exceptions that report the end of another process.
_FOLLOWS = re.compile(
    r"(?:^|\.)(?:ChildFailedError|CalledProcessError|SignalException|ProcessExitedException|ProcessRaisedException"
    r"|BrokenPipeError|ConnectionResetError|ConnectionAbortedError|EOFError|KeyboardInterrupt|SystemExit|CancelledError"
    r"|EngineDeadError|AsyncEngineDeadError|RayTaskError|WorkerCrashedError|NodeFailedError)(?:\(|$)"
)
_FOLLOWS_MESSAGE = re.compile(
    r"Connection (?:closed by|reset by) (?:remote )?peer|Broken pipe|remote process (?:exited|has died)"
    r"|recvValue failed"
    r"|Engine core initialization failed|ncclRemoteError|server (?:process )?(?:died|ended)"
)


@dataclass(frozen=True)
class RaisedError:
    """An exception, as printed at the end of a traceback."""

    type: str
    message: str
    frame: str  # "file:line in function", of the user's code if possible; may be empty
    cause: str  # the first exception of a chain; empty without a chain
    at: int  # index of the line with the exception
    end: int  # index after the last line
    ignored: bool  # whether the program logged it and continued
    cut: bool = False  # whether the text ends before the exception

    @property
    def follows(self) -> bool:
        """Whether the exception is a consequence of the end of another process."""
        return bool(_FOLLOWS.search(self.type) or _FOLLOWS_MESSAGE.search(self.message))


def begins(text: str) -> bool:
    """Return whether a traceback or a panic begins at a line."""
    return _HEAD in text or text.startswith("panic: ") or "terminate called after throwing" in text


#: An exception's line, which may have a rank before it.
_NAMED = re.compile(r"(?:\[\w{1,20}\]:? ?)?[A-Za-z_][\w.]{0,80}(?:Error|Exception): ")


def names_exception(text: str) -> bool:
    """Return whether a line starts with an exception, like the end of a traceback."""
    return _NAMED.match(text) is not None


def raised(lines: Lines, at: int) -> RaisedError | None:
    """Read the traceback, panic or C++ exception at a line; None without one."""
    text = lines[at].text
    if text.startswith("panic: "):
        return _go_panic(lines, at)
    if "terminate called after throwing" in text:
        return _cpp(lines, at)
    if _HEAD not in text:
        return None
    first = _one(lines, at)
    if first is None:
        return None
    result, cause = first, ""
    while (again := _chained(lines, result.end)) is not None:
        cause = cause or f"{result.type}: {result.message}".rstrip(": ")
        result = again
    ignored = bool(at and _IGNORED.search(lines[at - 1].text[-300:])) or bool(_IGNORED.search(text.partition(_HEAD)[0]))
    return RaisedError(
        result.type, result.message, result.frame, cause[:200], result.at, result.end, ignored, result.cut
    )


def _chained(lines: Lines, end: int) -> RaisedError | None:
    near = range(end, min(end + 5, len(lines)))
    chain = next((place for place in near if _CHAIN.search(lines[place].text)), None)
    if chain is None:
        return None
    head = next((place for place in range(chain, min(chain + 5, len(lines))) if _HEAD in lines[place].text), None)
    return None if head is None else _one(lines, head)


def _one(lines: Lines, at: int) -> RaisedError | None:
    """Read one traceback; each of its lines may have a logger's prefix."""
    begin = next((place for place in range(at + 1, min(at + 4, len(lines))) if _FRAME.match(lines[place].text)), None)
    if begin is None:
        return None
    match = _FRAME.match(lines[begin].text)
    before = match["before"] + " " * max(0, len(match["indent"]) - 2) if match else ""
    shape = _shape(before)
    frame = own = ""
    bare: RaisedError | None = None  # an exception that lacks the prefix of the frames
    foreign, end, follows = 0, begin, False
    while end < min(len(lines), begin + _MOST_LINES):
        text = lines[end].text
        if _shape(text[: len(before)]) != shape and text.strip():
            foreign += 1
            if follows and bare is None and _NAMED.match(text) and (raised := _EXCEPTION.fullmatch(text)):
                message = (raised["message"] or "").strip()[:400]
                bare = RaisedError(raised["type"], message, own or frame, "", end, end + 1, False)
            follows = False
            if foreign > _MOST_FOREIGN:
                break
            end += 1
            continue
        text, follows = text[len(before) :], True
        if result := _FRAME.fullmatch(text):
            frame = f"{result['file']}:{result['line']}" + (f" in {result['function']}" if result["function"] else "")
            own = own if _LIBRARY.search(result["file"]) else frame
        elif text.strip() and not text[0].isspace():
            if (raised := _EXCEPTION.fullmatch(text)) and re.search(r"[A-Z]", raised["type"]):
                message, last = (raised["message"] or "").strip(), end
                if (not message or message.endswith(":")) and end + 1 < len(lines):
                    follow = next((lines[place].text[len(before) :].strip() for place in range(end + 1, min(end + 3,
                         len(lines)))
                                   if re.search(r"\w", lines[place].text[len(before) :])), "")  # fmt: skip
                    if follow and not _CHAIN.search(follow) and not begins(follow):
                        message = f"{message} {follow}".strip()
                return RaisedError(raised["type"], message[:400], own or frame, "", last, last + 1, False)
            foreign += 1
            if foreign > _MOST_FOREIGN or _HEAD in text:
                break
        end += 1
    if bare is not None:
        return bare
    return RaisedError("", "", own or frame, "", min(end, len(lines)) - 1, min(end, len(lines)), False, cut=True)


def _shape(text: str) -> str:
    return re.sub(r"[0-9a-f]", "0", text)


def _go_panic(lines: Lines, at: int) -> RaisedError | None:
    """Read a Go panic, with the function from its goroutine stack; None without one."""
    near = lines[at : at + 12]
    head = next((place for place, line in enumerate(near) if line.text.startswith("goroutine ")), None)
    if head is None:
        return None
    frame, end = "", at + head + 1
    while end < min(len(lines), at + _MOST_LINES) and lines[end].text.strip():
        text = lines[end].text
        if not frame and (place := re.match(r"\s+(/\S{1,300}\.go:\d{1,7})", text)) and "/runtime/" not in place[1]:
            frame = f"{place[1]} in {lines[end - 1].text.split('(0x')[0].strip()[:120]}"
        if re.match(r"\s{0,4}[IWEF]\d{4} \d\d:", text):
            break
        end += 1
    return RaisedError("panic", lines[at].text.removeprefix("panic: ")[:400], frame, "", at, end, False)


def _cpp(lines: Lines, at: int) -> RaisedError:
    """Read an uncaught C++ exception and its ``what()``."""
    named = re.search(r"instance of '([^']{1,200})'", lines[at].text)
    follows = next((place for place in range(at + 1, min(at + 3, len(lines))) if "what():" in lines[place].text), None)
    message = lines[follows].text.partition("what():")[2].strip() if follows is not None else ""
    return RaisedError(named[1] if named else "exception", message[:400], "", "", at if follows is None else follows,
                       (at if follows is None else follows) + 1, False)  # fmt: skip
