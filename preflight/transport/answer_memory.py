"""Memory for the answers of all nodes together: one after the other is decoded, and a few large ones are held."""

from __future__ import annotations

import threading
import time
import weakref
from typing import Any

from preflight.evidence import json_limits

#: Bytes that the decoded answers of all nodes may take, of which the largest is given ``decoding.ANSWER``; that of a
#: whole node takes 2 to 5 MB. Seconds that an answer waits for others to be put aside.
MOST, WAIT_S = 384 << 20, 20.0


class _Records(dict[str, Any]):
    """The records of an answer; when they go, so does their share."""

    __slots__ = ("__weakref__",)


class Room:
    """What is left for answers."""

    def __init__(self, most: int = MOST, wait_s: float = WAIT_S) -> None:
        self.one = threading.Lock()  # held while an answer is inflated and decoded
        self._left, self._wait_s = most, wait_s
        self._change = threading.Condition()

    def answer(self, text: str) -> Any:
        """Decode an answer; raises ValueError, also where there is no room for it in time."""
        size = json_limits.memory(text.encode("utf-8", "surrogatepass"), json_limits.ANSWER)
        self._take(size)
        held = None
        try:
            document = json_limits.answer(text)
            if isinstance(document, dict) and isinstance(document.get("records"), dict):
                held = document["records"] = _Records(document["records"])
            return document
        finally:
            if held is None:
                self._give(size)
            else:
                weakref.finalize(held, self._give, size)

    def _take(self, size: int) -> None:
        until = time.monotonic() + self._wait_s
        with self._change:
            while size > self._left:
                if size > json_limits.ANSWER or not self._change.wait(until - time.monotonic()):
                    raise json_limits.DocumentTooLarge(
                        f"it would take {size >> 20} MiB of memory, {self._left >> 20} are left"
                    )
            self._left -= size

    def _give(self, size: int) -> None:
        with self._change:
            self._left += size
            self._change.notify_all()


ROOM = Room()
