"""``preflight check`` without click."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any, NoReturn


def check(options: Mapping[str, Any]) -> NoReturn:
    """Do what ``preflight.commands.check`` does, and end as click ends a run that went wrong."""
    from preflight.run import local
    from preflight.terminal import UsageError

    try:
        local.check(**options)
    except UsageError as error:
        from preflight.reports.sanitize import visible

        print(f"Error: {visible(str(error))}", file=sys.stderr)
        sys.exit(2)
    except KeyboardInterrupt:
        print("\nAborted!", file=sys.stderr)
        sys.exit(3)  # nothing was judged
    except BrokenPipeError:  # the reader has closed the pipe; what is still to be flushed is discarded
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(3)
