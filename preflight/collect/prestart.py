"""A head start: this node's collector starts up while the command line is still being imported.

Both take as long. A collector without a plan asks nothing, and ends itself with the run that did not need it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMANDS = ("check", "collect")

#: Options that ask other nodes, or none.
_ELSEWHERE = ("--hosts", "--hostfile", "--job", "--rerun", "--pods", "--via", "--help", "-h")


def asks_this_node(words: Sequence[str]) -> bool:
    """Tell from the bare words of a command line, before it is parsed, whether this node will be asked."""
    return bool(words) and words[0] in _COMMANDS and not any(word.startswith(_ELSEWHERE) for word in words)


def start() -> None:
    """Start this node's collector."""
    import gc

    from preflight.transport.local.node import start_ahead

    gc.disable()  # until all is imported: none of that is ever garbage (``asking.this_node``)
    start_ahead()
