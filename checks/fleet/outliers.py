"""Checks of numeric outliers: temperatures, clocks, offsets, traffic rates."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median

from preflight._startup.lightclass import dataclass, replace
from preflight.checks.applicability import no_compute_port
from preflight.checks.comparison.electorate import failing, kinds
from preflight.checks.gpu import state
from preflight.checks.host import limits
from preflight.checks.rdma import error_counters
from preflight.checks.rdma import ports as rdma_port
from preflight.checks.rdma.per_port import no_judged_port, windows
from preflight.checks.window_load import IDLE, UNDER_LOAD
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.majority import ENOUGH, is_majority, outliers, sides, systemic
from preflight.facts.node import NodeFacts
from preflight.model import Check, Finding, Status, check, clause, counted, passed, skipped, unknown, warned

#: Highest utilisation of an idle GPU and lowest of a busy one, in percent; a GPU between the two is not compared.
IDLE_PCT, BUSY_PCT = 10, 50

_SOURCE = "modified z-score (Iglewicz and Hoaglin 1993): 3.5 spreads (median absolute deviation) from the median"


@dataclass(frozen=True)
class _Number:
    """A numeric value of a node, and the deviation at which it is reported."""

    what: str
    unit: str
    key: str  # the record that shows it
    floor: float  # in its unit, or with ``share`` a fraction of the median
    share: bool = False
    #: whether a node above the median is reported; otherwise it is reported only if 30% of the nodes are above it,
    #: because the majority may be wrong
    up: bool = True
    down: bool = True  # the same for a node below the median
    judged_by: tuple[Check, ...] = ()
    needs_load: bool = False  # whether it is compared only under load
    events: bool = False  # whether it counts errors: zero always meets the expectation


#: Key of a node's load among its numbers; the load itself is not compared.
_LOAD = "load"

_HOT = (state.temperature_margin,)
NUMBERS = {
    "idle": _Number("temperature of idle GPUs", "C", "nvml:gpus", 10, down=False, judged_by=_HOT),
    "busy": _Number("temperature of busy GPUs", "C", "nvml:gpus", 10, down=False, judged_by=_HOT),
    "clock": _Number("SM clock of busy GPUs", "MHz", "nvml:gpus", 0.05, share=True, up=False,
                     judged_by=(state.throttling,)),
    "offset": _Number("clock offset", "ms", "cmd:chronyc -n tracking", 1, judged_by=(limits.time_sync,)),
}  # fmt: skip

Numbers = dict[str, "float | None"]  # None: could not be read; values a node cannot have are left out
Read = Callable[[NodeFacts, Site], "Numbers | None"]  # None: not applicable


def _numbers(node: NodeFacts, site: Site) -> Numbers:
    """Return the numbers of a node; without a GPU, only the clock offset."""
    found: Numbers = {}
    try:
        gpus = node.gpu_health.gpus if node.gpus_on_bus else ()
    except EvidenceError:
        gpus = ()
        found = dict.fromkeys(("idle", "busy", "clock"))
    loads = [(gpu, gpu.utilisation_pct) for gpu in gpus if gpu.utilisation_pct is not None]
    if len(loads) < len(gpus):
        found.update(dict.fromkeys(("idle", "busy", "clock")))
    idle = [gpu.temperature_c for gpu, load in loads if load <= IDLE_PCT]
    busy = [gpu.temperature_c for gpu, load in loads if load >= BUSY_PCT]
    clocks = [gpu.sm_clock_mhz for gpu, load in loads if load >= BUSY_PCT]
    if idle and len(idle) == len(gpus):  # an idle GPU is warm next to a busy one
        found["idle"] = _extreme(max, idle)
    if busy:
        found["busy"] = _extreme(max, busy)
    if clocks:
        found["clock"] = _extreme(min, clocks)
    try:
        offset_s = node.clock.offset_s
    except EvidenceError:
        found["offset"] = None
    else:
        if offset_s is not None:
            found["offset"] = offset_s * 1000
    return found


def _extreme(pick: Callable[[list[float]], float], values: Sequence[float | None]) -> float | None:
    """Return the highest or lowest of the values that were read, else None."""
    read = [value for value in values if value is not None]
    return pick(read) if read else None


@check(
    "fleet.outliers",
    title="No node is hotter, slower or less synchronised than its peers",
    fault="A node is hotter, slower or less synchronised than its peers",
    impact="drifts",
    source=_SOURCE,
    fix="Compare the node with its neighbours: fans, coolant, inlet temperature (`ipmitool sdr`), power cap, and clock "
    "(`chronyc sources`).",
    answers=("AN-11",),
    scope="fleet",
    gating=False,
)
def numbers_alike(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare temperatures, clocks and time offsets with the median of peers.

    Each node is represented by its hottest GPU, its slowest busy GPU and its clock offset.

    ## Why it matters
    A node that is 15 degrees warmer than its neighbours under the same load throttles first. Faults show as a
    difference between nodes before they raise an alarm.

    ## Verdicts
    A node warns if it is more than 3.5 spreads (median absolute deviation) and at least 10 °C, 5% of the clock, or 1
    ms from the median. The absolute minimum prevents tiny differences from becoming outliers. Cooler or faster nodes
    are reported only if they are at least 30% of the nodes, because then the majority may be wrong. If neither of two
    groups has 60% of the nodes, both are reported, and it is unknown which one is right. Fewer than five nodes are not
    compared, and idle GPUs are compared only with idle ones. A node that fails the check of a number
    (gpu.temperature-margin, gpu.throttling, host.time-sync) is left out of the median and does not pass. The check
    never gates a job.

    ## False alarms
    A node at the warm end of its row, or one that runs a different job from its neighbours.
    """
    yield from _compare(nodes, sites, "numbers", _numbers, NUMBERS)


