"""``preflight plan``: the cost of a training job, from its configuration."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from pathlib import Path
from typing import Any

import click

from preflight.collect.request import Collected
from preflight.commands import options
from preflight.evidence import safe_read
from preflight.evidence.document import NODE, Evidence, EvidenceError
from preflight.expectations.job_table import CHOICES, COSTS, MAY_BE_ZERO, MOST_GPUS, NUMBERS, SWITCHES, TEXTS
from preflight.facts import job_description
from preflight.facts.job import RUN, RunFacts
from preflight.facts.job_nodes import JobNode
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import natural
from preflight.layout import costs, document
from preflight.layout.description import SHORT
from preflight.layout.hardware import described
from preflight.layout.job import LayoutError
from preflight.layout.plan import Plan
from preflight.layout.running import RunningRanks
from preflight.layout.search import search
from preflight.layout.survey import Survey
from preflight.nodeset import fold, unfold
from preflight.parsers.job_config.hostfile import parse as parse_hostfile
from preflight.parsers.job_config.reader import parse
from preflight.parsers.job_config.settings import JobConfigError
from preflight.reports import layout_text
from preflight.run.judge_run import judge_run
from preflight.run.outputs import write_file
from preflight.run.request import RunRequest, new_request
from preflight.run.saved_evidence import load_evidence, read_logs
from preflight.run.trace_folder import trace_files
from preflight.terminal import UsageError, print_text, progress, write_or_report

#: Maximum number of files that describe one job, and maximum size of each in bytes.
_MOST_FILES, _MOST_BYTES = 16, 2_000_000


@click.command(cls=options.ShortHelp)
@click.argument("job", nargs=-1, metavar="[JOB]...")
@click.option("--on", metavar="CLUSTER", help='Plan for this cluster: "64 x HGX H100, rail-optimised, 1:1".')
@click.option("--evidence", type=options.file_path, metavar="DIR", help="Plan for the nodes of saved evidence.")
@click.option("--nodes", "chosen", metavar="NODESET", help="Use only these nodes, such as gpu[001-064].")
@click.option("--hostfile", type=options.file_path, metavar="FILE", help="Hosts and slots in the order of ranks.")
@click.option("--running", is_flag=True, help="Place ranks as they ran when the evidence was saved.")
@options.cluster
@click.option("--log", "logs", multiple=True, type=options.file_path, metavar="FILE",
              help="nccl-tests output, or profiles or a log of the job.")  # fmt: skip
@click.option("--gpus", type=click.IntRange(1, MOST_GPUS), metavar="N", help="GPUs of the job.")
@click.option("--set", "stated", multiple=True, metavar="NAME=VALUE", help="State a setting of the job.")
@click.option("--what-if", "changes", metavar="LIST", help="Change settings: tp=4,pp=8.")
@click.option("--search", "searched", is_flag=True, help="Show the five fastest layouts that fit.")
@click.option("--explain", is_flag=True, help="Show the origin of each number.")
@click.option("--html", "page", type=options.file_path, metavar="FILE", help="Write the plan as one HTML page.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan(
    job: tuple[str, ...], on: str | None, evidence: Path | None, chosen: str | None, hostfile: Path | None,
    running: bool, cluster: Path | None, logs: tuple[Path, ...], gpus: int | None, stated: tuple[str, ...],
    changes: str | None, searched: bool, explain: bool, page: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Compute the cost of a training job on a cluster, before it runs.

    JOB is a script or command line with Megatron's arguments, a DeepSpeed configuration, a job of NeMo or torchtitan,
    or a model's config.json; several files together describe one job. Nothing is executed.

    \b
    Example: preflight plan train.sh --on "64 x HGX H100, rail-optimised, 1:1"
             preflight plan ds_config.json config.json --gpus 64 --search
             preflight plan train.sh --evidence evidence/ --html plan.html
    Exit:    0 no violation, 1 a violation, 3 unknown, 2 usage
    \f

    The plan states whether the job fits in GPU memory, which links each parallel group crosses, how long a step takes,
    and what the layout violates. The plan names missing settings.
    """
    overrides = _settings([*stated, *(changes or "").split(",")])
    if gpus is not None:
        overrides["gpus"] = gpus
    if on:
        try:
            described(on)
        except LayoutError as error:
            raise UsageError(str(error)) from None
    if on and evidence is not None:
        raise UsageError("--on and --evidence both name the cluster; use one of them")
    if chosen is not None and on:
        raise UsageError("--nodes selects nodes of --evidence or of the cluster file; --on has none")
    if running and (evidence is None or hostfile is not None):
        raise UsageError("--running needs --evidence DIR, and --hostfile does not apply: evidence has the rank order")
    request = new_request("plan", cluster, only=("layout.*",))
    names = _names(chosen) if chosen is not None else ()
    ranks = RunningRanks() if running else None
    nodes, ratio = _collected(request, evidence, names, ranks) if evidence is not None else ((), None)
    slots = _slots(hostfile) if hostfile is not None else _running_slots(ranks, evidence) if ranks is not None else None
    if not (job or request.cluster.job):
        raise UsageError("name the job: a script, a configuration, or a cluster file with a table [job]")
    chosen_nodes = () if nodes else names
    declared = (request.cluster.path, request.cluster.job)
    places = {"racks": request.cluster.racks, "leaves": request.cluster.leaves}
    record = job_description.record(
        _sources(job), overrides, on or "", nodes, ratio, slots, declared, places, chosen_nodes
    )
    records = logged.records if (logged := read_logs(tuple(trace_files(logs)))) is not None else {}
    run = Evidence(RUN, "", {**records, job_description.RECORD: record})
    report = judge_run(request, Collected((), run))
    facts = RunFacts(run)
    made = _plan(request, facts)
    candidates = None
    if searched and made.job is not None and made.hardware is not None:
        with progress("searching layouts"):
            try:
                candidates = search(made.job, made.hardware)
            except LayoutError as error:
                print_text(f"no search: {error}\n", sys.stderr)
    shown = document.document(made, report, candidates, facts.job_trace if facts.traces else None, facts.training)
    written = True
    if page is not None:
        from preflight.reports import layout_page  # import-at-use: jinja2

        text = layout_page.render(shown)
        written = write_or_report(lambda: write_file(page, text), page)
    if as_json:
        print_text(json.dumps(shown, indent=1) + "\n")
    else:
        print_text(layout_text.render(shown, explain=explain))
    status = int(report["exit_status"])
    return status if written else status or 3


