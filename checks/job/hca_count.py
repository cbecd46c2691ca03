"""Check of the number of HCAs that each host in a log uses."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from preflight import parsers
from preflight.checks.logs import RERUN, cited, no_nccl
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, counted, passed, skipped, unknown, verb, warned

if TYPE_CHECKING:
    from preflight.parsers.nccl_log import HostHcas, NcclLog

ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"

#: Number of ranks of a node on its only listed HCA at which others may be down, missing or left out.
_SHARED_BY = 4

#: Maximum number of hosts and of HCAs in a message.
_MOST_HOSTS, _MOST_NAMES = 8, 16


@check(
    "nccl.hca-count",
    title="Each host of the job uses the same number of HCAs",
    fault="A host of the job uses fewer HCAs than other hosts",
    impact="slows-job",
    source=f"{ENV}#nccl-ib-hca; lists of `NET/IB : Using`, NCCL 2.4 … 2.30",
    fix="On the host with fewer HCAs, run `ibstat` or `rdma link` (is a port down, or a device missing?), and check "
    "NCCL_IB_HCA in the job's environment and in /etc/nccl.conf.",
    action="fix-site",
    scope="run",
    gating=False,
    unless=(no_nccl,),
)
def hca_count(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the lists of HCAs that the hosts of a log print when the job starts.

    ## Why it matters
    NCCL omits a port that is down without a warning. The ranks next to it share the remaining ports, and each
    ring through that host waits for them. The devices after the gap also get different indexes, so connections cross
    rails.

    ## Verdicts
    Hosts whose lists differ in length warn, with the devices that only the longer lists contain. With `ports.compute`
    in the cluster file, a list without one of them warns instead. Without it, four or more local ranks on the only
    device are unknown if the job has several nodes: the log does not show whether the node has more. Truncated
    lists, and hosts whose processes list different devices, are not compared.

    ## False alarms
    Nodes of two kinds in one job, with a different number of NICs each.
    """
    for key, log in run.nccl_logs.items():
        yield from _of_log(key, log, site)


def _of_log(key: str, log: NcclLog, site: Site) -> Iterator[Finding]:
    name = key.removeprefix("log:")
    lists = log.hcas_by_host
    at: dict[str, Any] = {"evidence": [key]}
    if not lists:
        if log.network_names and all(parsers.nccl_log.is_tcp(network) for network in log.network_names):
            yield skipped(f"{name}: TCP sockets use no HCA (see nccl.transport)", subject=name, **at)
        else:
            yield unknown(f"{name}: no host shows a complete list of its HCAs", fix=RERUN, subject=name, **at)
        return
    compute = site.members.ports.compute
    fewer = list(_fewer(name, lists, at) if compute is None else _unused(name, lists, compute, at))
    yield from fewer
    if (alone := _one_for_many(name, log, site, at)) is not None:
        yield alone
    elif not fewer:
        hcas = counted(len(lists[0].names), "HCA")
        words = f"{len(lists)} hosts use {hcas} each" if len(lists) > 1 else f"{lists[0].host} uses {hcas}"
        yield passed(f"{name}: {words}", subject=name, **at)


def _fewer(name: str, lists: tuple[HostHcas, ...], at: dict[str, Any]) -> Iterator[Finding]:
    """Warn about hosts with fewer HCAs, grouped by the missing ones."""
    longest = max(lists, key=lambda entry: len(entry.names))
    groups: dict[tuple[str, ...], list[HostHcas]] = {}
    for entry in lists:
        if len(entry.names) < len(longest.names):
            groups.setdefault(entry.names, []).append(entry)
    for names, hosts in groups.items():
        missing = [port for port in longest.names if port not in names]
        yield warned(
            f"{name}: {_hosts(hosts)} {'uses' if len(hosts) == 1 else 'use'} {len(names)} HCAs, but {longest.host} "
            f"uses {len(longest.names)}; {_listed(missing)} {verb(len(missing), 'is')} missing",
            subject=hosts[0].host,
            found=f"{len(names)}: {_listed(names)}",
            expected=f"{len(longest.names)}, as on {longest.host}: {_listed(longest.names)}",
            quote=cited(longest.first, hosts[0].first),
            **at,
        )


def _unused(name: str, lists: tuple[HostHcas, ...], compute: tuple[str, ...], at: dict[str, Any]) -> Iterator[Finding]:
    """Warn about hosts that did not use declared compute ports, grouped by the ports."""
    groups: dict[tuple[str, ...], list[HostHcas]] = {}
    for entry in lists:
        used = {port.partition(":")[0] for port in entry.names}
        if missing := tuple(device for device in compute if device not in used):
            groups.setdefault(missing, []).append(entry)
    for missing, hosts in groups.items():
        yield warned(
            f"{name}: {_hosts(hosts)} did not use the compute port {_listed(missing)}",
            subject=hosts[0].host,
            found=_listed(hosts[0].names),
            expected=f"{_listed(compute)} (cluster file)",
            quote=cited(hosts[0].first),
            **at,
        )


def _hosts(hosts: list[HostHcas]) -> str:
    return ", ".join(entry.host for entry in hosts[:_MOST_HOSTS]) + (" and more" if len(hosts) > _MOST_HOSTS else "")


def _one_for_many(name: str, log: NcclLog, site: Site, at: dict[str, Any]) -> Finding | None:
    """Return *unknown* if many ranks share the only HCA that NCCL uses."""
    setting = log.variable("NCCL_IB_HCA")
    shared = [entry for entry in log.hcas_by_host if len(entry.names) == 1 and (entry.local_ranks or 0) >= _SHARED_BY]
    if not shared or site.members.ports.compute is not None:
        return None
    entry = shared[0]
    if setting is None and (log.nranks or 0) <= (entry.local_ranks or 0):  # one node needs no HCA
        return None
    only = f"NCCL_IB_HCA={setting.value} leaves only" if setting else "NCCL found only"
    return unknown(
        f"{name}: {only} {entry.names[0]} for the {entry.local_ranks} ranks of {entry.host}; "
        "the log does not show whether the node has more HCAs",
        subject="NCCL_IB_HCA" if setting else entry.host,
        found=f"1 HCA for {entry.local_ranks} local ranks",
        expected="a near HCA for each GPU, if the node has them",
        quote=cited(setting.first, entry.first) if setting else cited(entry.first),
        fix=f"on {entry.host}, run `rdma link` and `nvidia-smi topo -m`; then declare [class.NAME.ports] compute",
        **at,
    )


def _listed(names: list[str] | tuple[str, ...]) -> str:
    return ", ".join(names[:_MOST_NAMES]) + (" and more" if len(names) > _MOST_NAMES else "")