def _traffic_rates(node: NodeFacts, site: Site) -> Numbers | None:
    """Return the traffic of the compute ports in the window, and the events per GB.

    Empty if the traffic is unknown; None without a port to judge.
    """
    if absent := no_compute_port(node, site) or no_judged_port(node, site):
        return None if absent.status is Status.SKIP else {}
    growths = windows(node, site)
    rates = [growth.gbps for growth in growths]
    if any(rate is None for rate in rates) or not growths:
        return {}
    sent, received = (sum(rate[way] for rate in rates if rate is not None) for way in (0, 1))
    found: Numbers = {"sent": sent, "received": received}
    loads = [growth.load for growth in growths]
    if all(load is not None for load in loads):
        found[_LOAD] = max(load for load in loads if load is not None)
    carried_gb = (sent + received) / 8 * min(growth.seconds for growth in growths)
    if carried_gb < 1:
        return found
    for name in ("out_of_sequence", "packet_seq_err", "local_ack_timeout_err", "rp_cnp_handled", "np_cnp_sent"):
        grown = [one for growth in growths if (one := growth.named(name)) is not None]
        found[name] = sum(one.grown for one in grown) / carried_gb if len(grown) == len(growths) else None
    return found


_LOSS = (error_counters.loss,)
_LINKS = (rdma_port.port_state, rdma_port.port_rate)
_PORTS = "files:/sys/class/infiniband/*/ports/*/{}"
RATES = {
    "sent": _Number("traffic sent", "Gb/s", _PORTS.format("counters"), 0.2, share=True, up=False,
                    judged_by=_LINKS, needs_load=True),
    "received": _Number("traffic received", "Gb/s", _PORTS.format("counters"), 0.2, share=True, up=False,
                    judged_by=_LINKS, needs_load=True),
    **{
        name: _Number(what, "for each GB", _PORTS.format("hw_counters"), floor, down=False, judged_by=_LOSS,
                      events=True)
        for name, what, floor in (
            ("out_of_sequence", "out-of-order packets", 1.0), ("packet_seq_err", "retransmission requests", 1.0),
            ("local_ack_timeout_err", "acknowledgement timeouts", 0.1),
        )
    },
    **{
        name: _Number(what, "for each GB", _PORTS.format("hw_counters"), 100, down=False)
        for name, what in (("rp_cnp_handled", "congestion notifications received"),
                           ("np_cnp_sent", "congestion notifications sent"))
    },
}  # fmt: skip


