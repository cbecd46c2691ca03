"""Checks of the NICs' PCIe link, read requests and ordering."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from preflight import facts
from preflight.checks.applicability import PCI_BUS, efa_only, no_pci_nic
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.nccl_environment import PROCESS
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, counted, failed, passed, skipped, some_of, unknown, verb, warned

if TYPE_CHECKING:
    from preflight.facts.pci import PciDevice
    from preflight.parsers.pci.lspci import PciFunction

_AMD = "1022"

#: MaxReadReq in bytes up to which reads are too small: the power-on default.
SMALL_READ_BYTES = 512


@check(
    "pcie.nic-link",
    title="The PCIe link of each compute NIC carries its port's rate",
    fault="The PCIe link of a compute NIC is slower than its port",
    impact="slows-job",
    explains=(
        ("fabric.pause-root", "cable"),
        ("rdma.bandwidth-per-gpu", "node"),
        ("bench.factor", "log"),
        ("counters.receiver", "part"),
        ("counters.loss", "part", "*", "*this NIC's port ran out of buffers*"),
        ("counters.balance", "part", "*", "*less than half*"),
        ("kernel.events", "part", "*", "*PCIe error*"),
        ("pair.write-bw", "part"),
        ("pair.read-bw", "part"),
    ),
    source="sysfs-bus-pci (current_link_width); mlx5's own kernel message 'available PCIe bandwidth'; PCIe base spec.",
    fix="Run `lspci -vv -s NIC | grep Lnk`; reseat the card, and compare the slot's lanes and bifurcation with "
    "the manual.",
    answers=("PA-12",),
    unless=(no_pci_nic,),
)
def link(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each compute NIC's PCIe link with its maximum and its port's rate.

    ## Why it matters
    A NIC in a slot with half its lanes reports a port at full rate but delivers half of it: 32 GT/s x8 carries 252 Gb/s
    for a 400 Gb/s port.

    ## Verdicts
    A link below the port's rate fails. Fewer lanes that still suffice warn. A lower speed that suffices passes, such as
    that of a newer card in an older server.

    ## False alarms
    None known; a virtual function has no separate link and is skipped.
    """
    ports = {port.device: port for port in site.roles(node).compute}
    good, virtual = [], []
    for device, port in ports.items():
        found = facts.gpudirect.nic_link(node.evidence, device)
        key = f"file:/sys/class/infiniband/{device}/device/current_link_width"
        if found is None:
            virtual.append(key)
        elif port.rate_gbps is not None and found.gbps < port.rate_gbps:
            yield failed(
                f"{device}'s PCIe link carries {found.gbps:.0f} Gb/s, but its port runs at {port.rate_gbps:g} Gb/s",
                subject=device,
                found=str(found),
                expected=f"x{found.most_width} at {found.most_speed_gts} GT/s (the NIC's own maximum)",
                evidence=found.evidence,
            )
        elif found.width < found.most_width:
            yield warned(
                f"{device}'s PCIe link trained at x{found.width} instead of x{found.most_width}",
                subject=device,
                found=str(found),
                expected=f"x{found.most_width} (the NIC's own maximum)",
                evidence=found.evidence,
            )
        else:
            good.append((found, key))
    if good:
        links = ", ".join(sorted({str(found) for found, _ in good}))
        yield passed(f"{some_of(len(good), len(ports), 'compute NIC')} {verb(len(good), 'has')} a full PCIe "
                     "link", found=links,
                     evidence=[key for _, key in good[:3]])  # fmt: skip
    elif virtual:
        yield skipped(
            "the compute NICs are virtual functions, which have no PCIe link of their own", evidence=virtual[:3]
        )
    elif not ports:
        yield unknown("no compute NIC is known", evidence=[PCI_BUS])


def no_reads_to_size(node: NodeFacts, site: Site) -> Finding | None:
    """Skip EFA ports, whose reads are split by the cloud's own card."""
    return efa_only(site.roles(node).compute, "the cloud's own card splits their reads")


