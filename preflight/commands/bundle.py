"""``preflight bundle``: an archive of evidence and report, redacted by default."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preflight._startup.lightclass import replace
from preflight.archive.directory import STDOUT
from preflight.collect.request import Collected
from preflight.commands import options
from preflight.run.judge_run import judge_run
from preflight.run.request import new_request, require_writable
from preflight.run.saved_evidence import find_cluster, load_evidence
from preflight.terminal import UsageError, progress

if TYPE_CHECKING:
    from preflight.evidence.document import Evidence


@click.command(cls=options.ShortHelp)
@click.argument("paths", nargs=-1, required=True, type=options.file_path, metavar="DIR|REPORT...")
@click.option("--nodes", metavar="NODESET", help="Only these nodes.")
@click.option("-o", "--output", required=True, type=options.file_path, metavar="FILE.tar.gz", help="New archive.")
@options.cluster
@options.naming
@click.option(
    "--map", "map_file", type=options.file_path, metavar="FILE", help="Write the table of aliases; keep it secret."
)
@click.option("--no-redact", is_flag=True, help="Leave names and addresses as they are.")
def bundle(
    paths: tuple[Path, ...], nodes: str | None, output: Path, cluster: Path | None, also: tuple[str, ...],
    hosts: str | None, map_file: Path | None, no_redact: bool,
) -> None:  # fmt: skip
    """Pack evidence and report of chosen nodes, redacted.

    `preflight judge` reads the archive as it is.

    \b
    Example: preflight bundle evidence/ --nodes 'gpu[003,017]' -o case.tar.gz
    Exit:    0 written, 2 usage
    \f

    Without a REPORT (written by --json), the evidence is judged now. The archive also contains the cluster file, and
    the logs and other texts in DIR. Everything left out is listed.
    """
    from preflight.commands import bundle_contents as bundles
    from preflight.commands.bundle_files import Added
    from preflight.commands.redact import list_left, made_redactor, print_summary, printable
    from preflight.redact.files import RedactionError, write_map

    printable(map_file)
    for target in (output, map_file):
        require_writable(target)
        if target and target != STDOUT and target.exists():
            raise UsageError(f"{target} already exists: name a new file")
    if no_redact and (also or hosts or map_file):
        raise UsageError("--also, --hosts and --map apply to aliases and cannot be used with --no-redact")
    reports, saved = _parted(paths)
    file = cluster or find_cluster(saved)
    request = new_request("bundle", None if reports else file)
    if len(reports) > 1:
        raise UsageError(f"{reports[1][0]}: a bundle holds one report, and {reports[0][0]} was given first")
    if reports and cluster:
        raise UsageError("--cluster cannot be used with a report, which is already judged")
    collected = load_evidence(saved) if saved else Collected([])
    chosen = _chosen(nodes, collected.evidences, reports[0][1] if reports else None)
    if nodes:
        chosen_evidences = [evidence for evidence in collected.evidences if evidence.node in chosen]
        collected = replace(collected, evidences=chosen_evidences)
    if reports:
        report = bundles.narrowed(reports[0][1], chosen) if nodes else dict(reports[0][1])
    else:
        report = judge_run(request, collected)
        # The report has the evidence's date, so the same evidence gives the same archive.
        report["run"] |= {
            "at": max((one.collected_at for one in collected.evidences), default="") or "?",
            "seconds": 0.0,
        }
    redactor = None if no_redact else made_redactor(also, hosts)
    with progress(f"packing {len(chosen)} nodes"):
        try:
            added = Added(file, saved, output, redactor is not None)
            files = bundles.contents(collected.evidences, collected.run, report, redactor, added)
            bundles.write(output, files, bundles.about(report, redactor is not None))
            if map_file and redactor:
                write_map(redactor, map_file)
        except RedactionError as error:
            raise UsageError(str(error)) from None
        except OSError as error:
            raise UsageError(f"{output} cannot be written: {error.strerror}") from None
    what = f"{output}: {'1 node' if len(chosen) == 1 else f'{len(chosen)} nodes'}"
    if output != STDOUT:
        what += f", {output.stat().st_size} bytes"
    if redactor:
        print_summary(redactor, what, added.left, output == STDOUT)
    else:
        list_left(added.left)
        click.echo(f"{what}; not redacted: it contains names, addresses and serial numbers", err=output == STDOUT)


def _parted(paths: Sequence[Path]) -> tuple[list[tuple[Path, Mapping[str, Any]]], list[Path]]:
    """Split paths into reports, with their content, and others; raises UsageError."""
    from preflight.reports import stored

    reports: list[tuple[Path, Mapping[str, Any]]] = []
    others = []
    for path in paths:
        try:
            found = stored.read(path) if path.is_file() else None
        except stored.ReportError as error:
            raise UsageError(str(error)) from None
        if found is None:
            others.append(path)
        else:
            reports.append((path, found))
    return reports, others


def _chosen(nodes: str | None, evidences: Sequence[Evidence], report: Mapping[str, Any] | None) -> frozenset[str]:
    """Return the selected nodes, by default all; raises UsageError if one is missing."""
    from preflight.nodeset import fold, unfold

    known = {evidence.node for evidence in evidences} or {str(node["name"]) for node in (report or {}).get("nodes", [])}
    if nodes is None:
        return frozenset(known)
    try:
        wanted = frozenset(unfold(nodes, groups=True))
    except ValueError as error:
        raise UsageError(f"--nodes: {error}") from None
    if missing := wanted - known:
        raise UsageError(f"--nodes: no evidence of {fold(missing)[:300]}")
    return wanted
