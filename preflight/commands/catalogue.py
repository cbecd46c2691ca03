"""Commands that list probes, checks and checklists, without contacting a node."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from textwrap import indent, wrap
from typing import TYPE_CHECKING, Any

import click

from preflight._startup.lightclass import replace
from preflight.collect.request import Collected
from preflight.commands import options
from preflight.run.cluster_discovery import ClusterChoice, choose_cluster
from preflight.run.judge_run import judge_run
from preflight.run.request import new_request, report_broken
from preflight.run.saved_evidence import load_evidence, read_logs
from preflight.terminal import UsageError, nearest

if TYPE_CHECKING:
    from preflight.model import Check


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
@click.option("--switches", is_flag=True, help="List what is read on an Ethernet switch.")
def probes(as_json: bool, switches: bool) -> None:
    """List everything that may be read or run on a node.

    \b
    Example: preflight probes
    """
    if switches:
        _print_switch_probes(as_json)
        return
    from preflight.checks import registry
    from preflight.collect.sudoers import sudoers
    from preflight.probes.probe import plan
    from preflight.probes.sweep import sweep

    registered = registry().probes
    if as_json:
        click.echo(json.dumps(plan(registered, node="", deadline_s=60), indent=1))
        return
    for probe in (*registered, *sweep(window=True)):
        if probe == sweep()[0]:
            click.echo("\nonly with --fabric, and only on the node that sweeps:")
        limits = f"{probe.timeout_s:g} s" + (f", needs {probe.needs}" if probe.needs else "")
        limits += ", twice with --window" if probe.twice else ""
        click.echo(f"{probe.key}\n    {probe.why} ({limits})")
        if probe.where:
            click.echo(f"    only if {' or '.join(probe.where)} exists")
        for pattern in probe.each:
            click.echo(f"    for each {pattern}")
        for other in probe.otherwise:
            click.echo(f"    where that fails: {other.key}, {other.why}")
        if probe.listed:
            click.echo(f"    for each item that `{probe.listed[0]}` lists")
    from preflight.pair.tests import KINDS

    tools = ", ".join(kind.tool for kind in KINDS.values())
    click.echo("\nonly with `preflight pair`, and only on its two nodes, which send traffic to each other:")
    click.echo(f"file:/proc/net/{{tcp,tcp6}}, ping -M do, {tools}")
    if lines := sudoers((*registered, *sweep(window=True))):
        click.echo("\nsudoers lines for --sudo:")
        for line in lines:
            click.echo(f"    {line}")


def _print_switch_probes(as_json: bool) -> None:
    """Print what ``check --switches`` reads on a switch."""
    from preflight.collect.options import CollectOptions
    from preflight.collect.switches import switch_plan, switch_probes
    from preflight.collector.redis_databases import COMMANDS
    from preflight.parsers.switch.session import COMMANDED

    if as_json:
        click.echo(json.dumps(switch_plan("", 60, CollectOptions()), indent=1))
        return
    for probe in switch_probes():
        click.echo(f"{probe.key}\n    {probe.why}" + (" (twice with --window)" if probe.twice else ""))
        if probe.names:
            click.echo(f"    of each object that {probe.names} lists")
        if probe.kind == "redis":
            shown = ", ".join(probe.fields) or "all"
            click.echo("\n".join(wrap(f"fields: {shown}", 114, initial_indent="    ", subsequent_indent="      ")))
    for platform in COMMANDED.values():
        click.echo(f"\n{platform.title}, over SSH{' or eAPI' if platform.name == 'eos' else ''}:")
        for command, about in platform.commands.items():
            click.echo(f"{platform.sent(command)}\n    {about.purpose}" + " (twice with --window)" * about.twice)
    click.echo(f"\nno command is run on SONiC; commands sent to Redis: {', '.join(sorted(COMMANDS))}")


@click.command("list")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def list_checks(as_json: bool) -> None:
    """List the checks.

    \b
    Example: preflight list --json
    """
    from preflight.checks import registry

    loaded = registry()
    report_broken(loaded)
    if as_json:
        click.echo(json.dumps([_about(check) for check in loaded.checks], indent=1))
        return
    width = max(len(check.id) for check in loaded.checks)
    for check in loaded.checks:
        click.echo(f"{check.id:<{width}}  {check.scope!s:<5}  {check.title}")


@click.command()
@click.argument("check_id", metavar="CHECK", shell_complete=options.complete_ids)
def explain(check_id: str) -> None:
    """Print the page of a check, or the checks of an item.

    \b
    Example: preflight explain rdma.port-rate
             preflight explain FP-BW-1
    """
    from preflight.checklist.answers import answer
    from preflight.checks import registry

    known = {check.id: check for check in registry().checks}
    if check_id not in known:
        items = {item["id"]: item for item in answer(registry().checks, {})}
        if check_id not in items:
            raise UsageError(f"there is no check or checklist item {check_id!r}{nearest(check_id, [*known, *items])}")
        item = items[check_id]
        click.echo(f"{item['id']}: {item['title']}  (item of {item['document']})\n")
        for question in item["questions"]:
            checks = ", ".join(question["checks"]) or question.get("elsewhere") or "no check of this version"
            click.echo(f"  {question['text']}: {checks}")
        click.echo("\n`preflight checklist EVIDENCE` answers it; `preflight explain CHECK` describes a check.")
        return
    check = known[check_id]
    gating = "gates jobs" if check.gating else "reports only"
    click.echo(f"{check.id}: {check.title}  ({check.scope} check, {gating})\n")
    for heading, text in check.page.items():
        click.echo(f"{heading}\n{indent(text, '  ')}\n")
    for label, text in check_facts(check, known.values()):
        line = f"{label + ':':<12} {text}"
        lines = [line] if text == check.fix else wrap(line, 118, subsequent_indent=" " * 13, break_on_hyphens=False)
        click.echo("\n".join(lines))


def check_facts(check: Check, checks: Collection[Check]) -> Iterator[tuple[str, str]]:
    """Yield what follows the text of a check's page, as (label, text)."""
    from preflight.incidents.order import impact_of, owner_of
    from preflight.incidents.relation_words import causes_of, explained_by_check
    from preflight.judge.actions import OF_FAILURE, SETTINGS
    from preflight.judge.record_usage import records_of
    from preflight.parsers.provenance import unverified

    yield "What to do", check.fix
    action = check.action or OF_FAILURE
    of_warning = "" if action in SETTINGS else ", monitor for a warning"
    yield "Action", f"{action} for a failure{of_warning}, unless the finding has another"
    yield "Impact", f"{impact_of(check, 'fail')}; owner: {owner_of(check, check.action or OF_FAILURE)}"
    if effects := ", ".join(explained_by_check(check)):
        yield "Explains", effects
    if causes := ", ".join(causes_of(check, checks)):
        yield "Explained by", causes
    yield "Answers", ", ".join(check.answers) or "no item of the checklists"
    for name in unverified(records_of(check)):
        yield "Unverified format", f"{name} (not tested with output of real hardware)"


