"""The class of an SSH connection: tuned, or plain paramiko.

``PREFLIGHT_PLAIN_PARAMIKO=1`` in the environment selects the plain one, in case the overrides of ``_paramiko_tuning``
do not work with a release of paramiko.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

#: Whether only paramiko's public interface is used.
PLAIN = os.environ.get("PREFLIGHT_PLAIN_PARAMIKO", "") not in ("", "0")

if TYPE_CHECKING or not PLAIN:
    from preflight.transport.ssh._paramiko_tuning import InlineConnection as Connection
else:
    from preflight.transport.ssh.plain_connection import PlainConnection as Connection

__all__ = ["PLAIN", "Connection"]
