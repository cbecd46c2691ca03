"""One run of a command: validation of its arguments, collection, verdict and outputs."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from preflight.terminal import UsageError, nearest, print_text, progress, screen
from preflight.version import VERSION

if TYPE_CHECKING:
    from typing import Any, NoReturn

    from preflight.checks import Registry
    from preflight.evidence.document import Evidence
    from preflight.expectations import Cluster
    from preflight.history import RunHistory
    from preflight.model import Check

#: Bytes kept of a log that is handed over with --log.
LOG_CAP = 64_000_000

#: Commands that judge saved evidence, of one node or of the cluster.
_OF_MANY = ("judge", "checklist")

#: Outputs of a run, each a file or - for standard output.
_FILES = ("json_file", "html_file", "junit_file", "textfile", "exclude_file")


class Session:
    """One run: everything that can be wrong with it is found before any node is touched."""

    def __init__(
        self, command: str, cluster: Path | None, only: Sequence[str], skip: Sequence[str], outputs: Mapping[str, Any]
    ) -> None:
        from preflight.checks import DuplicateCheck, registry

        self.command = command
        self.started = time.monotonic()
        self.via = ""
        self.through_openssh: Mapping[str, str] = {}
        self.cluster_file, self._only, self._skip, self._outputs = cluster, only, skip, outputs
        self.save_dir: Path | None = outputs.get("save")
        self.resume: bool = outputs.get("resume", False)
        if self.resume and self.save_dir is None:
            raise UsageError("--resume needs --save DIR: the directory of the run that was cut short")
        for target in map(outputs.get, _FILES):
            writable(Path(target) if target else None)
        printed = [
            f"--{name.removesuffix('_file').replace('_', '-')}" for name in _FILES if str(outputs.get(name)) == "-"
        ]
        if len(printed) > 1:
            raise UsageError(f"{' and '.join(printed)}: only one of them can be standard output")
        self._output_is_file = bool(printed) and printed != ["--json"]
        if save := outputs.get("save"):
            _directory(save)
        try:
            self.registry = registry()
        except DuplicateCheck as error:
            raise UsageError(str(error)) from None
        if cluster:
            _ = self.cluster
        report_broken(self.registry)
        _ = self._past
        if only or skip:
            _ = self.checks
        self._all_written = True
        if save:
            from preflight.run import saved_cluster as expected

            self._write(lambda: expected.save(save, cluster), save)

    @cached_property
    def cluster(self) -> Cluster:
        """What the site expects: its cluster file, which is read at the start, else nothing."""
        from preflight.expectations import Cluster

        if not self.cluster_file:
            return Cluster()
        from preflight.expectations.cluster_file import ClusterFileError, load

        try:
            return load(self.cluster_file, self.registry.ids)
        except ClusterFileError as error:
            raise UsageError(str(error)) from None

    @cached_property
    def checks(self) -> list[Check]:
        """The checks to run, imported on first use."""
        return _select(self.registry.checks, self._only, self._skip)

    @cached_property
    def off(self) -> list[str]:
        """Ids of the checks that are switched off."""
        enabled = {check.id for check in self.checks}
        return [check.id for check in self.registry.checks if check.id not in enabled]

    def prepare(self) -> None:
        """Import the judge and the renderer while waiting for the node."""
        from preflight.judge import prepare

        prepare(self.checks)
        _ = self.cluster
        if self._outputs.get("json_file") != "-":
            import preflight.reports.text_report  # noqa: F401

    def save_evidence(self, evidence: Evidence) -> None:
        """Save a document as soon as it is there, if there is a directory to save to."""
        if directory := self._outputs.get("save"):
            from preflight.archive.directory import save

            self._write(lambda: save(directory, [evidence]), directory)

    def judge(self, evidences: Sequence[Evidence], run: Evidence | None) -> dict[str, Any]:
        """Judge and add the run block."""
        from preflight.judge import judge
        from preflight.run import saved_cluster as expected

        with progress(f"judging {len(evidences)} nodes"):
            cores = len(os.sched_getaffinity(0))
            past = self._past
            evidences = past.add_time_series(evidences) if past else evidences
            report = judge(evidences, self.checks, self.cluster, run=run, off=self.off, processes=cores)
        report["run"] = {
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "version": VERSION,
            "command": self.command,
            "seconds": round(time.monotonic() - self.started, 3),
            "cluster_file": expected.shown(self.cluster.path) or None,
        }
        of_many = self.command in _OF_MANY or self.via
        if of_many and (missing := self.cluster.unjudged(node["name"] for node in report["nodes"])):
            report["coverage"]["without_evidence"] = missing
        if self.via:
            report["run"]["via"] = self.via
        if self.through_openssh:
            report["run"]["openssh"] = _by_reason(self.through_openssh)
        if past:
            past.record(report, evidences, run)
        return report

    @cached_property
    def _past(self) -> RunHistory | None:
        """The history, if one was given; it is opened before any node is touched."""
        if not (path := self._outputs.get("history_file")):
            return None
        from preflight.history import HistoryError, RunHistory

        try:
            return RunHistory(path, lambda text: print_text(f"warning: {text}\n", sys.stderr))
        except HistoryError as error:
            raise UsageError(str(error)) from None

    def write_outputs_and_exit(self, evidences: Sequence[Evidence], run: Evidence | None) -> NoReturn:
        """Judge, print and write the outputs; exit with the verdict."""
        report = self.judge(evidences, run)
        json_file, html_file = self._outputs.get("json_file"), self._outputs.get("html_file")
        self._show(report, json_file == "-")
        if self._outputs.get("save"):  # else nothing need be read again
            for evidence in evidences:
                self.save_evidence(evidence)
            if run:
                self.save_evidence(run)
        if html_file:
            from preflight.reports.html_page import render as render_html

            page = render_html(report)
            self._write(lambda: write_file(html_file, page), html_file)
        if json_file and json_file != "-":
            from preflight.evidence.report_file import written

            self._write(lambda: write_file(Path(json_file), written(report)), json_file)
        self._render("junit_file", "junit", report)
        self._render("textfile", "prometheus", report)
        if exclude_file := self._outputs.get("exclude_file"):
            from preflight.collect.targets import bad_nodes

            self._write(lambda: write_file(exclude_file, f"{bad_nodes(report)}\n"), exclude_file)
            if checks := dict.fromkeys(one["check"] for one in report["findings"] if one.get("undecided")):
                note = f"{', '.join(checks)}: nodes differ and no side is known to be right; none is excluded for it"
                print_text(f"note: {note}\n", sys.stderr)
        sys.exit(report["exit_status"] if self._all_written else report["exit_status"] or 3)

    def _render(self, output: str, name: str, report: dict[str, Any]) -> None:
        """Write the report as ``preflight.reports.NAME`` renders it, if its output is set."""
        if target := self._outputs.get(output):
            from importlib import import_module

            text = import_module(f"preflight.reports.{name}").render(report)
            self._write(lambda: write_file(target, text), target)

    def _write(self, write: Callable[[], None], target: object) -> None:
        """Write an output. A full disk is reported, but does not hide the verdict."""
        try:
            write()
        except OSError as error:
            print_text(f"error: {target} could not be written: {error.strerror}\n", sys.stderr)
            self._all_written = False

    def _show(self, report: dict[str, Any], as_json: bool) -> None:
        """Print the report; where that cannot be done, the exit status and the files must not be lost with it."""
        try:
            if self._output_is_file:
                return  # standard output is for the page or the list, and nothing else
            if as_json:
                from preflight.evidence.report_file import written

                for piece in written(report):
                    print_text(piece)
            else:
                self._print(report)
        except OSError as error:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # what is still to be flushed goes nowhere
            if not isinstance(error, BrokenPipeError):  # a reader that closed the pipe has read enough
                print_text(f"error: standard output could not be written: {error.strerror}\n", sys.stderr)
                self._all_written = False

    def _print(self, report: dict[str, Any]) -> None:
        from preflight.reports.text_report import render

        terminal, width = screen()
        print_text(render(report, colour=terminal, width=width, verbose=self._outputs.get("verbose", False)))
        if html_file := self._outputs.get("html_file"):
            print_text(f"page: {html_file}\n")


def _by_reason(hosts: Mapping[str, str]) -> list[dict[str, str]]:
    """Return each reason to use the system's ``ssh``, with the hosts that it holds for."""
    from preflight.nodeset import fold

    reasons = sorted(set(hosts.values()))
    return [{"nodes": fold(host for host in hosts if hosts[host] == why), "why": why} for why in reasons]


