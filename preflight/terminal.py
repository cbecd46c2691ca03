"""Terminal output, progress indicator and usage errors."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

from preflight.errors import PreflightError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from typing import TextIO


class UsageError(PreflightError):
    """Error in arguments or configuration; no node was contacted. Exit status 2."""


def print_text(text: str, stream: TextIO | None = None) -> None:
    """Write text to a standard stream and flush it.

    Characters that the encoding lacks are escaped; a closed stream is ignored.
    """
    stream = stream or sys.stdout
    if stream is None:
        return
    try:
        stream.write(text)
    except UnicodeEncodeError:
        stream.write(text.encode(stream.encoding, "backslashreplace").decode(stream.encoding))
    stream.flush()


def write_or_report(write: Callable[[], object], target: object) -> bool:
    """Write an output; report an OSError, and return whether it was written."""
    try:
        write()
    except OSError as error:
        print_text(f"error: {target} could not be written: {error.strerror}\n", sys.stderr)
        return False
    return True


@contextmanager
def progress(what: str) -> Iterator[None]:
    """Show progress on a terminal after one second."""
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


def page(text: str) -> None:
    """Print a text, through the user's pager if it does not fit on the terminal."""
    from shutil import get_terminal_size, which

    if not (sys.stdout and sys.stdout.isatty() and text.count("\n") >= get_terminal_size().lines):
        print_text(text)
        return
    import os
    import shlex
    import subprocess

    command = shlex.split(os.environ.get("PAGER", "")) or ["less"]
    if not which(command[0]):
        print_text(text)
        return
    environment = {"LESS": "FRX", **os.environ, "LESSSECURE": "1"}
    subprocess.run(command, input=text.encode("utf-8", "backslashreplace"), env=environment, check=False)


def screen() -> tuple[bool, int]:
    """Return whether standard output is a terminal, and how many columns to use."""
    if not (sys.stdout and sys.stdout.isatty()):
        return False, 100
    from shutil import get_terminal_size

    return True, min(get_terminal_size((100, 24)).columns, 120)


def height() -> int | None:
    """Return the number of lines of the terminal; None without a terminal."""
    if not (sys.stdout and sys.stdout.isatty()):
        return None
    from shutil import get_terminal_size

    return get_terminal_size((100, 24)).lines


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint with the known word closest to a misspelt one."""
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else "; `preflight list` names them"
