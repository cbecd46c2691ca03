"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

F = TypeVar("F", bound=Callable[..., Any])


def complete_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Return the ids of checks with this prefix, for shell completion."""
    from preflight.checks import registry  # import-at-use: no command needs the checks for its options

    return [check.id for check in registry().checks if check.id.startswith(incomplete)]


class ShortHelp(click.Command):
    """A command with one line of help per option; number ranges are in the man page."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section of options for each heading."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            if isinstance(parameter, click.Option) and (record := parameter.get_help_record(ctx)):
                rows = sections.setdefault(getattr(parameter, "heading", "Options"), [])
                rows.append((record[0], record[1] if parameter.required else parameter.help or ""))
        for heading, rows in sections.items():
            with formatter.section(heading):
                formatter.write_dl(rows, col_max=24)


def combine_options(*options: Callable[[F], F], heading: str = "Options") -> Callable[[F], F]:
    """Combine options into one decorator, in the order of the help text."""

    def decorate(function: F) -> F:
        for option in reversed(options):
            function = option(function)
            function.__click_params__[-1].heading = heading  # type: ignore[attr-defined]
        return function

    return decorate


#: A local path.
file_path = click.Path(path_type=Path)
selection = combine_options(
    click.option("--only", multiple=True, metavar="GLOB", shell_complete=complete_ids, help="Run only these checks."),
    click.option("--skip", multiple=True, metavar="GLOB", shell_complete=complete_ids, help="Skip these checks."),
    heading="Judgement",
)
outputs = combine_options(
    click.option("--format", "layout", type=click.Choice(["text", "line", "json", "md"]), default="text",
                 metavar="WORD", help="text, line (tabs), json or md."),
    click.option("--json", "json_file", is_flag=False, flag_value="-", metavar="[F]",
                 help="Write the report as JSON; without F: print it."),
    click.option("--html", "html_file", type=file_path, metavar="F", help="Write the report as one HTML page."),
    click.option("--junit", "junit_file", type=file_path, metavar="F", help="Write the report as JUnit XML, for CI."),
    click.option("--textfile", type=file_path, metavar="F.prom", help="Write metrics for node_exporter."),
    click.option("--save", type=file_path, metavar="DIR", help="Keep the evidence: DIR/NODE.json for each node."),
    click.option("--history", "history_file", type=file_path, metavar="FILE",
                 help="Record the run in FILE, and report what is new."),
    click.option("--color", "colour", type=click.Choice(["auto", "always", "never"]), default="auto", metavar="WHEN",
                 help="auto, always or never."),
    click.option("-q", "--quiet", is_flag=True, help="Print the verdict only."),
    click.option("-v", "--verbose", is_flag=True, help="Print every finding and every check."),
    heading="Output",
)  # fmt: skip
cluster = combine_options(
    click.option("--cluster", type=file_path, metavar="FILE", help="Expected state of the nodes (cluster.toml)."),
    heading="Judgement",
)
log = combine_options(
    click.option("--log", "logs", multiple=True, type=file_path, metavar="FILE",
                 help="NCCL log, nccl-tests output, PyTorch trace."),
    heading="Judgement",
)  # fmt: skip
collecting = combine_options(
    click.option("--deadline", "deadline_s", type=click.FloatRange(1, 86400), metavar="S",
                 help="Time limit in seconds (60; many nodes: 600)."),
    click.option("--window", "window_s", type=click.FloatRange(1, 3600), metavar="S",
                 help="Read counters twice, S seconds apart."),
    click.option("--sudo", is_flag=True, help="Use `sudo -n` for probes that need root."),
    click.option("--fabric", is_flag=True, help="Also sweep the InfiniBand fabric."),
    heading="Collection",
)  # fmt: skip
naming = combine_options(
    click.option("--also", multiple=True, metavar="WORD", help="Also replace this word."),
    click.option("--hosts", metavar="NODESET", help="Also replace these host names."),
)
targets = combine_options(
    click.option("--hosts", metavar="NODESET", help="Use these nodes, over SSH, instead of this one."),
    click.option("--hostfile", type=file_path, metavar="F", help="Use the nodes listed in a file."),
    click.option("--job", metavar="ID", help="Use the nodes of a Slurm job."),
    click.option("--rerun", type=file_path, metavar="REPORT", help="Use REPORT's nodes that failed or did not answer."),
    click.option("--pods", "selector", metavar="LABELS", help="Use the pods with these labels."),
    click.option("-n", "namespace", metavar="NS", help="Namespace of the pods."),
    click.option("-c", "container", metavar="NAME", help="Container in the pods."),
    click.option(
        "--via",
        type=click.Choice(["auto", "ssh", "openssh", "srun", "kubectl"]),
        default="auto",
        metavar="TRANSPORT",
        help="auto (default), ssh, openssh, srun or kubectl.",
    ),
    click.option("--ssh-config", type=file_path, metavar="F", help="Use this file instead of ~/.ssh/config."),
    click.option(
        "--fanout", type=click.IntRange(1, 1024), default=64, metavar="N", help="Collect from N nodes at a time (64)."
    ),
    click.option(
        "--connect-timeout",
        "connect_timeout_s",
        type=click.FloatRange(0.1, 600),
        default=15.0,
        metavar="S",
        help="Wait S seconds for a connection (15).",
    ),
    heading="Nodes",
)
pairing = combine_options(
    click.option("--test", "tests", multiple=True, metavar="NAME",
                 type=click.Choice(["path-mtu", "pingpong", "write-bw", "read-bw", "write-bw-gpu", "read-bw-gpu",
                                    "write-lat"]),
                 help="path-mtu, pingpong, write-bw, read-bw (-gpu), write-lat."),
    click.option("--device", metavar="DEV[:PORT]", help="RDMA port (default: a compute port)."),
    click.option("--gid-index", type=click.IntRange(0, 65535), metavar="N",
                 help="GID index (default: that of RoCE v2)."),
    click.option("--mtu", type=click.Choice(["256", "512", "1024", "2048", "4096"]), metavar="BYTES",
                 help="RDMA MTU."),
    click.option("--size", type=click.IntRange(1, 1 << 30), metavar="BYTES", help="Size of a message."),
    click.option("--port", type=click.IntRange(1024, 65535), metavar="N", help="TCP port on HOST_A."),
    click.option("--at-least", "at_least_gbps", type=click.FloatRange(0.001, 10000), metavar="GBPS",
                 help="Bandwidth to expect, Gb/s."),
    click.option("--deadline", "deadline_s", type=click.FloatRange(1, 3600), default=30.0, metavar="S",
                 help="Time limit of each test in seconds (30)."),
    click.option("--via", type=click.Choice(["auto", "ssh", "openssh"]), default="auto", metavar="TRANSPORT",
                 help="auto (default), ssh or openssh."),
    click.option("--ssh-config", type=file_path, metavar="F", help="Use this file instead of ~/.ssh/config."),
)  # fmt: skip
