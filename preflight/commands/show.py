"""``preflight show``: incidents of a report, and the nodes to exclude from jobs."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from preflight.commands import options
from preflight.terminal import UsageError, page, print_text, screen

#: Minimum length of a fingerprint's prefix, in characters, to select an incident.
_ENOUGH = 4


@click.command(cls=options.ShortHelp)
@click.argument("which", nargs=-1, metavar="[N|NODE|FINGERPRINT]...")
@click.option("--from", "source", type=options.file_path, default=Path("report.json"), metavar="FILE|DIR",
              help="Report, or evidence (report.json).")  # fmt: skip
@options.cluster
@click.option(
    "--by",
    type=click.Choice(["node", "check", "owner", "rack", "leaf"]),
    metavar="WORD",
    help="Group by node, check, owner, rack or leaf.",
)
@click.option("--bad", is_flag=True, help="Print the nodes to exclude from jobs.")
@click.option("--json", "as_json", is_flag=True, help="Same as --format json.")
@click.option("--format", "form", type=click.Choice(["text", "line", "json", "md"]), default="text",
              metavar="WORD", help="text, line (tabs), json or md.")  # fmt: skip
def show(
    which: tuple[str, ...], source: Path, cluster: Path | None, by: str | None, bad: bool, as_json: bool, form: str
) -> None:
    """Show incidents of a report or of saved evidence.

    Shows one incident in full, several as a table.

    \b
    Example: preflight show 1 --from report.json
             sbatch --exclude="$(preflight show --bad --from report.json)" job.sh
    Exit:    0 printed, 2 usage: no such report or incident
    """
    from preflight.reports import incident_text

    form = "json" if as_json else form
    if bad and (which or by or form != "text"):
        raise UsageError(
            "--bad prints all nodes to exclude from jobs and cannot be used with an incident, --by or --format"
        )
    report = _report(source, cluster)
    if bad:
        from preflight.reports.keep_off import bad_nodes, remarks

        print_text(f"{bad_nodes(report)}\n")
        for remark in remarks(report):
            print_text(f"{remark}\n", sys.stderr)
        return
    numbers = _chosen(report, which)
    if form == "json":
        print_text(json.dumps([report["incidents"][number] for number in numbers], indent=1) + "\n")
    elif form == "line":
        print_text(incident_text.lines(report, numbers))
    elif form == "md":
        print_text(incident_text.markdown(report, numbers))
    else:
        colour, width = screen()
        notes = "".join(incident_text.without_incident(report, which))
        if not which:
            notes = incident_text.no_answer(report, colour=colour, width=width)
        table = incident_text.render(report, numbers, colour=colour, width=width, by=by or "") if numbers else ""
        page(notes + table or "no incident\n")


def _report(source: Path, cluster: Path | None) -> Mapping[str, Any]:
    """Return a saved report, or the report of saved evidence; raises UsageError."""
    from preflight.reports import stored

    if not source.is_file() and not source.is_dir():
        raise UsageError(f"{source}: report not found: name one with --from FILE, or evidence with --from DIR")
    if source.is_file() and not cluster:
        try:
            report = stored.read(source)
        except stored.ReportError as error:
            raise UsageError(str(error)) from None
        if report is not None:
            if "incidents" not in report:
                raise UsageError(f"{source}: a report of an older version, without incidents: judge the evidence again")
            return report
    from preflight.run.cluster_discovery import choose_cluster
    from preflight.run.judge_run import judge_run
    from preflight.run.request import new_request
    from preflight.run.saved_evidence import load_evidence

    request = new_request("judge", choose_cluster(cluster, [source]).path)
    report = judge_run(request, load_evidence([source]))
    if source.is_file() and not report["coverage"]["nodes"]["answered"]:
        raise UsageError(f"{source}: neither a report nor evidence of a node, or incomplete")
    return report


def _chosen(report: Mapping[str, Any], which: tuple[str, ...]) -> list[int]:
    """Return the indices of the named incidents, by default all; raises UsageError."""
    from preflight.reports import incident_text

    incidents = report["incidents"]
    if not which:
        return list(range(len(incidents)))
    chosen: list[int] = []
    names = {node["name"] for node in report["nodes"]}
    for word in which:
        if word in names:
            places = incident_text.places(report, word)
        elif word.isascii() and word.isdigit() and len(word) < _ENOUGH:
            places = [int(word) - 1] if 0 < int(word) <= len(incidents) else []
        else:
            places = [place for place, incident in enumerate(incidents)
                      if len(word) >= _ENOUGH and incident["fingerprint"].startswith(word)]  # fmt: skip
        if not places and word not in names:
            raise UsageError(
                f"{word}: no incident has this number or fingerprint, and no node has this name "
                f"({len(incidents)} incidents)"
            )
        chosen += [place for place in places if place not in chosen]
    return sorted(chosen)
