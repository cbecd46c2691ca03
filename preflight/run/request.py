"""The request of one run, validated once, before any node is contacted."""

from __future__ import annotations

import os
import sys
import time
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from preflight._startup.lightclass import dataclass, fields
from preflight.collect.options import CollectOptions
from preflight.collect.request import CollectRequest, Targets
from preflight.terminal import UsageError, nearest, print_text, write_or_report

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Any

    from preflight.checks import Registry
    from preflight.expectations import Cluster
    from preflight.history import RunHistory
    from preflight.model import Check


@dataclass(frozen=True)
class Outputs:
    """Outputs of a run: files, or - for standard output; None means not written."""

    json_file: str | None = None
    html_file: Path | None = None
    junit_file: Path | None = None
    textfile: Path | None = None
    exclude_file: Path | None = None
    save: Path | None = None
    history_file: Path | None = None
    verbose: bool = False
    quiet: bool = False
    colour: str = "auto"
    layout: str = "text"

    @property
    def files(self) -> dict[str, str]:
        """The files to write, by the option that names each."""
        names = ("json_file", "html_file", "junit_file", "textfile", "exclude_file")
        given = {f"--{name.removesuffix('_file').replace('_', '-')}": getattr(self, name) for name in names}
        return {option: str(target) for option, target in given.items() if target}

    @property
    def replaces_text(self) -> bool:
        """Whether a page or a list goes to standard output."""
        return any(target == "-" and option != "--json" for option, target in self.files.items())


@dataclass(frozen=True)
class RunRequest:
    """What a run does: nodes to collect from, expectations, outputs.

    ``site`` is the content of the cluster file, ``selected`` are the checks to run (None: all) and ``off`` the ids of
    disabled checks. ``started`` is on the monotonic clock. ``saved`` is False if the cluster file could not be copied
    to the evidence. ``cluster_origin`` states where a cluster file was found without an option.
    """

    command: str
    registry: Registry
    outputs: Outputs
    started: float
    cluster_file: Path | None = None
    site: Cluster | None = None
    selected: tuple[Check, ...] | None = None
    off: tuple[str, ...] = ()
    logs: tuple[Path, ...] = ()
    targets: Targets = Targets()
    options: CollectOptions = CollectOptions()
    resume: bool = False
    history: RunHistory | None = None
    saved: bool = True
    cluster_origin: str = ""

    @property
    def cluster(self) -> Cluster:
        """The expectations of the site; empty without a cluster file."""
        if self.site is not None:
            return self.site
        from preflight.expectations import Cluster

        return Cluster()

    @property
    def checks(self) -> Sequence[Check]:
        """The checks to run."""
        return self.registry.checks if self.selected is None else self.selected

    def collection(self, nodes: tuple[str, ...]) -> CollectRequest:
        """Return the request to collect from some nodes."""
        return CollectRequest(
            nodes, self.registry.probes, self.options, self.site, self.cluster_file, self.outputs.save, self.resume
        )


_NOWHERE, _UNNAMED, _USUAL = Outputs(), Targets(), CollectOptions()


def new_request(
    command: str, cluster_file: Path | None = None, outputs: Outputs = _NOWHERE, *, only: Sequence[str] = (),
    skip: Sequence[str] = (), selected: Sequence[Check] | None = None, logs: Sequence[Path] = (),
    targets: Targets = _UNNAMED, options: CollectOptions = _USUAL, resume: bool = False, cluster_origin: str = "",
) -> RunRequest:  # fmt: skip
    """Return a request; raises UsageError for invalid arguments.

    Plug-ins that cannot be loaded are reported. ``selected`` are a command's own checks, used instead of ``only`` and
    ``skip``.
    """
    from preflight.checks import DuplicateCheck, registry

    started = time.monotonic()
    if resume and outputs.save is None:
        raise UsageError("--resume needs --save DIR: the directory of the run that was cut short")
    _validate(outputs)
    try:
        check_registry = registry()
    except DuplicateCheck as error:
        raise UsageError(str(error)) from None
    site = _site(cluster_file, check_registry) if cluster_file else None
    report_broken(check_registry)
    history = _opened(outputs.history_file) if outputs.history_file else None
    off: tuple[str, ...] = ()
    if only or skip:
        selected = _selected(check_registry.checks, only, skip)
        enabled = {check.id for check in selected}
        off = tuple(check.id for check in check_registry.checks if check.id not in enabled)
    saved = outputs.save is None or _save_cluster(outputs.save, cluster_file)
    return RunRequest(
        command, check_registry, outputs, started, cluster_file, site,
        None if selected is None else tuple(selected), off, tuple(logs), targets, options, resume, history, saved,
        cluster_origin,
    )  # fmt: skip


