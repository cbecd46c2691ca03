"""The command line: thin commands over the stages; heavy imports inside the command that needs them."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import click

from preflight.version import VERSION

if TYPE_CHECKING:
    from types import FrameType

    from preflight.checks import Registry
    from preflight.cluster import Cluster
    from preflight.evidence import Evidence
    from preflight.model import Check

F = TypeVar("F", bound=Callable[..., Any])

#: Bytes kept of a log that is handed over with --log.
LOG_CAP = 64_000_000


class UsageError(click.ClickException):
    """A mistake in what was asked or configured; nothing was touched."""

    exit_code = 2


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_path = click.Path(path_type=Path)
_selection = _options(
    click.option("--only", multiple=True, metavar="GLOB", help="Run only checks whose id matches."),
    click.option("--skip", multiple=True, metavar="GLOB", help="Leave out checks whose id matches."),
)
_outputs = _options(
    click.option("--json", "json_file", metavar="FILE", help="Write the report as JSON (- for standard output)."),
    click.option("--html", "html_file", type=_path, metavar="FILE", help="Write the report as one HTML page."),
    click.option("--save", type=_path, metavar="DIR", help="Keep the evidence: DIR/NODE.json."),
    click.option("-v", "--verbose", is_flag=True, help="List passes and skips one by one."),
)
_cluster = click.option("--cluster", type=_path, metavar="FILE", help="What this site expects (cluster.toml).")
_log = click.option("--log", "logs", multiple=True, type=_path, metavar="FILE", help="NCCL log or nccl-tests output.")
_asking = _options(
    click.option("--deadline", type=click.FloatRange(1, 86400), default=60.0, show_default=True, metavar="S",
                 help="Seconds for everything."),
    click.option("--sudo", is_flag=True, help="Use `sudo -n` for probes that need root."),
)  # fmt: skip


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="preflight")
def main() -> None:
    """Find out before the job starts why a GPU cluster would run slow.

    \b
    First:   preflight demo                     a sick cluster, made by hand
    Then:    preflight check                    this machine
             preflight check --cluster cluster.toml --html report.html
    """


@main.command()
@_cluster
@_selection
@_log
@_asking
@_outputs
def check(
    cluster: Path | None, only: tuple[str, ...], skip: tuple[str, ...], logs: tuple[Path, ...],
    deadline: float, sudo: bool, **outputs: Any,
) -> None:  # fmt: skip
    """Ask this node, judge it, report.

    \b
    Example: preflight check --cluster cluster.toml --json report.json
    Exit:    0 passed, 1 failed, 3 could not tell, 2 usage or configuration
    """
    session = _Session("check", cluster, only, skip, outputs)
    run = _read_logs(logs)
    session.finish([_ask(session.registry, session.cluster, deadline, sudo)], run)


@main.command()
@click.option("-o", "--output", type=_path, metavar="FILE", help="Write to FILE instead of standard output.")
@_asking
def collect(output: Path | None, deadline: float, sudo: bool) -> None:
    """Ask this node and print its evidence, unjudged.

    \b
    Example: preflight collect -o node.json
             preflight judge node.json          later, anywhere
    """
    from preflight.checks import registry
    from preflight.cluster import Cluster
    from preflight.evidence import dump

    _writable(output)
    evidence = _ask(registry(), Cluster(), deadline, sudo)
    written = True
    if output:
        written = _write(output, dump(evidence))
    else:
        click.echo(dump(evidence), nl=False)
    if evidence.no_answer is not None or not written:
        sys.exit(3)


@main.command()
@click.argument("paths", nargs=-1, required=True, type=_path, metavar="FILE|DIR...")
@_cluster
@_selection
@_log
@_outputs
def judge(
    paths: tuple[Path, ...], cluster: Path | None, only: tuple[str, ...], skip: tuple[str, ...],
    logs: tuple[Path, ...], **outputs: Any,
) -> None:  # fmt: skip
    """Judge evidence that was saved before; no node is asked.

    \b
    Example: preflight judge evidence/ --cluster cluster.toml --html report.html
    Exit:    as check
    """
    session = _Session("judge", cluster, only, skip, outputs)
    evidences, run = _load(paths)
    session.finish(evidences, _read_logs(logs) or run)


@main.command()
@_outputs
def demo(**outputs: Any) -> None:
    """Judge a sick cluster that ships with preflight; no node is asked.

    The evidence is a recording made by hand: eight nodes in the documented formats of each tool.

    \b
    Example: preflight demo --html demo.html
    """
    from importlib.resources import as_file, files

    with as_file(files("preflight.demo")) as folder:
        session = _Session("demo", folder / "cluster.toml", (), (), outputs)
        evidences, _ = _load(sorted(folder.glob("gpu*.json")))
        session.finish(evidences, _read_logs((folder / "job.log",)))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def probes(as_json: bool) -> None:
    """List everything that preflight may ever ask of a node, and why.

    \b
    Example: preflight probes
    """
    from preflight.checks import registry
    from preflight.probes import plan, sudoers

    asked = registry().probes
    if as_json:
        click.echo(json.dumps(plan(asked, node="", deadline_s=60), indent=1))
        return
    for probe in asked:
        limits = f"{probe.timeout_s:g} s" + (f", needs {probe.needs}" if probe.needs else "")
        click.echo(f"{probe.key}\n    {probe.why} ({limits})")
        for pattern in probe.each:
            click.echo(f"    for each {pattern}")
    if lines := sudoers(asked):
        click.echo("\nsudoers lines for --sudo:")
        for line in lines:
            click.echo(f"    {line}")


@main.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def list_checks(as_json: bool) -> None:
    """List the checks.

    \b
    Example: preflight list --json
    """
    from preflight.checks import registry

    loaded = registry()
    _report_broken(loaded)
    if as_json:
        click.echo(json.dumps([_about(check) for check in loaded.checks], indent=1))
        return
    width = max(len(check.id) for check in loaded.checks)
    for check in loaded.checks:
        click.echo(f"{check.id:<{width}}  {check.scope!s:<5}  {check.title}")


@main.command()
@click.argument("check_id", metavar="CHECK")
def explain(check_id: str) -> None:
    """Print the page of a check: what it compares, why it hurts, what to do.

    \b
    Example: preflight explain rdma.port-rate
    """
    from preflight.checks import registry

    known = {check.id: check for check in registry().checks}
    if check_id not in known:
        raise UsageError(f"there is no check {check_id!r}{_nearest(check_id, known)}")
    check = known[check_id]
    gating = "gates jobs" if check.gating else "reports only"
    click.echo(f"{check.id}: {check.title}  ({check.scope} check, {gating})\n")
    click.echo(check.doc + "\n")
    click.echo(f"What to do:  {check.fix}")
    click.echo(f"Source:      {check.source}")
    click.echo(f"Answers:     {', '.join(check.answers) or 'no item of the checklists'}")


@main.command()
@click.argument("paths", nargs=-1, type=_path, metavar="[FILE|DIR]...")
@_cluster
@_log
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def checklist(paths: tuple[Path, ...], cluster: Path | None, logs: tuple[Path, ...], as_json: bool) -> None:
    """Print the documents' checklists, answered by saved evidence.

    Without evidence every item is unknown, with what would answer it.

    \b
    Example: preflight checklist evidence/ --cluster cluster.toml
    """
    from preflight.checklist import answer

    session = _Session("checklist", cluster, (), (), {})
    if paths or logs:
        evidences, run = _load(paths) if paths else ([], None)
        items = session.judge(evidences, _read_logs(logs) or run)["checklists"]
    else:
        items = answer(session.checks, {})
    if as_json:
        click.echo(json.dumps(items, indent=1))
        return
    document = ""
    for item in items:
        if item["document"] != document:
            document = item["document"]
            click.echo(f"\n{document}")
        click.echo(f"  {item['status']:<8} {item['id']:<10} {item['title']}")
        if item["missing"]:
            click.echo(f"  {'':<19} {item['missing']}" + (f": {item['supply']}" if item["supply"] else ""))


# --- what the commands share -----------------------------------------------------------------------


class _Session:
    """One run: everything that can be wrong with it is found before any node is touched."""

    def __init__(
        self, command: str, cluster: Path | None, only: Sequence[str], skip: Sequence[str], outputs: dict[str, Any]
    ) -> None:
        from preflight.checks import DuplicateCheck, registry
        from preflight.cluster import Cluster, ClusterFileError, load

        self.command = command
        self.started = time.monotonic()
        self.outputs = outputs
        for target in (outputs.get("html_file"), outputs.get("json_file")):
            _writable(Path(target) if target and target != "-" else None)
        if save := outputs.get("save"):
            _directory(save)
        try:
            self.registry = registry()
            self.cluster: Cluster = load(cluster) if cluster else Cluster()
        except (ClusterFileError, DuplicateCheck) as error:
            raise UsageError(str(error)) from None
        _report_broken(self.registry)
        self.checks, self.off = _select(self.registry.checks, only, skip)

    def judge(self, evidences: Sequence[Evidence], run: Evidence | None) -> dict[str, Any]:
        """Judge and add the run block."""
        from preflight.judge import judge

        with _progress(f"judging {len(evidences)} nodes"):
            report = judge(evidences, self.checks, self.cluster, run=run, off=self.off)
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        report["run"] = {
            "at": now,
            "version": VERSION,
            "command": self.command,
            "seconds": round(time.monotonic() - self.started, 3),
            "cluster_file": self.cluster.path or None,
        }
        return report

    def finish(self, evidences: Sequence[Evidence], run: Evidence | None) -> NoReturn:
        """Judge, write what was asked for, exit with the verdict."""
        report = self.judge(evidences, run)
        json_file, html_file = self.outputs.get("json_file"), self.outputs.get("html_file")
        document = json.dumps(report, indent=1) + "\n" if json_file else ""
        if json_file == "-":
            click.echo(document, nl=False)
        else:
            self._print(report)
        written = True
        if directory := self.outputs.get("save"):
            written &= _save(directory, [*evidences, *([run] if run else [])])
        if html_file:
            from preflight.reports.html_page import render as render_html

            written &= _write(html_file, render_html(report))
        if json_file and json_file != "-":
            written &= _write(Path(json_file), document)
        sys.exit(report["exit_status"] if written else report["exit_status"] or 3)

    def _print(self, report: dict[str, Any]) -> None:
        from shutil import get_terminal_size

        from preflight.reports.text_report import render

        terminal = sys.stdout.isatty()
        width = min(get_terminal_size((100, 24)).columns, 120) if terminal else 100
        click.echo(render(report, colour=terminal, width=width, verbose=self.outputs.get("verbose", False)), nl=False)
        if html_file := self.outputs.get("html_file"):
            click.echo(f"page: {html_file}")


def _select(checks: Sequence[Check], only: Sequence[str], skip: Sequence[str]) -> tuple[list[Check], list[str]]:
    """Return the checks to run and the ids of those that were switched off."""
    for pattern in (*only, *skip):
        if not any(fnmatchcase(check.id, pattern) for check in checks):
            raise UsageError(f"no check matches {pattern!r}{_nearest(pattern, [c.id for c in checks])}")
    kept = [
        check
        for check in checks
        if (not only or any(fnmatchcase(check.id, pattern) for pattern in only))
        and not any(fnmatchcase(check.id, pattern) for pattern in skip)
    ]
    if not kept:
        raise UsageError("--only and --skip together leave no check")
    return kept, [check.id for check in checks if check not in kept]


def _ask(registry: Registry, cluster: Cluster, deadline: float, sudo: bool) -> Evidence:
    """Collect from this node; an interrupt gives a node without an answer."""
    from preflight.evidence import from_document, no_answer
    from preflight.probes import plan
    from preflight.transport.local import collect

    node = os.uname().nodename
    name = cluster.class_of(node)
    allowed = name is None or cluster.classes[name].sudo is not False
    asked = plan(registry.probes, node=node, deadline_s=deadline, sudo=sudo and allowed)
    try:
        with _interruptible(), _progress(f"asking {node}"):
            return from_document(collect(asked), node)
    except KeyboardInterrupt:
        now = datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
        return no_answer(node, "collect", "interrupted", now)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Treat SIGTERM like Ctrl-C, so that a scheduler's time limit still gets a report."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _progress(what: str) -> Iterator[None]:
    """Show on a terminal what takes longer than a second."""
    if not sys.stderr.isatty():
        yield
        return
    from threading import Timer

    from rich.console import Console

    status = Console(stderr=True).status(what)
    timer = Timer(1.0, status.start)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        status.stop()


def _load(paths: Sequence[Path]) -> tuple[list[Evidence], Evidence | None]:
    from preflight.archive import ArchiveError, load

    try:
        return load(paths)
    except ArchiveError as error:
        raise UsageError(str(error)) from None


def _read_logs(paths: Sequence[Path]) -> Evidence | None:
    from preflight.archive import ArchiveError, logs

    try:
        return logs(paths, LOG_CAP)
    except ArchiveError as error:
        raise UsageError(str(error)) from None


def _writable(path: Path | None) -> None:
    if path is None:
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


def _write(path: Path, text: str) -> bool:
    """Write a file; a disk that is full must not lose the verdict that was printed."""
    from preflight.archive import write

    try:
        write(path, text)
    except OSError as error:
        click.echo(f"error: {path} could not be written: {error.strerror}", err=True)
        return False
    return True


def _save(directory: Path, evidences: Sequence[Evidence]) -> bool:
    from preflight.archive import save

    try:
        save(directory, evidences)
    except OSError as error:
        click.echo(f"error: {directory} could not be written: {error.strerror}", err=True)
        return False
    return True


def _report_broken(registry: Registry) -> None:
    for broken in registry.broken:
        click.echo(f"warning: a plug-in could not be loaded: {broken}", err=True)


def _about(check: Check) -> dict[str, Any]:
    return {
        "id": check.id,
        "title": check.title,
        "scope": str(check.scope),
        "gating": check.gating,
        "source": check.source,
        "fix": check.fix,
        "answers": list(check.answers),
    }


def _nearest(word: str, known: Any) -> str:
    from difflib import get_close_matches

    near = get_close_matches(word, list(known), n=1, cutoff=0.5)
    return f"; did you mean {near[0]!r}?" if near else "; `preflight list` names them"
