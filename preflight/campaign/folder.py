"""The folder of a campaign: its plan, its journal, the output of each launch.

A journal line is on disk before each launch starts, and another one after it has ended. If preflight is killed, only
launches that were running are repeated.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from preflight.archive.directory import write
from preflight.bench import campaign
from preflight.bench.campaign import Campaign, CampaignPlan
from preflight.errors import PreflightError
from preflight.evidence import json_limits, safe_read
from preflight.parsers import nccl_tests
from preflight.parsers.nccl_tests.text import Report

PLAN_FILE, JOURNAL_FILE, OUTPUTS = "plan.json", "journal.jsonl", "out"

#: Maximum number of bytes in the output of a launch, and in a journal.
OUTPUT_LIMIT, _LONGEST_JOURNAL = 16_000_000, 256_000_000


class CampaignError(PreflightError):
    """The campaign cannot start or continue; the message has the reason and the fix."""


class CampaignFolder:
    """The folder of a campaign, with the work done so far."""

    def __init__(self, path: Path, plan: CampaignPlan) -> None:
        """Use an existing folder; ``create`` and ``open_folder`` prepare it."""
        self.path, self.plan = path, plan
        self._lines: list[Mapping[str, Any]] = []
        self._reports: dict[str, tuple[Report, ...]] = {}

    @property
    def done(self) -> Campaign:
        """The campaign, with the work done so far."""
        return campaign.campaign(self.plan, self._lines)

    def output(self, name: str) -> Path:
        """Return the path of a launch's output."""
        return self.path / OUTPUTS / name

    @property
    def lines(self) -> Sequence[Mapping[str, Any]]:
        """The lines of the journal."""
        return tuple(self._lines)

    def reports(self) -> Mapping[str, tuple[Report, ...]]:
        """Return the nccl-tests reports of ended launches, by output file name."""
        for launch in self.done.launches:
            if launch.status and launch.output not in self._reports:
                self._reports[launch.output] = _reports(self.output(launch.output))
        return self._reports

    def began(self, name: str) -> bool:
        """Return whether an output has a report, which shows that its benchmark started."""
        return bool(_reports(self.output(name)))

    def record(self, line: Mapping[str, Any]) -> None:
        """Append a line to the journal, and sync it to disk. Raises OSError."""
        raw = (json.dumps(line, separators=(",", ":")) + "\n").encode()
        handle = os.open(self.path / JOURNAL_FILE, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            size = os.fstat(handle).st_size
            try:
                while raw:
                    raw = raw[os.write(handle, raw) :]
                os.fsync(handle)
            except OSError:
                os.ftruncate(handle, size)  # remove a partial line
                raise
        finally:
            os.close(handle)
        self.keep(line)

    def keep(self, line: Mapping[str, Any]) -> None:
        """Add a line in memory only, because it cannot be written."""
        self._lines.append(line)

    def load(self) -> None:
        """Read the journal, and remove a truncated last line.

        Raises CampaignError or OSError.
        """
        path = self.path / JOURNAL_FILE
        if not path.exists():
            return
        safe_read.require_regular_file(path)
        if path.stat().st_size > _LONGEST_JOURNAL:
            raise CampaignError(f"{path} is longer than {_LONGEST_JOURNAL} bytes")
        raw = path.read_bytes()
        complete, _, rest = raw.rpartition(b"\n")
        self._lines = list(_lines(path, complete))
        if rest:
            os.truncate(path, len(raw) - len(rest))


def create(path: Path, plan: CampaignPlan) -> CampaignFolder:
    """Create the folder of a campaign. Raises CampaignError or OSError."""
    if (path / PLAN_FILE).exists():
        raise CampaignError(f"{path}: already contains a campaign; continue it with --resume, or use another folder")
    (path / OUTPUTS).mkdir(parents=True, exist_ok=True)
    write(path / PLAN_FILE, json.dumps(campaign.plan_document(plan), indent=1) + "\n")
    return CampaignFolder(path, plan)


def is_campaign(path: Path) -> bool:
    """Return whether a folder contains a campaign."""
    return path.is_dir() and (path / PLAN_FILE).is_file() and (path / OUTPUTS).is_dir()


def open_folder(path: Path) -> CampaignFolder:
    """Read a campaign from its folder. Raises CampaignError."""
    if not is_campaign(path):
        raise CampaignError(f"{path} contains no campaign of `preflight bench` ({PLAN_FILE}, {OUTPUTS}/)")
    try:
        document = json_limits.read(path / PLAN_FILE, longest=safe_read.BY_HAND, once=True)
        folder = CampaignFolder(path, campaign.read_plan(document))
        folder.load()
    except OSError as error:
        raise CampaignError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise CampaignError(f"{path / PLAN_FILE} is damaged ({error}), or from a different version") from None
    return folder


def _lines(path: Path, raw: bytes) -> Iterator[Mapping[str, Any]]:
    lines = []
    for number, text in enumerate(raw.decode("utf-8", "replace").splitlines(), 1):
        try:
            lines.append(json_limits.text(text))
        except ValueError as error:
            raise CampaignError(f"{path}:{number}: damaged ({error})") from None
    for number, wrong in enumerate(campaign.find_line_errors(lines), 1):
        if wrong:
            raise CampaignError(f"{path}:{number}: damaged ({wrong})")
    yield from lines


def _reports(path: Path) -> tuple[Report, ...]:
    try:
        with path.open("rb") as stream:
            raw = stream.read(OUTPUT_LIMIT)
    except OSError:
        return ()
    return nccl_tests.text.parse(raw.decode("utf-8", "replace"))
