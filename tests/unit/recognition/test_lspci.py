"""``lspci -vvv`` as changed by pages, mails, chats and excerpts; made by hand from its format.

Texts that people really pasted are in test_pasted_texts.py.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any

import pytest

from preflight.recognition import read_text

LISTING = """\
17:00.0 PCI bridge: Broadcom / LSI PEX890xx PCIe Gen 5 Switch (rev b0) (prog-if 00 [Normal decode])
\tStatus: Cap+ 66MHz- UDF- FastB2B- ParErr- DEVSEL=fast >TAbort- <TAbort- <MAbort- >SERR- <PERR- INTx-
\tBus: primary=16, secondary=17, subordinate=1b, sec-latency=0
\tMemory behind bridge: 9c000000-9c1fffff [size=2M]
\tBridgeCtl: Parity+ SERR+ NoISA- VGA- VGA16+ MAbort- >Reset- FastB2B-
\t\tPriDiscTmr- SecDiscTmr- DiscTmrStat- DiscTmrSERREn-
\tCapabilities: [68] Express (v2) Downstream Port (Slot+), MSI 00
\t\tDevCtl:\tCorrErr+ NonFatalErr+ FatalErr+ UnsupReq-
\t\t\tRlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop+
\t\t\tMaxPayload 256 bytes, MaxReadReq 128 bytes
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\t\tClockPM- Surprise+ LLActRep+ BwNot+ ASPMOptComp+
\t\tLnkSta:\tSpeed 32GT/s (ok), Width x16 (ok)
\t\tSltCap:\tAttnBtn- PwrCtrl- MRL- AttnInd- PwrInd- HotPlug- Surprise-
\t\t\tSlot #4, PowerLimit 75W; Interlock- NoCompl-
\tCapabilities: [148 v1] Access Control Services
\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+
\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl- DirectTrans-
\tKernel driver in use: pcieport

18:00.0 Infiniband controller: Mellanox Technologies MT2910 Family [ConnectX-7]
\tPhysical Slot: 4
\tNUMA node: 0
\tRegion 0: Memory at 21fffc000000 (64-bit, prefetchable) [size=32M]
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tDevCtl:\tCorrErr+ NonFatalErr+ FatalErr+ UnsupReq-
\t\t\tMaxPayload 256 bytes, MaxReadReq 4096 bytes
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 32GT/s (ok), Width x8 (downgraded)
\t\t\tTrErr- Train- SlotClk- DLActive- BWMgmt- ABWMgmt-
\tCapabilities: [48] Vital Product Data
\t\tProduct Name: ConnectX-7 Adapter Card
\t\tRead-only fields:
\t\t\t[PN] TextPart number: MCX75310AAS-NEAT
\t\t\t[EC] Engineering changes: A7
\t\t\t[SN] Serial number: MT0000X00000
\t\t\t[RV] Reserved: checksum good, 1 byte(s) reserved
\t\tEnd
\tCapabilities: [9c] MSI-X: Enable+ Count=64 Masked-
\t\tVector table: BAR=0 offset=00002000
\t\tPBA: BAR=0 offset=00003000
\tCapabilities: [180 v1] Single Root I/O Virtualization (SR-IOV)
\t\tIOVCap:\tMigration- 10BitTagReq- Interrupt Message Number: 000
\t\tInitial VFs: 16, Total VFs: 16, Number of VFs: 0, Function Dependency Link: 00
\t\tVF offset: 2, stride: 1, Device ID: 101e
\tKernel driver in use: mlx5_core