@click.command()
@click.argument("paths", nargs=-1, type=options.file_path, metavar="[FILE|DIR]...")
@options.cluster
@options.log
@click.option("--json", "as_json", is_flag=True, help="Print a JSON list.")
def checklist(paths: tuple[Path, ...], cluster: Path | None, logs: tuple[Path, ...], as_json: bool) -> None:
    """Print the operators' checklists, answered from evidence.

    \b
    Example: preflight checklist evidence/ --cluster cluster.toml
    Exit:    0 printed, even if items fail; 2 usage
    \f

    Each item consists of questions, and passes only if all are answered. An open question is one that no check of this
    version answers. Without evidence, every item is unknown and lists the checks that would answer it. The exit status
    gives no verdict: use preflight judge for that.
    """
    from preflight.checklist.answers import answer
    from preflight.reports.cluster_scope import judged_by, remarks
    from preflight.reports.sanitize import one_line

    chosen = choose_cluster(cluster, paths) if paths else ClusterChoice(cluster)
    request = new_request("checklist", chosen.path, cluster_origin=chosen.origin)
    if paths or logs:
        saved = load_evidence(paths) if paths else Collected([])
        report = judge_run(request, replace(saved, run=read_logs(logs) or saved.run))
        items = report["checklists"]
        if paths and not (as_json and cluster):  # --json prints only the items; the user named the file
            click.echo(judged_by(report["run"]), err=as_json)
        for remark in remarks(report):
            click.echo(remark.line, err=as_json)
        silent = [node for node in report["nodes"] if "no_answer" in node]
        for node in silent[:10]:
            reason = one_line(f"note: {node['name']} gave no answer: {node['no_answer']['reason']}")
            click.echo(reason, err=True)
    else:
        items = answer(request.checks, {})
    if as_json:
        click.echo(json.dumps(items, indent=1))
        return
    document = ""
    for item in items:
        if item["document"] != document:
            document = item["document"]
            click.echo(f"\n{document}")
        click.echo(f"  {item['status']:<8} {item['id']:<10} {item['title']}")
        for question in item["questions"]:
            click.echo(f"  {'':<19} {_answered(question)}")
        if "within" in item:
            click.echo(f"  {'':<19} within: {item['within']}")
        if item["supply"]:
            click.echo(f"  {'':<19} to answer more: {item['supply']}")


def _answered(question: Mapping[str, Any]) -> str:
    """Format a question as one line: its answer, its checks and the missing input."""
    status = question["status"] if question["checks"] or question["status"] != "unknown" else "open"
    by = f" ({', '.join(question['checks'])})" if question["checks"] else ""
    why = question["missing"] or question.get("elsewhere")
    missing = f": {why}" if why else ""
    return f"{status:<8} {question['text']}{by}{missing}"


def _about(check: Check) -> dict[str, Any]:
    from preflight.incidents.order import impact_of, owner_of
    from preflight.judge.actions import OF_FAILURE

    return {
        "id": check.id,
        "title": check.title,
        "fault": check.fault or None,
        "scope": str(check.scope),
        "gating": check.gating,
        "source": check.source,
        "fix": check.fix,
        "action": check.action or OF_FAILURE,
        "impact": impact_of(check, "fail"),
        "owner": owner_of(check, check.action or OF_FAILURE),
        "answers": list(check.answers),
    }
