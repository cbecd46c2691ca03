"""Where a run begins: what has to be fast is told by the words alone, before what understands them is imported."""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def main() -> None:
    """Carry out the command line; never returns."""
    words = sys.argv[1:]
    if words[:1] == ["gate"]:
        from preflight.gate import entry

        entry.leave(entry.main(words[1:], _gate_by_click))
    from preflight import ahead

    if ahead.asks_this_node(words):
        ahead.start()
    if words[:1] == ["check"]:
        from preflight import plain

        if (asked := plain.understood(words[1:])) is not None:
            plain.check(asked)
    from preflight import cli

    cli.main()


def _gate_by_click(words: Sequence[str]) -> int:
    from preflight.commands.gate import by_click

    return by_click(words)
