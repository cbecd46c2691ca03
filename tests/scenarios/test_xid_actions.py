"""Each finding has the action of NVIDIA's Xid catalogue, or the documentation gives the reason for a different one.

The table below was written from the catalogue, code by code, and not from preflight's policy.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest

from preflight.checks.gpu.xid_judgement import judged
from preflight.checks.gpu.xid_policy import POLICY
from preflight.evidence.document import from_document
from preflight.facts.xid import Events, XidEvent
from preflight.judge import judge
from tests.support.machines import Machine, evidence, hgx_h100
from tests.support.paths import ROOT
from tests.support.whole_nodes import CHECKS, every_gpu, health

#: First action of the catalogue (October 2025) -> codes that have it. For 74, 144 to 149 and 154 the line decides.
CATALOGUE = {
    "restart the application": "8,11,13,25,31,32,39-41,60,68-72,75-77,80,82-86,88,89,94,96-105,126-135,139",
    "ignore": "14,37,38,43,44,63,66,67,92,93,106-108,121,137,141,147,148,152,153,157,160,161",
    "reset the GPU": "46,62,64,95,109,110,119,120,136,140,143,150,155,156,158",
    "reset the GPU, as an uncorrectable error": "48,171,172",
    "restart the machine": "79",
    "restart the virtual machine": "151",
    "check the mechanics": "54",
    "contact support": "1-7,9,10,12,15-24,26-30,33-36,42,47,49-53,55-59,61,65,73,81,87,90,91,111-118,122-125,138,142",
    "update the software": "78",
    "check the use of unified memory": "159",
    "restart the fabric manager, or follow another Xid": "45",
    "no action": "162-170",
    "not in the catalogue": "173,175,176",
}

#: First action -> words that agree with it.
AGREES = {
    "restart the application": {"fix-job"},
    "ignore": {"none"},
    "reset the GPU": {"reset"},
    "reset the GPU, as an uncorrectable error": {"reset"},
    "restart the machine": {"reboot"},
    "restart the virtual machine": {"reboot"},
    "check the mechanics": {"isolate"},
    "contact support": {"monitor"},
    "update the software": {"fix-site"},
    "check the use of unified memory": {"fix-job"},
    "no action": {"none", "monitor", "isolate"},
    "not in the catalogue": {"monitor"},
}

#: Codes with a different action from the catalogue's; ``docs/actions.md`` has the reasons.
DEVIATES = {45: "none"}

OF_LINE = {74, 144, 145, 146, 149, 154}


def codes(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


CASES = [(action, code) for action, text in CATALOGUE.items() for code in codes(text)]


@pytest.mark.parametrize(("action", "code"), CASES)
def test_the_word_is_that_of_the_catalogue(action: str, code: int) -> None:
    event = XidEvent(1.0, "0000:1b:00.0", code, "", "")
    word = judged(event, Events((event,), ())).action
    assert word == DEVIATES[code] if code in DEVIATES else word in AGREES[action]


def test_every_code_of_the_policy_is_in_the_table() -> None:
    assert set(POLICY) - OF_LINE == {code for _, code in CASES}


def test_the_page_has_each_deviation() -> None:
    page = (ROOT / "docs" / "actions.md").read_text()
    for code in DEVIATES:
        assert re.search(rf"[Tt]he catalogue[^.]*\b{code}\b|\b{code}\b[^.]*the catalogue", page), code


def node(*lines: str) -> Machine:
    """Return a node with these log lines and a driver that does not report the required recovery."""
    log = tuple(f"<4>[42100{at}.100000] NVRM: Xid (PCI:0000:61:00): {line}" for at, line in enumerate(lines))
    return replace(every_gpu(recovery_action=None)(hgx_h100("hgx-h100")), kernel_log=log)


LOG, DRIVER = ([check for check in CHECKS if check.id == name] for name in ("xid.gpu", "gpu.recovery-action"))


def actions(machine: Machine) -> tuple[str, str]:
    """Return status and action of the node by its log."""
    (made,) = judge([from_document(evidence(machine), machine.name)], LOG)["nodes"]
    return made["status"], made["action"]


@pytest.mark.parametrize(("action", "code"), [case for case in CASES if case[1] not in DEVIATES])
def test_the_node_has_the_word_of_what_fails_or_warns(action: str, code: int) -> None:
    status, word = actions(node(f"{code}, pid=4711, name=python3, Ch 00000008"))
    if AGREES[action] <= {"fix-job", "none", "fix-site"} or POLICY[code].act.value in ("application", "note"):
        assert (status, word) == ("pass", "none"), "an application's own error does not fail a node"
    elif word == "monitor":
        assert status == "warn"
    else:
        assert (status, word in AGREES[action]) == ("fail", True)


@pytest.mark.parametrize(
    ("lines", "word"),
    [
        # the driver's request counts, not the earlier code
        (("79, GPU has fallen off the bus.", "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot"
          " Required)"), "reboot"),
        (("95, Uncontained", "154, GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)"),
         "reboot"),
        (("95, Uncontained", "79, GPU has fallen off the bus."), "reboot"),
        (("154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",), "reset"),
        (("154, GPU recovery action changed from 0x1 (GPU Reset Required) to 0x2 (Node Reboot Required)",), "reboot"),
        (("154, GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)",), "reset"),
    ],
)  # fmt: skip
def test_where_the_driver_requires_a_reboot_the_word_is_not_reset(lines: tuple[str, ...], word: str) -> None:
    """Another tool resets the GPU where Xid 154 requires a reboot, and a third shows an empty cause."""
    machine = node(*lines)
    assert actions(machine) == ("fail", word)
    (finding,) = judge([from_document(evidence(machine), machine.name)], LOG)["findings"]
    assert re.search(r"Xid \d+: \w+", finding["message"])


@pytest.mark.parametrize(
    ("line", "status", "word"),
    [
        ("20034, Fatal, Link 28 LTSSM Fault Up", "fail", "reset"),
        ("24007, Fatal, Link 04 sourcetrack timeout error (First)", "fail", "reset"),
        ("12028, Non-fatal, Link 61 egress non-posted PRIV error (First)", "pass", "none"),
        ("11012, Non-fatal, Link 12 ingress ECC header limit error (First)", "pass", "none"),
        ("19084, Non-fatal, Link 29 AN1 Heartbeat Timeout Error (First)", "pass", "none"),
        ("20001, Non-fatal, Link 31 TX Replay Error (First)", "pass", "none"),
        ("22013, Non-fatal, Link 07 Minion DLREQ interrupt (First)", "pass", "none"),
        ("20034, Data {0x00000000, 0x00000001}", "pass", "none"),
        ("10002, Severity 5 Engine instance 00 Sub-engine instance 00", "pass", "none"),
    ],
)  # fmt: skip
def test_an_sxid_has_the_word_of_its_severity(line: str, status: str, word: str) -> None:
    """The fabric manager guide requires a reset only after a fatal one."""
    log = (f"<3>[421000.1] nvidia-nvswitch2: SXid (PCI:0000:07:00.0): {line}",)
    machine = replace(hgx_h100("hgx-h100"), kernel_log=log)
    report = judge([from_document(evidence(machine), machine.name)], [c for c in CHECKS if c.id == "xid.nvswitch"])
    assert (report["nodes"][0]["status"], report["nodes"][0]["action"]) == (status, word)


def test_the_drivers_own_word_is_the_action() -> None:
    for needed, word in (("Reset", "reset"), ("Reboot", "reboot"), ("Drain and Reset", "reset")):
        machine = health(3, recovery_action=needed)(hgx_h100("hgx-h100"))
        report = judge([from_document(evidence(machine), machine.name)], DRIVER)
        failing = [finding for finding in report["findings"] if finding["status"] == "fail"]
        assert [finding["action"] for finding in failing] == [word], needed
