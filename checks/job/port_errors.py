"""Check of the errors that ports count while pairs of nodes run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING

from preflight import bench, facts
from preflight.checks.job.campaign_coverage import no_campaign
from preflight.checks.rdma.per_port import some
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, counted, failed, passed, skipped, some_of, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.campaign_ports import PortErrors

#: Maximum number of ports listed separately.
_MOST_LISTED = 40


def no_readings(run: RunFacts, site: Site) -> Finding | None:
    """Skip campaigns without readings of RDMA ports."""
    assert run.campaign is not None
    readings = run.campaign.readings
    if not readings:
        return skipped("no counters were read: `preflight bench` reads them before and after each round",
                       evidence=[bench.campaign.RECORD]).about()  # fmt: skip
    if not any(reading.ports or reading.why for reading in readings):
        return skipped("no node has an active RDMA port of a real HCA", evidence=[bench.campaign.RECORD]).about()
    return None


@check(
    "bench.ports",
    title="No port counts errors while pairs of nodes run",
    fault="A port counts errors while pairs of nodes run",
    impact="slows-job",
    owner="network",
    explains=(
        ("bench.factor", "names", "*slow or did not end", "node *"),
        ("bench.factor", "names", "*slow or did not end", "GPU *"),
        ("bench.pairs", "names", "*slow or did not end"),
    ),
    source="limits of counters.link-quality and counters.loss; https://docs.kernel.org/networking/device_drivers/"
    "ethernet/mellanox/mlx5/counters.html",
    fix="Clean and reseat the cable of this port, then swap it with a neighbour's and run its pairs again.",
    action="fix-site",
    scope="run",
    gating=False,
    answers=("AN-8",),
    unless=(no_campaign, no_readings),
)
def ports(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the error counters of RDMA ports before and after each round.

    ## Why it matters
    Most bad links count errors only under load, and a benchmark between two nodes is that load. The port whose errors
    grow in the slow runs of its node shows which cable to replace.

    ## Verdicts
    `preflight bench` reads the counters of all active RDMA ports on the nodes of a round, before and after the round.
    Growth of errors warns, and fails above the limits of `counters.link-quality` and `counters.loss`; retransmissions
    warn above one in a million received packets. The message states in how many rounds of the node they grew, and in
    how many of these its run was slow or did not end. A node or counter that was not read is *unknown*.

    ## False alarms
    A cable that was plugged in during the campaign, losses from congestion that another job caused, and
    `out_of_sequence` alone with adaptive routing.
    """
    done = run.campaign
    assert done is not None
    errors: dict[tuple[str, str], list[PortErrors]] = {}
    for each in run.port_errors:
        errors.setdefault((each.node, each.port), []).append(each)
    slow = _slow(run)
    ranked = sorted(errors.items(), key=lambda entry: not any(each.fails for each in entry[1]))
    for (node, port), own in islice(ranked, _MOST_LISTED):
        of_port = _port(node, port, own, slow, sum(reading.node == node for reading in done.readings))
        yield of_port.from_cause(("counters.*", node) if run.host(node) else ())
    if len(ranked) > _MOST_LISTED:
        yield warned(f"{len(ranked) - _MOST_LISTED} more ports count errors", evidence=[bench.campaign.RECORD])
    unread = list(_unread(run))
    yield from unread
    read = {(reading.node, port.device, port.port) for reading in done.readings for port in reading.ports}
    if not errors and not unread and read:
        nodes = {node for node, *_ in read}
        yield passed(f"{counted(len(read), 'port')} of {counted(len(nodes), 'node')} counted no error in "
                     f"{counted(len(done.rounds), 'round')}",
                     found="no growth", evidence=[bench.campaign.RECORD])  # fmt: skip


def _port(node: str, port: str, own: Sequence[PortErrors], slow: frozenset[tuple[int, str]], runs: int) -> Finding:
    grown = facts.campaign_ports.total(own)
    count = sum((each.round, node) in slow for each in own)
    also = f"; {count} of these {'runs were' if len(own) > 1 else 'was'} slow or did not end" if count else ""
    made = failed if any(each.fails for each in own) else warned
    return made(
        f"{port} of {node} counted errors in {some_of(len(own), runs, 'round')}: {grown}{also}",
        subject=f"{node} {port}", found=grown, expected="no growth", evidence=[bench.campaign.RECORD],
    )  # fmt: skip


def _slow(run: RunFacts) -> frozenset[tuple[int, str]]:
    """Return the rounds and nodes whose run was slow or did not end."""
    assert run.campaign is not None
    sources = {
        held.run.source for comparison in run.pairwise for held in comparison.held
        if held.slow or not held.run.complete
    }  # fmt: skip
    return frozenset(
        (launch.round, end.node) for launch in run.campaign.launches if launch.output in sources
        for end in run.campaign.ends(launch)
    )  # fmt: skip


def _unread(run: RunFacts) -> Iterator[Finding]:
    """Yield a finding for each reason why counters are unknown."""
    assert run.campaign is not None
    reasons: dict[str, dict[str, None]] = {}
    for reading in run.campaign.readings:
        if reading.why:
            reasons.setdefault(reading.why, {})[reading.node] = None
        for port in reading.ports:
            if port.unread:
                reasons.setdefault(port.unread, {})[f"{reading.node} {port.device}:{port.port}"] = None
    for why, places in islice(reasons.items(), _MOST_LISTED):
        yield unknown(
            f"whether errors grew is unknown for {some(list(places))}: {why}", evidence=[bench.campaign.RECORD]
        )
