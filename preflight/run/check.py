"""``preflight check`` of this node or of many: collect, judge, write the outputs."""

from __future__ import annotations

import os
from shutil import which
from typing import TYPE_CHECKING

from preflight._startup.lightclass import replace
from preflight.collect.local import collect_interruptibly
from preflight.collect.request import Collected, Judging
from preflight.run.cluster_discovery import choose_cluster
from preflight.run.judge_run import judge_run
from preflight.run.outputs import write_outputs
from preflight.run.request import from_arguments
from preflight.run.saved_evidence import read_logs
from preflight.terminal import UsageError

if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from preflight.collect.request import CollectRequest
    from preflight.run.request import RunRequest


_ONLY_SRUN = "--judge-on-nodes is for nodes of Slurm: add --via srun"


def check(cluster: Path | None, **arguments: Any) -> int:
    """Run ``preflight check``; return the exit status.

    ``arguments`` are those of ``from_arguments``.
    """
    path, origin = choose_cluster(cluster)
    request = from_arguments("check", path, {**arguments, "cluster_origin": origin})
    logs = read_logs(request.logs)
    collected = replace(_collected(request), run=logs)
    return write_outputs(request, judge_run(request, collected), collected)


def _collected(request: RunRequest) -> Collected:
    """Collect from this node, or from the named nodes."""
    if wanted := _of_many(request):
        from preflight.collect import fleet

        if not request.options.judge_on_nodes:
            return fleet.collect(wanted)
        if why := _why_here(request):
            return replace(fleet.collect(wanted), unjudged=dict.fromkeys(wanted.nodes, why))
        return fleet.collect(replace(wanted, judging=_judging(request)))
    if request.options.judge_on_nodes:
        raise UsageError(_ONLY_SRUN)
    here = request.collection((os.uname().nodename,))
    return Collected([collect_interruptibly(here, lambda: _prepare(request))])


def _why_here(request: RunRequest) -> str:
    """Return why no node can judge itself; empty if nodes can."""
    if request.options.via != "srun":
        raise UsageError(_ONLY_SRUN)
    if request.registry.has_plugins:
        return "third-party checks are only installed here"
    if request.history:
        return "--history compares earlier evidence of each node"
    return "" if which("sbcast") else "there is no sbcast in PATH"


def _judging(request: RunRequest) -> Judging:
    """Return how nodes judge themselves; some runs also need all of their evidence."""
    from preflight.judge.code_files import archive

    complete = bool(request.logs or request.options.fabric or request.outputs.save)
    return Judging(archive(), complete)


def _of_many(request: RunRequest) -> CollectRequest | None:
    """Return the request for the named nodes; None if none are named."""
    targets, options = request.targets, request.options
    if options.switches:
        return _with_switches(request)
    if not targets.named and options.via == "srun":
        job = _own_job()
        targets, options = replace(targets, job=job), replace(options, job=job)
    if options.via != "kubectl" and (options.namespace or options.container):
        raise UsageError("-n and -c name a pod's namespace and container: add --via kubectl")
    if targets.named:
        return replace(request.collection(targets.nodes(options)), options=options)
    if request.resume:
        raise UsageError("--resume continues a run of many nodes: use the same --hosts")
    if options.via == "kubectl":
        raise UsageError("--via kubectl: select pods with --pods LABELS or --hosts NAMES")
    return None


def _with_switches(request: RunRequest) -> CollectRequest:
    """Return the request for the switches, and for any named nodes."""
    targets, options = request.targets, request.options
    if options.via in ("srun", "kubectl"):
        raise UsageError(f"--switches: switches are read over SSH, not with --via {options.via}")
    from preflight.collect.switches import switch_names

    switches = switch_names(request.cluster)
    nodes = targets.nodes(options) if targets.named else ()
    every = (*(node for node in nodes if node not in switches), *switches)
    return replace(request.collection(every), switches=frozenset(switches))


def _own_job() -> str:
    """Return the number of the Slurm job that this process runs in."""
    if not (job := os.environ.get("SLURM_JOB_ID")):
        raise UsageError("--via srun: select nodes with --hosts or --job ID, or run inside a Slurm job")
    return job


def _prepare(request: RunRequest) -> None:
    """Import the judge and the renderer while waiting for the node."""
    from preflight.judge import prepare

    prepare(request.checks)
    if request.outputs.json_file != "-" and request.outputs.layout == "text":
        import preflight.reports.summary_text  # noqa: F401
