"""Prefixes of launchers and log collectors: a line's writer and time."""

from __future__ import annotations

import re

_CTIME = r"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}"
_CLOCK = r"\d\d:\d\d:\d\d(?:[.,]\d{1,9})?"
_DATE_TIME = rf"\d{{4}}-\d\d-\d\d[T ]{_CLOCK}(?:Z|[+-]\d\d:?\d\d)?"
_RANK = r"\[(?:[\w.-]+[@:])?(\d{1,6},(?:mpirank:)?\d{1,6}(?:,[\w.-]{1,64})?)\]"
_STREAM = r"<std(?:out|err|diag)>: ?"
#: The group of each pattern is the writer of the line.
_TORCHRUN = r"\[([a-z]+\d{1,6}(?:\|\d{1,6})?)\]: ?"  # [rank0]: [default0]: [trainer0|1]:
_RAY = r"\(((?:[\w.:-]+ )?pid=\w{1,32}(?:, ip=[^)\s]{1,64})?)\)\s"
_KUBECTL = r"\[(pod/[^\]\s]{1,256})\]\s"  # kubectl logs --prefix
_FABRIC = r"\[(?:[\w.-]{1,64}@)?((?=[\w.-]*[A-Za-z])[\w.-]{1,128})(?::\d{1,5})?\] (?:out|err): ?"  # Fabric 1
_GREP = r"([\w./-]{1,128}\.(?:txt|log|out|err)"
_SRUN = r"\s{0,6}(\d{1,6}):"  # srun --label
_PDSH_ADDRESS = r"(\d{1,3}(?:\.\d{1,3}){3}): "
_HOST, _PROGRAM = r"[\w.-]{1,128}", r" %s[\w.@/-]{1,64}(?:\[\d{1,10}\])?:\s"  # in syslog and the journal

#: Excludes the kernel, whose messages have times of their own.
_NO_KERNEL = r"(?!kernel\b)"

#: Prefixes of launchers; the group of each pattern is the writer.
MARKS = tuple(
    re.compile(pattern)
    for pattern in (
        # mpirun --tag-output, with --timestamp-output before it (Open MPI 4) or after it (5); SageMaker's own
        rf"(?:{_CTIME})?{_RANK}(?:{_CTIME})?{_STREAM}",
        rf"(){_CTIME}{_STREAM}",
        _TORCHRUN,
        r"\[(\d{1,6})\](?!: \w{2,60}: \d+\s*$):? ",  # mpiexec -l (Hydra); bnx2x numbers queues the same way
        _RAY,
        _KUBECTL,
        _FABRIC,
        r"(?=[.-]*\w)([\w.-]{1,128})\s+\| ?",  # docker compose
        r"((?:[a-z0-9-]{1,63} )?[a-z][a-z0-9.]{0,62}-[a-z0-9.-]{1,190} [a-z][a-z0-9-]{0,62}) ",  # stern
        r"()//+ ?",  # a program's comment
        rf"{_SRUN} ",
        # pdsh, clush; excludes the start of lines of the kernel, mlnx_qos and lspci
        r"(?!NVRM|kern(?:el)?:|nvidia|mce:|EDAC|AER|pci|tc: ?\d|(?:priority|up|skprio): |Capabilities: \[)"
        # excludes log levels, and Slurm's commands and daemons
        r"(?!(?:error|fatal|warning|info|debug\d?|verbose|sched|srun|salloc|sbatch|slurm(?:d|ctld|dbd|stepd|restd)"
        r"|pyxis): )"
        r"([A-Za-z][\w.,\[\]-]{0,127}): ",
        _PDSH_ADDRESS,
        # grep in files; ``0000:`` is a PCI domain, not a line number
        rf"{_GREP}|/var/log/[\w./-]{{1,128}}?)[:-](?:(?!0\d)\d{{1,7}}[:-](?!\d\d[.-]\d))? ?",
        r"()\+(?!\+\+|-[0-9a-f]{2}\.[0-7])",  # added by a patch; not a branch of lspci's tree
        # a frame around the text, or a table; excludes the bars of lspci's tree
        r"()(?!\|[|\s]*[+\\]?-[0-9a-f]{2}\.[0-7])(?:\|(?:\s|(?=-{3}))|[│┃║]\s?)",
    )
)
#: Prefixes that lines of a kernel log may also have; the group of each pattern is the writer.
TIMES = tuple(
    re.compile(pattern)
    for pattern in (
        # rsyslog, journalctl -o short-iso
        rf"\d{{4}}-\d\d-\d\dT\d\d:\d\d:\d\d\S{{1,16}} ({_HOST}){_PROGRAM % _NO_KERNEL}",
        # kubectl, ts, Jenkins; then prefixes of containerd, GitLab, Python's logging; excludes dmesg's format
        r"()(?!\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d,\d{6}[+-]\d\d:?\d\d )"
        rf"\[?{_DATE_TIME}\]?:?(?:\s|(?=\[\s*\d))"
        r"(?:(?:std(?:out|err)(?: [FP])?|\[std(?:out|err)\]|\d\d[OE]|GMT|UTC"
        r"|- [\w.]{1,64} - (?:DEBUG|INFO|WARNING|ERROR) -"
        r"|\| [A-Z]{4,8}\s{1,8}\| [\w.<>]{1,80}:[\w.<>]{1,80}:\d{1,6} -)\s)?",  # loguru
        rf"()\[?{_CLOCK}\]?:?\s",
        # syslog
        rf"[A-Z][a-z]{{2}} {{1,2}}\d{{1,2}} \d\d:\d\d:\d\d ({_HOST}){_PROGRAM % _NO_KERNEL}",
    )
)
#: Times before a line's other prefixes: those of log collectors, and that of syslog.
_BEFORE_WRITER = (
    *TIMES[1:3],
    re.compile(r"[A-Z][a-z]{2} {1,2}\d{1,2} \d\d:\d\d:\d\d (?=[\w.-]{1,128} [\w.@/-]{1,64}(?:\[\d{1,10}\])?:\s)"),
)
_PREFIXED_LOG = re.compile(rf"{_KUBECTL}|[\w.-]{{1,128}}\s+\| ")
#: Matches all of these prefixes, to skip lines without one.
ANY_MARK = re.compile("|".join(f"(?:{mark.pattern})" for mark in (*MARKS, *TIMES)))

