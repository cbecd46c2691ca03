"""Transmission of an archive to the nodes of a step, by Slurm's ``sbcast``.

It goes through Slurm's tree, to a file in the memory of each node that only the user of the job can read. The task on
the node waits for it, verifies its hash and removes it. A node that it does not reach, because its file system is full
or its slurmd does not answer, does not delay another.
"""

from __future__ import annotations

import secrets
import subprocess
import tempfile
import threading
from typing import TYPE_CHECKING

from preflight.transport.local.process import kill_group

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

#: Folder on the nodes, and seconds between two attempts to find the step.
_FOLDER, _AGAIN_S = "/dev/shm", 0.5

#: sbcast sends blocks of at most this size; if one fails on a node, no further block goes to any node.
_BLOCK = 8 << 20

#: The collector's words for why a node did not judge itself, and what they mean.
WHY = {
    "python": "its Python is older than 3.10",
    "absent": "the archive did not arrive",
    "damaged": "another archive arrived",
    "late": "judging took too long",
    "failed": "judging failed",
    "peers": "it is judged with its peers",
}
NO_VERDICT = "it gave no verdict"


class Broadcast:
    """An archive on its way to the nodes of one step; ``place`` is its path there."""

    def __init__(self, archive: bytes, sbcast: str, environment: Mapping[str, str]) -> None:
        """Choose an unpredictable path; nothing is sent yet."""
        self.place = f"{_FOLDER}/preflight-{secrets.token_hex(16)}"
        self._archive, self._sbcast, self._environment = archive, sbcast, environment
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._thread: threading.Thread | None = None

    def start(self, find_step: Callable[[], str]) -> None:
        """Send the archive in the background, as soon as ``find_step`` returns the step."""
        self._thread = threading.Thread(target=self._send, args=(find_step,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the transmission."""
        self._over.set()
        with self._lock:
            if self._process is not None:
                kill_group(self._process)
        if self._thread is not None:
            self._thread.join()

    def _send(self, find_step: Callable[[], str]) -> None:
        while not (step := find_step()):
            if self._over.wait(_AGAIN_S):
                return
        try:
            with tempfile.NamedTemporaryFile(prefix="preflight-") as file:
                file.write(self._archive)
                file.flush()
                self._run([self._sbcast, f"--jobid={step}", f"--size={_BLOCK}", file.name, self.place])
        except OSError:  # no room for the file, or no sbcast: the nodes report that it did not arrive
            return

    def _run(self, command: list[str]) -> None:
        nowhere = subprocess.DEVNULL
        with self._lock:
            if self._over.is_set():
                return
            self._process = subprocess.Popen(
                command, stdin=nowhere, stdout=nowhere, stderr=nowhere, env=dict(self._environment),
                start_new_session=True,
            )  # fmt: skip
        self._process.wait()
