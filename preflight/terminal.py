"""Between preflight and who runs it: what is printed, what is shown meanwhile, and how a mistake in a call is told."""

from __future__ import annotations

import sys
from contextlib import contextmanager

from preflight.errors import PreflightError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import TextIO


class UsageError(PreflightError):
    """A mistake in what was asked or configured; nothing was touched. The exit status is 2."""


def say(text: str, stream: TextIO | None = None) -> None:
    """Write text to a standard stream, at once; what its encoding lacks is escaped, and a closed one takes nothing."""
    stream = stream or sys.stdout
    if stream is None:
        return
    try:
        stream.write(text)
    except UnicodeEncodeError:
        stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))
    stream.flush()


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show on a terminal what takes longer than a second."""
    if not (sys.stderr and sys.stderr.isatty()):  # it may be closed
        yield
        return
    from threading import Timer

    from rich.console import Console

    status = Console(stderr=True).status(what)
    timer = Timer(1.0, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        status.stop()


def screen() -> tuple[bool, int]:
    """Tell whether a terminal shows what is printed, and how many columns to use."""
    if not (sys.stdout and sys.stdout.isatty()):
        return False, 100
    from shutil import get_terminal_size

    return True, min(get_terminal_size((100, 24)).columns, 120)


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint at what was probably meant."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else "; `preflight list` names them"
