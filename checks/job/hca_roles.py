"""Check of the roles of the HCAs that a job uses, based on its log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from preflight import parsers
from preflight.checks.logs import RERUN, no_nccl
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, counted, failed, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.parsers.nccl_log import Hca, NcclLog

ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"

_ROLES = "declare them in the cluster file: [class.NAME.ports] compute, storage, management"


@check(
    "nccl.hca-roles",
    title="The job uses only HCAs of the compute fabric",
    fault="The job uses HCAs outside the compute fabric",
    impact="slows-job",
    source=f"{ENV}#nccl-ib-hca; `NET/IB : Using` and `via NET/IB/N` lines, NCCL 2.4 … 2.30",
    fix="List the compute ports by exact name in the job's environment or in /etc/nccl.conf: "
    "NCCL_IB_HCA==mlx5_0,mlx5_3 (the second `=` makes names exact).",
    action="fix-job",
    answers=("NT-ROL-1",),
    scope="run",
    gating=False,
    unless=(no_nccl,),
)
def hca_roles(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the HCAs that NCCL used in a log with the cluster file's roles.

    ## Why it matters
    Collectives over a storage port take the checkpoints' bandwidth and leave the compute fabric unused; over a
    management port, they run at a fraction of the rate and slow down the complete ring.

    ## Verdicts
    A channel over an HCA with the role storage or management fails. Such an HCA warns if NCCL selected it but no
    channel uses it, and so does an HCA that is not declared as compute. Without declared roles, or without HCAs in the
    log, the result is unknown.

    ## False alarms
    Classes of nodes with different HCA names; check the log with the nodes of one class.
    """
    ports = site.members.ports
    aside = {device: role for role, devices in (("storage", ports.storage), ("management", ports.management))
             for device in devices or ()}  # fmt: skip
    for key, log in run.nccl_logs.items():
        yield from _of_log(key, log, ports.compute, aside)


def _of_log(key: str, log: NcclLog, compute: tuple[str, ...] | None, aside: Mapping[str, str]) -> Iterator[Finding]:
    name = key.removeprefix("log:")
    at: dict[str, Any] = {"evidence": [key]}
    if not log.hcas:
        if log.network_names and all(parsers.nccl_log.is_tcp(network) for network in log.network_names):
            yield skipped(f"{name}: TCP sockets use no HCA (see nccl.transport)", subject=name, **at)
        else:
            yield unknown(f"{name}: the log does not list the HCAs that NCCL selected", fix=RERUN, subject=name, **at)
        return
    if compute is None and not aside:
        yield unknown(f"{name}: the roles of {_named(log.hcas)} are not declared", fix=_ROLES, subject=name, **at)
        return
    loud = [_judged(name, key, log, hca, aside.get(hca.name), compute) for hca in log.hcas]
    yield from (one for one in loud if one is not None)
    if not any(loud):
        if compute is None:
            yield unknown(
                f"{name}: none of {_named(log.hcas)} is for storage or management, and the "
                "compute ports are not declared",
                fix=_ROLES,
                subject=name,
                **at,
            )
        else:
            yield passed(f"{name}: NCCL selected only compute ports ({counted(len(log.hcas), 'HCA')})", subject=name,
                         found=_named(log.hcas), evidence=[key])  # fmt: skip


def _judged(
    name: str, key: str, log: NcclLog, hca: Hca, role: str | None, compute: tuple[str, ...] | None
) -> Finding | None:
    """Judge one HCA; None if it may be used."""
    if role is None and (compute is None or hca.name in compute):
        return None
    first = next((one.first for one in log.ib_devices if (one.name, one.port) == (hca.name, hca.port)), None)
    at: dict[str, Any] = {"subject": f"{hca.name}:{hca.port}", "evidence": [key], "quote": str(first or "")}
    at["expected"] = "compute ports only (cluster file)" if compute is None else ", ".join(compute)
    what = f"a {role} port" if role else "which is not declared as compute in the cluster file"
    if hca.channels:
        grade = failed if role else warned
        return grade(f"{name}: {hca.channels} connections run over {hca.name}, {what}",
                   found=f"{hca.channels} connections", **at)  # fmt: skip
    use = "the log shows no connection over it" if hca.channels == 0 else "the log shows no connections"
    return warned(f"{name}: NCCL selected {hca.name}, {what}; {use}", found="selected", **at)


def _named(hcas: tuple[Hca, ...]) -> str:
    return ", ".join(f"{hca.name}:{hca.port}" for hca in hcas[:16]) + (" and more" if len(hcas) > 16 else "")
