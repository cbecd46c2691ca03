"""``preflight bench``: nccl-tests on pairs of nodes, to find the slow part."""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preflight.commands import options
from preflight.nodeset import fold_for_slurm
from preflight.run.cluster_discovery import choose_cluster
from preflight.terminal import UsageError, print_text

if TYPE_CHECKING:
    from preflight.bench.baseline import BaselineEntry
    from preflight.bench.campaign import CampaignPlan
    from preflight.collect.request import Collected
    from preflight.expectations import Cluster

_DURATION = re.compile(r"(\d{1,6}(?:\.\d{1,3})?)(s|m|h)?")
#: Value of ``--print`` that shows the commands of the first round; the other values produce scripts.
COMMANDS = "commands"

_SIZE = re.compile(r"(\d{1,12})([KMGT]?)B?", re.IGNORECASE)


class _Duration(click.ParamType[float]):
    """A duration: seconds, or a number with the suffix s, m or h."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the duration in seconds; any other text is a usage error."""
        if isinstance(value, float):
            return value
        if not (match := _DURATION.fullmatch(str(value))) or not float(match[1]):
            self.fail(f"{value!r} is not a duration: write 90, 90s, 15m or 1h", param, ctx)
        return float(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2] or "s"]


class _Size(click.ParamType[int]):
    """A size: bytes, or a number with the suffix K, M, G or T (powers of 1024)."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the size in bytes; any other text is a usage error."""
        if isinstance(value, int):
            return value
        if not (match := _SIZE.fullmatch(str(value))) or not int(match[1]):
            self.fail(f"{value!r} is not a size: write 1G or 512M", param, ctx)
        return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}[match[2].upper()]


@click.command(cls=options.ShortHelp)
@click.option("--hosts", metavar="NODESET", help="Measure between these nodes.")
@click.option("--hostfile", type=options.file_path, metavar="F", help="Measure between the nodes that a file lists.")
@click.option("--job", metavar="ID", help="Measure within your Slurm job.")
@click.option("--idle", type=click.IntRange(2, 4096), metavar="N", help="Measure up to N idle nodes in a Slurm job.")
@click.option("--partition", metavar="NAME", help="Partition of --idle (the default one).")
@click.option(
    "--goal",
    type=click.Choice(["nodes", "links"]),
    default="nodes",
    metavar="WORD",
    help="nodes (default), or links: also rails and uplinks.",
)
@click.option("--load-spines", "loaded", is_flag=True, help="Also load all uplinks at once; it slows other jobs.")
@click.option("--topology", type=options.file_path, metavar="PATH",
              help="Leaves: saved evidence, or ibnetdiscover output.")  # fmt: skip
