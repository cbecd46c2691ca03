"""The collector process: reads a plan, writes one frame, leaves no files behind."""

import json
import os
import signal
import sys
import threading
import time

from .commands import close
from .frame import write_frame
from .processes import become_subreaper, end_descendants
from .scheduler import collect

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

#: Exit status if the caller is gone, a signal arrived, or the time limit expired.
GONE = 3

_LIMIT_S = 5.0
_NICENESS = 10


def main(plan: bytes) -> None:
    """Run the plan (JSON), write the frame, and exit the process."""
    status = 1
    try:
        decoded = json.loads(plan.decode("utf-8"))
        deadline_s = float(decoded["deadline_s"])
        until = time.monotonic() + deadline_s
        _guard(deadline_s)
        unable = become_subreaper()
        os.nice(_NICENESS)
        if "judge" in decoded:
            from . import own_verdict  # import-at-use: few runs let nodes judge themselves

            decoded["deadline_s"] = deadline_s - own_verdict.share_s(deadline_s)
        answer = document = collect(decoded)
        if unable:
            document["collector"]["notes"].append("runaway processes cannot be found: " + unable)
        if "judge" in decoded:
            answer = own_verdict.judged(document, decoded["judge"], until)
        close()
        left = end_descendants(grace_s=0.1)
        if left:
            what = ", ".join(str(pid) for pid in sorted(left))
            document["collector"]["notes"].append("could not be ended and still run: processes " + what)
            answer = document  # the verdict does not know of them
        write_frame(sys.stdout.buffer, answer)
        status = 0
    except Exception as error:
        print("the collector failed: {}: {}".format(type(error).__name__, error), file=sys.stderr, flush=True)
    finally:
        os._exit(status)  # threads hanging in the kernel would block a normal exit


def _guard(deadline_s: float) -> None:
    """End all processes when the caller is gone, on a signal, or after the deadline."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT):
        signal.signal(number, _leave)
    for target, argument in ((_wait_for_caller, 0.0), (_wait_for_limit, deadline_s + _LIMIT_S)):
        threading.Thread(target=target, args=(argument,), daemon=True).start()
    # The kernel's timer works even if the interpreter hangs.
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, deadline_s + 2 * _LIMIT_S)


def _wait_for_caller(_: float) -> None:
    try:
        while os.read(0, 65536):
            continue
    except OSError:
        pass
    _leave()


def _wait_for_limit(seconds: float) -> None:
    time.sleep(seconds)
    _leave()


def _leave(*_: "Any") -> None:
    close()
    try:
        end_descendants(grace_s=1.0)
    finally:
        os._exit(GONE)


if __name__ == "__main__":
    main(sys.stdin.buffer.readline())
