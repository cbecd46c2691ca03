"""Units of systemd: those that the cluster file declares, and those that failed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.checks.applicability import no_service_declared, no_systemd
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, failed, passed, unknown, warned
from preflight.parsers.host.services import FAILED, Service, parse, parse_units
from preflight.probes import unit_name, units

#: Units without which a job does not start, does not see its files, or computes with wrong time. A judgement.
_OF_JOBS = re.compile(
    r"(?:slurmd|slurmstepd|munge|pbs|pbs_mom|lsf|lsfd|flux|kubelet|containerd|docker|crio|cri-o|enroot"
    r"|sssd|nslcd|winbind|autofs|openibd|rdma-load-modules@\S+|rdma-hw|mst|chrony|chronyd|ntpd|ntp|systemd-timesyncd"
    r"|nfs-client|nfs-mountd|rpc-gssd|rpcbind|lustre|lustre-client|lnet|gpfs|mmautoload|beegfs-client|beegfs-helperd"
    r"|weka-agent|sshd|ssh|dbus|dbus-broker|systemd-logind|systemd-networkd|NetworkManager)\.\w+"
    r"|(?!(?:snap|run|media|tmp|var-lib-(?:docker|containerd|containers|kubelet))-)\S+\.mount"
)
_OF_GPUS = re.compile(r"nvidia-(?:persistenced|dcgm|mig-manager|peermem\S*)\.service|dcgm\.service")

#: Judged by checks of their own.
_ELSEWHERE = ("nvidia-fabricmanager.service", "nvidia-imex.service")


@check(
    "host.services",
    title="The services that the cluster file declares are active",
    fault="A service that jobs need is not active",
    impact="blocks-job",
    source="the cluster file: class.NAME.host.services; systemctl(1)",
    fix="`systemctl status UNIT`, `journalctl -u UNIT -b`; start it, or correct the cluster file.",
    unless=(no_service_declared,),
    action="fix-site",
)
def services(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the state of each declared unit of systemd with *active*.

    ## Why it matters
    Where slurmd, munge, the name service or a mount has failed, a node passes every test of its hardware, and takes no
    job, or ends each that it takes.

    ## Verdicts
    A unit that is not active, or not installed, fails; one that is starting or stopping is unknown. A service that has
    done its work and ended (`exited`) is active. Another name of a unit counts. Containers are left out.

    ## False alarms
    A service that only some nodes of a class run; give those a class of their own.
    """
    declared = [unit_name(name) for name in site.members.host.services or ()]
    expected = site.host("services")
    key = units(declared).key
    shown = node.parsed(key, parse)
    by_name = {name: unit for unit in shown.values() for name in (unit.name, *unit.names)}
    right = []
    for name in declared:
        unit = by_name.get(name)
        if unit is not None and unit.active in ("active", "reloading"):
            right.append(name)
            continue
        yield _not_active(name, unit, f"active ({expected.source})", key)
    if right:
        yield passed(f"active, as the cluster file declares: {', '.join(right)}", found=f"{len(right)} units",
                     evidence=[key])  # fmt: skip


def _not_active(name: str, unit: Service | None, expected: str, key: str) -> Finding:
    if unit is None:
        return unknown(f"{name}: systemctl does not show it", subject=name, expected=expected, evidence=[key])
    state = f"{unit.active} ({unit.sub})" if unit.sub else unit.active
    if not unit.known:
        return failed(f"{name} is not installed", subject=name, found=unit.load, expected=expected, evidence=[key])
    if unit.active in ("activating", "deactivating") and unit.sub != "auto-restart":
        return unknown(f"{name} is {state}: neither up nor down", subject=name, found=state, expected=expected,
                       evidence=[key], fix=f"wait, and look again: `systemctl status {name}`")  # fmt: skip
    return failed(f"{name} is {state}, not active", subject=name, found=state, expected=expected, evidence=[key])


@check(
    "host.failed-units",
    title="No unit of systemd has failed",
    fault="A unit of systemd has failed",
    impact="drifts",
    source="systemctl(1): list-units --state=failed",
    fix="`systemctl status UNIT`, `journalctl -u UNIT -b`; repair or disable it, `systemctl reset-failed UNIT`. "
    "Declare what must run (class.NAME.host.services) and what may fail (class.NAME.host.may_fail).",
    gating=False,
    unless=(no_systemd,),
    action="fix-site",
)
def failed_units(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for units of systemd that have failed.

    ## Why it matters
    systemd has tried, given up, and writes it to its journal only: the job that needs the unit ends hours later, with
    an error that does not name it.

    ## Verdicts
    A failed unit that jobs need anywhere (schedulers, container engines, name services, mounts, clocks, RDMA, with
    GPUs NVIDIA's services) warns. Whether further units matter is unknown, in one finding: `host.may_fail` in the
    cluster file decides it. Those that the cluster file declares are judged by `host.services`, the fabric manager and
    IMEX by checks of NVLink. It holds no job back.

    ## False alarms
    A unit of a container engine on a node that runs none; disable it. Mounts that come and go with users, snaps and
    containers do not warn.
    """
    declared = {unit_name(name) for name in (*(site.members.host.services or ()), *(site.members.host.may_fail or ()))}
    failures = [unit for unit in node.parsed(FAILED, parse_units) if unit.name not in {*declared, *_ELSEWHERE}]
    others = []
    for unit in failures:
        if _OF_JOBS.fullmatch(unit.name) or (_OF_GPUS.fullmatch(unit.name) and node.gpus_on_bus):
            about = f" ({unit.about[:80]})" if unit.about else ""
            yield warned(f"{unit.name} has failed{about}", subject=unit.name, found="failed", expected="active",
                         evidence=[FAILED])  # fmt: skip
        else:
            others.append(unit.name)
    if others:
        more = f" and {len(others) - 12} more" if len(others) > 12 else ""
        yield unknown(f"whether jobs need what has failed is not declared: {', '.join(others[:12])}{more}",
                      found=f"{len(others)} failed units", expected="none, or units that may fail", evidence=[FAILED],
                      fix=f"`systemctl status`; declare it: {site.host('services').key}, "
                      f"{site.host('may_fail').key}")  # fmt: skip
    if not failures:
        excused = " but what the cluster file declares" if declared else ""
        yield passed(f"no unit of systemd has failed{excused}", evidence=[FAILED])