@click.option("--gpus", type=click.IntRange(1, 64), metavar="N", help="GPUs per node (default: all).")
@click.option(
    "--collective",
    type=click.Choice(["alltoall", "all_reduce", "all_gather", "reduce_scatter", "sendrecv"]),
    default="alltoall",
    metavar="NAME",
    help="Collective of nccl-tests (alltoall).",
)
@click.option("--size", "bytes_", type=_Size(), default=1 << 30, metavar="BYTES", help="Size of a message (1G).")
@click.option(
    "--iterations", type=click.IntRange(1, 100_000), default=20, metavar="N", help="Iterations of a run (20)."
)
@click.option("--binary", metavar="DIR", help="Folder of nccl-tests on the nodes (default: PATH).")
@click.option(
    "--budget", "budget_s", type=_Duration(), default="15m", metavar="TIME", help="End after this time (15m)."
)
@click.option(
    "--run-limit", "run_limit_s", type=_Duration(), default="60s", metavar="TIME", help="Time limit of one run (60s)."
)
@click.option(
    "--at-once", type=click.IntRange(1, 1024), default=64, metavar="N", help="Launch N runs in parallel (64)."
)
@click.option(
    "--via",
    type=click.Choice(["auto", "mpirun", "srun"]),
    default="auto",
    metavar="LAUNCHER",
    help="auto (default), mpirun or srun.",
)
@click.option("--mpi", default="pmix", metavar="TYPE", help="MPI type of srun (pmix).")
@click.option("--env", "environment", multiple=True, metavar="K=V", help="Set a variable (NCCL_*, UCX_*, OMPI_*).")
@click.option("--ssh-config", type=options.file_path, metavar="F", help="Use this file instead of ~/.ssh/config.")
@click.option("--baseline", type=options.file_path, metavar="F", help="Compare with the rates that --learn wrote.")
@click.option("--learn", type=options.file_path, metavar="F", help="Write the rates if no run is slow.")
@click.option("--seed", type=click.IntRange(0, 1 << 31), default=1, metavar="N", help="Seed of the random pairs (1).")
@click.option(
    "--print",
    "form",
    is_flag=False,
    flag_value=COMMANDS,
    type=click.Choice([COMMANDS, "sh", "sbatch", "mpijob"]),
    metavar="[FORM]",
    help="Print commands; or a script: sh, sbatch, mpijob.",
)
@click.option("--image", metavar="IMAGE", help="Image with nccl-tests and sshd, for --print mpijob.")
@click.option("--yes", is_flag=True, help="Start without confirmation.")
@click.option("--resume", type=options.file_path, metavar="DIR", help="Continue an interrupted campaign.")
@click.option("--allow-root", is_flag=True, help="Launch as root.")
@options.cluster
@options.outputs
def bench(
    cluster: Path | None,
    form: str | None,
    image: str | None,
    yes: bool,
    resume: Path | None,
    allow_root: bool,
    learn: Path | None,
    idle: int | None,
    partition: str | None,
    **arguments: Any,
) -> int:
    """Find the slow node, rail or cable with nccl-tests.

    preflight launches nccl-tests, and ships no benchmark. Each round runs disjoint pairs in parallel. Slow nodes run
    again with other nodes until a part explains the slow runs.

    \b
    Example: preflight bench --hosts gpu[001-016] --print
             preflight bench --hosts gpu[001-016] --html bench.html
             salloc -N16 preflight bench --yes
    Exit:    as check; 3 also if time ran out
    """
    # import-at-use: help lists the commands without it
    from preflight.campaign import folder, lock, own_job, printed
    from preflight.campaign.rounds import CampaignRun
    from preflight.collect.request import Collected
    from preflight.collect.scheduler import interruptible
    from preflight.run.judge_run import judge_run
    from preflight.run.outputs import write_outputs
    from preflight.run.request import Outputs, new_request
    from preflight.run.saved_evidence import CAMPAIGN_CHECKS, campaign_evidence

    wanted = {field: arguments.pop(field) for field in _PLAN if field in arguments}
    save = arguments.pop("save", None)
    path, origin = choose_cluster(cluster)
    outputs = Outputs(**arguments)
    _require_no_output(form, {**outputs.files, "--save": save, "--history": outputs.history_file, "--learn": learn})
    if (form == "mpijob") is not (image is not None):
        raise UsageError("--print mpijob and --image IMAGE (of launcher and workers) must be used together")
    request = new_request("bench", path, outputs, only=CAMPAIGN_CHECKS, cluster_origin=origin)
    if os.getuid() == 0 and not (allow_root or form):
        raise UsageError("not as root: run the campaign as the user of the jobs, or add --allow-root")
    if idle and (form or resume or wanted["via"] == "mpirun" or any(map(wanted.get, ("hosts", "hostfile", "job")))):
        raise UsageError(
            "--idle selects nodes for a Slurm job: omit --hosts, --hostfile, --job, --via, --print, --resume"
        )
    if partition and not idle:
        raise UsageError("--partition needs --idle N")
    try:
        with contextlib.ExitStack() as held:
            if idle:
                seconds = wanted["budget_s"] + wanted["run_limit_s"]
                wanted["job"] = held.enter_context(own_job.on_idle_nodes(idle, seconds, partition))
            opened = folder.open_folder(resume) if resume else None
            plan = opened.plan if opened else _plan(wanted, request.cluster, form)
            if resume:
                _require_own(resume / folder.PLAN_FILE)
            if form:
                print_text(printed.first_round(plan, opened) if form == COMMANDS
                           else printed.rounds(plan, form, opened, image))  # fmt: skip
                return 0
            plan = _within_job(plan) if opened else plan
            _require_launcher(plan)
            if not yes:
                _confirm(plan)
            held.enter_context(lock.held())
            opened = opened or folder.create(Path(save or f"preflight-bench-{plan.id}"), plan)
            print_text(f"campaign {plan.id} in {opened.path}\n", sys.stderr)
            done = CampaignRun(opened, held.enter_context(interruptible())).carry_out()
    except folder.CampaignError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{resume or save}: {error.strerror}") from None
    if done.end != "complete":
        within = f"salloc --nodelist={shlex.quote(fold_for_slurm(plan.nodes))} " if idle else ""
        print_text(f"{_ENDS[done.end]}; continue with: {within}preflight bench --resume "
                   f"{shlex.quote(str(opened.path))}\n", sys.stderr)  # fmt: skip
    collected = Collected((), campaign_evidence(opened))
    if learn:
        _learn(learn, done.end == "complete", collected)
    return write_outputs(request, judge_run(request, collected), collected)


_PLAN = ("hosts", "hostfile", "job", "goal", "loaded", "topology", "gpus", "collective", "bytes_", "iterations",
         "binary", "budget_s", "run_limit_s", "at_once", "via", "mpi", "environment", "ssh_config", "seed",
         "baseline")  # fmt: skip

