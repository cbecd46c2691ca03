"""Errors without a signature: tracebacks, panics, and lines that a program itself marks as errors; made by hand."""

from __future__ import annotations

import pytest

from preflight.evidence.document import Evidence
from preflight.facts.job import RunFacts
from preflight.parsers.messages.logged_level import error_text
from preflight.recognition import exit_status, read_text

RANKS = "".join(
    f"[rank{rank}]: {line}\n"
    for rank in (2, 5)
    for line in (
        "Traceback (most recent call last):", '  File "/job/train.py", line 31, in <module>', "    main()",
        '  File "/job/batch.py", line 7, in pick', '    return row["ids"]',
        '  File "/usr/lib/python3.11/site-packages/table.py", line 90, in __getitem__', "    return self.cells[key]",
        "KeyError: 'ids'",
    )
)  # fmt: skip


def test_a_traceback_names_the_exception_the_users_frame_and_the_first_rank() -> None:
    (part,) = read_text(RANKS, "pasted")
    (finding,) = part.findings
    assert finding["status"] == "fail"
    assert "KeyError: 'ids', raised at /job/batch.py:7 in pick (ranks 2, 5)" in finding["message"]
    assert [error["rank"] for error in part.taken.facts["errors"]] == [2, 5]


def test_what_a_logger_put_before_each_line_is_taken_off() -> None:
    lines = (
        "Traceback (most recent call last):",
        '  File "/job/a.py", line 3, in go',
        "    f()",
        "ValueError: no heads",
    )
    text = "".join(f"ERROR 10-1{at} 08:00:0{at} [core.py:40] {line}\n" for at, line in enumerate(lines))
    (part,) = read_text(text, "pasted")
    assert "ValueError: no heads, raised at /job/a.py:3 in go" in part.findings[0]["message"]


def test_the_launchers_own_exception_follows_from_another() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/job/a.py", line 3, in go\n    f()\nBrokenPipeError: pipe\n'
        'Traceback (most recent call last):\n  File "/job/b.py", line 9, in run\n    g()\nLookupError: shard 4\n'
    )
    (part,) = read_text(text, "pasted")
    assert [finding["message"].partition(",")[0] for finding in part.findings] == [
        "LookupError: shard 4", "BrokenPipeError: pipe",
    ]  # fmt: skip
    assert "a consequence of another process's end" in part.findings[1]["message"]


def test_an_exception_that_was_ignored_or_is_cut_is_no_failure() -> None:
    body = '  File "/job/a.py", line 3, in __del__\n    f()\n'
    for text in (
        f"Exception ignored in: <function P.__del__>\nTraceback (most recent call last):\n{body}OSError: closed\n",
        f"Traceback (most recent call last):\n{body}",
    ):
        (part,) = read_text(text, "pasted")
        assert [finding["status"] for finding in part.findings] == ["unknown"]


