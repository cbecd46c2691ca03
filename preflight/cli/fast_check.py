"""``preflight check`` without click."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any


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
    except BrokenPipeError:  # the reader has closed the pipe; remaining output is discarded
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 3
