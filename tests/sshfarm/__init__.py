"""A farm of real SSH hosts for tests: ``with Farm(60) as farm: …``.

``farm.hosts``, ``farm.port``, ``farm.user``, ``farm.key``, ``farm.known_hosts`` and ``farm.ssh_config`` are what a
client needs; ``farm.view``, ``farm.fault``, ``farm.wire`` and ``farm.reboot`` change a host at any time.
"""

from tests.sshfarm.farm import FAULTS, Farm
from tests.sshfarm.material import SSHD, addresses, free_port, keygen, public
from tests.sshfarm.relay import Wire
from tests.sshfarm.view import View

__all__ = ["FAULTS", "SSHD", "Farm", "View", "Wire", "addresses", "free_port", "keygen", "public"]
