"""Answers as short lines of text, reassembled from srun's output.

srun forwards the output of tasks in chunks of about one KiB, mixed across nodes; only shorter lines arrive complete. So
a frame is sent as lines with node, number and checksum. srun labels each line with its task, which must match the node
in the line.
"""

from __future__ import annotations

import binascii
import re
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from preflight.transport import payload
from preflight.transport.bootstrap_protocol import CollectorProtocol
from preflight.transport.errors import NoAnswer

#: Source for the node, Python 3.6 and later: standard output becomes lines, and the node's plan is selected.
_BOOT = """\
import base64, json, os, sys, zlib

class Lines:
    node = os.environ.get("SLURMD_NODENAME", "")
    number = 0

    @property
    def buffer(self):
        return self

    def write(self, data):
        room = (1000 - 64 - len(self.node)) // 4 * 3
        for at in range(0, len(data), room):
            piece = bytes(data[at:at + room])
            checksum, text = zlib.crc32(piece) & 0xFFFFFFFF, base64.b64encode(piece).decode("ascii")
            self.put("@@PREFLIGHT-LINE/1 %s %d %08x %s\\n" % (self.node, self.number, checksum, text))
            self.number += 1
        return len(data)

    def put(self, line):
        left = line.encode("utf-8", "backslashreplace")
        while left:
            left = left[os.write(1, left):]

    def flush(self):
        pass

def mine(plans):
    plans = json.loads(plans.decode("utf-8"))
    if Lines.node not in plans["of"]:
        sys.exit("there is no plan for node %r: SLURMD_NODENAME is a different name" % Lines.node)
    plan = plans["plans"][plans["of"][Lines.node]]
    return json.dumps(dict(plan, node=Lines.node)).encode("ascii")

sys.stdout = Lines()
"""
BOOT = _BOOT + payload.LOAD + "main(mine(plan))\n"

_LABELLED = re.compile(rb" *(\d{1,7}): ?(.*)", re.DOTALL)
_LINE = re.compile(rb"@@PREFLIGHT-LINE/1 (\S{1,255}) (\d{1,9}) ([0-9a-f]{8}) ([A-Za-z0-9+/=]*)\r?")

#: Maximum bytes of an unfinished line; beyond it, the beginning of the line is dropped.
_LONGEST = 1 << 20


class CompletedTask(NamedTuple):
    """A node with an answer that is complete, too long or invalid."""

    node: str
    task: TaskAssembler


class TaskAssembler:
    """The answer of one task, assembled from its lines."""

    def __init__(self) -> None:
        """Expect the first line of the task."""
        self.node = ""
        self.protocol = CollectorProtocol()
        self.damage = ""
        self._next = 0

    def hear(self, line: bytes) -> bool:
        """Process a line of standard output; return whether the task is over."""
        found = _LINE.search(line)
        piece = _piece(found) if found else None
        if found is None or (self._next == 0 and (piece is None or int(found[2]) != 0)):  # noise, before our first line
            if not self.protocol.announced:
                self.protocol.hear(line + b"\n")
            return self.protocol.over
        node = found[1].decode("utf-8", "backslashreplace")
        if self.node and node != self.node:
            self.damage = f"one task answers for two nodes, {self.node[:60]} and {node[:60]}"
        elif piece is None or int(found[2]) != self._next:
            self.damage = f"line {self._next} of the answer is lost or damaged"
        self.node, self._next = self.node or node, self._next + 1
        self.protocol.hear(piece or b"")
        return bool(self.damage) or self.protocol.over

    def document(self, ended: str, status: int | None) -> dict[str, object]:
        """Return the node's document, or raise NoAnswer."""
        if self.damage:
            raise NoAnswer("read", self.damage)
        return self.protocol.document(ended, status)


def _piece(found: re.Match[bytes]) -> bytes | None:
    """Return the content of a line; None if it is damaged."""
    try:
        piece = binascii.a2b_base64(found[4])
    except binascii.Error:
        return None
    return piece if zlib.crc32(piece) == int(found[3], 16) else None


class StepAssembler:
    """The tasks of one srun, fed with its standard output and error."""

    def __init__(self) -> None:
        """Expect the first byte of srun's output."""
        self.tasks: dict[int, TaskAssembler] = {}
        self.of: dict[str, TaskAssembler] = {}
        self._rest = b""

    @property
    def begun(self) -> bool:
        """Whether any task has started."""
        return any(task.protocol.announced for task in self.tasks.values())

    def hear(self, data: bytes) -> Iterator[CompletedTask]:
        """Process bytes of srun's standard output; yield the completed nodes."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-_LONGEST:]
        for line in lines:
            if (labelled := _LABELLED.fullmatch(line)) is None:
                continue
            task = self.task(int(labelled[1]))
            over = task.hear(labelled[2])
            if task.node and self.of.setdefault(task.node, task) is not task:
                self.of[task.node].damage = task.damage = f"two tasks answer for {task.node[:60]}"
                over = True
            if over and task.node:
                yield CompletedTask(task.node, task)

    def hear_error(self, line: bytes) -> bool:
        """Process a line of srun's standard error; return whether a task wrote it."""
        if (labelled := _LABELLED.fullmatch(line)) is None:
            return False
        self.task(int(labelled[1])).protocol.hear_error(labelled[2] + b"\n")
        return True

    def task(self, number: int) -> TaskAssembler:
        """Return the task with this number; create it if it is new."""
        return self.tasks.setdefault(number, TaskAssembler())

    def assign(self, number: int, node: str) -> None:
        """Assign a task to the node that srun names."""
        task = self.task(number)
        if not task.node:
            task.node = node
            self.of.setdefault(node, task)
