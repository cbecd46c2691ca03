"""Output of a verdict to the caller, the system log and the kubelet.

The text comes from ``Verdict``, which holds printable ASCII only. Imported before every job.
"""

from __future__ import annotations

import os

from preflight.gate.verdict import NAME_MOST, PREFIX, Verdict, ascii_reason

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from preflight.gate.result import GateResult

_WORDS = {"pass": "pass", "fail": "FAIL", "unknown": "NOT JUDGED", "error": "CONFIGURATION ERROR"}

#: Default termination log of a pod.
TERMINATION_LOG = "/dev/termination-log"

#: Bytes that a kubelet reads of the termination log (Container v1, terminationMessagePath).
TERMINATION_MOST = 4096


def announce(result: GateResult) -> int:
    """Print, log and write a result, each part once; return the exit status."""
    verdict, complaints = result.verdict, [*result.troubles]
    if result.termination_log:
        complaints.append(terminate(result.termination_log, [result.text, *result.troubles, *result.lines]))
    print_line(result.text, loud=verdict.status != "pass")
    for detail in filter(None, (*complaints, *result.lines)):
        print_line(detail, loud=True)
    log(result.text, verdict.status)
    if result.slurm_line:
        log(result.slurm_line, verdict.status)
    for trouble in result.troubles:  # a health check that cannot write must not report "one is being made" forever
        log(trouble, "error")
    if result.textfile or result.report_dir or result.publish:
        from preflight.gate import outputs

        for complaint in outputs.write(result):
            print_line(complaint, loud=True)
    return result.exit_status


def line(verdict: Verdict, hook: str, *, age_s: float | None = None, job: str = "", dry_run: bool = False) -> str:
    """Return the one-line result: node, status, reason, owner, action, job."""
    summary = f"{_WORDS[verdict.status]}"
    if verdict.reason:
        summary += f": {verdict.reason.removeprefix(PREFIX)}"
    if verdict.status == "fail":
        summary += f" [{verdict.owner}] action: {verdict.action}"
    notes = [f"judged {age_s:.0f} s ago" if age_s is not None else f"judged in {verdict.seconds:.1f} s"]
    if job:
        notes.append(f"job {job}")
    if verdict.off:
        notes.append(f"off by choice: {', '.join(verdict.off[:5])}" + (", ..." if len(verdict.off) > 5 else ""))
    return f"{PREFIX}{'DRY RUN: ' if dry_run else ''}{verdict.node}: {summary} ({hook}; {'; '.join(notes)})"


def plain(text: str) -> str:
    """Return any text as one line of printable ASCII."""
    return ascii_reason(text, 2000)


def plain_line(text: str) -> str:
    """Return any text as one line of printable ASCII that keeps its indentation."""
    return text[: len(text) - len(text.lstrip(" "))] + ascii_reason(text, 2000)


def name(text: str) -> str:
    """Return a node's name in the form that verdicts allow."""
    return ascii_reason(text, NAME_MOST) or "?"


def print_line(text: str, *, loud: bool) -> None:
    """Write a line to standard output, or to standard error; write errors are ignored."""
    data = f"{plain_line(text)}\n".encode("ascii")
    try:
        while data:
            data = data[os.write(2 if loud else 1, data) :]
    except OSError:
        return


def log(text: str, status: str) -> None:
    """Write a line to the system log, if any.

    The call may block; ``Watch.close`` limits for how long.
    """
    import syslog

    priority = {"pass": syslog.LOG_INFO, "unknown": syslog.LOG_WARNING}.get(status, syslog.LOG_ERR)
    syslog.openlog("preflight", syslog.LOG_PID, syslog.LOG_DAEMON)
    syslog.syslog(priority, text.removeprefix(PREFIX))
    syslog.closelog()


def terminate(path: str, lines: Sequence[str]) -> str:
    """Write lines to the kubelet's termination log, the most important first.

    Lines beyond ``TERMINATION_MOST`` bytes are left out. Returns the error, or "". The file is mounted by the kubelet,
    so it is written in place and must exist.
    """
    text = "\n".join(lines).encode("ascii", "backslashreplace") + b"\n"
    if len(text) > TERMINATION_MOST:
        text = text[: TERMINATION_MOST - 4].rpartition(b"\n")[0] or text[: TERMINATION_MOST - 4]
        text += b"\n..."
    try:
        fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            os.write(fd, text)
        finally:
            os.close(fd)
    except OSError as error:
        return f"{path} cannot be written: {error.strerror}"
    return ""