19:00.0 3D controller: NVIDIA Corporation GH100 [H100 SXM5 80GB] (rev a1)
\tCapabilities: [60] Express (v2) Endpoint, MSI 00
\t\tDevCtl:\tCorrErr+ NonFatalErr+ FatalErr+ UnsupReq-
\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes
\t\tLnkCap:\tPort #0, Speed 32GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed 32GT/s (ok), Width x16 (ok)
\tKernel driver in use: nvidia
"""


def squeezed(text: str) -> list[str]:
    """Return the lines without indentation, as shown by a page."""
    return [" ".join(line.split()) for line in text.splitlines()]


def broken(text: str, width: int, mark: str = "") -> str:
    return "\n".join(
        mark + piece for line in text.expandtabs(8).splitlines() for piece in textwrap.wrap(line, width) or [""]
    )


WAYS: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "page": lambda text: "\n".join(squeezed(text)),
    "cells of a table": lambda text: "\n".join(f"{line} | |" for line in squeezed(text) if line),
    "numbered list": lambda text: "\n".join(f"  {at}. {line}" for at, line in enumerate(squeezed(text), 1)),
    "bullets": lambda text: "\n".join(f"- {line}" for line in squeezed(text) if line),
    "one line": lambda text: " ".join(text.split()),
    "a line for each device": lambda text: "\n".join(" ".join(device.split()) for device in text.split("\n\n")),
    "mail": lambda text: broken(text, 72, "> "),
    "narrow": lambda text: broken(text, 80),
}


def devices(text: str) -> list[dict[str, Any]]:
    parts = read_text(text, "pasted")
    assert [part.kind for part in parts] == ["lspci"]
    found: list[dict[str, Any]] = parts[0].taken.facts["devices"]
    return found


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_lost(way: str) -> None:
    bridge, nic, gpu = devices(WAYS[way](LISTING))
    assert [one["address"] for one in (bridge, nic, gpu)] == ["17:00.0", "18:00.0", "19:00.0"]
    assert [one["max_read_request"] for one in (bridge, nic, gpu)] == [128, 4096, 512]
    assert bridge["acs_ctl"] == {
        "SrcValid": True, "TransBlk": False, "ReqRedir": True, "CmpltRedir": True, "UpstreamFwd": True,
        "EgressCtrl": False, "DirectTrans": False,
    }  # fmt: skip
    assert (nic["link"]["width"], nic["link"]["downgraded"], nic["acs_ctl"]) == ("x8", True, None)
    assert (gpu["class"], gpu["link"]["downgraded"]) == ("3D controller", False)


@pytest.mark.parametrize("way", ["page", "as it is"])
def test_a_piece_accuses_no_other_device(way: str) -> None:
    lines = WAYS[way](LISTING).splitlines()
    for begin in range(0, len(lines), 3):
        for end in (begin + 9, len(lines)):
            for part in read_text("\n".join(lines[begin:end]) + "\n", "pasted"):
                messages = [one["message"] for one in part.findings if one["status"] in ("fail", "warn")]
                assert all(message.startswith("18:00.0") for message in messages), (begin, end)


TREE = r"""
-+-[0000:40]-+-00.0  Advanced Micro Devices, Inc. [AMD] Root Complex
 |           +-01.1-[41-44]----00.0-[42-44]--+-00.0-[43]----00.0  NVIDIA Corporation Device 2330
 |           |                               \-01.0-[44]--+-00.0  Mellanox Technologies MT2910
 |           |                                            \-00.1  Mellanox Technologies MT2910
 |           +-02.0-[45]--
 |           \-18.7  Advanced Micro Devices, Inc. [AMD] Data Fabric
 \-[0000:00]---1f.0  Intel Corporation LPC
"""


@pytest.mark.parametrize("slash", ["\\", ""], ids=["as it stands", "without backslashes"])
@pytest.mark.parametrize("blanks", [True, False], ids=["as it stands", "without blanks"])
def test_a_tree_gives_the_place_of_each_device(slash: str, blanks: bool) -> None:
    text = TREE.replace("\\", slash)
    if not blanks:
        text = "\n".join(" ".join(line.split()) for line in text.splitlines())
    (part,) = read_text(text, "pasted")
    assert [device["address"].removeprefix("0000:") for device in part.taken.facts["devices"]] == [
        "40:00.0", "40:01.1", "41:00.0", "42:00.0", "43:00.0", "42:01.0", "44:00.0", "44:00.1", "40:02.0", "40:18.7",
        "00:1f.0",
    ]  # fmt: skip
    assert part.taken.facts["devices"][4]["name"] == "NVIDIA Corporation Device 2330"
    assert part.taken.complete


def test_a_tree_that_breaks_off() -> None:
    (part,) = read_text("\n".join(TREE.splitlines()[:3]), "pasted")
    assert [device["address"] for device in part.taken.facts["devices"]][-1] == "0000:43:00.0"
    assert not part.taken.complete
