"""Saved evidence, logs and cluster files given to a command."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from preflight.terminal import UsageError, print_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from preflight.campaign.folder import CampaignFolder
    from preflight.collect.request import Collected
    from preflight.evidence.document import Evidence

#: Checks of a campaign; all others judge each launch as a separate benchmark.
CAMPAIGN_CHECKS = ("bench.*",)

#: Maximum stored size of a --log file in bytes.
LOG_CAP = 64_000_000

#: Number of leading bytes by which a document is recognised.
_HEAD = 65536


def log_folders(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """Return the paths with evidence, and the files of folders with only logs."""
    evidence, logs = [], []
    for path in paths:
        files = sorted(entry for entry in path.iterdir() if entry.is_file()) if path.is_dir() else []
        files = [entry for entry in files if not entry.name.startswith(".")]
        if files and not any(map(_is_document, files)):
            logs += files
        else:
            evidence.append(path)
    return evidence, logs


def _is_document(path: Path) -> bool:
    """Return whether a file may be evidence or a report, by its first bytes."""
    if path.suffix != ".json":
        return False
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
    except OSError:
        return True
    return b'"collected_at"' in head or b'"schema"' in head or not (b'"results"' in head or b'"config"' in head)


def is_text(path: Path) -> bool:
    """Return whether a file is text that cannot be a document of preflight."""
    if path.suffix in (".json", ".gz", ".tar", ".tgz", ".zst") or not path.is_file():
        return False
    try:
        with path.open("rb") as stream:
            head = stream.read(_HEAD)
        head.decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        cut = isinstance(error, UnicodeDecodeError) and error.start > _HEAD - 4  # within the last character
        return cut and b"\0" not in head
    return head.lstrip()[:1] not in (b"{", b"[", b"") and b"\0" not in head


def campaign_of(paths: Sequence[Path]) -> Evidence | None:
    """Return the evidence of a campaign if its folder is the only path; else None.

    Raises UsageError if it cannot be read.
    """
    if len(paths) != 1 or not (paths[0] / "plan.json").is_file():
        return None
    from preflight.campaign import folder

    if not folder.is_campaign(paths[0]):
        return None
    try:
        return campaign_evidence(folder.open_folder(paths[0]))
    except folder.CampaignError as error:
        raise UsageError(str(error)) from None


def campaign_evidence(opened: CampaignFolder) -> Evidence:
    """Return the outputs of a campaign's launches, with its plan and journal."""
    from preflight._startup.lightclass import replace
    from preflight.bench import campaign
    from preflight.evidence.document import Evidence

    outputs = [opened.output(launch.output) for launch in opened.done.launches]
    run = read_logs([path for path in outputs if path.is_file()]) or Evidence("@run", "", {})
    return replace(run, records={**run.records, campaign.RECORD: campaign.record(opened.plan, opened.lines)})


def load_evidence(paths: Sequence[Path]) -> Collected:
    """Read saved documents of nodes, lazily if many, and of logs; raises UsageError."""
    if not paths:
        from preflight.collect.request import Collected

        return Collected([], None)
    from preflight.archive.directory import ArchiveError
    from preflight.archive.lazy import load
    from preflight.collect.request import Collected

    try:
        return Collected(*load(paths))
    except ArchiveError as error:
        raise UsageError(str(error)) from None


def with_switches(collected: Collected, paths: Sequence[Path]) -> Collected:
    """Add the documents of switches, made from their files; raises UsageError."""
    if not paths:
        return collected
    from preflight._startup.lightclass import replace
    from preflight.archive.directory import ArchiveError
    from preflight.archive.lazy import Saved
    from preflight.archive.switch_files import switch_documents

    try:
        switches = switch_documents(paths)
    except ArchiveError as error:
        raise UsageError(str(error)) from None
    nodes = collected.evidences
    if isinstance(nodes, Saved):
        return replace(collected, evidences=nodes.with_documents(switches))
    return replace(collected, evidences=[*nodes, *switches])


def read_logs(paths: Sequence[Path]) -> Evidence | None:
    """Read the given logs, None if there are none; raises UsageError."""
    if not paths:
        return None
    from preflight.archive.directory import ArchiveError, logs

    try:
        return logs(paths, LOG_CAP)
    except ArchiveError as error:
        raise UsageError(str(error)) from None


def find_cluster(paths: Sequence[Path]) -> Path | None:
    """Return the cluster file saved with evidence, or None.

    If a saved file cannot be used, a warning states the reason. Raises UsageError for a damaged bundle.
    """
    from preflight.evidence.bundle import BundleError
    from preflight.run import saved_cluster

    try:
        path, why = saved_cluster.found(paths)
    except BundleError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        path, why = None, f"it cannot be unpacked: {error.strerror}"
    if why:
        print_text(f"warning: judged without the saved cluster file: {why}; use --cluster FILE\n", sys.stderr)
    return path
