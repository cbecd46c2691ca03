"""Requirements of the farm's tests; CI has all of them."""

from __future__ import annotations

import os
import shutil

import pytest

from tests.support.sshfarm import network
from tests.support.sshfarm.material import SSHD

needs_farm = pytest.mark.skipif(
    not SSHD or not shutil.which("ssh-keygen") or os.getuid() != 0,
    reason="needs sshd and ssh-keygen (openssh-server, openssh-client) and root",
)
needs_ssh = pytest.mark.skipif(
    not shutil.which("ssh") or not shutil.which("ssh-keygen"), reason="needs ssh and ssh-keygen (openssh-client)"
)
needs_network = pytest.mark.skipif(bool(network.missing()), reason=f"a private network needs {network.missing()}")


def needs_shell(name: str) -> pytest.MarkDecorator:
    """Skip a test where a login shell is not installed."""
    return pytest.mark.skipif(not shutil.which(name), reason=f"needs {name}")