#: Prefixes that are recognised on a single line: only text that no program prints at the start of a line.
_ON_ANY_LINE = re.compile(
    "|".join(
        (
            r"\s*(?:>\s?){1,8}",  # quoted mail, Markdown
            # rsyslog, journalctl -o short-iso
            rf"(?:[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d|\d{{4}}-\d\d-\d\dT\S{{8,24}}) {_HOST}{_PROGRAM % ''}",
            r"\s{1,4}[\w.-]{1,128} [\w.@/-]{1,64}\[\d{1,10}\]:\s",  # the same, after its time was stripped
            rf"{_DATE_TIME}\s",  # RFC 3339
            rf"{_CTIME}(?=\[)",  # mpirun --timestamp-output (Open MPI 4)
            # mpirun --tag-output (Open MPI 4, 5), SageMaker's own
            rf"{_RANK}{_STREAM}",
            _TORCHRUN,
            _RAY,
            _KUBECTL,
            _FABRIC,
            r"([\w.-]{1,128})\s+\|\s",  # docker compose
            r"\s?\|\s",  # CloudWatch
            rf"{_GREP})[:-](?:\d{{1,7}}[:-])? ?",  # grep in files
            r"([a-z][a-z0-9.]{0,62}-(?=[a-z0-9.-]*\d)[a-z0-9.-]{1,190} [a-z][a-z0-9-]{0,62})\s",  # stern
            rf"{_SRUN}\s",
            r"([A-Za-z][\w.-]{0,127}):\s(?!\s*Test )",  # pdsh, clush; `host: Test NCCL failure` is nccl-tests
            _PDSH_ADDRESS,
            r"\s{0,8}\[(\d{1,6})\]:?\s",  # mpiexec -l (Hydra)
            rf"\[{_DATE_TIME}\]\s",  # Jenkins, ts
            rf"\[?{_CLOCK}\]?\s",
        )
    )
)


def without_time(line: str) -> str:
    """Return a line without the time before it, or between its launcher and its text."""
    own = _PREFIXED_LOG.match(line)
    for at in (0, own.end()) if own else (0,):
        for time in _BEFORE_WRITER:
            if match := time.match(line, at):
                return line[:at] + line[match.end() :]
    return line


def strip_launcher_prefix(line: str) -> tuple[str, str]:
    """Strip launcher prefixes; return the writer (empty if unknown) and the rest."""
    who: list[str] = []
    for _ in range(4):
        if not (match := _ON_ANY_LINE.match(line)):
            break
        if match.lastindex:
            who.append(match[match.lastindex])
        line = line[match.end() :]
    return " ".join(who), line


def strip_one_prefix(line: str) -> tuple[str, str] | None:
    """Strip the first launcher prefix; return its writer and the rest, or None."""
    match = _ON_ANY_LINE.match(line)
    return ((match[match.lastindex] if match.lastindex else ""), line[match.end() :]) if match else None