def _plan(request: RunRequest, facts: RunFacts) -> Plan:
    """Return the plan that the checks judged."""
    assert facts.description is not None
    return Plan(facts.description, request.cluster.run_site(()), facts.nccl_tests)


def _names(chosen: str) -> tuple[str, ...]:
    """Return the names of a set of nodes; raises UsageError."""
    try:
        return tuple(unfold(chosen))
    except ValueError as error:
        raise UsageError(f"--nodes: {error}") from None


def _collected(
    request: RunRequest, path: Path, names: Collection[str], ranks: RunningRanks | None
) -> tuple[tuple[JobNode, ...], float | None]:
    """Return the nodes of saved evidence, and the oversubscription of their leaves.

    Without ``names``, all nodes are returned. The oversubscription is None if unknown. Raises UsageError.
    """
    survey = Survey(request.cluster.site)
    collected: set[str] = set()
    with progress("reading the evidence of the nodes"):
        for own in load_evidence([path]).evidences:
            if own.kind != NODE:
                continue
            chosen_node = not names or own.node in names
            node = NodeFacts(own)
            try:
                (survey.add if chosen_node else survey.add_fabric)(node)
                if chosen_node and ranks is not None:
                    ranks.add(own.node, node.nccl_ranks)
            except EvidenceError as error:
                raise UsageError(f"{path}: {error}; choose other nodes with --nodes") from None
            if chosen_node:
                collected.add(own.node)
    if missing := sorted(set(names) - collected):
        raise UsageError(f"--nodes: {path} has no evidence of {fold(missing)}")
    if not collected:
        raise UsageError(f"{path} contains no evidence of a node")
    return tuple(sorted(survey.nodes(), key=lambda node: natural(node.name))), survey.oversubscription


def _sources(job: tuple[str, ...]) -> dict[str, str]:
    """Return the text of each file or command line, by name; raises UsageError."""
    if len(job) > _MOST_FILES:
        raise UsageError(f"{len(job)} files given; at most {_MOST_FILES} describe a job")
    sources: dict[str, str] = {}
    for word in job:
        if " --" in word and not _is_file(word):
            name = "command line" if "command line" not in sources else f"command line {len(sources) + 1}"
            text = word
        else:
            name, text = word, _content(Path(word))
        try:
            parse(text, name)
        except JobConfigError as error:
            raise UsageError(str(error)) from None
        sources[name] = text
    return sources


def _running_slots(ranks: RunningRanks, evidence: Path | None) -> tuple[str, str]:
    """Return a name and a hostfile with the nodes of running ranks; raises UsageError."""
    try:
        return f"ranks running in {evidence}", "\n".join(ranks.nodes())
    except LayoutError as error:
        raise UsageError(f"--running: {error}") from None


def _slots(path: Path) -> tuple[str, str]:
    """Return the name and text of a hostfile; raises UsageError."""
    text = _content(path)
    try:
        parse_hostfile(text, str(path), 1)
    except JobConfigError as error:
        raise UsageError(str(error)) from None
    return str(path), text


def _is_file(word: str) -> bool:
    try:
        return Path(word).exists()
    except OSError:  # too long for a file name
        return False


def _content(path: Path) -> str:
    try:
        return safe_read.content(path, _MOST_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _settings(words: list[str]) -> dict[str, Any]:
    """Parse NAME=VALUE words into the settings of a job; raises UsageError."""
    settings: dict[str, Any] = {}
    for word in filter(None, map(str.strip, words)):
        short, sign, value = word.partition("=")
        name = SHORT.get(short.strip().lower(), short.strip().lower().replace("-", "_"))
        value = value.strip()
        if not sign or name not in {*NUMBERS, *CHOICES, *SWITCHES, *TEXTS, *COSTS}:
            raise UsageError(f"{word!r} is not a setting; write NAME=VALUE, such as tp=8 ({', '.join(sorted(SHORT))})")
        if name in TEXTS:
            settings[name] = value.replace("+", ",") if name == "recompute_modules" else value
        elif name in CHOICES:
            if value not in CHOICES[name]:
                raise UsageError(f"{name} must be one of {', '.join(CHOICES[name])}, not {value!r}")
            settings[name] = value
        elif name in SWITCHES:
            if value not in ("yes", "no", "true", "false"):
                raise UsageError(f"{name} must be yes or no, not {value!r}")
            settings[name] = value in ("yes", "true")
        elif name in costs.INPUTS:
            settings[name] = costs.number(value)
            if settings[name] is None:
                raise UsageError(f"{name} must be a number above 0 ({costs.INPUTS[name]}), not {value!r}")
        elif not value.isascii() or not value.isdigit() or len(value) > 12:
            raise UsageError(f"{name} must be a number, not {value!r}")
        elif not int(value) and name not in MAY_BE_ZERO:
            raise UsageError(f"{name} must be at least 1")
        else:
            settings[name] = int(value)
    return settings
