"""Judges of PCIe functions: links, read requests, access control."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from preflight._startup.lightclass import replace
from preflight.checks.gpu.state import SUPERCHIPS
from preflight.checks.rdma import pcie
from preflight.model import Finding, Status, counted, failed, passed, unknown, warned
from preflight.parsers.pci.lspci import PciFunction
from preflight.recognition.judges import Judge, Judges, PastedValue
from preflight.recognition.judges.lists import limited, narrow


@limited
def _nic_links(part: PastedValue) -> Iterator[Finding]:
    functions: Sequence[PciFunction] = part.value
    nics = [function for function in functions if function.is_network]
    slow = [function for function in nics if function.downgraded]
    for function in slow:
        most = " ".join(filter(None, (function.max_speed, function.max_width)))
        yield warned(f"{function.address} trained at {function.link}", subject=function.address or "",
                     found=function.link, expected=most or "the device's maximum", evidence=part.evidence)  # fmt: skip
    sick = [function for function in nics if function.errors]
    for function in sick:
        errors = ", ".join(sorted(function.errors))
        yield unknown(f"{function.address} has had PCIe errors since they were last cleared: {errors}",
                      subject=function.address or "", found=f"{errors}+", expected="FatalErr-, NonFatalErr-",
                      evidence=part.evidence, fix="`dmesg -T | grep -i aer` shows when.")  # fmt: skip
    if nics and not slow and not sick and all(function.width for function in nics):
        yield passed(f"{counted(len(nics), 'NIC')} trained at full speed and width", evidence=part.evidence)


def _gone(is_kind: Callable[[PciFunction], bool]) -> Judge:
    """Return a judge that reports listed devices of a kind that do not answer."""

    def report(part: PastedValue) -> Iterator[Finding]:
        functions: Sequence[PciFunction] = part.value
        for function in functions:
            if function.is_gone and is_kind(function):
                yield failed(f"{function.address} does not answer (rev ff): it fell off the bus",
                             subject=function.address or "", found="rev ff", expected="an answer",
                             evidence=part.evidence, fix="Power-cycle the node, then reseat the card.")  # fmt: skip

    return report


@limited
def _gpu_links(part: PastedValue) -> Iterator[Finding]:
    """Report GPUs with fewer lanes than possible, and their PCIe errors.

    A lower speed alone is not reported, because the speed falls while a GPU is idle; such a GPU does not pass either.
    """
    functions: Sequence[PciFunction] = part.value
    gpus = [function for function in functions if function.is_gpu]
    full = [gpu for gpu in gpus if gpu.width and gpu.downgraded is False and not gpu.errors
            and (gpu.speed, gpu.width) == (gpu.max_speed, gpu.max_width)]  # fmt: skip
    if gpus and len(full) == len(gpus):
        yield passed(f"GPUs that trained at full speed and width: {len(gpus)}", evidence=part.evidence)
    for function in functions:
        if function.is_gpu and function.width and function.max_width and function.width != function.max_width:
            same = [gpu for gpu in gpus if gpu.name == function.name]
            report = narrow(sum(gpu.width == gpu.max_width is not None for gpu in same), len(same))
            slower = (
                f", and at {function.speed} instead of {function.max_speed}"
                if function.speed != function.max_speed
                else ""
            )
            superchip = any(name in (function.name or "") for name in SUPERCHIPS)
            design = ": by design or a fault, since traffic with the processor takes NVLink-C2C" if superchip else ""
            yield report(f"{function.address} trained at {function.width} instead of {function.max_width}"
                         f"{slower}{design}", subject=function.address or "", found=function.width,
                         expected=function.max_width, evidence=part.evidence)  # fmt: skip
        if function.is_gpu and (errors := function.errors - {"NonFatalErr"}):
            listed = ", ".join(sorted(errors))
            yield unknown(f"{function.address} has had uncorrected PCIe errors since they were last cleared: {listed}",
                          subject=function.address or "", found=f"{listed}+", expected="none", evidence=part.evidence,
                          fix="`dmesg -T | grep -i -e aer -e xid` shows when.")  # fmt: skip


#: MaxReadReq in bytes that every virtual function shows.
_VIRTUAL_BYTES = 128


def _read_requests(part: PastedValue) -> Iterator[Finding]:
    functions: Sequence[PciFunction] = part.value
    small = [f"{function.address} {function.max_read_request_bytes}" for function in functions
             if function.is_network and function.max_read_request_bytes is not None
             and _VIRTUAL_BYTES < function.max_read_request_bytes <= pcie.SMALL_READ_BYTES]  # fmt: skip
    if small:
        finding = pcie.judge_read_requests(small, "NIC", part.evidence[0])
        message = f"{finding.message} ({', '.join(small[:4])}): slow on a fast port, enough on a slow one"
        yield replace(finding, status=Status.UNKNOWN, message=message)


def _redirects(part: PastedValue) -> Iterator[Finding]:
    functions: Sequence[PciFunction] = part.value
    bridges = [function for function in functions if function.redirects]
    if not bridges:
        return
    controls = sorted({name for function in bridges for name in function.redirects})
    names = ", ".join(str(function.address) for function in bridges[:4]) + (", …" if bridges[4:] else "")
    yield unknown(
        f"ACS redirects traffic between devices through the CPU ({' '.join(f'{name}+' for name in controls)} on "
        f"{names}): a fault on the path between a GPU and its NIC, but needed in a virtual machine",
        subject=str(bridges[0].address) if len(bridges) == 1 else "",
        found=f"{len(bridges)} bridges", expected="ReqRedir-, CmpltRedir- and UpstreamFwd- between GPU and NIC",
        evidence=part.evidence, 
        fix="`preflight check` on the node finds the path; `setpci` or the BIOS switches ACS off.",
    )  # fmt: skip


JUDGES: Judges = {
    "lspci": (
        ("pcie.nic-link", _nic_links), ("gpu.pcie-link", _gpu_links), ("pcie.max-read-request", _read_requests),
        ("gpudirect.path", _redirects), ("rdma.registered", _gone(lambda function: function.is_network)),
        ("gpu.count", _gone(lambda function: function.is_gpu)),
    ),
}  # fmt: skip
