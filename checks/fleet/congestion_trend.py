"""Check of congestion and bit errors that grow over many runs; it needs --history."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from statistics import median

from preflight._startup.lightclass import dataclass
from preflight.evidence.document import COURSE
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.facts.time_series import TimeSeries, ratio, series_of
from preflight.model import Finding, check, clause, counted, passed, skipped, unknown, warned

#: Values, and days between the first and the last, for a trend; share of all pairs of values in which the later one is
#: larger: for seven values without a trend, 16 of 21 pairs grow by chance in one of fifteen cases.
_VALUES, _DAYS, _PAIRS = 7, 3.0, 0.75

#: Traffic between two runs that a share requires, in packets and in bytes; a port with less is idle.
_PACKETS, _GIGABYTE = 1e6, 1e9


@dataclass(frozen=True)
class _Rule:
    name: str
    metric: str
    per: str  # the counter of the traffic; empty: the metric is a ratio already
    least: float  # traffic for one value
    floor: float  # value below which growth is harmless
    factor: float  # growth from the oldest to the newest third of the values
    scale: float  # from the ratio to the shown unit
    words: str


#: Judgement calls: a thousandth of the packets marked; at 400 Gb/s, a millisecond of pause per gigabyte is a twentieth
#: of the time to send it. Raw bit errors: a hundredth of the limit of optics.ber.
_RULES = (
    _Rule("ECN marks", "port.np_ecn_marked_roce_packets", "port.port_rcv_packets", _PACKETS, 1e-3, 2, 100,
          "{}% of the packets received were ECN-marked"),
    _Rule("CNPs", "port.rp_cnp_handled", "port.port_xmit_packets", _PACKETS, 1e-4, 2, 1e6,
          "the port handled {} CNPs per million packets sent"),
    _Rule("pauses received", "port.rx_paused_us", "port.port_xmit_data", _GIGABYTE, 1e3 / 1e9, 2, 1e6,
          "the switch paused the port for {} ms per GB sent"),
    _Rule("pauses sent", "port.tx_paused_us", "port.port_rcv_data", _GIGABYTE, 1e3 / 1e9, 2, 1e6,
          "the port sent {} ms of pauses to the switch per GB received"),
    _Rule("waits", "port.port_xmit_wait", "port.port_xmit_packets", _PACKETS, 1, 2, 1,
          "the port waited {} ticks for credit per packet sent"),
    _Rule("bit errors", "port.raw_ber", "", 0, 1e-9, 10, 1, "the bit error ratio before FEC is {}"),
)  # fmt: skip

_TRAFFIC = ("port.port_rcv_packets", "port.port_xmit_packets")


@check(
    "trend.congestion",
    title="Congestion and bit errors of ports do not grow over days",
    fault="Congestion or the bit error ratio of a port grows over days",
    impact="drifts",
    owner="network",
    source="mlx5 counters (ECN, CNP, pause duration), InfiniBand PortXmitWait, mlxlink; Kendall's tau; limits are "
    "judgement calls",
    fix="`preflight check --switches --window 60` under load names the port that starts the pauses; compare new jobs, "
    "lost uplinks and ECN settings since the first day. For bit errors, clean or replace the module.",
    answers=("AN-9",),
    gating=False,
    history=True,
)
def congestion(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each port's marks, pauses and waits per packet over days.

    ## Why it matters
    A fabric becomes slow before a job fails, for example because an uplink is lost, a receiver gets slower or a module
    gets dirty. The share of marked or paused traffic shows this early.

    ## Verdicts
    Each value is the growth of a counter between two runs per packet or byte that the port carried, so more jobs alone
    do not change it. A port warns if the median of the newest third of the values is at least twice that of the oldest
    third, three of four pairs of values grow, and the newest values are not negligible. The least values that count are
    0.1% of the packets marked, 100 CNPs per million packets, 1 ms of pauses per GB, and one tick of waiting per packet.
    The bit error ratio before FEC warns if it grew tenfold, to 1e-9 or more. A trend needs seven values over three
    days. Idle intervals and intervals with a reset do not count; a wait counter at its maximum has no value.

    ## False alarms
    A new job with another pattern of communication, such as an all-to-all instead of a ring.
    """
    ports = {series.subject for metric in _TRAFFIC for series in series_of(node.evidence, metric)}
    judged: dict[str, list[str]] = {port: [] for port in sorted(ports)}
    grown: set[str] = set()
    most = 0
    for rule in _RULES:
        for values in _values(node, rule):
            if len(values.values) < _VALUES or values.days[-1] < _DAYS:
                most = max(most, len(values.values))
                continue
            if rule.per:
                judged[values.subject].append(rule.name)
            if (change := _growth(rule, values)) is not None:
                grown.add(values.subject)
                earlier, now = (f"{rule.scale * value:.3g}" for value in change)
                when = f"about {values.days[-1]:.0f} days earlier"
                yield warned(
                    f"{values.subject}: {rule.words.format(now)}, compared with {earlier} {when}",
                    subject=values.subject, found=rule.words.format(now), expected=f"about {earlier}, as before",
                    evidence=[COURSE],
                )  # fmt: skip
    blank = [port for port, names in judged.items() if not names and port not in grown]
    if not ports and not grown:
        yield skipped("no port of this node has reported its traffic", evidence=[COURSE])
    elif blank and _first_run(node):
        yield skipped("this is the first record, so there is nothing to compare it with", evidence=[COURSE])
    elif blank:
        yield unknown(
            f"{clause(len(blank), 'port', 'has')} at most {counted(most, 'interval')} under load, too few for a trend",
            found=f"{most}", expected=f"{_VALUES} over {_DAYS:.0f} days", evidence=[COURSE],
            fix="run preflight with --history every day",
        )  # fmt: skip
    if steady := [port for port, names in judged.items() if names and port not in grown]:
        by = ", ".join(rule.name for rule in _RULES if any(rule.name in judged[port] for port in steady))
        yield passed(f"congestion does not grow at {counted(len(steady), 'port')}, judging by {by}", evidence=[COURSE])


def _values(node: NodeFacts, rule: _Rule) -> Iterator[TimeSeries]:
    """Yield the values of a rule for each port whose newest run has the counter."""
    traffic = {series.subject: series for series in series_of(node.evidence, rule.per)} if rule.per else {}
    for series in series_of(node.evidence, rule.metric):
        of = traffic.get(series.subject)
        if not rule.per:
            yield series
        elif of and series.times[-1] == of.times[-1]:
            yield ratio(series, of, rule.least)


def _growth(rule: _Rule, values: TimeSeries) -> tuple[float, float] | None:
    """Return the medians of the oldest and newest third if the values grew; else None."""
    third = len(values.values) // 3
    earlier, now = median(values.values[:third]), median(values.values[-third:])
    if now < rule.floor or now < rule.factor * earlier:
        return None
    signs = [later > before for before, later in combinations(values.values, 2)]
    return (earlier, now) if sum(signs) >= _PAIRS * len(signs) else None


def _first_run(node: NodeFacts) -> bool:
    """Return whether no earlier run recorded the traffic of a port."""
    return all(len(series.values) == 1 for metric in _TRAFFIC for series in series_of(node.evidence, metric))
