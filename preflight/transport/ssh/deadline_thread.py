"""A thread that ends calls at their deadline."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import threading
import time
from collections.abc import Callable, Iterator


class DeadlineThread:
    """Calls functions at times on the monotonic clock, unless they were cancelled."""

    def __init__(self) -> None:
        """Start without a thread; the first deadline starts it."""
        self._changed = threading.Condition()
        self._due: list[tuple[float, int]] = []
        self._calls: dict[int, Callable[[], object]] = {}
        self._numbers = itertools.count()
        self._thread: threading.Thread | None = None
        self._closed = False

    @contextlib.contextmanager
    def at(self, moment: float, call: Callable[[], object]) -> Iterator[None]:
        """Call ``call`` at the given time, unless the block has ended.

        ``call`` must not raise.
        """
        with self._changed:
            number = next(self._numbers)
            self._calls[number] = call
            heapq.heappush(self._due, (moment, number))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, daemon=True)
                self._thread.start()
            if self._due[0][1] == number:  # otherwise it wakes in time
                self._changed.notify()
        try:
            yield
        finally:
            with self._changed:
                self._calls.pop(number, None)

    def close(self) -> None:
        """End the thread."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._closed and (not self._due or self._due[0][0] > time.monotonic()):
                    self._changed.wait(max(0.0, self._due[0][0] - time.monotonic()) if self._due else None)
                if self._closed:
                    return
                call = self._calls.pop(heapq.heappop(self._due)[1], None)
            if call is not None:
                with contextlib.suppress(Exception):
                    call()
