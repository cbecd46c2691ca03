"""What the cluster file declares of a node's versions, firmware and settings."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.applicability import nothing_declared
from preflight.checks.comparison import yardstick
from preflight.checks.comparison.electorate import Trait
from preflight.checks.fleet import core, gpu, host, nic, rails, software
from preflight.checks.job import rank_agreement
from preflight.checks.roce import fleet as roce
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, failed, passed, unknown, warned


@check(
    yardstick.CHECK,
    title="Versions, firmware and settings are those that the cluster file declares",
    source="the cluster file: [class.NAME.versions], firmware, gpu_settings, host, nvlink, rails, nccl, ports and qos",
    fix="Set on the node what is declared, or correct the key in the cluster file (`preflight lint --explain KEY`).",
    answers=("PA-03",),
    reads=("nvml:gpus", "file:/sys/class/dmi/id/*"),
    unless=(nothing_declared,),
)
def expected(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare what the cluster file declares of versions, firmware and settings with what the node has.

    ## Why it matters
    A majority of nodes may be wrong together; what is declared is the yardstick, and also holds for one node alone.

    ## Verdicts
    A value that breaks a job where it differs (driver, NCCL, PyTorch, number and model of GPUs, rails, …) fails, the
    rest warns, as in the comparison of nodes. Values are compared to the letter, host memory within 1 %. What the
    node does not show is unknown; what a container cannot see is left out.

    ## False alarms
    Nodes that are being upgraded in turn; declare the new version when most of them have it.
    """
    right = []
    for trait in _traits(site):
        declared = site.declared(trait.expects)
        source = next(iter(declared.values())).source
        try:
            value = trait.read(node, site)
        except EvidenceError as error:
            yield unknown(f"{trait.what} could not be read: {error.why}", subject=trait.what, expected=source,
                          evidence=[error.key])  # fmt: skip
            continue
        if value is None:
            if not node.in_container:
                yield unknown(f"{trait.what}: this node shows none, and the cluster file declares it",
                              subject=trait.what, expected=source, evidence=[trait.key])  # fmt: skip
            continue
        wrong = yardstick.misses(trait, value, site)
        for miss in wrong:
            of = f"{trait.what}, {miss.device}" if miss.device else trait.what
            yield (failed if trait.breaks else warned)(
                f"{of}: {miss.mine}, not {miss.wanted}", subject=trait.what, found=miss.mine,
                expected=f"{miss.wanted} ({miss.source})", evidence=[trait.key],
            )  # fmt: skip
        hidden = {} if node.in_container else yardstick.silent(trait, value, site)
        for device, key in hidden.items():
            yield unknown(f"{trait.what}, {device}: this node shows none, and the cluster file declares it",
                          subject=trait.what, expected=key, evidence=[trait.key])  # fmt: skip
        if not (wrong or hidden):
            right.append(trait.what)
    if right:
        yield passed(f"as the cluster file declares: {', '.join(right)}", found=f"{len(right)} values")


def _traits(site: Site) -> Iterator[Trait]:
    """Yield the compared values that the cluster file declares for a node."""
    domain = (trait for trait, _, _ in gpu.DOMAIN)
    for trait in (
        core.DRIVER, rank_agreement.NCCL, *software.SOFTWARE, *software.FIRMWARE,
        *software.nic_firmware(site.members.firmware.nics or ()), *host.HOST, *gpu.GPU, *domain,
        *nic.NIC, *rails.RAILS, rails.LEAF, *roce.PORTS, roce.GID_INDEX, *roce.MARKING,
        *rank_agreement.declared_variables(site),
    ):  # fmt: skip
        if trait.expects and site.declared(trait.expects):
            yield trait