def test_a_known_error_keeps_its_meaning_and_gets_the_frame() -> None:
    text = (
        'Traceback (most recent call last):\n  File "/job/a.py", line 3, in go\n    f()\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    )
    (part,) = read_text(text, "pasted")
    (finding,) = part.findings
    assert finding["check"] == "gpu.memory-headroom"
    assert "raised at /job/a.py:3 in go" in finding["message"]


def test_a_panic_names_its_function() -> None:
    text = (
        "panic: runtime error: index out of range [3] with length 3\n\ngoroutine 7 [running]:\n"
        "corp.example/op/pkg.(*S).Sync(0xc000, 0x1)\n\t/src/pkg/sync.go:44 +0x1c\nmain.main()\n\t/src/main.go:9 +0x2\n"
    )
    (part,) = read_text(text, "pasted")
    assert "panic: runtime error: index out of range [3] with length 3, raised at /src/pkg/sync.go:44" in part.findings[
        0]["message"]  # fmt: skip


UNKNOWN = (
    "E1012 09:12:01.021871       1 main.go:173] flux capacitor lost phase",
    'time="2026-10-01T10:00:00Z" level=error msg="flux capacitor lost phase" unit=3',
    '{"level":"error","ts":"2026-10-01T10:00:00Z","msg":"flux capacitor lost phase"}',
    "2026-10-01 10:00:00,123 - flux.core - ERROR - flux capacitor lost phase",
    "[2026-10-01 10:00:00,123] [ERROR] [flux.py:7:go] flux capacitor lost phase",
    "ERROR:flux:flux capacitor lost phase",
    "FATAL:   flux capacitor lost phase",
    "flux: error: flux capacitor lost phase",
    "FluxError: flux capacitor lost phase",
)


@pytest.mark.parametrize("line", UNKNOWN)
def test_a_line_that_a_program_calls_an_error_is_quoted_and_never_a_pass(line: str) -> None:
    (part,) = read_text(f"{line}\n", "pasted")
    assert "flux capacitor lost phase" in " ".join(
        f"{finding['message']} {finding['found']}" for finding in part.findings
    )
    assert exit_status([("pasted", [part])]) in (1, 3)


HEALTHY = (
    "shard 3 of 8 done, errors=0 failed=0",
    "2026-10-01 10:00:00 INFO error_rate=0.0 last_error=None",
    "2026-10-01 10:00:00 ERROR upload failed with 503, retrying in 2 s",
    "ERROR SUMMARY: 0 errors from 0 contexts",
    "ERROR_COUNT = 0",
    "I1012 09:12:01.021871       1 main.go:173] no errors found",
    "FutureWarning: the argument is deprecated, use the other",
    'time="2026-10-01T10:00:00Z" level=info msg="error log is at /var/log/x"',
    "Total errors: 0",
    "mean squared error: 0.13",
)


@pytest.mark.parametrize("line", HEALTHY)
def test_a_healthy_line_that_speaks_of_errors_is_none(line: str) -> None:
    assert read_text(f"{line}\n", "pasted") == []


def test_a_retry_that_was_the_last_is_an_error() -> None:
    assert error_text("ERROR upload failed, giving up after 5 retries")


def test_many_kinds_of_errors_are_summed_up() -> None:
    words = ("alpha", "bravo", "charlie", "delta", "echo", "foxtrot", "golf", "hotel", "india")
    text = "".join(f"2026-10-01 10:00:0{at} ERROR unit {word} broke\n" for at, word in enumerate(words))
    (part,) = read_text(text, "pasted")
    assert len(part.findings) == 7
    assert "3 more kinds of lines" in part.findings[-1]["message"]


def steps(first: int, last: int) -> str:
    """Return lines of a training loop."""
    return "".join(f"iteration {n:6d}/ 900 | lm loss: 2.{n:03d}E+00 | elapsed time per iteration (ms): 811.{n % 10} |\n"
                   for n in range(first, last))  # fmt: skip


SURVIVED = {
    "a smaller batch": ("WARNING: CUDA out of memory. Tried to allocate 2.50 GiB. Reducing the batch size.\n",
                        "gpu.memory-headroom"),
    "an elastic restart": ("E1120 04:10:11.001000 47 torch/distributed/elastic/multiprocessing/api.py:869] failed "
                           "(exitcode: -9) local_rank: 3 (pid: 4790) of binary: /usr/bin/python3\n", "kernel.events"),
    "an optional package": ('Traceback (most recent call last):\n  File "/srv/a.py", line 9, in <module>\n'
                            "    import swift_attn\nModuleNotFoundError: No module named 'swift_attn'\n", "job.errors"),
}  # fmt: skip


@pytest.mark.parametrize(("error", "check"), SURVIVED.values(), ids=SURVIVED)
def test_training_steps_after_an_error_show_that_the_job_went_on(error: str, check: str) -> None:
    def status(text: str) -> list[str]:
        parts = read_text(text, "pasted")
        return [item["status"] for part in parts for item in part.findings if item["check"] == check]

    assert status(steps(1, 20) + error + steps(20, 60)) == ["unknown"]
    assert status(steps(1, 20) + error) == ["fail"]
    assert status(steps(1, 20) + error + steps(20, 22)) == ["fail"]  # steps of other ranks, printed late
    assert sorted(status(steps(1, 20) + error + steps(20, 60) + error)) == ["fail", "unknown"]


def test_a_fault_of_the_hardware_is_not_survived() -> None:
    error = "[rank4]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n"
    statuses = {
        item["check"]: item["status"] for part in read_text(error + steps(1, 60), "p") for item in part.findings
    }
    assert statuses["gpu.ecc-uncorrected"] == "fail"


def test_the_end_of_a_log_that_went_on() -> None:
    error, _ = SURVIVED["an optional package"]
    for text, status in ((error + steps(1, 60), "unknown"), (steps(1, 60) + error, "fail")):
        run = RunFacts(Evidence("@run", "", {"log:job.log": {"status": "ok", "out": text}}))
        assert [signature.status for signature, _ in run.program_errors["log:job.log"]] == [status]
