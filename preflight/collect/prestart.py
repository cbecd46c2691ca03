"""Early start of this node's collector, while the command line is still being imported.

Both take as long. A collector without a plan queries nothing, and ends with the run that did not need it.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

_COMMANDS = ("check", "collect")

#: Options with which other nodes are queried, or none.
_ELSEWHERE = ("--hosts", "--hostfile", "--job", "--rerun", "--pods", "--via", "--help", "-h")


def collects_locally(words: Sequence[str]) -> bool:
    """Return whether this node will be queried, from the words of a command line that is not parsed yet."""
    return bool(words) and words[0] in _COMMANDS and not any(word.startswith(_ELSEWHERE) for word in words)


def start() -> None:
    """Start this node's collector."""
    import gc

    from preflight.transport.local.node import start_ahead

    gc.disable()  # until all is imported: none of that is ever garbage (``local.collect``)
    start_ahead()