@check(
    "fleet.rates",
    title="No node carries less traffic or sees more congestion than its peers",
    fault="A node carries less traffic or sees more congestion than its peers",
    impact="slows-job",
    owner="network",
    source=_SOURCE,
    fix="Run `preflight check --window 60` on the node and on a peer; counters.congestion and counters.balance "
    "name the port. Check its cable, its leaf and the job's placement.",
    answers=("PA-19",),
    scope="fleet",
    gating=False,
    window=True,
)
def rates_alike(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare the traffic of each node's compute ports with the median of peers.

    ## Why it matters
    All ranks of a collective send the same amount: a node that carries less is at fault itself, and one that receives
    far more congestion notifications is behind a congested port. A threshold on a single node cannot show that.

    ## Verdicts
    Traffic 20% below the median warns. Traffic above it warns only if at least 30% of the nodes carry more, because
    then the majority may be slow; a single node that carries more does a different part of the job. For each GB, one
    more out-of-order packet or retransmission request than the median warns, and so do 100 more congestion
    notifications, but only beyond 3.5 spreads. If neither of two groups has 60% of the nodes, both are reported, and
    it is unknown which one is right. Fewer than five nodes are not compared. Nodes that fail rdma.port-state or
    rdma.port-rate are left out of the median of traffic, and nodes that fail counters.loss are left out of the median
    of retransmissions. If most nodes use less than 5% of their ports' rate, the result is unknown. The check never
    gates a job.

    ## False alarms
    Nodes of several jobs in one run, or of the first and last stage of a pipeline.
    """
    yield from _compare(nodes, sites, "rates", _traffic_rates, RATES)


def _compare(
    nodes: Sequence[NodeFacts], sites: Mapping[str, Site], ballot: str, read: Read, known: Mapping[str, _Number]
) -> Iterator[Finding]:
    keys = list(dict.fromkeys(number.key for number in known.values()))[:3]
    for members in kinds(nodes, sites):
        polled = {node.node: _poll(node, sites[node.node], ballot, read, known) for node in members}
        if without := [name for name, one in polled.items() if one is None]:
            yield skipped("these nodes report none of the compared values", evidence=keys).on(without)
        shown = {name: one for name, one in polled.items() if one is not None}
        silent: dict[tuple[str, ...], list[str]] = defaultdict(list)
        for name in (name for name, one in shown.items() if not one.numbers):
            silent[shown[name].unread or tuple(known)].append(name)
        for lacking, names in silent.items():
            yield unknown(f"no value could be read: {', '.join(known[number].what for number in lacking)}",
                          evidence=list(dict.fromkeys(known[number].key for number in lacking))[:3],
                          fix="see the checks of the node").on(names)  # fmt: skip
        heard = {name: one for name, one in shown.items() if one.numbers}
        loads = [answer.load for answer in heard.values() if answer.load is not None]
        nothing_ran = bool(loads) and max(loads) < IDLE
        odd: set[str] = set()
        for name, number in known.items():
            if nothing_ran and number.needs_load:
                continue
            for finding in (*_of_number(name, number, heard), *_gap(name, number, heard)):
                odd.update(finding.nodes)
                yield finding
        rest = {name: answer for name, answer in heard.items() if name not in odd}
        if rest and len(loads) >= ENOUGH and median(loads) < IDLE:
            idle = f"most nodes carried less than {100 * IDLE:.0f}% of their ports' rate: too little traffic to compare"
            yield unknown(idle, evidence=keys, fix=UNDER_LOAD).on(rest)
        else:
            yield from _alike(known, rest, heard, keys)


def _gap(name: str, number: _Number, heard: Mapping[str, _NodeNumbers]) -> Iterator[Finding]:
    """Report the nodes that lack a number their peers show."""
    lacking = [node for node, answer in heard.items() if name in answer.unread]
    if lacking and len(_voting(name, heard)) >= ENOUGH:
        yield unknown(f"{number.what} was not read, although the other nodes show it", subject=number.what,
                      evidence=[number.key], fix="see the checks of the node").on(lacking)  # fmt: skip


def _alike(
    catalogue: Mapping[str, _Number],
    rest: Mapping[str, _NodeNumbers],
    heard: Mapping[str, _NodeNumbers],
    keys: Sequence[str],
) -> Iterator[Finding]:
    """Pass the nodes that do not differ; skip them if too few nodes can be compared."""
    compared = [name for name in catalogue if len(_voting(name, heard)) >= ENOUGH]
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for node, answer in rest.items():
        alike[tuple(name for name in compared if name in answer.numbers)].append(node)
    for names, nodes in alike.items():
        if names:
            listed = ", ".join(catalogue[name].what for name in names)
            yield passed(
                f"{clause(len(names), 'value', 'is')} similar to those of the other nodes of this kind: {listed}",
                evidence=keys,
            ).on(nodes)
        else:
            yield skipped(f"fewer than {ENOUGH} nodes of this kind show these numbers, too few to find an outlier",
                          evidence=keys).on(nodes)  # fmt: skip


@dataclass(frozen=True)
class _NodeNumbers:
    """Numbers of a node, and the checks that it fails."""

    numbers: Mapping[str, float]
    missed: Mapping[str, tuple[str, ...]]
    unread: tuple[str, ...] = ()  # numbers that could not be read
    load: float | None = None  # of its busiest port, as a share of its rate


def _poll(node: NodeFacts, site: Site, ballot: str, read: Read, known: Mapping[str, _Number]) -> _NodeNumbers | None:
    def read_numbers() -> _NodeNumbers | None:
        found = read(node, site)
        if found is None:
            return None
        load = found.pop(_LOAD, None)
        numbers = {name: number for name, number in found.items() if number is not None}
        judged = {name: known[name] for name, number in numbers.items() if number or not known[name].events}
        by = {name: failing(number.judged_by, node, site) for name, number in judged.items()}
        missed = {name: checks for name, checks in by.items() if checks}
        return _NodeNumbers(numbers, missed, tuple(name for name in found if name not in numbers), load)

    try:
        return node.remember_for_fleet(f"outliers: {ballot}", read_numbers)
    except EvidenceError:
        return _NodeNumbers({}, {})


def _voting(name: str, heard: Mapping[str, _NodeNumbers]) -> dict[str, float]:
    """Return the value of a number on each node that has it and passes its checks."""
    shown = {node: answer for node, answer in heard.items() if name in answer.numbers and name not in answer.missed}
    return {node: answer.numbers[name] for node, answer in shown.items()}


def _of_number(name: str, number: _Number, heard: Mapping[str, _NodeNumbers]) -> Iterator[Finding]:
    """Compare one number among the voting nodes, then the other nodes with them."""
    voting = _voting(name, heard)
    apart = {node: one.numbers[name] for node, one in heard.items() if name in one.missed}
    floor = number.floor
    if number.share and voting:
        floor *= abs(median(voting.values()))
    yield from _apart(number, voting, floor)
    for node, value in apart.items():
        by = heard[node].missed[name]
        if voting and abs(value - median(voting.values())) <= floor:
            message = f"{number.what}: not compared, see {' and '.join(by)}"
            yield skipped(message, subject=number.what, evidence=[number.key]).on([node])
            continue
        message = f"{number.what} is {value:.4g} {number.unit}, not the expected value (see {' and '.join(by)})"
        fix = f"Correct the fault that {' and '.join(by)} found."
        yield warned(message, subject=number.what, found=f"{value:.4g} {number.unit}", evidence=[number.key],
                     fix=fix).unless_reported(by).on([node])  # fmt: skip


def _apart(number: _Number, voting: Mapping[str, float], floor: float) -> Iterator[Finding]:
    """Report the numbers that differ from those of most nodes.

    Without a majority, both groups are reported: the right one is unknown.
    """
    groups = sides(voting, floor)
    if groups is not None and not is_majority(max(map(len, groups)), len(voting)):
        listed = "; ".join(
            f"about {median(side.values()):.4g} {number.unit} on {counted(len(side), 'node')}" for side in groups
        )
        found = warned(
            f"{number.what} differs between two groups of nodes, neither of which is a majority: {listed}",
            subject=number.what, found=listed, expected="equal on nodes of a kind; which side is right is not known",
            evidence=[number.key],
        ).on(voting)  # fmt: skip
        yield replace(found, undecided=True)
        return
    odd = outliers(voting, floor)
    above = sum(one.number > one.usual for one in odd)
    for one in odd:
        bad, many = (number.up, above) if one.number > one.usual else (number.down, len(odd) - above)
        if not bad and not systemic(many, len(voting)):
            continue
        mine, usual = f"{one.number:.4g} {number.unit}", f"{one.usual:.4g} {number.unit}"
        yield warned(
            f"{number.what} is {mine}; most nodes ({len(voting) - len(odd)} of {len(voting)}) have about {usual}",
            subject=number.what, found=mine, expected=f"within {max(floor, 3.5 * one.spread):.3g} of {usual}",
            evidence=[number.key],
        ).on([one.name])  # fmt: skip