#: Launcher of each kind of script that runs outside this allocation.
_ELSEWHERE = {"sbatch": "srun", "mpijob": "mpirun"}

_ENDS = {"budget": "time ran out", "interrupted": "interrupted", "disk": "the disk is full",
         "nodes": "too few nodes are usable"}  # fmt: skip


def _within_job(plan: CampaignPlan) -> CampaignPlan:
    """Return a resumed plan with the Slurm job of this allocation.

    The job in which it was planned has usually ended. Raises UsageError if there is neither.
    """
    if plan.via != "srun":
        return plan
    if not (job := os.environ.get("SLURM_JOB_ID") or plan.job):
        raise UsageError("the campaign ran as a batch job: continue with --print sbatch, or in an allocation of nodes")
    return replace(plan, job=job)


def _require_no_output(form: str | None, targets: Mapping[str, object]) -> None:
    """Reject output files with --print, which writes none; raises UsageError."""
    for option, target in targets.items():
        if form and target:
            raise UsageError(f"--print writes no files: omit {option} {target}")


def _plan(wanted: Mapping[str, Any], cluster: Cluster, form: str | None) -> CampaignPlan:
    """Return the plan for the options of a command line; raises UsageError."""
    from preflight.bench.campaign import CampaignPlan
    from preflight.campaign.nodes import look
    from preflight.collect.options import CollectOptions
    from preflight.collect.request import Targets

    job = wanted["job"] or (None if wanted["via"] == "mpirun" else os.environ.get("SLURM_JOB_ID"))
    via = ("srun" if job else "mpirun") if wanted["via"] == "auto" else wanted["via"]
    if form in _ELSEWHERE:
        job, via = None, _ELSEWHERE[form]
    elif via == "srun" and not job:
        raise UsageError("--via srun needs an allocation: salloc -N16 preflight bench, or --job ID")
    targets = Targets(wanted["hosts"], wanted["hostfile"])
    if not targets.named:
        if not job:
            raise UsageError("specify the nodes with --hosts, --hostfile or --job, or run preflight within salloc")
        targets = Targets(job=job)
    nodes = targets.nodes(CollectOptions(job=job))
    if via == "srun" and targets.named and not form:
        within = frozenset(Targets(job=job).nodes(CollectOptions(job=job)))
        if outside := next((node for node in nodes if node not in within), ""):
            raise UsageError(f"{outside}: not a node of job {job}, which srun uses")
    if len(nodes) < 2:
        raise UsageError("a pair needs two nodes")
    if wrong := next((node for node in nodes if not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", node)), ""):
        raise UsageError(f"{wrong}: launchers only accept names and IPv4 addresses")
    name = f"{wanted['collective']}_perf"
    binary = f"{wanted['binary'].rstrip('/')}/{name}" if wanted["binary"] else name
    if not re.fullmatch(r"[A-Za-z0-9_./+:@=-]+", binary):
        raise UsageError(f"--binary {wanted['binary']} contains characters that launchers do not pass on unchanged")
    if not re.fullmatch(r"[a-z0-9_]+", wanted["mpi"]):
        raise UsageError(f"--mpi {wanted['mpi']} is not an MPI type; `srun --mpi=list` names them")
    config = wanted["ssh_config"]
    if config and (re.search(r"[\s,'\"\\]", os.path.abspath(config)) or not config.is_file()):
        raise UsageError(
            f"--ssh-config {config}: not a file, or its name has blanks or quotes, which mpirun cannot pass on"
        )
    leaves = _leaves(nodes, cluster, wanted["topology"])
    if wanted["loaded"] and (wanted["goal"] != "links" or len(set(leaves.values())) < 2):
        raise UsageError(
            "--load-spines needs --goal links, and the leaves: --topology, or [leaves] in the cluster file"
        )
    plan = CampaignPlan(
        id=secrets.token_hex(4), seed=wanted["seed"], nodes=tuple(nodes), leaves=leaves, goal=wanted["goal"],
        collective=wanted["collective"], bytes=wanted["bytes_"], iterations=wanted["iterations"],
        gpus=wanted["gpus"] or 1, budget_s=wanted["budget_s"], run_limit_s=wanted["run_limit_s"],
        at_once=wanted["at_once"], via=via, job=job, binary=binary, mpi=wanted["mpi"],
        ssh_config=os.path.abspath(config) if config else None, environment=_environment(wanted["environment"]),
        loaded=wanted["loaded"], baseline=_baseline(wanted["baseline"]),
    )  # fmt: skip
    if wanted["gpus"] is not None:
        return plan
    if form:
        raise UsageError("--print contacts no node, so the number of GPUs per node is unknown: pass --gpus N")
    counts = {state.gpus for state in look(plan, plan.nodes).values() if not state.why}
    count = counts.pop() if len(counts) == 1 else None
    if count is None:
        raise UsageError("the nodes do not all have the same number of GPUs (nvidia-smi): pass --gpus N")
    return replace(plan, gpus=count)


def _baseline(path: Path | None) -> tuple[BaselineEntry, ...]:
    """Return the entries of a baseline; raises UsageError."""
    from preflight.bench import baseline
    from preflight.evidence import json_limits, safe_read

    if path is None:
        return ()
    try:
        return baseline.from_document(json_limits.read(path, longest=safe_read.BY_HAND, once=True))
    except OSError as error:
        raise UsageError(f"--baseline {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"--baseline {path} is not a baseline of `preflight bench --learn` ({error})") from None


def _learn(path: Path, complete: bool, collected: Collected) -> None:
    """Write the rates of a good campaign, or print why not; raises UsageError."""
    from preflight.archive.directory import write
    from preflight.bench import baseline
    from preflight.evidence.document import EvidenceError
    from preflight.facts.job import RunFacts

    assert collected.run is not None
    try:
        if not complete:
            raise ValueError("the campaign is not complete")
        run = RunFacts(collected.run)
        versions = {report.nccl_version for reports in run.nccl_tests.values() for report in reports}
        entries = baseline.learn(run.pairwise, sorted(version for version in versions if version))
        write(path, json.dumps(baseline.document(entries), indent=1) + "\n")
    except (EvidenceError, ValueError) as error:
        print_text(f"{path} was not written: {error}\n", sys.stderr)
    except OSError as error:
        raise UsageError(f"--learn {path}: {error.strerror}") from None


def _leaves(nodes: Sequence[str], cluster: Cluster, topology: Path | None) -> dict[str, str]:
    """Return the leaf of each node, from the cluster file and a saved topology.

    The result is empty unless all leaves are known, because a pair is compared with pairs of the same distance. If
    a topology or some leaves were given, but not all are known, a warning is printed.
    """
    from preflight.facts.fabric.leaves import of_hosts

    saved = {**(_saved_leaves(topology, cluster) if topology else {}), **cluster.leaves}
    leaves = of_hosts(nodes, saved)
    if (saved or topology) and not leaves:
        missing = [node for node in nodes if not of_hosts([node], saved)]
        print_text(f"warning: {topology or cluster.path}: shows no leaf for {len(missing)} of {len(nodes)} nodes, such "
                   f"as {missing[0]}; leaves are not used\n", sys.stderr)  # fmt: skip
    return leaves


def _saved_leaves(path: Path, cluster: Cluster) -> dict[str, str]:
    """Return the leaf of each node, from a fabric sweep's output or saved evidence."""
    from preflight import recognition
    from preflight.facts.fabric.leaves import from_evidence
    from preflight.facts.node import NodeFacts
    from preflight.run.saved_evidence import load_evidence

    if path.is_file():
        with contextlib.suppress(recognition.SourceError):
            parts = [part for source in recognition.open_sources((str(path),)) for part in recognition.read(source)]
            if leaves := recognition.leaves_of(parts):
                return leaves
    nodes = [NodeFacts(evidence) for evidence in load_evidence([path]).evidences]
    return from_evidence(nodes, lambda node: cluster.site(node).roles(node).compute)


def _environment(given: tuple[str, ...]) -> dict[str, str]:
    from preflight.campaign.command_lines import ALLOWED

    variables = {}
    for entry in given:
        name, equals, value = entry.partition("=")
        if not equals or not ALLOWED.fullmatch(name):
            raise UsageError(
                f"--env {entry}: write NAME=VALUE; NAME: NCCL_*, RCCL_*, UCX_*, FI_*, OMPI_*, LD_LIBRARY_PATH"
            )
        variables[name] = value
    return variables


def _require_own(path: Path) -> None:
    """Reject a campaign that another user may have written; raises UsageError."""
    state = path.stat()
    if state.st_uid != os.getuid() or state.st_mode & 0o022:
        raise UsageError(f"{path}: another user may have written this campaign, which names the program to launch")


def _require_launcher(plan: CampaignPlan) -> None:
    if not shutil.which(plan.via):
        here = "Open MPI is needed on this host and on the nodes"
        hint = here if plan.via == "mpirun" else "run on a login node of the cluster"
        raise UsageError(f"there is no {plan.via} in PATH: {hint}")


def _confirm(plan: CampaignPlan) -> None:
    """Prompt for confirmation; raises UsageError if refused or without a terminal."""
    from preflight.campaign import printed

    print_text(printed.load(plan), sys.stderr)
    if not (sys.stdin and sys.stdin.isatty()):
        raise UsageError(
            "the campaign loads the nodes and their network: add --yes, or review the commands with --print first"
        )
    if not click.confirm("Start?", err=True):
        raise UsageError("nothing was started")
