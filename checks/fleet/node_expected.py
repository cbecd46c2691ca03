"""Comparison of a node with its declared versions, firmware and settings."""

from __future__ import annotations

from collections.abc import Iterator

from preflight.checks.applicability import nothing_declared
from preflight.checks.comparison import declared_values
from preflight.checks.comparison.electorate import Trait
from preflight.checks.comparison.values import PerDevice
from preflight.checks.fleet import core, gpu, host, nic, rails, software
from preflight.checks.job import rank_agreement
from preflight.checks.roce import fleet as roce
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, clause, counted, failed, passed, unknown, warned

#: Maximum number of devices listed for one wrong value.
_NAMED = 4


@check(
    declared_values.CHECK,
    title="Versions, firmware and settings match the cluster file",
    fault="The node differs from the cluster file",
    impact="drifts",
    explains=(
        (declared_values.CHECK, "node", "multithreading*", "logical CPUs*"),
        ("rdma.firmware", "node", "firmware of NICs *"),
    ),
    source="the cluster file: [class.NAME.versions], firmware, gpu_settings, host, nvlink, rails, nccl, ports and qos",
    fix="Apply the declared value on the node, or correct the key in the cluster file (`preflight lint "
    "--explain KEY`).",
    action="fix-site",
    answers=("PA-03",),
    reads=("nvml:gpus", "file:/sys/class/dmi/id/*", "file:/sys/class/infiniband/*/board_id"),
    unless=(nothing_declared,),
)
def expected(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare versions, firmware and settings with the cluster file.

    ## Why it matters
    A majority of nodes can be wrong together. Declared values do not depend on other nodes, so a single node can be
    judged as well.

    ## Verdicts
    Values whose difference breaks a job (driver, NCCL, PyTorch, number and model of GPUs, rails, …) fail, and so does
    the server's hardware (memory, CPUs, multithreading, NUMA nodes, NVMe drives, swap); others warn, as in the
    comparison of nodes. The finding names the GPUs and NICs that differ. Values must match exactly, host memory within
    1%; any value of a declared list is accepted. A value that the node does not show is unknown; values invisible in
    a container are left out.

    ## False alarms
    A rolling upgrade; declare both versions as a list until it is complete.
    """
    right = []
    for trait in _traits(site):
        declared = site.declared(trait.expects)
        source = next(iter(declared.values())).source
        try:
            value = trait.read(node, site)
        except EvidenceError as error:
            yield unknown(f"{trait.what} could not be read: {error}", subject=trait.what, expected=source,
                          evidence=[error.key])  # fmt: skip
            continue
        if value is None:
            if not node.in_container:
                yield unknown(f"{trait.what}: the cluster file declares a value, but this node shows none",
                              subject=trait.what, expected=source, evidence=[trait.key])  # fmt: skip
            continue
        wrong = declared_values.misses(trait, value, site)
        for miss in wrong:
            for devices, mine in _holders(trait, miss, node):
                of = f"{trait.what}, {devices}" if devices else trait.what
                yield (failed if trait.breaks or trait.required else warned)(
                    f"{of}: {mine}, not {miss.wanted}", subject=trait.what, found=mine,
                    expected=f"{miss.wanted} ({miss.source})", evidence=[trait.key],
                    action="isolate" if trait.part else "",
                    fix=_REPAIR if trait.part else "",
                    impact="slows-job" if trait.breaks else "",
                )  # fmt: skip
        hidden = {} if node.in_container else declared_values.silent(trait, value, site)
        for device, key in hidden.items():
            yield unknown(f"{trait.what}, {device}: the cluster file declares a value, but this node shows none",
                          subject=trait.what, expected=key, evidence=[trait.key])  # fmt: skip
        if not (wrong or hidden):
            right.append(trait.what)
    if right:
        yield passed(
            f"{clause(len(right), 'value', 'matches')} the cluster file: {', '.join(right)}",
            found=counted(len(right), "value"),
        )


#: Next step for a hardware part: no setting brings it back.
_REPAIR = (
    "Look for the missing part in the BMC's event log, `dmidecode` and `lspci`; reseat or replace it. If it was "
    "removed, correct the key in the cluster file."
)


def _holders(trait: Trait, miss: declared_values.Miss, node: NodeFacts) -> Iterator[tuple[str, str]]:
    """Yield the devices that differ from a declared value, with their values."""
    per_device = trait.read.devices(node) if isinstance(trait.read, PerDevice) else {}
    others = {device: value for device, value in per_device.items() if value not in (miss.right or (miss.wanted,))}
    if miss.device or not others:
        yield miss.device, miss.mine
        return
    for value in dict.fromkeys(others.values()):
        names = [device for device, mine in others.items() if mine == value]
        every = len(names) == len(per_device) and len(names) > 1
        listed = ", ".join(names) if len(names) <= _NAMED else f"{names[0]} and {len(names) - 1} more"
        yield f"all {len(names)}" if every else listed, value


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
