"""Checks of systemd units: declared ones, and failed ones."""

from __future__ import annotations

import re
from collections.abc import Iterator

from preflight.checks.applicability import no_service_declared, no_systemd
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, counted, failed, passed, unknown, verb, warned
from preflight.parsers.host.services import FAILED, Service, parse, parse_units, state_in_words
from preflight.probes.declared import unit_name, units

#: Units that jobs need to start, to see their files, or for the correct time. A judgement call.
_OF_JOBS = re.compile(
    r"(?:slurmd|slurmstepd|munge|pbs|pbs_mom|lsf|lsfd|flux|kubelet|containerd|docker|crio|cri-o|enroot"
    r"|sssd|nslcd|winbind|autofs|openibd|rdma-load-modules@\S+|rdma-hw|mst|chrony|chronyd|ntpd|ntp|systemd-timesyncd"
    r"|nfs-client|nfs-mountd|rpc-gssd|rpcbind|lustre|lustre-client|lnet|gpfs|mmautoload|beegfs-client|beegfs-helperd"
    r"|weka-agent|sshd|ssh|dbus|dbus-broker|systemd-logind|systemd-networkd|NetworkManager)\.\w+"
    r"|(?!(?:snap|run|media|tmp|var-lib-(?:docker|containerd|containers|kubelet))-)\S+\.mount"
)
_OF_GPUS = re.compile(r"nvidia-(?:persistenced|dcgm|mig-manager|peermem\S*)\.service|dcgm\.service")

#: Units with their own checks.
_ELSEWHERE = ("nvidia-fabricmanager.service", "nvidia-imex.service")


@check(
    "host.services",
    title="The services that the cluster file declares are active",
    fault="A declared service is not active",
    impact="blocks-job",
    source="the cluster file: class.NAME.host.services; systemctl(1)",
    fix="Run `systemctl status UNIT` and `journalctl -u UNIT -b`; start the unit, or correct the cluster file.",
    unless=(no_service_declared,),
    action="fix-site",
)
def services(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the state of each declared systemd unit with *active*.

    ## Why it matters
    If slurmd, munge, the name service or a mount has failed, a node passes every hardware test but runs no jobs, or
    fails each one.

    ## Verdicts
    A unit that is not active, or not installed, fails; one that is starting or stopping is unknown. A one-shot service
    that finished (`exited`) counts as active. Aliases of a unit count. Containers are skipped.

    ## False alarms
    A service that only some nodes of a class run; give those nodes their own class.
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
        yield passed(f"{' and '.join(right)} {verb(len(right), 'is')} active, as the cluster file declares",
                     found=counted(len(right), "unit"),
                     evidence=[key])  # fmt: skip


def _not_active(name: str, unit: Service | None, expected: str, key: str) -> Finding:
    if unit is None:
        return unknown(f"systemctl does not show {name}", subject=name, expected=expected, evidence=[key])
    state = f"{unit.active} ({unit.sub})" if unit.sub else unit.active
    if not unit.known:
        return failed(f"{name} is not installed", subject=name, found=unit.load, expected=expected, evidence=[key])
    if unit.active in ("activating", "deactivating") and unit.sub != "auto-restart":
        return unknown(f"{name} is {state}: neither active nor failed", subject=name, found=state, expected=expected,
                       evidence=[key], fix=f"wait, then check again: `systemctl status {name}`")  # fmt: skip
    return failed(
        f"{name} {state_in_words(unit.active, unit.sub)}{'' if unit.active == 'failed' else ', not active'}",
        subject=name,
        found=state,
        expected=expected,
        evidence=[key],
    )


@check(
    "host.failed-units",
    title="No systemd unit has failed",
    fault="A systemd unit has failed",
    impact="drifts",
    explains=(("gpu.persistence", "node", "nvidia-persistenced*"),),
    source="systemctl(1): list-units --state=failed",
    fix="Run `systemctl status UNIT`; repair or disable the unit, then run `systemctl reset-failed UNIT`. Declare the "
    "required units (class.NAME.host.services) and those that may fail (class.NAME.host.may_fail).",
    gating=False,
    unless=(no_systemd,),
    action="fix-site",
)
def failed_units(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for failed systemd units.

    ## Why it matters
    systemd reports a failed unit only in its journal. A job that needs the unit fails hours later, with an error that
    does not name it.

    ## Verdicts
    A failed unit that most jobs need (schedulers, container engines, name services, mounts, clocks, RDMA, and NVIDIA's
    services on GPU nodes) warns. Other failed units are unknown, in one finding, unless `host.may_fail` in the cluster
    file lists them. `host.services` judges declared units, and the NVLink checks judge the fabric manager and IMEX.
    The check never gates a job.

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
        yield unknown(f"it is not declared whether jobs need these failed units: {', '.join(others[:12])}{more}",
                      found=counted(len(others), "failed unit"), expected="none, or units that may fail",
                      evidence=[FAILED],
                      fix=f"run `systemctl status UNIT`, and declare the unit under {site.host('services').key} or "
                      f"{site.host('may_fail').key}")  # fmt: skip
    if not failures:
        excused = " except the declared ones" if declared else ""
        yield passed(f"no systemd unit has failed{excused}", evidence=[FAILED])
