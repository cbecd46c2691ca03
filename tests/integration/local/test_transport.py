"""An interpreter that hangs, in real time."""

from __future__ import annotations

from pathlib import Path

from tests.support.local_transport import collect, interpreter, make_plan, phase_and_reason


def test_an_interpreter_that_hangs_is_ended_in_time(tmp_path: Path) -> None:
    python = interpreter(tmp_path, "trap '' TERM; while :; do sleep 9; done")
    phase, reason = phase_and_reason(collect(make_plan(deadline_s=0.2), python))
    assert (phase, reason) == ("collect", "no answer within 1.2 s")
