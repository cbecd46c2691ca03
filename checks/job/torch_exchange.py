"""Checks of a job's collectives: share, rate, experts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from preflight import parsers
from preflight.checks.job.bus_bandwidth import nics_of
from preflight.checks.job.torch_collectives import listed
from preflight.checks.job.torch_trace import each
from preflight.expectations import Site
from preflight.expectations.catalogue import PARTS
from preflight.expectations.roofline.collectives import Roofline, roofline
from preflight.expectations.roofline.machine import RooflineMachine, gpu_named
from preflight.facts.job import RunFacts
from preflight.facts.trace.purposes import group_kind
from preflight.model import Finding, check, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.trace.job import JobTrace

#: Limits, all judgement calls, as fractions: time in transfers, hidden or not, and in all-to-alls; minimum of the usual
#: rate; excess load of the busiest expert rank, and waiting of ranks.
TRANSFER, EXCHANGE, RATE, UNEVEN, WAITING = 0.50, 0.30, 0.50, 0.25, 0.05
#: Minimum transfers of one size for a median, and minimum ratio of a transfer's time to the clock error.
_ENOUGH, _ERRORS = 10, 5.0
#: Maximum number of kinds listed in one message.
_MOST_KINDS = 6
#: Kinds of kernels that may be any collective or message.
ANY = ("sendrecv", "generic", "other")
_FIX_TRACES = "pass the traces of all ranks, of the same steps"


@check(
    "torch.collective-share",
    title="Collectives take a bounded share of a step",
    fault="Collectives take most of a step",
    impact="slows-job",
    source="Judgement: half of the steps' time; durations are those of Kineto's kernels",
    fix="Set larger batches for each GPU (`gradient_accumulation_steps`), and a layout that keeps large groups in a "
    "node.",
    action="fix-job",
    answers=("NT-SCL-1", "FP-OBS-2", "PA-25"),
    scope="run",
    gating=False,
    needs=("trace",),
)
def collective_share(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Measure the share of GPU time that each kind of collective takes.

    ## Why it matters
    A job that is split over more GPUs computes less on each, but exchanges as much data. The share of collectives shows
    how far it can scale; that of the all-to-all shows the cost of experts.

    ## Verdicts
    The check warns if communication kernels take more than half of a GPU's time, not counting the wait for other ranks.
    In a single trace, that wait is part of the kernels, so more than half is unknown there. All-to-alls warn above 30%,
    in the same way. The exposed part is judged by torch.overlap. A trace without such a kernel is unknown.

    ## False alarms
    Inference over many GPUs with small batches, where the exchange is most of the work by design.
    """
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        gpu = facts["gpu"]
        if gpu is None or not gpu["communication_ms"]:
            what = "no GPU kernel" if gpu is None else "no communication kernel"
            yield unknown(f"{name}: {what} is in the trace", fix="profile ProfilerActivity.CUDA on a rank of the job",
                          **at)  # fmt: skip
            continue
        waited = _waited_ms(run, key)
        share = max(0.0, gpu["communication_ms"] - (waited or 0.0)) / gpu["span_ms"]
        message = f"{name}: collectives take {share:.0%} of the GPU's time"
        message += "" if waited is None else f", not counting the wait for other ranks ({waited / gpu['span_ms']:.0%})"
        found = f"{share:.1%}"
        if share > TRANSFER and waited is None:
            yield unknown(
                f"{message}; only the traces of other ranks show how much of it is waiting for them",
                found=found,
                fix=_FIX_TRACES,
                **at,
            ).about("NT-SCL-1")
        elif share > TRANSFER:
            yield warned(message, found=found, expected=f"at most {TRANSFER:.0%}", **at).about("NT-SCL-1")
        else:
            yield passed(message, found=found, **at).about("NT-SCL-1")
        kinds = _by_kind(facts["collectives"])
        steps = facts["steps"]["count"] if facts["steps"] else 0
        durations = ", ".join(_duration(kind, sample, steps) for kind, sample in list(kinds.items())[:_MOST_KINDS])
        yield passed(f"{name}: {durations}", found=len(kinds), **at).about("FP-OBS-2")
        if "alltoall" in kinds:
            yield _exchange(run, key, name, kinds["alltoall"]["total_ms"], gpu["span_ms"])


