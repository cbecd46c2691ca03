"""Start and end of the process; commands that must be fast bypass click."""

from __future__ import annotations

import os
import sys

#: Maximum length of a printed exception, in characters.
_LONGEST = 300

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn


def main() -> None:
    """Run the command line and end the process.

    An internal error exits with 3, so that it never looks like a verdict. Only this function and a gate's deadline
    thread end the process.
    """
    words = sys.argv[1:]
    try:
        status, shut_down = _run(words)
    except KeyboardInterrupt:
        _print("\nAborted!")
        status, shut_down = 3, False  # nothing was judged
    except Exception as error:
        status, shut_down = _crashed(words, error), False
    leave(status, shut_down=shut_down)


def _run(words: Sequence[str]) -> tuple[Any, bool]:
    """Return the exit status, and whether the interpreter has to shut down.

    A shutdown is needed if temporary folders may have to be removed.
    """
    if words[:1] == ["gate"]:
        from preflight.gate import main as entry

        return entry.main(words[1:], _gate_by_click), False
    from preflight._startup import prestart

    if prestart.collects_locally(words):
        prestart.start()
    if words[:1] == ["check"]:
        from preflight._startup import fast_options

        if (options := fast_options.parse("check", words[1:])) is not None:
            from preflight.cli import fast_check

            return fast_check.check(options), False
    from preflight.cli import app

    try:
        app.main()
    except SystemExit as end:  # how click returns a status
        return end.code, True
    except OSError as error:
        import errno

        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _print(f"Error: standard output could not be written: {error.strerror}")
        return 3, True
    return 0, True


def _crashed(words: Sequence[str], error: Exception) -> int:
    """Report an internal error; return the exit status.

    A gate exits as the policy of its hook requires, so that an error of preflight does not drain the node.
    """
    if words[:1] == ["gate"]:
        try:
            from preflight.gate import main as entry

            return entry.crashed(words[1] if len(words) > 1 else "", error)
        except Exception as another:
            error = another
    words = [word for word in words if word not in ("-v", "--verbose")]
    if len(words) != len(sys.argv) - 1:
        import traceback

        _print("".join(traceback.format_exception(error)).rstrip())
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    place = f" ({os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno})" if trace else ""
    what = " ".join(f"{type(error).__name__}: {error}".split())
    what = what if len(what) <= _LONGEST else what[:_LONGEST] + "…"
    command = f" {words[0]} …" if words else ""
    _print(f"Error: preflight itself failed: {what}{place}; nothing was judged. `preflight -v{command}` prints more")
    return 3


def _print(text: str) -> None:
    """Print sanitized text to standard error, if open."""
    try:
        from preflight.reports.sanitize import visible

        print(visible(text).encode("ascii", "backslashreplace").decode(), file=sys.stderr)
    except (MemoryError, SystemError):  # an import that runs out of memory raises SystemError
        os.write(2, b"Error: out of memory; nothing was judged\n")
    except (OSError, ValueError):
        return


def leave(status: Any, *, shut_down: bool = False) -> NoReturn:
    """End the process, by default without the interpreter's shutdown, which is slow."""
    if shut_down:
        sys.exit(status)
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue
    os._exit(status if isinstance(status, int) else 1)


def _gate_by_click(words: Sequence[str]) -> int:
    from preflight.commands.gate import by_click

    return by_click(words)
