"""Metadata that makes a benchmark comparable later."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.job.nccl_tests import no_report, over, reports
from preflight.expectations import Site
from preflight.facts.benchmark_metadata import NEEDED, ambiguous, record
from preflight.facts.job import RunFacts
from preflight.facts.node import TOPO
from preflight.facts.versions import LIBRARIES
from preflight.model import Finding, check, passed, unknown, warned

_HAND_OVER = (
    "Hand the evidence of its nodes over as well: `preflight check --hosts NODES --log FILE --json report.json`."
)


@check(
    "nccl-tests.record",
    title="A result is recorded with the hardware and software that it was measured on",
    fault="A result does not name what it was measured on",
    impact="drifts",
    source="the record that the tuning guide requires: GPU model, driver, CUDA, NCCL, PyTorch, variables, topology",
    fix=_HAND_OVER,
    action="fix-job",
    answers=("NT-REC-1",),
    scope="run",
    gating=False,
    unless=(no_report,),
)
def metadata(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the known setup of a result's nodes with the required metadata.

    ## Why it matters
    A bandwidth of last month is worthless without a record of which NCCL on which GPUs it was measured; then the
    regression is argued about instead of found.

    ## Verdicts
    Needed are GPU model and number, driver, CUDA, NCCL, PyTorch, container image, NCCL variables and topology. It
    passes where the nodes that the log names were collected as well, and all of it is in the report's ``record``; with
    the log alone, without its list of GPUs, or where one of them is not known, it is unknown. "No PyTorch" and "no
    image" count where preflight looked, so run it where the job runs: in its container. It warns where a node has
    several versions of NCCL or PyTorch and the log does not show which one was loaded.

    ## False alarms
    Images with several environments, where each job names its own.
    """
    for key, name, report in reports(run):
        hosts = report.hosts
        nodes = [node for host in hosts if (node := run.host(host)) is not None]
        if report.nranks is None or not hosts:
            yield unknown("the log does not list the GPUs that it was measured over, so neither their number nor their "
                          "hosts are known", subject=name, evidence=[key],
                          fix="keep the complete output, with its lines `#  Rank  0 … on HOST`")  # fmt: skip
            continue
        if len(nodes) < len(hosts):
            message = f"the record is not complete: evidence is at hand of {len(nodes)} of the {len(hosts)} hosts"
            yield unknown(message, subject=name, evidence=[key], fix=_HAND_OVER)
            continue
        records = [record(node) for node in nodes]
        if missing := sorted({name for one in records for name in NEEDED if name not in one}):
            yield unknown(f"not known of all its nodes: {', '.join(missing)}", subject=name, evidence=[key, TOPO])
            continue
        several = {name: versions for node in nodes for name, versions in ambiguous(node)}
        if report.nccl_version is not None:
            several.pop("NCCL", None)
        for name, versions in several.items():
            yield warned(f"{name} is present in several versions; the log does not show which was loaded: {versions}",
                         subject=name, found=versions, expected="one version", evidence=[key, LIBRARIES])  # fmt: skip
        if not several:
            setup = "; ".join(f"{name} {value}" for name, value in records[0].items())
            where = f"measured over {over(report)}, recorded with the setup of {len(nodes)} nodes"
            yield passed(f"{where}: {setup}", subject=name, evidence=[key])
