"""Lines of an nccl-tests report outside its table: start, end, failure.

The formats are those of nccl-tests v1.0.0 … v2.19.6 and of RCCL's fork (src/common.cu, src/util.cu). Patterns search
within a line, since a launcher's prefix or a number of the table may precede the text directly.
"""

from __future__ import annotations

import re

#: The version. Without the ``#``, which some consoles remove as a comment, the library codes must follow: prose has
#: none.
TESTS_VERSION = re.compile(
    r"(?:# [nr]ccl-tests version (?P<marked>\S{1,128})(?:.{0,64}? [nr]ccl-library=(?P<library>\d{1,8}))?"
    r"|\b[nr]ccl-tests version (?P<bare>\S{1,128})(?: \(\w{1,40}\))? [nr]ccl-headers=\d{1,8}"
    r" [nr]ccl-library=(?P<code>\d{1,8}))"
)
STARTS = re.compile(r"\bCollective test starting: (\S{1,64})")
RUN = re.compile(
    r"\bnThread:?\s{1,4}\d{1,6}\s{1,4}nGpus:?\s{1,4}\d{1,6}\s{1,4}minBytes:?\s.{0,300}?(?:validation: (\d)|$)"
)
DEVICE = re.compile(
    r"\bRank\s{1,4}(\d{1,7})(?:\s{1,4}Group\s{1,4}(\d{1,7}))?(?:\s{1,4}Pid\s{1,12}[\w<>*.…]{1,12})?"
    r"\s{1,4}on\s{1,40}(\S{1,255})\s{1,4}device\s{1,4}(\d{1,4})\s{1,4}\[([^\]\s]{1,24})\]"
    r"(?:\s{1,4}(\S.*?))?(?:\s\|){0,3}\s*$"  # ROCm may omit the name
)
#: A truncated line of the device list.
DEVICE_CUT = re.compile(
    r"(?:^|[\s#>:|])Rank(?:\s{1,4}\d{0,7}(?:\s{1,4}(?:G|Gr|Gro|Grou|Group|P|Pi|Pid|o|on)(?:\s.{0,300})?)?)?\s*$"
)
OUT_OF_BOUNDS = re.compile(r"\bOut of bounds values\s{1,8}:\s{1,8}(\d{1,18})\s{1,8}(OK|FAILED)\b")
AVERAGE = re.compile(r"\bAvg bus bandwidth\s{1,8}:\s{1,8}([0-9.e+-]{1,24}|-?nan|inf)(\s|$)\s{0,4}(OK\b|FAILED\b)?")
AVERAGE_TAKEN_OUT = re.compile(r"# Avg bus bandwidth\s{1,8}:\s{1,8}(?:[Xx]{2,8}[.Xx]{0,8}|\.{2,}|<[^>]{1,40}>|\*{2,})")
CONCLUDED = re.compile(r"\bCollective test concluded\b(?:: (\S{1,64}))?")
LAST_ERROR = re.compile(r"# error: (\S.{0,400})")

#: NCCL's version as NCCL prints it: with a CUDA version, or alone on the line, unlike in prose.
NCCL_VERSION = re.compile(
    r"\bR?CCL version ?:? ?(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)(?:[-\w.:]{0,40}\+(?:cuda|hip)|\s*$)|"
    r"\bRCCL version : ?(\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)-\S{1,100}\s*$|"
    r"\bNCCL version (\d{1,3}\.\d{1,3}(?:\.\d{1,3})?)(?:[-\w.]{0,20}\+(?:cuda|CUDA)|\s*$)"
)

#: The number of measured iterations, in a line that matches RUN.
ITERATIONS = re.compile(r"(?<!warmup )(?<!agg )\biters: (\d{1,9})\b")

COMMAND = re.compile(
    r"\b(all_reduce|all_gather|reduce_scatter|alltoallv?|broadcast|reduce|sendrecv|gather|scatter|hypercube)"
    r"_perf(?:_mpi)?\b"
)

