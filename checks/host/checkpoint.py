"""Check of the age of checkpoints."""

from __future__ import annotations

from collections.abc import Iterator

from preflight import parsers
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, counted, failed, passed, unknown, warned
from preflight.probes.declared import checkpoints


@check(
    "checkpoint.age",
    title="The newest checkpoint is recent enough",
    fault="The newest checkpoint is too old",
    impact="loses-redundancy",
    source="the cluster file: checkpoint.path and checkpoint.interval_min",
    fix="Check the job's log and `df` of the file system for full or slow storage, a hanging rank, or an "
    "interval in steps.",
    action="fix-job",
    answers=("FP-LOSS-4", "PA-26"),
    gating=False,
)
def age(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the age of the newest checkpoint with twice the interval.

    ## Why it matters
    The next fault loses all work since the last checkpoint, and missing checkpoints go unnoticed until then. The
    finding states the GPU hours at risk on this node.

    ## Verdicts
    A checkpoint older than two intervals warns (two, because one late checkpoint is normal), and so do an empty
    directory and a checkpoint dated in the future; a missing directory fails. The check never gates a job. Two
    directory levels are read. The age is relative to the time of collection and rounded to full intervals, so that
    nodes collected a minute apart report the same age.

    ## False alarms
    Before a job starts, the newest checkpoint is as old as the last run.
    """
    path, interval_min = site.checkpoint_path, site.checkpoint_interval_min
    if path.value is None:
        yield unknown("the checkpoint path is not declared", fix=f'declare it in the cluster file: {path.key} = "/…"')
        return
    key = checkpoints(path.value).key
    if _is_missing(node, key):
        yield failed(f"the checkpoint directory {path.value} does not exist", subject=path.value,
                     found="no such directory", expected=f"a directory ({path.source})", evidence=[key],
                     fix=f"Create or mount the directory, or correct {path.key} in the cluster file.")  # fmt: skip
        return
    latest = node.parsed(key, parsers.host.checkpoint.newest)
    if latest is None:
        yield warned(f"{path.value} contains no checkpoint", subject=path.value, found="an empty directory",
                     expected="a checkpoint", evidence=[key])  # fmt: skip
        return
    try:
        age_min = (parsers.host.checkpoint.seconds(node.evidence.collected_at) - latest.changed_at_s) / 60
    except ValueError as error:
        yield unknown(f"the time of collection cannot be parsed: {error}", evidence=[key])
        return
    words = f"{latest.path}, written at {latest.changed_at}"
    if interval_min.value is None:
        yield unknown(f"the newest checkpoint is {words}; the interval is not declared", found=words, evidence=[key],
                      fix=f"declare it in the cluster file: {interval_min.key} = 30")  # fmt: skip
    elif age_min < -1:
        yield warned(f"the newest checkpoint, {latest.path}, is dated {-age_min:.0f} minutes in the future",
                     found=words,
                     expected="not in the future", evidence=[key],
                     fix="Compare the clocks of node and file server.")  # fmt: skip
    elif age_min > 2 * interval_min.value:
        least_min = age_min // interval_min.value * interval_min.value
        seldom = f"over {least_min:g} minutes old, but one is due every {interval_min.value:g} minutes"
        yield warned(f"the newest checkpoint is {seldom}{_loss(node, 'more than', least_min)}",
                     found=words, expected=f"at most {2 * interval_min.value:g} minutes ({interval_min.source})",
                     evidence=[key])  # fmt: skip
    else:
        most_min = 2 * interval_min.value
        yield passed(f"the newest checkpoint is at most {most_min:g} minutes old{_loss(node, 'at most', most_min)}",
                     found=words, evidence=[key])  # fmt: skip


def _loss(node: NodeFacts, bound: str, minutes: float) -> str:
    """Return the GPU hours that a fault would cost now; empty if unknown."""
    try:
        gpus = len(node.gpus_on_bus)
    except EvidenceError:
        return ""
    hours = gpus * minutes / 60
    where = f"this node ({counted(gpus, 'GPU')})"
    return f"; a fault now loses {bound} {hours:.3g} hours of GPU time on {where}" if gpus else ""


def _is_missing(node: NodeFacts, key: str) -> bool:
    """Return whether ``find`` reported that the directory is missing.

    Raises EvidenceError if ``find`` failed for another reason.
    """
    record = node.evidence.complete_record(key)
    if record.rc == 1 and not record.out and "No such file or directory" in record.err:
        return True
    if record.rc not in (0, None):
        raise EvidenceError(key, f"exit status {record.rc}: {record.err.strip()[:200]}")
    return False
