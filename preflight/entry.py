"""Where a run begins: commands that must be fast are recognised by their words, before click is imported."""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any, NoReturn


def main() -> None:
    """Carry out the command line; never returns."""
    words = sys.argv[1:]
    if words[:1] == ["gate"]:
        from preflight.gate import entry

        leave(entry.main(words[1:], _gate_by_click))
    from preflight import ahead

    if ahead.asks_this_node(words):
        ahead.start()
    if words[:1] == ["check"]:
        from preflight import plain

        if (asked := plain.understood(words[1:])) is not None:
            try:
                plain.check(asked)
            except SystemExit as end:
                leave(end.code)
    from preflight import cli

    try:
        cli.main()
    except OSError as error:
        import errno

        if error.filename is not None or error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO):
            raise
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        print(f"Error: standard output could not be written: {error.strerror}", file=sys.stderr)
        sys.exit(3)


def leave(status: Any) -> NoReturn:
    """End this process at once: taking Python apart would take longer than a fresh verdict of a gate does."""
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
