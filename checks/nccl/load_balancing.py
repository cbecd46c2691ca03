"""Checks of NCCL load balancing: queue pairs, adaptive routing, service level."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from preflight import parsers
from preflight._startup.lightclass import dataclass, replace
from preflight.checks.applicability import RDMA_CLASS, efa_only, no_rdma
from preflight.checks.logs import RERUN, no_nccl
from preflight.checks.nccl.fabric_fit import GUIDE
from preflight.checks.nccl.settings_scope import as_set, environments, unread
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.nccl_environment import PROCESS, NcclEnvironment, Setting
from preflight.facts.nccl_settings.collect import of_log
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import Port
from preflight.model import Finding, check, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.parsers.nccl_log import NcclLog

VARIABLES = _ADAPTIVE, _PAIRS, _LEVEL = "NCCL_IB_ADAPTIVE_ROUTING", "NCCL_IB_QPS_PER_CONNECTION", "NCCL_IB_SL"

#: Minimum number of queue pairs per connection that a hash can spread.
SEVERAL = 2


@dataclass(frozen=True)
class _Way:
    """Settings that spread one connection; None means unset, so the default applies."""

    adaptive: int | None  # default 1 on InfiniBand, 0 on RoCE
    pairs: int | None  # default 1
    level: int | None  # default 0
    settings: tuple[Setting, ...]

    @property
    def pairs_text(self) -> str:
        pairs = 1 if self.pairs is None else self.pairs
        number = f"{pairs} queue pair{'s' if pairs != 1 else ''} per connection"
        return number + (" (NCCL's default)" if self.pairs is None else "")


def no_choice_of_paths(node: NodeFacts, site: Site) -> Finding | None:
    """Return a finding if no port is active or there is one path only, else None."""
    ports = _active(node, site)
    if not ports:
        return unknown("no compute port is active: see rdma.port-state", evidence=[RDMA_CLASS])
    if absent := efa_only(ports, "they spread every message over many paths automatically (SRD)"):
        return absent
    if site.load_balancing.value != "one-path":
        return None
    return skipped(f"there is one path between two ports ({site.load_balancing.source})", evidence=[RDMA_CLASS])


@check(
    "nccl.load-balancing",
    title="NCCL's connections can be spread over the paths of the fabric",
    fault="NCCL's connections cannot be spread over the paths of the fabric",
    impact="slows-job",
    explains=(("nccl.run-balancing", "log"),),
    source=f"{GUIDE} (NCCL_IB_QPS_PER_CONNECTION: routing entropy; NCCL_IB_ADAPTIVE_ROUTING, NCCL_IB_SL)",
    fix="For switches that hash, set `NCCL_IB_QPS_PER_CONNECTION=4` in /etc/nccl.conf. For adaptive routing, "
    "set `NCCL_IB_ADAPTIVE_ROUTING=1`, and on InfiniBand set NCCL_IB_SL to the subnet manager's adaptive "
    "service level.",
    action="fix-job",
    answers=("FP-CON-5", "AN-7"),
    gating=False,
    unless=(no_rdma, no_choice_of_paths),
)
def load_balancing(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare NCCL's queue pairs and adaptive routing with the fabric's balancing.

    ## Why it matters
    NCCL's flows are few and large. A switch that hashes sends all packets of a queue pair over one path. Two queue
    pairs on one path share it while other paths are idle; adaptive routing works only if NCCL allows it.

    ## Verdicts
    On InfiniBand, NCCL requests adaptive routing by default; disabling it warns, and so does a service level other than
    the cluster file's `adaptive_sl`. On RoCE, the cluster file's `load_balancing` decides: "hash" with one queue pair
    per connection warns, and so does "adaptive" without NCCL_IB_ADAPTIVE_ROUTING=1. "spray" (switches that spread
    packets regardless of the sender) passes, and "one-path" is skipped. Without the key, RoCE is unknown.

    ## False alarms
    A job of two nodes under one leaf, which has only one path in any case.
    """
    ports = _active(node, site)
    roce = 2 * sum(port.roce for port in ports) > len(ports)  # rdma.link-layer reports a single odd port
    missing = list(unread(node, f"{_PAIRS} or {_ADAPTIVE}"))
    yield from missing
    ways = list(dict.fromkeys(_way(env) for env in environments(node)))
    findings = [_on_roce(way, site) if roce else _on_infiniband(way, site) for way in ways]
    bad = [finding for finding in findings if finding.status != "pass"]
    yield from bad
    if not bad and not missing:
        yield findings[0]


def _active(node: NodeFacts, site: Site) -> list[Port]:
    return [port for port in site.roles(node).compute if port.active]


def _way(env: NcclEnvironment) -> _Way:
    names = (_ADAPTIVE, _PAIRS, _LEVEL)
    settings = tuple(found for name in names if (found := env.get(name)))
    return _Way(env.integer(_ADAPTIVE), env.integer(_PAIRS), env.integer(_LEVEL), settings)


def _details(settings: Sequence[Setting], **more: Any) -> dict[str, Any]:
    return {
        "subject": settings[0].name if settings else "",
        "evidence": list(dict.fromkeys(setting.source for setting in settings)) or [PROCESS],
        "quote": "\n".join(as_set(setting) for setting in settings),
        **more,
    }