#: Bytes at the start of a document, in which evidence has its first key.
_HEAD = 64


def from_arguments(command: str, cluster: Path | None, arguments: Mapping[str, Any]) -> RunRequest:
    """Return the request of a command line.

    ``arguments`` are fields of ``Targets``, ``CollectOptions`` and ``Outputs``, and keywords of ``new_request``.
    """
    rest = dict(arguments)

    def values(kind: Any) -> dict[str, Any]:
        return {field.name: rest.pop(field.name) for field in fields(kind) if field.name in rest}

    targets, outputs = Targets(**values(Targets)), Outputs(**values(Outputs))
    _spare_evidence(outputs.json_file)
    options = CollectOptions(**values(CollectOptions), job=targets.job)
    return new_request(command, cluster, outputs, targets=targets, options=options, **rest)


def _spare_evidence(target: str | None) -> None:
    """Raise UsageError if a report would replace the evidence of a node."""
    if target in (None, "-") or not Path(str(target)).is_file():
        return
    with suppress(OSError), open(str(target), "rb") as there:
        if b'"collected_at"' in there.read(_HEAD):
            raise UsageError(f"--json {target}: this file is the evidence of a node; name another one to write, or -")


def _site(path: Path, check_registry: Registry) -> Cluster:
    from preflight.expectations.cluster_file import ClusterFileError, load

    try:
        return load(path, check_registry.ids)
    except ClusterFileError as error:
        raise UsageError(str(error)) from None


def _selected(checks: Sequence[Check], only: Sequence[str], skip: Sequence[str]) -> list[Check]:
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


def _opened(path: Path) -> RunHistory:
    """Open the history, before any node is contacted."""
    from preflight.history import HistoryError, RunHistory

    try:
        return RunHistory(path, lambda text: print_text(f"warning: {text}\n", sys.stderr))
    except HistoryError as error:
        raise UsageError(str(error)) from None


def _save_cluster(directory: Path, cluster_file: Path | None) -> bool:
    """Copy the cluster file to the evidence; return whether that was possible."""
    from preflight.run import saved_cluster

    return write_or_report(lambda: saved_cluster.save(directory, cluster_file), directory)


def report_broken(check_registry: Registry) -> None:
    """Warn of plug-ins that could not be loaded."""
    for broken in check_registry.broken:
        print_text(f"warning: a plug-in could not be loaded: {broken}\n", sys.stderr)


# --- outputs ---------------------------------------------------------------------------------------


def _validate(outputs: Outputs) -> None:
    """Reject outputs that cannot be written."""
    for target in outputs.files.values():
        require_writable(Path(target))
    printed = [option for option, target in outputs.files.items() if target == "-"]
    if len(printed) > 1:
        raise UsageError(f"{' and '.join(printed)}: only one of these can be standard output")
    if outputs.save:
        _require_directory(outputs.save)


def require_writable(path: Path | None) -> None:
    """Reject an output that cannot be written; raises UsageError."""
    if path is None or str(path) == "-":
        return
    if path.is_dir():
        raise UsageError(f"{path} is a directory, not a file")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: no such directory: {path.parent}")
    if not os.access(path.parent, os.W_OK):
        raise UsageError(f"{path}: the directory {path.parent} is not writable")


def _require_directory(path: Path) -> None:
    """Create a directory for outputs if missing; raises UsageError."""
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file, not a directory")
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"{path} cannot be created: {error.strerror}") from None
    if not os.access(path, os.W_OK):
        raise UsageError(f"{path} is not writable")
