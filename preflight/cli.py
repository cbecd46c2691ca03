"""The command line: thin commands over the stages; heavy imports inside the command that needs them."""

from __future__ import annotations

import sys

from preflight import ahead

if ahead.asks_this_node(sys.argv[1:]):  # before all that is imported below
    ahead.start()

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from preflight.session import (
    Session,
    UsageError,
    load_evidence,
    nearest,
    progress,
    read_logs,
    report_broken,
    screen,
    writable,
    write_file,
)
from preflight.version import VERSION

if TYPE_CHECKING:
    from preflight.model import Check

F = TypeVar("F", bound=Callable[..., Any])


class _Compact(click.Command):
    """A command whose help puts options that belong together on one line: all but the last have no help."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options."""
        rows: list[tuple[str, str]] = []
        names: list[str] = []
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                names.append(record[0])
                if parameter.help:
                    rows.append((", ".join(names), parameter.help))
                    names = []
        with formatter.section("Options"):
            formatter.write_dl(rows, col_max=42)


def _options(*options: Callable[[F], F]) -> Callable[[F], F]:
    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


_path = click.Path(path_type=Path)
_selection = _options(
    click.option("--only", multiple=True, metavar="GLOB"),
    click.option("--skip", multiple=True, metavar="GLOB", help="Checks to run; to leave out."),
)
_outputs = _options(
    click.option("--json", "json_file", metavar="F"),
    click.option("--html", "html_file", type=_path, metavar="F", help="Write the report (JSON to -: printed)."),
    click.option("--save", type=_path, metavar="DIR", help="Keep the evidence: DIR/NODE.json."),
    click.option("-v", "--verbose", is_flag=True, help="List passes and skips one by one."),
)
_cluster = click.option("--cluster", type=_path, metavar="FILE", help="What this site expects (cluster.toml).")
_log = click.option("--log", "logs", multiple=True, type=_path, metavar="FILE", help="NCCL log or nccl-tests output.")
_asking = _options(
    click.option("--deadline", "deadline_s", type=click.FloatRange(1, 86400), metavar="S"),
    click.option("--window", "window_s", type=click.FloatRange(1, 3600), metavar="S",
                 help="Limit (60, fleet 600); counters twice."),
    click.option("--sudo", is_flag=True),
    click.option("--fabric", is_flag=True, help="Use `sudo -n`; sweep InfiniBand, too."),
)  # fmt: skip
_targets = _options(
    click.option("--hosts", metavar="NODESET"),
    click.option("--hostfile", type=_path, metavar="F", help="Ask these over SSH, not this node."),
    click.option("--job", metavar="ID"),
    click.option("--rerun", type=_path, metavar="REPORT", help="A Slurm job's; those that failed."),
    click.option("--via", type=click.Choice(["ssh", "openssh"]), default="ssh"),
    click.option("--ssh-config", type=_path, metavar="F", help="Our SSH, or the system's `ssh`."),
    click.option("--fanout", type=click.IntRange(1, 1024), default=64, metavar="N"),
    click.option("--connect-timeout", "connect_timeout_s", type=click.FloatRange(0.1, 600), default=15.0,
                 metavar="S", help="Nodes at once (64); wait (15)."),
)  # fmt: skip
_pairing = _options(
    click.option("--test", "tests", multiple=True, metavar="NAME",
                 type=click.Choice(["path-mtu", "pingpong", "write-bw", "read-bw", "write-lat"]),
                 help="path-mtu, pingpong, write-bw, read-bw, write-lat."),
    click.option("--device", metavar="DEV[:PORT]"),
    click.option("--gid-index", type=click.IntRange(0, 65535), metavar="N", help="Usual: a compute port, RoCE v2."),
    click.option("--mtu", type=click.Choice(["256", "512", "1024", "2048", "4096"]), metavar="BYTES"),
    click.option("--size", type=click.IntRange(1, 1 << 30), metavar="BYTES", help="RDMA MTU; size of a message."),
    click.option("--port", type=click.IntRange(1024, 65535), metavar="N"),
    click.option("--at-least", "at_least_gbps", type=click.FloatRange(0.001, 10000), metavar="GBPS",
                 help="TCP port on HOST_A; bandwidth to expect."),
    click.option("--deadline", "deadline_s", type=click.FloatRange(1, 3600), default=30.0, metavar="S",
                 help="Limit of each test (30)."),
    click.option("--via", type=click.Choice(["ssh", "openssh"]), default="ssh"),
    click.option("--ssh-config", type=_path, metavar="F", help="Our SSH, or the system's `ssh`."),
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


@main.command(cls=_Compact)
@_targets
@_cluster
@_selection
@_log
@_asking
@_outputs
@click.option("--exclude-file", type=_path, metavar="F", help="Write bad nodes for `sbatch --exclude`.")
def check(
    hosts: str | None, hostfile: Path | None, job: str | None, rerun: Path | None,
    cluster: Path | None, only: tuple[str, ...], skip: tuple[str, ...], logs: tuple[Path, ...],
    **options: Any,
) -> None:  # fmt: skip
    """Ask this node, or many over SSH; judge and report.

    \b
    Example: preflight check --hosts 'gpu[001-064]' --cluster cluster.toml
    Exit:    0 passed, 1 failed, 3 could not tell, 2 usage or configuration
    """
    from preflight import asking

    manner = asking.Manner(**{name: options.pop(name) for name in asking.Manner._fields})
    session = Session("check", cluster, only, skip, options)
    run = read_logs(logs)
    if not any((hosts, hostfile, job, rerun)):
        expected = session.cluster if cluster else None
        session.finish([asking.this_node(session.registry.probes, expected, manner, session.prepare)], run)
    names = asking.targets(hosts, hostfile, job, rerun)
    session.finish(asking.fleet(names, session, manner), run)


@main.command(cls=_Compact)
@click.argument("server", metavar="HOST_A")
@click.argument("client", metavar="HOST_B")
@_pairing
@_cluster
@_outputs
def pair(
    server: str, client: str, tests: tuple[str, ...], deadline_s: float, via: str, ssh_config: Path | None,
    cluster: Path | None, device: str | None, gid_index: int | None, mtu: str | None, size: int | None,
    port: int | None, at_least_gbps: float | None, **outputs: Any,
) -> None:  # fmt: skip
    """Test the path between two nodes: path MTU and RDMA writes, or --test.

    \b
    Example: preflight pair gpu001 gpu002 --device mlx5_0
    Exit:    as check
    """
    from preflight.asking import Manner
    from preflight.pair import command

    session = Session("pair", cluster, (), (), outputs)
    wanted = command.Wanted(device, gid_index, int(mtu) if mtu else None, size, port, at_least_gbps)
    manner = Manner(deadline_s, via=via, ssh_config=ssh_config)
    session.finish(command.ask(server, client, tests, wanted, session, manner), None)


@main.command(cls=_Compact)
@click.option("-o", "--output", type=_path, metavar="FILE", help="Write to FILE instead of standard output.")
@_asking
def collect(output: Path | None, deadline_s: float | None, sudo: bool, fabric: bool, window_s: float | None) -> None:
    """Ask this node and print its evidence, unjudged.

    \b
    Example: preflight collect -o node.json
             preflight judge node.json          later, anywhere
    """
    from preflight.asking import Manner, this_node
    from preflight.checks import registry

    writable(output)
    evidence = this_node(registry().probes, None, Manner(deadline_s, sudo, fabric=fabric, window_s=window_s))
    from preflight.evidence import dump

    if output:
        try:
            write_file(output, dump(evidence))
        except OSError as error:
            raise UsageError(f"{output} could not be written: {error.strerror}") from None
    else:
        click.echo(dump(evidence), nl=False)
    if evidence.no_answer is not None:
        sys.exit(3)


@main.command(cls=_Compact)
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
    session = Session("judge", cluster, only, skip, outputs)
    evidences, run = load_evidence(paths)
    session.finish(evidences, read_logs(logs) or run)


@main.command()
@click.argument("names", nargs=-1, required=True, metavar="FILE|-...")
@click.option("--json", "as_json", is_flag=True, help="Print what was read as JSON (preflight.read/1).")
def read(names: tuple[str, ...], as_json: bool) -> None:
    """Recognise and judge whatever was pasted: tool output, logs, alone or mixed.

    \b
    Example: nvidia-smi topo -m | preflight read -
             preflight read slurm-4711.out ibstat.txt
    Exit:    0 read, 1 something failed, 3 nothing recognised, 2 a file cannot be read
    """
    from preflight import reading

    found = []
    try:
        for source in reading.open_sources(names):
            with progress(f"reading {source.name}"):
                found.append((source.name, reading.read(source)))
    except reading.SourceError as error:
        raise UsageError(str(error)) from None
    told = reading.document(found)
    if as_json:
        click.echo(json.dumps(told, indent=1))
    else:
        from preflight.reports.read_text import render

        terminal, width = screen()
        click.echo(render(told, ", ".join(reading.known()), colour=terminal, width=width), nl=False)
    sys.exit(reading.exit_status(found))


@main.command(cls=_Compact)
@_outputs
def demo(**outputs: Any) -> None:
    """Judge a sick cluster that ships with preflight; no node is asked.

    The evidence is a recording made by hand: eight nodes in the documented formats of each tool.

    \b
    Example: preflight demo --html demo.html
    """
    from importlib.resources import as_file, files

    with as_file(files("preflight.demo")) as folder:
        session = Session("demo", folder / "cluster.toml", (), (), outputs)
        evidences, _ = load_evidence(sorted(folder.glob("gpu*.json")))
        session.finish(evidences, read_logs((folder / "job.log",)))


@main.command()
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def probes(as_json: bool) -> None:
    """List everything that preflight may ever ask of a node, and why.

    \b
    Example: preflight probes
    """
    from preflight.checks import registry
    from preflight.probes import plan, sudoers, sweep

    asked = registry().probes
    if as_json:
        click.echo(json.dumps(plan(asked, node="", deadline_s=60), indent=1))
        return
    for probe in (*asked, *sweep()):
        if probe == sweep()[0]:
            click.echo("\nonly with --fabric, and only of the one node that sweeps:")
        limits = f"{probe.timeout_s:g} s" + (f", needs {probe.needs}" if probe.needs else "")
        limits += ", twice with --window" if probe.twice else ""
        click.echo(f"{probe.key}\n    {probe.why} ({limits})")
        for pattern in probe.each:
            click.echo(f"    for each {pattern}")
        for other in probe.otherwise:
            click.echo(f"    where that fails: {other.key}, {other.why}")
        if probe.listed:
            click.echo(f"    for each that `{probe.listed[0]}` lists")
    from preflight.pair.kinds import KINDS

    tools = ", ".join(kind.tool for kind in KINDS.values())
    click.echo("\nonly with `preflight pair`, and only of its two nodes, which send traffic to each other:")
    click.echo(f"file:/proc/net/{{tcp,tcp6}}, ping -M do, {tools}")
    if lines := sudoers((*asked, *sweep())):
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
    report_broken(loaded)
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
    from preflight.checks import pair, registry

    known = {check.id: check for check in (*registry().checks, *pair.CHECKS.values())}
    if check_id not in known:
        raise UsageError(f"there is no check {check_id!r}{nearest(check_id, known)}")
    check = known[check_id]
    gating = "gates jobs" if check.gating else "reports only"
    click.echo(f"{check.id}: {check.title}  ({check.scope} check, {gating})\n")
    click.echo(check.doc + "\n")
    click.echo(f"What to do:  {check.fix}")
    click.echo(f"Source:      {check.source}")
    click.echo(f"Answers:     {', '.join(check.answers) or 'no item of the checklists'}")
    from preflight.formats import unverified
    from preflight.reads import records_of

    for name in unverified(records_of(check)):
        click.echo(f"unverified format: {name} (no output of a real one is among preflight's tests)")


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

    session = Session("checklist", cluster, (), (), {})
    if paths or logs:
        evidences, run = load_evidence(paths) if paths else ([], None)
        items = session.judge(evidences, read_logs(logs) or run)["checklists"]
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
