"""Remarks on the cluster file: nodes without a class, nodes without evidence."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.reports.sanitize import listed, one_line

#: Commands that judge saved evidence.
OF_SAVED = ("judge", "checklist")


@dataclass(frozen=True)
class Remark:
    """A remark on some nodes of the report or of the cluster file."""

    text: str
    nodes: str
    advice: str = ""
    warns: bool = False

    @property
    def line(self) -> str:
        """The remark in one line."""
        return f"{self.text}: {self.nodes}" + (f"; {self.advice}" if self.advice else "")


def judged_by(run: Mapping[str, Any]) -> str:
    """Return a line on the cluster file if saved evidence was judged, else ""."""
    if (origin := run.get("cluster_origin")) and run.get("cluster_file"):
        return f"judged by: {one_line(str(run['cluster_file']))} ({one_line(str(origin))})"
    if run.get("command") not in OF_SAVED:
        return ""
    if path := run.get("cluster_file"):
        return f"judged by: {one_line(str(path))}"
    return (
        "judged without a cluster file: none was given (--cluster FILE), saved with the evidence, or "
        "found; site-specific expectations are unknown"
    )


def remarks(report: Mapping[str, Any]) -> Iterator[Remark]:
    """Yield a remark on nodes without a class, and one on nodes without evidence."""
    coverage, run = report["coverage"], report.get("run") or {}
    file = one_line(str(run.get("cluster_file") or "the cluster file").rpartition("/")[2])
    if outside := coverage.get("without_class"):
        yield Remark(
            f"{_nodes(outside)} in no class of {file}", listed(outside),
            "no class expectations apply to them: add them to the nodes of a class, or add a table [class.NAME]",
            warns=True,
        )  # fmt: skip
    if missing := coverage.get("without_evidence"):
        saved = run.get("command") in OF_SAVED
        yield Remark(
            f"{_nodes(missing)} of {file} not {'judged' if saved else 'collected'}", listed(missing), warns=saved
        )


def _nodes(names: list[str]) -> str:
    return f"{len(names)} node" if len(names) == 1 else f"{len(names)} nodes"