def _exchange(run: RunFacts, key: str, name: str, total_ms: float, span_ms: float) -> Finding:
    """Judge the share of all-to-alls, or of their transfers if other ranks show them."""
    job = run.job_trace
    rank = next((rank for rank in job.compared if job.ranks[rank].key == key), None)
    samples = [sample for (group, kind, _), sample in job.waits.transfers.items()
               if kind == "alltoall" and rank in job.waits.groups[group].ranks
               and job.waits.groups[group].complete]  # fmt: skip
    took = sum(map(sum, samples)) / 1000 / span_ms if samples else total_ms / span_ms
    waiting = "without the wait for other ranks" if samples else "including the wait for other ranks"
    at: dict[str, Any] = {"subject": name, "evidence": [key], "found": f"{took:.1%}"}
    message = f"{name}: all-to-alls take {took:.1%} of the GPU's time, {waiting}"
    if took <= EXCHANGE:
        return passed(message, **at).about("PA-25")
    if not samples:
        return unknown(message, fix=_FIX_TRACES, **at).about("PA-25")
    return warned(message, expected=f"at most {EXCHANGE:.0%}", **at).about("PA-25")


def _by_kind(collectives: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the count and times of each kind, over all sizes, longest first."""
    kinds: dict[str, dict[str, float]] = {}
    for sample in collectives:
        if "total_ms" in sample:
            kind = kinds.setdefault(sample["name"], {"count": 0, "total_ms": 0.0})
            kind["count"] += sample["count"]
            kind["total_ms"] += sample["total_ms"]
    return dict(sorted(kinds.items(), key=lambda pair: -pair[1]["total_ms"]))


def absent(run: RunFacts, *kinds: str) -> bool:
    """Return whether all traces have GPU kernels, but no collective of these kinds.

    Sends, receives and collectives of unknown kind count as any kind.
    """
    documents = [trace.document for trace in run.traces.values()]
    names = {sample["name"] for facts in documents for sample in facts["collectives"]}
    return all(facts["gpu"] for facts in documents) and not names & {*kinds, *ANY}


def no_all_to_all(run: RunFacts, site: Site) -> Finding | None:
    """Skip a job whose traces have no all-to-all."""
    return skipped("no all-to-all is in the traces", evidence=list(run.traces)) if absent(run, "alltoall") else None


def _duration(kind: str, sample: Mapping[str, float], steps: int) -> str:
    often = f"{sample['count'] / steps:.4g} per step" if steps else f"{sample['count']:.0f}"
    return f"{kind}: {often}, {sample['total_ms'] / sample['count']:.3g} ms each"


def _waited_ms(run: RunFacts, key: str) -> float | None:
    """Return how long a trace's rank waited, hidden or not, in ms; None if unknown.

    It is unknown if a rank of one of its groups has no trace: waiting for that rank cannot be measured.
    """
    job = run.job_trace
    rank = next((rank for rank in job.compared if job.ranks[rank].key == key), None)
    if any(rank in group.ranks and not group.complete for group in job.waits.groups):
        return None
    waited = None if rank is None else job.waited_at_all(rank)
    return None if waited is None else waited / 1000


class _Rate(NamedTuple):
    """The rate of transfers of one size in one process group."""

    who: str
    kind: str
    size: int
    busbw: float  # GB/s
    roof: Roofline | None
    why: str  # why there is no roofline

    @property
    def customary(self) -> float | None:
        """Usual rate at this size in GB/s; None without a roofline."""
        return None if self.roof is None else self.roof.customary * self.size / (self.size + self.roof.smallest / 9)

    @property
    def share(self) -> float:
        """Measured over usual rate; infinite if the usual rate is unknown."""
        return self.busbw / self.customary if self.customary else float("inf")


@check(
    "torch.busbw",
    title="A job's collectives reach the bandwidth of the hardware",
    fault="A job's collectives are slower than the hardware allows",
    impact="slows-job",
    source="nccl-tests doc/PERFORMANCE.md (bus bandwidth); roofline of preflight; half of it is a judgement",
    fix="Run nccl-tests on the same nodes (`preflight read` judges its output); the log of NCCL_DEBUG=INFO shows the "
    "transport.",
    answers=("FP-BW-4",),
    scope="run",
    gating=False,
    needs=("trace",),
)
def busbw(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the bus bandwidth of a job's transfers with that of the hardware.

    ## Why it matters
    A benchmark shows the rate of an otherwise idle fabric. The job's own collectives show the rate that it gets with
    its message sizes and process groups.

    ## Verdicts
    A transfer lasts from the arrival of the last rank until the first rank is done, so the check needs the traces of
    all ranks of a group, and ten transfers of one size. The check warns if the median rate of the largest size is below
    half of the usual rate at that size. The usual rate is that of large messages; smaller ones reach less, about half
    of it at 28 MiB within a node and at 114 MiB between nodes, and less with many ranks. Within a node, the part must
    be a complete board of 8 GPUs with NVSwitches; between nodes, the NICs must be in the cluster file. Otherwise the
    rate is reported, and the verdict is unknown. Sends and receives are not judged.

    ## False alarms
    Transfers that share the GPU's memory or SMs with large kernels run slower than in a benchmark, but hardly at half
    the rate.
    """
    job = run.job_trace
    rates = list(_rates(run, site, job))
    if not rates:
        yield unknown("no collective of known size could be compared on all ranks of its group",
                      evidence=list(run.traces), fix=_FIX_TRACES)  # fmt: skip
    for rate in rates:
        what = f"{rate.kind} of {rate.size / 1e6:.3g} MB in {rate.who}"
        at: dict[str, Any] = {
            "subject": f"{rate.kind} in {rate.who}", "evidence": list(run.traces), "found": f"{rate.busbw:.3g} GB/s",
        }  # fmt: skip
        message = f"{what}: {rate.busbw:.3g} GB/s bus bandwidth (median)"
        if rate.customary is None:
            yield unknown(f"{message}; no reference rate: {rate.why}",
                          fix="declare part, hcas and ports.rate_gbps in the cluster file", **at)  # fmt: skip
        elif rate.share < RATE:
            yield warned(f"{message}, usually {rate.customary:.3g} at this size", 
                         expected=f"at least {RATE * rate.customary:.3g} GB/s", **at)  # fmt: skip
        else:
            yield passed(f"{message}, usually {rate.customary:.3g} at this size", **at)


def _rates(run: RunFacts, site: Site, job: JobTrace) -> Iterator[_Rate]:
    """Yield the slowest group of each kind and collective, at its largest size."""
    slowest: dict[tuple[str, str], _Rate] = {}
    largest: dict[tuple[int, str], int] = {}
    floor = _ERRORS * job.error_us()
    usable = {key: sample for key, sample in job.waits.transfers.items()
              if key[2] > 0 and len(sample) >= _ENOUGH and job.waits.groups[key[0]].complete
              and median(sample) > floor}  # fmt: skip
    for number, kind, size in usable:
        largest[number, kind] = max(size, largest.get((number, kind), 0))
    for (number, kind), size in largest.items():
        group = job.waits.groups[number]
        factor = parsers.nccl_tests.collective.factor(kind, len(group.ranks))
        if kind == "sendrecv" or factor is None or len(group.ranks) < 2:
            continue
        roof, why = _roof(run, site, job, kind, group.ranks)
        who = f"the {group_kind(group)} of ranks {listed(group.ranks)}"
        rate = _Rate(who, kind, size, size * factor / median(usable[number, kind, size]) / 1000, roof, why)
        place = (group_kind(group), kind)
        if place not in slowest or (rate.share, rate.busbw) < (slowest[place].share, slowest[place].busbw):
            slowest[place] = rate
    yield from slowest.values()


def _roof(run: RunFacts, site: Site, job: JobTrace, kind: str, ranks: Sequence[int]) -> tuple[Roofline | None, str]:
    """Return the roofline of a process group, or None and the reason."""
    documents = {rank: run.traces[job.ranks[rank].key].document for rank in ranks}
    hosts = [documents[rank]["host"] for rank in ranks]
    names = {name for facts in documents.values() for name in facts["devices"]}
    counts = {facts["device_count"] for facts in documents.values()}
    if None in hosts:
        return None, "the traces name no host"
    gpu = gpu_named(names.pop()) if len(names) == 1 else None
    if gpu is None or counts != {8} or not any(part.gpu is gpu and part.nvswitch for part in PARTS):
        return None, "the GPUs are not a known board of 8 with NVSwitches"
    nodes = len(set(hosts))
    each_node = len(ranks) // nodes
    if len({hosts.count(host) for host in hosts}) > 1:
        return None, "its nodes have different numbers of ranks"
    nics = nics_of(site, 8)
    rate = site.rate_of_each(nics or 0, 8).value if nics else None
    if nodes > 1 and (nics is None or rate is None or nics * each_node % 8):
        return None, "the NICs are not known"
    own = nics * each_node // 8 if nics is not None else None
    machine = RooflineMachine(gpu, each_node, each_node, True, own, rate, sharp=None, nvls=False)
    roof = roofline(kind, machine, nodes)
    return roof, "" if roof else f"there is no model for {kind}"


@check(
    "torch.experts",
    title="Ranks of an expert-parallel group get equal work",
    fault="One expert rank gets more tokens than its peers",
    impact="slows-job",
    explains=(("torch.straggler", "node"),),
    source="Sizes of the all-to-all (`In msg nelems`, `Out msg nelems` of Kineto); a quarter is a judgement",
    fix="Improve the router's balance (Megatron: `--moe-aux-loss-coeff`, `--moe-expert-capacity-factor`); place busy "
    "experts on different ranks.",
    action="fix-job",
    answers=("PA-25",),
    scope="run",
    unless=(no_all_to_all,),
    gating=False,
    needs=("trace",),
)
def experts(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the tokens of the ranks of each all-to-all group with their mean.

    ## Why it matters
    A layer of experts ends when the rank with the most tokens has processed them: if it has a quarter more than the
    mean, all ranks take a quarter longer.

    ## Verdicts
    The check warns if, over all steps of the profile, one rank's tokens are more than a quarter above the mean, and the
    ranks of the job wait in collectives for more than 5% of the steps. An all-to-all without the sizes of both
    directions, or without the traces of all ranks of its group, is unknown.

    ## False alarms
    A short profile: the load of single steps is uneven by nature.
    """
    job = run.job_trace
    if not job.experts:
        yield unknown("no all-to-all with sizes could be compared on all ranks of its group",
                      evidence=list(run.traces), fix=_FIX_TRACES)  # fmt: skip
    lengths = {rank: sum(end - begin for begin, end in job.ranks[rank].steps.values()) for rank in job.compared}
    shares = [(job.waited(rank) or 0.0) / length for rank, length in lengths.items() if length]
    waiting = max(shares, default=0.0)
    for group in job.experts:
        rank, load = group.most, group.load[group.most]
        message = f"of the expert-parallel ranks {listed(group.ranks)}, rank {rank} gets {load:.2f} times the mean "
        message += (
            f"number of tokens, over {group.calls} all-to-alls; ranks wait for up to {waiting:.0%} of their step time"
        )
        at: dict[str, Any] = {
            "subject": f"ranks {listed(group.ranks)}", "found": f"{load:.2f}", "evidence": [job.ranks[rank].key],
        }  # fmt: skip
        if load > 1 + UNEVEN and waiting > WAITING:
            yield warned(message, expected=f"at most {1 + UNEVEN:g}", **at)
        else:
            yield passed(message, **at)
