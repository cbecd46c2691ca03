"""paramiko, imported without ``invoke``, which takes as long to import as all the rest of it.

paramiko wants it for one thing, ``Match exec`` in its own configuration reader, and does without where it is not
installed; what reads the configuration here refuses that line itself. To be imported before paramiko is.
"""

from __future__ import annotations

import sys

_NAME = "invoke"

if _NAME not in sys.modules:
    sys.modules[_NAME] = None  # type: ignore[assignment]  # as if it were not installed
    try:
        import paramiko as paramiko
    finally:
        del sys.modules[_NAME]
