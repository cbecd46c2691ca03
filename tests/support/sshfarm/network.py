"""A private network for a test: routes and packet filters that do not affect the machine's. Needs root."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import threading
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_CLONE_NEWNET = 0x40000000


def missing() -> str:
    """Return what this machine lacks for a private network; empty if nothing."""
    if os.getuid() != 0:
        return "root"
    return next((tool for tool in ("ip", "nft", "unshare") if not shutil.which(tool)), "")


def in_private_network(call: Callable[[], _T]) -> _T:
    """Call a function in a thread with a private network for its sockets, threads and processes.

    It has only the loopback interface, which is up.
    """
    result: list[_T] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            libc = ctypes.CDLL(None, use_errno=True)
            if libc.unshare(_CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), "unshare of the network")
            command("ip", "link", "set", "lo", "up")
            result.append(call())
        except BaseException as error:
            failure.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return result[0]


def command(*words: str) -> None:
    """Run a command in the calling thread's network; an error is an exception."""
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True)


def drop(address: str) -> None:
    """Drop all packets from and to an address from now on, as a powered-off host does."""
    command("nft", "add", "table", "inet", "farm")
    command("nft", "add", "chain", "inet", "farm", "in", "{ type filter hook input priority 0; }")
    for direction in ("daddr", "saddr"):
        command("nft", "add", "rule", "inet", "farm", "in", "ip", direction, address, "drop")
