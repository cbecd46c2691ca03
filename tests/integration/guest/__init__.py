"""Virtual machines with real Soft-RoCE devices and a real sshd: ``with Guest(image()) as guest: …``.

A guest runs Debian's own kernel under QEMU, without KVM (a /dev/kvm that opens may still hang a guest). Its root file
system is this machine's, read-only, under an overlay in memory: it has exactly the tools that are installed here. It
has no access to a network; its sshd is forwarded to a port of 127.0.0.1. ``pair()`` connects two guests by a cable.
"""

from tests.integration.guest.image import PACKAGES, image, missing
from tests.integration.guest.machine import Guest, pair

__all__ = ["PACKAGES", "Guest", "image", "missing", "pair"]