def _on_infiniband(way: _Way, site: Site) -> Finding:
    wanted, level = site.adaptive_sl, way.level or 0
    if way.adaptive == 0:
        about = [one for one in way.settings if one.name == _ADAPTIVE]
        return warned(f"{about[0].text} in {about[0].where} keeps every connection on one static route",
                      **_details(about, found="0", expected="unset: NCCL's default on InfiniBand is 1"))  # fmt: skip
    if wanted.value is not None and level != wanted.value:
        about = [one for one in way.settings if one.name == _LEVEL]
        message = f"NCCL sends on service level {level}, but the fabric routes adaptively on {wanted.value}"
        return warned(message, **_details(about, found=level, expected=f"{_LEVEL}={wanted.value} ({wanted.source})"))
    message = f"NCCL lets the fabric route adaptively on service level {level}"
    evidence = _details(way.settings)["evidence"]
    return passed(message, found="NCCL's default" if way.adaptive is None else f"{_ADAPTIVE}={way.adaptive}",
                  evidence=evidence)  # fmt: skip


def _on_roce(way: _Way, site: Site) -> Finding:
    spread, pairs = site.load_balancing, way.pairs or 1
    details = _details(way.settings)
    if spread.value == "adaptive":
        if way.adaptive == 1:
            return passed(f"{_ADAPTIVE}=1, because the fabric routes adaptively", evidence=details["evidence"])
        value = "0, NCCL's default on RoCE" if way.adaptive is None else way.adaptive
        return warned("NCCL does not let the fabric route adaptively", **_details(
            [one for one in way.settings if one.name == _ADAPTIVE], found=value,
            expected=f"{_ADAPTIVE}=1 ({spread.source} is adaptive)"))  # fmt: skip
    if spread.value == "hash" and pairs < SEVERAL:
        return warned(f"NCCL uses {way.pairs_text}, too few for the switches' hash to spread the traffic", **_details(
            [one for one in way.settings if one.name == _PAIRS], found=pairs,
            expected=f"at least {SEVERAL} ({spread.source} is hash)"))  # fmt: skip
    if spread.value == "hash":
        return passed(
            f"NCCL uses {way.pairs_text}, which the switches' hash can spread",
            found=pairs,
            evidence=details["evidence"],
        )
    if spread.value == "spray":
        return passed(f"the switches spread packets automatically ({spread.source})", evidence=details["evidence"])
    advice = f'declare it in the cluster file: {spread.key} = "hash" (ECMP), "adaptive", "spray" or "one-path"'
    return unknown(f"NCCL uses {way.pairs_text}; the cluster file does not declare how the switches spread "
                   "flows", found=pairs, fix=advice,
                   evidence=details["evidence"])  # fmt: skip


@check(
    "nccl.run-balancing",
    title="The run's connections could be spread over the paths of the fabric",
    fault="The run's connections could not be spread over the paths of the fabric",
    impact="slows-job",
    source=f"{GUIDE}; the list of devices and the `set by environment to` lines of NCCL 2.4 … 2.30",
    fix="For switches that hash, set `NCCL_IB_QPS_PER_CONNECTION=4` in the job's environment; see nccl.load-balancing.",
    action="fix-job",
    scope="run",
    gating=False,
    unless=(no_nccl,),
)
def run_balancing(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the load-balancing settings in a log with the fabric's balancing.

    ## Why it matters
    The log shows the settings of the slow job; the nodes show those of the next job.

    ## Verdicts
    The rules are those of nccl.load-balancing: "hash" with one queue pair, "adaptive" without adaptive routing, and
    disabled adaptive routing on InfiniBand warn. A run on one node, or over TCP, is skipped; a log that lists
    no devices is unknown.

    ## False alarms
    A job of two nodes under one leaf, which has only one path in any case.
    """
    for key, log in run.nccl_logs.items():
        name = key.removeprefix("log:")
        found = replace(_of_log(log, key, site), subject=name, evidence=(key,))
        nodes = _nodes_alike(run, log, key)
        alike = replace(found, message=f"{name}: {found.message}")
        yield alike.from_cause(("nccl.load-balancing", *nodes) if nodes else ())


def _of_log(log: NcclLog, key: str, site: Site) -> Finding:
    if log.nnodes == 1:
        return skipped("the job runs on one node, so there is no traffic between nodes", evidence=[key])
    if log.network_names and all(parsers.nccl_log.is_tcp(network) for network in log.network_names):
        return skipped("TCP has no queue pairs (see nccl.transport)", evidence=[key])
    if site.load_balancing.value == "one-path":
        return skipped(f"there is one path between two ports ({site.load_balancing.source})", evidence=[key])
    if not log.ib_devices:
        return unknown("the log lists no RDMA devices, so their link layer is unknown", evidence=[key], fix=RERUN)
    way = _way_of_log(log, key)
    roce = 2 * sum(device.roce for device in log.ib_devices) > len(log.ib_devices)
    return _on_roce(way, site) if roce else _on_infiniband(way, site)


def _way_of_log(log: NcclLog, key: str) -> _Way:
    reported = of_log(log.environment, key)
    return _way(reported.environment if reported else NcclEnvironment((), {}))


def _nodes_alike(run: RunFacts, log: NcclLog, key: str) -> list[str]:
    """Return the nodes of a log whose own settings equal those of the log.

    The settings for new jobs and those of running ranks are compared.
    """
    way = replace(_way_of_log(log, key), settings=())
    nodes = {node.node: node for host in log.hosts if (node := run.host(host))}
    return [name for name, node in nodes.items() if way in _ways(node)]


def _ways(node: NodeFacts) -> list[_Way]:
    """Return the settings for new jobs and running ranks; empty if not read."""
    try:
        return [replace(_way(env), settings=()) for env in environments(node)]
    except EvidenceError:
        return []