FAILURE = re.compile(
    r"(?:(?P<host>(?:^[0-9]|[A-Za-z])[\w.-]{0,254}): )?"  # a number may precede it directly
    r"(?P<text>Test (?:NCCL|CUDA|HIP) failure [\w./+-]{1,200}:\d{1,6}.*"
    r"|(?:NCCL|CUDA|Cuda) failure [\w./+-]{1,200}:\d{1,6} '.+"  # 1.0.0
    r"|Test timeout \(\d+s\).*|Invalid number of GPUs: \d+ requested.*"
    r"|Incompatible NCCL versions\. nccl-tests was compiled.*"
    r"|invalid sizes? (?:for 'minbytes'|specified for '\w+').*"
    r"|\S{0,200}_perf\w{0,16}: (?:error while loading shared libraries|symbol lookup error): .*)"
)
RELAY = re.compile(r"\.\. \S+(?: pid(?: \d+)?)?: (?P<text>Test failure \S+:\d+)")
_SOURCE = re.compile(r"\b([a-z_]+)\.cu:\d+")

#: Strings; every line that can start or announce a report, except a table row, contains one.
BEGINNINGS: tuple[str, ...] = (
    "ccl-tests v", "test starting", "nThread", "Rank", "time", "Out of bounds", "Avg bus", "concluded", "failure ",
    "Test ", "nvalid", "Incomp", "_perf", "CCL version",
)  # fmt: skip

#: Messages of a launcher or shell that a process of the run died; they are only used if the report has no footer.
DIED = re.compile(
    r"(?:mpirun|mpiexec|prterun|orterun) (?:noticed that process rank|detected that one or more processes exited).*"
    r"|Primary job\s{1,2}terminated normally, but \d+ process(?:es)? returned.*"
    r"|MPI_ABORT was invoked on rank \d+.*|=\s+BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES.*"
    r"|srun: error: \S+: tasks? [\d,\[\]-]+: (?:Exited with exit code \d+|Killed|Aborted|Terminated"
    r"|Segmentation fault|Bus error).*"
    r"|slurmstepd: error: \*\*\* (?:STEP|JOB) .{1,200} CANCELLED AT .*"
    r"|Caught signal \d+ \([^)]{1,200}\).*"
    r"|\*\*\* Process received signal \*\*\*"
    r"|^(?:\S{0,300}: line \d+:\s+\d+ )?(?:Segmentation fault|Bus error|Aborted|Killed)(?: \(core dumped\).*)?\s*$"
)
_MAY_HAVE_DIED = ("process", "srun: ", "slurmstepd", "MPI_ABORT", "TERMINATION", "signal", "fault", "error", "Killed",
                  "Aborted")  # fmt: skip

#: Text before a part of a report that is quoted in a sentence.
_QUOTED = re.compile(r"[A-Za-z:,]\s{1,3}[\"'`\u201c\u2018]{1,3}\s?(?:#\s?)?$")

ELIDED = re.compile(
    r"[\s#]{0,40}(?:(?:\.\s?){2,40}|[:\u22ee\ufe19]|\[\s?\.{2,40}\s?\]|…{1,20}|\[…\]|<\s?snip\s?>|\[snip\]"
    r"|[(\[<]?(?:\.{2,4}\s?)?(?:omitted|truncated|skipped|snipped|省略)(?:\s[\w\s]{0,40})?(?:\s?\.{2,4})?[)\]>]?)\s{0,40}",
    re.IGNORECASE,
)


def died(line: str) -> str | None:
    """Return a launcher's or shell's message that a process died, or None."""
    if not any(word in line for word in _MAY_HAVE_DIED):
        return None
    match = DIED.search(line)
    return match[0].strip("= \t")[:300] if match else None


def collective(binary: str) -> str | None:
    """Return the collective of a binary; None for a truncated or other name."""
    name = binary.rpartition("/")[2]
    if match := COMMAND.match(name):
        return match[1]
    return (name.partition("_perf")[0] or None) if "_perf" in name else None


def of_source(failure: str) -> str | None:
    """Return the collective of the source file in a failure: ``all_reduce.cu:90``.

    None for any other file.
    """
    source = _SOURCE.search(failure)
    known = COMMAND.match(f"{source[1]}_perf") if source else None
    return known[1] if known else None


def quoted(match: re.Match[str]) -> bool:
    """Return whether a match is quoted in a sentence."""
    return _QUOTED.search(match.string[: match.start()]) is not None