def write_file(path: Path, text: str | Iterable[str]) -> None:
    """Write a file at once or not at all; raises OSError."""
    from preflight.archive.directory import write

    write(path, text)


def _select(checks: Sequence[Check], only: Sequence[str], skip: Sequence[str]) -> list[Check]:
    """Return the checks to run."""
    for pattern in (*only, *skip):
        if not any(fnmatchcase(check.id, pattern) for check in checks):
            raise UsageError(f"no check matches {pattern!r}{nearest(pattern, [c.id for c in checks])}")
    selected = [
        check
        for check in checks
        if (not only or any(fnmatchcase(check.id, pattern) for pattern in only))
        and not any(fnmatchcase(check.id, pattern) for pattern in skip)
    ]
    if not selected:
        raise UsageError("--only and --skip together leave no check")
    return selected


def load_evidence(paths: Sequence[Path]) -> tuple[Sequence[Evidence], Evidence | None]:
    """Read saved documents: the nodes, many of which are read on first use, and the logs of a run."""
    from preflight.archive.directory import ArchiveError
    from preflight.archive.lazy import load

    try:
        return load(paths)
    except ArchiveError as error:
        raise UsageError(str(error)) from None


def saved_cluster(paths: Sequence[Path]) -> Path | None:
    """Return the cluster file that was saved with evidence; where it cannot be used, a warning gives the reason."""
    from preflight.evidence.bundle import BundleError
    from preflight.run import saved_cluster as expected

    try:
        path, why = expected.found(paths)
    except BundleError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        path, why = None, f"it cannot be unpacked: {error.strerror}"
    if why:
        print_text(f"warning: judged without the saved cluster file: {why}; give --cluster FILE\n", sys.stderr)
    return path


def read_logs(paths: Sequence[Path]) -> Evidence | None:
    """Read the logs that were handed over; None if there are none."""
    if not paths:
        return None
    from preflight.archive.directory import ArchiveError, logs

    try:
        return logs(paths, LOG_CAP)
    except ArchiveError as error:
        raise UsageError(str(error)) from None


def writable(path: Path | None) -> None:
    """Refuse an output that cannot be written, before any node is queried."""
    if path is None or str(path) == "-":
        return
    if path.is_dir():
        raise UsageError(f"{path}: is a directory, not a file")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: there is no directory {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path}: the directory {path.parent} is not writable")


def _directory(path: Path) -> None:
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path}: is a file, not a directory")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path}: cannot be made: {error.strerror}") from None
    if not os.access(path, os.W_OK):
        raise UsageError(f"{path}: is not writable")


def report_broken(registry: Registry) -> None:
    """Warn of plug-ins that could not be loaded."""
    for broken in registry.broken:
        print_text(f"warning: a plug-in could not be loaded: {broken}\n", sys.stderr)