@check(
    "pcie.max-read-request",
    title="The compute NICs request large PCIe reads",
    fault="A compute NIC reads in small PCIe requests",
    impact="slows-job",
    source="NVIDIA adapter performance tuning guides (MaxReadReq 4096); 512 is the power-on default of the PCIe spec.",
    fix="`setpci -s NIC CAP_EXP+8.w` shows it; set bits 14:12 to 5 (4096 bytes) in the firmware or at each boot.",
    action="fix-site",
    answers=("NT-GDR-1",),
    gating=False,  # never fails
    unless=(no_pci_nic, no_reads_to_size),
)
def max_read_request(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare MaxReadReq of each compute NIC with 512 bytes.

    ## Why it matters
    The NIC fetches the data to send in requests of this size. At 512 bytes, the number of outstanding requests limits
    the rate before the link does, especially when reading from GPU memory.

    ## Verdicts
    A request size of 512 bytes or less warns. Only the NIC's value is relevant, not that of bridges, and only root sees
    it. A virtual function always shows 128 and is skipped; the value of its physical function applies.

    ## False alarms
    A port of 100 Gb/s or less may still reach its rate; measure with ib_write_bw before changing it.
    """
    small, good, hidden = list[str](), dict[str, int](), list[str]()
    functions = _functions(node, site)
    if virtual := _virtual(functions):
        yield virtual
    for device, function in _configurations(node, functions).items():
        size = function.max_read_request_bytes if function else None
        if size is None:
            hidden.append(device)
        elif size <= SMALL_READ_BYTES:
            small.append(f"{device} {size}")
        else:
            good[device] = size
    if small:
        yield judge_read_requests(small, "compute NIC", facts.lspci.LSPCI)
    yield from _hidden(hidden, "MaxReadReq")
    if good:
        sizes = ", ".join(f"{size} bytes" for size in sorted(set(good.values())))
        yield passed(
            f"{counted(len(good), 'compute NIC reads', 'compute NICs read')} in requests of {sizes}",
            found=sizes,
            evidence=[facts.lspci.LSPCI],
        )


def judge_read_requests(small: Sequence[str], what: str, key: str) -> Finding:
    """Report NICs with read requests of 512 bytes or less, and their size."""
    return warned(
        f"{counted(len(small), f'{what} reads', f'{what}s read')} in requests of 512 bytes or less",
        found=", ".join(small),
        expected="4096 bytes",
        evidence=[key],
        quote="\n".join(f"{line}: MaxReadReq" for line in small),
    )


def no_need_of_relaxed_ordering(node: NodeFacts, site: Site) -> Finding | None:
    """Skip EFA ports, and hosts with a processor that is known not to be AMD's."""
    if absent := efa_only(site.roles(node).compute, "the cloud's own card sets their ordering"):
        return absent
    vendor = facts.gpudirect.processor_vendor(node.pci)
    if not vendor or vendor == _AMD:
        return None
    return skipped(f"the processor is not from AMD (PCI vendor {vendor})", evidence=[PCI_BUS])


@check(
    "pcie.relaxed-ordering",
    title="Relaxed ordering is on if the CPU needs it",
    fault="Relaxed ordering is off although the CPU needs it",
    impact="slows-job",
    source="NVIDIA: PCI_WR_ORDERING; AMD EPYC tuning guides; NCCL_IB_PCI_RELAXED_ORDERING (default 2, automatic)",
    fix="Set `mlxconfig PCI_WR_ORDERING=1` or the BIOS' PCIe relaxed ordering, and unset NCCL_IB_PCI_RELAXED_ORDERING.",
    action="fix-site",
    answers=("NT-GDR-1",),
    gating=False,  # never fails
    reads=("file:/sys/class/infiniband/*/hca_type",),
    unless=(no_pci_nic, no_need_of_relaxed_ordering),
)
def relaxed_ordering(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for NICs, or an NCCL setting, with relaxed ordering off.

    AMD hosts are judged, and machines that hide the vendor of the processor.

    ## Why it matters
    With strict ordering, each write waits for the one before it in the CPU's fabric: AMD hosts may then receive at half
    of the port's rate or less.

    ## Verdicts
    If relaxed ordering is off, the check warns. Intel and Grace hosts do not need it and are skipped; a virtual machine
    may hide the processor's vendor. Only root sees the NIC's bit. A virtual function has no such bit; that of its
    physical function applies. The bit only allows relaxed ordering; NCCL decides whether to use it (`[RO]` in its log).

    ## False alarms
    An AMD host with Preferred I/O for the NIC in its BIOS may reach the full rate without relaxed ordering.
    """
    unseen = (
        "in a virtual machine" if node.in_virtual_machine else "on a host with a processor that the bus does not show"
    )
    place = "on an AMD host" if facts.gpudirect.processor_vendor(node.pci) else unseen
    setting = node.nccl_env.get("NCCL_IB_PCI_RELAXED_ORDERING")
    if setting is not None and node.nccl_env.integer(setting.name) == 0:
        yield warned(f"{setting.text} in {setting.where} disables relaxed ordering {place}",
                     subject=setting.name, found="0", expected="unset (2, automatic)", evidence=[setting.source],
                     quote=setting.text)  # fmt: skip
        return
    functions = _functions(node, site)
    if virtual := _virtual(functions):
        yield virtual
    configurations = _configurations(node, functions)
    off = [device for device, function in configurations.items() if function and function.relaxed_ordering is False]
    on = [device for device, function in configurations.items() if function and function.relaxed_ordering]
    if off:
        yield warned(f"relaxed ordering is off in {counted(len(off), 'compute NIC')} {place}", found=", ".join(off),
                     expected="RlxdOrd+", evidence=[facts.lspci.LSPCI])  # fmt: skip
    yield from _hidden([device for device in configurations if device not in (*off, *on)], "RlxdOrd")
    if on:
        yield passed(
            f"relaxed ordering is on in {counted(len(on), 'compute NIC')}",
            found="RlxdOrd+",
            evidence=[facts.lspci.LSPCI, PROCESS],
        )


def _functions(node: NodeFacts, site: Site) -> dict[str, PciDevice]:
    """Return each compute NIC's PCI function; raises EvidenceError."""
    devices = [port.device for port in site.roles(node).compute]
    functions = facts.gpudirect.nic_functions(node.evidence, node.pci, devices)
    if not functions:
        raise EvidenceError(PCI_BUS, "no compute NIC is a PCI function")
    return functions


def _virtual(functions: Mapping[str, PciDevice]) -> Finding | None:
    names = [device for device, function in functions.items() if function.is_virtual_function]
    if not names:
        return None
    kind = "is a virtual function" if len(names) == 1 else "are virtual functions"
    message = (
        f"{some_of(len(names), len(functions), 'compute NIC')} {kind}, for which the setting of the physical "
        "function applies"
    )
    return skipped(message, subject=names[0] if len(names) == 1 else "", evidence=[PCI_BUS])


def _configurations(node: NodeFacts, functions: Mapping[str, PciDevice]) -> dict[str, PciFunction | None]:
    """Return lspci's view of each physical function, None for one that it lacks.

    Raises EvidenceError if lspci was not read.
    """
    physical = {device: function for device, function in functions.items() if not function.is_virtual_function}
    if not physical:
        return {}
    return {device: node.pci_configuration.get(function.address) for device, function in physical.items()}


def _hidden(devices: list[str], what: str) -> Iterator[Finding]:
    if devices:
        yield unknown(f"{what} of {', '.join(devices)} could not be read: lspci shows it to root only",
                      evidence=[facts.lspci.LSPCI], fix="run as root, or with --sudo")  # fmt: skip
