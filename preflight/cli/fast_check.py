"""``preflight check`` of this node in its usual forms, without click, whose import takes as long as Python's own start.

Any other form, an invalid one included, is left to click.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_FLAGS = {"--sudo": "sudo", "--fabric": "fabric", "--verbose": "verbose", "-v": "verbose"}
_VALUES = {
    "--json": "json_file", "--html": "html_file", "--save": "save", "--exclude-file": "exclude_file",
    "--cluster": "cluster", "--only": "only", "--skip": "skip", "--log": "logs",
}  # fmt: skip
_SECONDS = {"--deadline": ("deadline_s", 86400), "--window": ("window_s", 3600)}
_PATHS = ("html_file", "save", "exclude_file", "cluster", "logs")
_SEVERAL = ("only", "skip", "logs")


def understood(words: Sequence[str]) -> dict[str, Any] | None:
    """Parse the arguments of ``check``; return None to fall back to click."""
    found: dict[str, Any] = dict.fromkeys(_FLAGS.values(), False)
    found |= {name: () if name in _SEVERAL else None for name in _VALUES.values()}
    found |= {name: None for name, _ in _SECONDS.values()}
    rest = iter(words)
    for word in rest:
        if word in _FLAGS:
            found[_FLAGS[word]] = True
            continue
        option, sign, value = word.partition("=")
        value = value if sign else next(rest, "")
        if option in _SECONDS:
            name, most = _SECONDS[option]
            if not (value.isascii() and value.isdigit() and 1 <= int(value[:9]) <= most):
                return None
            found[name] = float(value)
        elif option in _VALUES and value and (value == "-" or not value.startswith("-")):
            name = _VALUES[option]
            read = Path(value) if name in _PATHS else value
            found[name] = (*found[name], read) if name in _SEVERAL else read
        else:
            return None
    return found


def check(options: Mapping[str, Any]) -> int:
    """Run ``check``; return the exit status, also for errors that click would print."""
    from preflight.run.check import check as run
    from preflight.terminal import UsageError

    try:
        return run(**options)
    except UsageError as error:
        from preflight.reports.sanitize import visible

        print(f"Error: {visible(str(error))}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nAborted!", file=sys.stderr)
        return 3  # nothing was judged
    except BrokenPipeError:  # the reader has closed the pipe; what is still to be flushed is discarded
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 3
