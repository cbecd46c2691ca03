"""Options that several commands share, and how help shows them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


class Compact(click.Command):
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


def combine_options(*options: Callable[[F], F]) -> Callable[[F], F]:
    """Make one decorator of several options, in the order in which help shows them."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
        return function

    return decorate


#: A path on this machine.
file_path = click.Path(path_type=Path)
selection = combine_options(
    click.option("--only", multiple=True, metavar="GLOB"),
    click.option("--skip", multiple=True, metavar="GLOB", help="Checks to run; to leave out."),
)
outputs = combine_options(
    click.option("--json", "json_file", metavar="F"),
    click.option("--html", "html_file", type=file_path, metavar="F", help="Write the report (JSON to -: printed)."),
    click.option("--junit", "junit_file", type=file_path, metavar="F"),
    click.option("--textfile", type=file_path, metavar="F.prom", help="For CI (JUnit XML); for node_exporter."),
    click.option("--save", type=file_path, metavar="DIR"),
    click.option(
        "--history", "history_file", type=file_path, metavar="FILE", help="Keep DIR/NODE.json; tell what is new."
    ),
    click.option("-v", "--verbose", is_flag=True, help="List passes and skips one by one."),
)
cluster = click.option("--cluster", type=file_path, metavar="FILE", help="What this site expects (cluster.toml).")
log = click.option(
    "--log", "logs", multiple=True, type=file_path, metavar="FILE", help="NCCL log or nccl-tests output."
)
collecting = combine_options(
    click.option("--deadline", "deadline_s", type=click.FloatRange(1, 86400), metavar="S"),
    click.option("--window", "window_s", type=click.FloatRange(1, 3600), metavar="S",
                 help="Limit (60, fleet 600); counters twice."),
    click.option("--sudo", is_flag=True),
    click.option("--fabric", is_flag=True, help="Use `sudo -n`; sweep InfiniBand, too."),
)  # fmt: skip
naming = combine_options(
    click.option("--also", multiple=True, metavar="WORD"),
    click.option("--hosts", metavar="NODESET", help="A name to replace wherever it stands; hosts."),
)
targets = combine_options(
    click.option("--hosts", metavar="NODESET"),
    click.option("--hostfile", type=file_path, metavar="F", help="Ask these over SSH, not this node."),
    click.option("--job", metavar="ID"),
    click.option("--rerun", type=file_path, metavar="REPORT", help="A Slurm job's; those that failed."),
    click.option("--pods", "selector", metavar="LABELS"),
    click.option("-n", "namespace", metavar="NS"),
    click.option("-c", "container", metavar="NAME", help="Pods by labels; their namespace; container."),
    click.option("--via", type=click.Choice(["auto", "ssh", "openssh", "srun", "kubectl"]), default="auto",
                 metavar="WAY"),
    click.option("--ssh-config", type=file_path, metavar="F", help="auto (ssh, openssh as needed), srun, kubectl."),
    click.option("--fanout", type=click.IntRange(1, 1024), default=64, metavar="N"),
    click.option("--connect-timeout", "connect_timeout_s", type=click.FloatRange(0.1, 600), default=15.0,
                 metavar="S", help="Nodes at once (64); wait (15)."),
)  # fmt: skip
pairing = combine_options(
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
    click.option("--via", type=click.Choice(["auto", "ssh", "openssh"]), default="auto", metavar="WAY"),
    click.option("--ssh-config", type=file_path, metavar="F", help="auto, ssh (ours), openssh (the system's)."),
)  # fmt: skip
