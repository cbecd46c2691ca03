"""Parsers of messages about communicators: ranks, nodes, phases."""

from __future__ import annotations

import re

from preflight.parsers.nccl_log.event import LogEvent

_COMM = re.compile(
    r"(?:\[Rank \d+\] )?(?:nccl\w+ )?comm (?:0x\S{0,20}|\(nil\)) rank (\d{1,7})"
    r" n[rR]anks (\d{1,7})(?!\d)(.*)"
)
_COMM_ID = re.compile(r" commId (0x[0-9a-f]+)")
_SPLIT = re.compile(r"\bparent (0x[0-9a-f]+)(?: (?:splitCount|childCount) (\d+))?(?: color (-?\d+))?")
_PHASE = re.compile(r"- (Init START|Init COMPLETE|Destroy COMPLETE|Abort COMPLETE)")
#: A message of aws-ofi-nccl's tuner.
_TUNED = re.compile(r"Tuner init\b.{0,40}: comm with (\d{1,7}) ranks and (\d{1,7}) nodes")
_SIZE = re.compile(
    r" nNodes (\d{1,7})(?!\d)(?: localRanks (\d{1,5})(?!\d))?(?: localRank \d{1,5}(?!\d))?(?: MNNVL (\d))?"
)
_RANK = re.compile(r"\brank (\d{1,7})\s+n[rR]anks (\d{1,7})\b")
_CHECKED_IN = re.compile(r"Bootstrap Root ?: rank \d{1,7} of (\d{1,7})\b")
_COLLECTIVE_SIZE = re.compile(rb" \[nranks=(\d{1,7})\]")


def comm(message: str) -> LogEvent | None:
    """Parse a communicator's rank, with its nodes or its phase if printed."""
    if not (match := _COMM.match(message)):
        plain = _RANK.search(message)
        return LogEvent("rank", (int(plain[1]), int(plain[2]))) if plain else None
    rank, nranks, rest = int(match[1]), int(match[2]), match[3]
    if size := _SIZE.match(rest):
        local = None if size[2] is None else int(size[2])
        return LogEvent("size", (rank, nranks, int(size[1]), local, size[3] == "1"))
    if not (phase := _PHASE.search(rest)):
        return LogEvent("rank", (rank, nranks))
    name = None
    if known := _COMM_ID.search(rest):
        name = known[1]
    elif split := _SPLIT.search(rest):
        # the parent's address differs between processes; the number of the split and its colour are the same on all
        # ranks
        name = f"split {split[2]} color {split[3]}"
    return LogEvent("comm", (phase[1], rank, nranks, name))


def nranks(message: str) -> LogEvent | None:
    """Parse the number of ranks that one process sets up (2.4 … 2.6), or one rank."""
    if match := _RANK.match(message):
        return LogEvent("rank", (int(match[1]), int(match[2])))
    match = re.fullmatch(r"nranks (\d{1,7})", message)
    return LogEvent("nranks", (int(match[1]),)) if match else None


def tuned(message: str) -> LogEvent | None:
    """Parse the number of ranks and nodes that aws-ofi-nccl's tuner prints."""
    match = _TUNED.search(message)
    return LogEvent("shape", (int(match[1]), int(match[2]), None)) if match else None


def collective_size(message: bytes) -> int | None:
    """Return the communicator size in a COLL message, or None."""
    match = _COLLECTIVE_SIZE.search(message)
    return int(match[1]) if match else None


def size_in_warning(message: str) -> int | None:
    """Return the communicator size in a bootstrap warning, or None."""
    match = _CHECKED_IN.search(message)
    return int(match[1]) if match else None
