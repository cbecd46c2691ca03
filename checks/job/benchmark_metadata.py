"""Check of the metadata that makes a benchmark comparable later."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.job.nccl_tests import no_report, over, reports
from preflight.expectations import Site
from preflight.facts.benchmark_metadata import NEEDED, ambiguous, record
from preflight.facts.job import RunFacts
from preflight.facts.node import TOPO
from preflight.facts.versions import LIBRARIES
from preflight.model import Finding, check, counted, none_of, passed, some_of, unknown, verb, warned

_HAND_OVER = "Pass the evidence of its nodes as well: `preflight check --hosts NODES --log FILE --json report.json`."


@check(
    "nccl-tests.record",
    title="A result is recorded with its hardware and software",
    fault="A result lacks its hardware or software",
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
    Last month's bandwidth is worthless without the GPUs and the NCCL version that it was measured with.

    ## Verdicts
    A record needs GPU model and number, driver, CUDA, NCCL, PyTorch, container image, NCCL variables and topology. The
    check passes if the evidence of the nodes in the log is available and the report's ``record`` has all items. The
    result is unknown for a log without node evidence or without its list of GPUs, or if an item is unknown. "No
    PyTorch" and "no image" count as known, so run the check in the job's container. The check warns if a node has
    several versions of NCCL or PyTorch and the log does not show which one was loaded.

    ## False alarms
    Images with several environments, of which each job selects one.
    """
    for key, name, report in reports(run):
        hosts = report.hosts
        nodes = [node for host in hosts if (node := run.host(host)) is not None]
        if report.nranks is None or not hosts:
            yield unknown(
                "the log does not list the measured GPUs, so their number and hosts are unknown",
                subject=name,
                evidence=[key],
                fix="keep the complete output, including the lines `# Rank 0 … on HOST`",
            )
            continue
        if len(nodes) < len(hosts):
            of = some_of(len(nodes), len(hosts), "host") if nodes else none_of(len(hosts), "host")
            message = f"the record is incomplete: evidence of {of} is available"
            yield unknown(message, subject=name, evidence=[key], fix=_HAND_OVER)
            continue
        records = [record(node) for node in nodes]
        if missing := sorted({name for one in records for name in NEEDED if name not in one}):
            yield unknown(
                f"the record is incomplete: {', '.join(missing)} {verb(len(missing), 'is')} not known for each node",
                subject=name,
                evidence=[key, TOPO],
                fix=_HAND_OVER,
            )
            continue
        several = {name: versions for node in nodes for name, versions in ambiguous(node)}
        if report.nccl_version is not None:
            several.pop("NCCL", None)
        for name, versions in several.items():
            yield warned(f"{name} is installed in several versions ({versions}), and the log does not show which of "
                         "them was loaded",
                         subject=name, found=versions, expected="one version", evidence=[key, LIBRARIES])  # fmt: skip
        if not several:
            setup = "; ".join(f"{name} {value}" for name, value in records[0].items())
            where = f"the run over {over(report)} is recorded with the setup of {counted(len(nodes), 'node')}"
            yield passed(f"{where}: {setup}", subject=name, evidence=[key])
