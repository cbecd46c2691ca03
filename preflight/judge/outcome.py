"""What one check says of one subject; a record that cannot answer, a crash and silence all become *unknown*."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property

from preflight.evidence import Evidence, EvidenceError
from preflight.lean import dataclass
from preflight.model import Check, Finding, Status, unknown, worst


@dataclass(frozen=True)
class Outcome:
    """What one check said of one subject, a node or the run; those of nodes that are alike are equal."""

    check: int  # its place in the list of checks that were to run: a Check itself does not travel between processes
    findings: tuple[Finding, ...]
    crashed: bool = False

    @cached_property
    def binding(self) -> Status:
        """The roll-up of what the site does not excuse."""
        return worst(finding.status if not finding.excused else Status.WARN for finding in self.findings)

    @property
    def failing(self) -> frozenset[str]:
        """The subjects on which it fails or warns."""
        return frozenset(finding.subject for finding in self.findings if finding.status in (Status.FAIL, Status.WARN))

    @cached_property
    def status(self) -> Status:
        """The roll-up of its findings."""
        return worst(finding.status for finding in self.findings)


def outcome(
    number: int, check: Check, name: str, facts: object, site: object, evidence: Callable[[], Evidence]
) -> Outcome:
    """Run one check on a subject of this name; ``evidence`` is asked for only where a record cannot answer."""
    findings: list[Finding] = []
    crashed = False
    try:
        for finding in check.findings(facts, site):
            findings.append(finding)
    except EvidenceError as error:
        findings.append(unknown(f"could not tell: {error}", evidence=[error.key], fix=supply(error.key, evidence())))
    except Exception as error:
        crashed = True
        import logging

        logging.getLogger(__name__).exception("check %s crashed on %s", check.id, name)
        findings.append(
            unknown(
                f"the check itself crashed: {type(error).__name__}: {error}",
                fix="this is a fault of preflight, not of the node: report it with the traceback in the log",
            )
        )
    if not findings:
        findings.append(unknown("the check said nothing", fix="this is a fault of the check: report it"))
    return Outcome(number, tuple(findings), crashed)


def supply(key: str, evidence: Evidence) -> str:
    """Say in one sentence how to get a record that is missing."""
    kind, _, target = key.partition(":")
    try:
        record = evidence.record(key)
    except EvidenceError:
        return f"collect again with this version of preflight, which asks for {target}"
    status = record.status
    if status == "missing" and kind == "cmd" and not record.why.startswith("nothing to ask"):
        tool = target.split()[0]
        return f"install `{tool}`{_PACKAGES.get(tool, '')} on the node"
    if status == "missing" and kind in ("psutil", "nvml"):
        return f"install the Python package {'psutil' if kind == 'psutil' else 'nvidia-ml-py'} on the node"
    if status == "denied":
        return "run with --sudo, or as root"
    if status in ("timeout", "abandoned"):
        return f"find out on the node why it hangs: {target}"
    if status == "not-run":
        return "give the run more time: --deadline"
    return f"look at it on the node: {target}"


_PACKAGES = {
    **dict.fromkeys(
        ("ibstat", "ibnetdiscover", "iblinkinfo", "ibqueryerrors", "sminfo", "saquery"), " (package infiniband-diags)"
    ),
    "ibv_devinfo": " (package ibverbs-utils, or rdma-core)",
    "dcb": " (package iproute2)",
    "mlnx_qos": " (package mlnx-tools)",
    "nvidia-smi": " (it comes with the NVIDIA driver)",
    "lspci": " (package pciutils)",
    "chronyc": " (package chrony)",
    "ethtool": " (package ethtool)",
    "ip": " (package iproute2)",
    "find": " (package findutils)",
}
