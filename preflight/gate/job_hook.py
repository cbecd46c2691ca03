"""The seat ``slurm-controller``: a job starts when all of its nodes have passed, as their own verdicts say.

The nodes publish them (``[gate] publish``), or are asked now over SSH (``--hosts``). The controller cannot know their
boot, so only the age of a verdict and its node are held against it, and the two clocks may differ.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from preflight import errors
from preflight.evidence import json_limits
from preflight.gate import announce, scheduler_env, verdict_cache
from preflight.gate.gate_run import Sitting
from preflight.gate.verdict import PREFIX, UnusableVerdict, Verdict, ascii_reason, from_document
from preflight.schemas.conform import mistake

_MOST_BYTES = 1 << 20
_MOST_TOLD = 10
#: Seconds that a node's clock may run ahead of this one: MUNGE's default TTL, beyond which Slurm starts nothing there.
_AHEAD_S = 300


def run(sitting: Sitting) -> int:
    """Judge a job by its nodes; return the exit status."""
    from preflight.gate import configuration
    from preflight.gate.apply_configuration import apply_configuration
    from preflight.nodeset import unfold

    asked = sitting.asked
    sitting.watch.phase = "reading the cluster file"
    found = configuration.read(asked.cluster, None, _ids)
    apply_configuration(sitting, found)
    folded = asked.hosts or scheduler_env.node_list()
    sitting.node = folded or sitting.node
    if not found.usable:
        return sitting.finish(sitting.untold("gate.configuration", found.error, "error"))
    try:
        nodes = unfold(folded, groups=bool(asked.hosts)) if folded else ()
    except ValueError as error:
        return sitting.finish(sitting.untold("gate.nodes", f"{folded!r} names no nodes: {error}", "error"))
    if not nodes:
        return sitting.finish(sitting.untold("gate.nodes", "neither SLURM_JOB_NODELIST nor --hosts names nodes"))
    refresh_s = found.gate.refresh_s or verdict_cache.REFRESH_S
    folder = asked.verdicts or found.gate.publish
    verdicts: Mapping[str, Verdict | str]
    if asked.hosts:
        from preflight.gate import remote_verdicts

        sitting.watch.phase = "asking the nodes over SSH"
        try:
            verdicts = remote_verdicts.verdicts(nodes, sitting, found)
        except (configuration.UnknownCheck, errors.DuplicateCheck, remote_verdicts.UsageError) as error:
            return sitting.finish(sitting.untold("gate.configuration", str(error), "error"))
    elif folder:
        sitting.watch.phase = f"reading {announce.plain(folder)}"
        verdicts = _published(Path(folder), nodes, verdict_cache.INTERVALS * refresh_s)
    else:
        why = "no verdicts: say where the nodes publish theirs ([gate] publish, or --verdicts), or give --hosts"
        return sitting.finish(sitting.untold("gate.no-verdict", why))
    return sitting.finish(_together(sitting, nodes, verdicts))


def _ids() -> list[str]:
    from preflight.checks import registry

    try:
        return registry().ids()
    except errors.DuplicateCheck:  # reported where the checks are run
        return []


def _together(sitting: Sitting, nodes: Sequence[str], verdicts: Mapping[str, Verdict | str]) -> Verdict:
    """Return one verdict for all: it fails if one does, and passes only if all do."""
    failed = {name: v for name in nodes if isinstance(v := verdicts[name], Verdict) and _bad(v)}
    vague = {name: _why(v) for name in nodes if _why(v := verdicts[name])}
    lines = [f"  FAIL {name}: {v.reason.removeprefix(PREFIX)} [{v.whose}]" for name, v in failed.items()]
    lines += [f"  NOT JUDGED {name}: {why}" for name, why in vague.items()]
    more = len(lines) - _MOST_TOLD
    sitting.lines = (*map(announce.plain_line, lines[:_MOST_TOLD]), *([f"  and {more} more nodes"] if more > 0 else []))
    seconds = round(time.monotonic() - sitting.watch.began, 3)
    name = announce.name(sitting.node)
    if failed:
        node, first = next(iter(failed.items()))
        others = f" (and {len(failed) - 1} more nodes)" if len(failed) > 1 else ""
        return Verdict(
            name, "fail", sitting.at, cause=first.cause, whose=first.whose, seconds=seconds,
            causes=tuple(dict.fromkeys(cause for v in failed.values() for cause in (v.cause, *v.causes))),
            reason=ascii_reason(f"{PREFIX}{node}: {first.reason.removeprefix(PREFIX)}", 170) + others,
        )  # fmt: skip
    if vague:
        node, why = next(iter(vague.items()))
        others = f" (and {len(vague) - 1} more of {len(nodes)} nodes)" if len(vague) > 1 else ""
        return Verdict(
            name, "unknown", sitting.at, unknowns=("gate.nodes",), seconds=seconds,
            reason=ascii_reason(f"{PREFIX}gate.nodes: {node}: {why}", 150) + others,
        )  # fmt: skip
    return Verdict(name, "pass", sitting.at, seconds=seconds)


def _bad(found: Verdict) -> bool:
    """Tell whether a node is bad for any job: what was an earlier job's own problem went with it."""
    return found.status == "fail" and found.whose != "job"


def _why(found: Verdict | str) -> str:
    """Say why a node is neither good nor bad; "" if it is one of them."""
    if isinstance(found, str):
        return found
    if found.status == "pass" or _bad(found):
        return ""
    return found.reason.removeprefix(PREFIX) + (" [an earlier job's]" if found.status == "fail" else "")


def _published(folder: Path, nodes: Sequence[str], most_s: float) -> dict[str, Verdict | str]:
    from preflight.archive.directory import file_name

    if why := _untrusted(folder):
        return dict.fromkeys(nodes, why)
    return {node: _read(folder / file_name(node), node, most_s) for node in nodes}


def _untrusted(folder: Path) -> str:
    """Say why nobody should believe what lies in a directory; "" if only root and this user can write there."""
    try:
        found = os.stat(folder)
    except OSError as error:
        return f"{folder}: {error.strerror}"
    if found.st_uid not in (0, os.geteuid()):
        return f"{folder} belongs to user {found.st_uid}"
    return f"{folder} may be written by others" if found.st_mode & 0o022 else ""


def _read(path: Path, node: str, most_s: float) -> Verdict | str:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as stream:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                return f"{path} is no regular file"
            document = json_limits.decoded(stream.read(_MOST_BYTES), once=True)
        if wrong := mistake(document, "verdict-1", exact=True):
            raise UnusableVerdict(wrong)
        found = from_document(document)
    except FileNotFoundError:
        return "it has published no verdict"
    except OSError as error:
        return f"{path}: {error.strerror}"
    except (UnusableVerdict, ValueError) as error:
        return f"{path} is no verdict: {error}"
    age_s = time.time() - found.at
    if found.node != node:
        return f"{path} is of the node {found.node}"
    if age_s < -_AHEAD_S:
        return f"its verdict is of {-age_s:.0f} s in the future: set the clocks of the node and of this machine"
    if age_s > most_s:
        return f"its verdict is {age_s:.0f} s old, and good for {most_s:.0f}"
    return found
