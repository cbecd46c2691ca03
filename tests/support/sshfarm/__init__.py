"""A farm of real SSH hosts for tests: ``with Farm(60) as farm: …``.

``farm.hosts``, ``farm.port``, ``farm.user``, ``farm.key``, ``farm.known_hosts`` and ``farm.ssh_config`` are what a
client needs; ``farm.view``, ``farm.fault``, ``farm.wire`` and ``farm.reboot`` change a host at any time.
"""

from tests.support.sshfarm.farm import FAULTS, Farm
from tests.support.sshfarm.material import SSHD, addresses, free_port, keygen, public
from tests.support.sshfarm.relay import Wire
from tests.support.sshfarm.view import View

__all__ = ["FAULTS", "SSHD", "Farm", "View", "Wire", "addresses", "free_port", "keygen", "public"]
