"""A pasted kernel log is judged by the rules of kernel.events, like that of a node."""

from __future__ import annotations

import pytest

from preflight.recognition import read_text

UE = "[430000.2] EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#1_DIMM#0 (channel:1 slot:0)\n"
FLAPS = "".join(
    f"Feb 18 12:{minute:02d}:{second:02d} gpu001 kernel: mlx5_core 0000:18:00.0 ibp24s0: Link {state}\n"
    for minute in range(12)
    for second, state in ((1, "down"), (9, "up"))
)
CASES = {
    "an uncorrected memory error": (UE, ("fail", "CPU_SrcID#1_MC#0_Chan#1_DIMM#0")),
    "a link that came back": (FLAPS, ("warn", "ibp24s0")),
    "a link that stays down": ("[ 900.5] mlx5_core 0000:18:00.0 ibp24s0: Link down\n", ("unknown", "ibp24s0")),
    "an NVMe with errors": (
        "[ 900.5] blk_update_request: I/O error, dev nvme1n1, sector 12 op 0x0:(READ) flags 0x0\n"
        "[ 901.5] EXT4-fs (nvme1n1p1): Remounting filesystem read-only\n", ("fail", "nvme1n1"),
    ),
    "a task that hung": ("[ 900.5] INFO: task python3:4711 blocked for more than 120 seconds.\n", ("warn", "")),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_a_pasted_log_is_judged(case: str) -> None:
    text, expected = CASES[case]
    (part,) = read_text(text, "pasted")
    assert [(f["status"], f["subject"]) for f in part.findings if f["check"] == "kernel.events"] == [expected]


def test_an_empty_journal_is_not_judged_as_a_log() -> None:
    assert not any(part.findings for part in read_text("-- No entries --\n", "pasted"))


def _link_changes(*minutes: int) -> str:
    return "".join(
        f"Nov 27 11:{minute:02}:{second} n7 kernel: mlx5_core 0000:17:00.1 ens1f1np1: Link {word}\n"
        for minute in minutes
        for word, second in (("down", "10"), ("up", "13"))
    )


@pytest.mark.parametrize(("minutes", "status"), [((4,), "unknown"), ((4, 31), "warn"), ((4, 31, 50), "warn")])
def test_a_link_that_came_back_is_no_pass(minutes: tuple[int, ...], status: str) -> None:
    """Once may be a replugged cable."""
    (part,) = read_text(_link_changes(*minutes), "pasted")
    assert [finding["status"] for finding in part.findings if finding["check"] == "kernel.events"] == [status]


LUSTRE = """Oct 03 07:00:01 gn-8 kernel: INFO: task python:811 blocked for more than 120 seconds.
Oct 03 07:00:02 gn-8 kernel: LustreError: 11-0: work-OST0004-osc-ff11: operation ost_write to node 10.4.0.9@o2ib\
 failed: rc = -107
"""


def test_a_second_cause_of_one_paste_is_named() -> None:
    (part,) = read_text(LUSTRE, "pasted")
    messages = [item["message"] for item in part.findings if item["status"] == "warn"]
    assert len(messages) == 2
    assert any("work-OST0004" in message for message in messages)
    back = (
        LUSTRE
        + "Oct 03 07:00:09 gn-8 kernel: Lustre: work-OST0004-osc-ff11: Connection restored to work-OST0004 (at x)\n"
    )
    (part,) = read_text(back, "pasted")
    assert not any("work-OST0004" in item["message"] for item in part.findings if item["status"] == "warn")


SXID = """[  70.1] nvidia-nvswitch1: SXid (PCI:0000:c3:00.0): 22013, Non-fatal, Link 12 Minion Link DLREQ interrupt
[  70.2] nvidia-nvswitch1: SXid (PCI:0000:c3:00.0): 22013, Severity 0 Engine instance 12 Sub-engine instance 00
[  70.3] nvidia-nvswitch1: SXid (PCI:0000:c3:00.0): 22013, Data {0x0000000c, 0x0000000c, 0x00000000}
"""


def test_severity_and_data_belong_to_the_switch_error_above_them() -> None:
    assert {item["status"] for part in read_text(SXID, "pasted") for item in part.findings} == {"unknown"}
    fatal = SXID.replace("Non-fatal", "Fatal")
    assert [item["status"] for part in read_text(fatal, "pasted") for item in part.findings] == ["fail"]
    cut = "\n".join(SXID.split("\n")[1:])
    assert "unknown" in {item["status"] for part in read_text(cut, "pasted") for item in part.findings}, "no grade"


HOT = (
    "[ 9.{cpu}] mce: CPU{cpu}: Package temperature is above threshold, cpu clock is throttled (total events = {times})"
)


@pytest.mark.parametrize(("times", "status"), [(1, "unknown"), (2500, "warn")])
def test_a_processor_that_heat_slows_down_for_long(times: int, status: str) -> None:
    text = "\n".join(HOT.format(cpu=cpu, times=times) for cpu in (10, 58))
    assert [item["status"] for part in read_text(text, "pasted") for item in part.findings] == [status]


def test_a_port_without_an_interface_has_its_address() -> None:
    (part,) = read_text("Oct 03 07:00:00 gn-8 kernel: mlx5_core 0000:c1:00.0: Port: 1 Link DOWN\n", "pasted")
    assert "0000:c1:00.0" in part.findings[0]["message"]


def test_the_drivers_own_words_stand_behind_an_xid() -> None:
    text = (
        "[ 7.1] NVRM: Xid (PCI:0000:4c:00): 74, pid='<unknown>', name=<unknown>, NVLink: fatal error on link 5(0x1)\n"
    )
    (part,) = read_text(text, "pasted")
    assert "link 5" in part.findings[0]["message"]
    assert "pid" not in part.findings[0]["message"]
    same = "[ 7.1] NVRM: Xid (PCI:0000:4c:00): 79, pid=1, name=python3, GPU has fallen off the bus.\n"
    (part,) = read_text(same, "pasted")
    assert part.findings[0]["message"].count("fallen off the bus") == 1


def test_few_corrected_errors_name_their_device() -> None:
    text = "[ 9.2] nvme 0000:41:00.0: PCIe Bus Error: severity=Corrected, type=Physical Layer, (Receiver ID)\n"
    (part,) = read_text(text, "pasted")
    assert [(item["status"], "0000:41:00.0" in item["message"]) for item in part.findings] == [("unknown", True)]


MISMATCH = """[ 8.1] NVRM: API mismatch: the client has the version 570.86.15, but
[ 8.2] NVRM: this kernel module has the version 570.124.06.  Please
[ 8.3] NVRM: make sure that this kernel module and all NVIDIA driver
[ 8.4] NVRM: components have the same version.
"""


def test_both_versions_of_a_mismatch_are_named() -> None:
    (part,) = read_text(MISMATCH, "pasted")
    message = next(item["message"] for item in part.findings if item["check"] == "versions.driver-files")
    assert "570.86.15" in message
    assert "570.124.06" in message


#: IOMMU errors in the wording of several kernels and vendors.
IOMMU = (
    "mlx5_core 0000:5e:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0031 address=0x7f10a000 flags=0x0020]",
    "AMD-Vi: Event logged [IO_PAGE_FAULT device=5e:00.0 domain=0x0031 address=0x7f10a000 flags=0x0020]",
    "nvidia 0000:5e:00.0: AMD-Vi: Event logged [INVALID_DEVICE_REQUEST pasid=0x00000 address=0xfee0 flags=0x0a00]",
    "DMAR: [DMA Write NO_PASID] Request device [5e:00.0] fault addr 0x9c1e0000 [fault reason 0x05] PTE Write access"
    " is not set",
    "DMAR: [DMA Read] Request device [5e:00.0] PASID ffffffff fault addr 9c1e0000 [fault reason 06] PTE Read access"
    " is not set",
    "DMAR:[DMA Write] Request device [5e:00.0] fault addr 9c1e0000",
)


@pytest.mark.parametrize("line", IOMMU)
@pytest.mark.parametrize(("at", "status"), [("[ 8120.5]", "warn"), ("[   41.7]", "unknown")])
def test_an_access_that_the_iommu_refused_never_passes(line: str, at: str, status: str) -> None:
    """While devices are set up it may be left over from the firmware, so it is unknown, with the device."""
    (part,) = read_text(f"{at} {line}\n", "pasted")
    (finding,) = (finding for finding in part.findings if finding["check"] == "kernel.events")
    assert finding["status"] == status
    assert "5e:00.0" in finding["subject"]


#: One error of each kind that a node's rules ignore during boot, or that no rule counts.
EARLY = (
    "pcieport 0000:5d:01.0: AER: PCIe Bus Error: severity=Uncorrected (Non-Fatal), type=Transaction Layer,"
    " (Requester ID)",
    "AMD-Vi: Event logged [ILLEGAL_DEV_TABLE_ENTRY device=5e:00.0 pasid=0x00000 address=0x10 flags=0x0080]",
)


@pytest.mark.parametrize("line", EARLY)
def test_an_error_of_a_booting_node_is_no_pass(line: str) -> None:
    (part,) = read_text(f"[   12.25] {line}\n", "pasted")
    assert {finding["status"] for finding in part.findings} == {"unknown"}
