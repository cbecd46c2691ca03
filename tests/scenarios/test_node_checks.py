"""Each server check in turn: fixtures, silent cases, the key that resolves an unknown result."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace

import pytest

from preflight.checks import registry
from preflight.evidence.document import from_document
from preflight.expectations import Cluster
from preflight.expectations.cluster_file import decode
from preflight.judge import judge
from preflight.model import SOURCES, Check, Scope
from preflight.parsers.host.services import FAILED
from preflight.plugin_fixture import record as documented
from tests.checks.test_checks import findings_of
from tests.scenarios.test_nothing_to_judge import document as stripped
from tests.support.fixture import FIXTURES, Case
from tests.support.machines import Machine, evidence, hgx_h100
from tests.support.machines.a100 import dgx_a100
from tests.support.machines.b200 import hgx_b200
from tests.support.machines.cloud_vm import cloud_vm
from tests.support.machines.gb200 import gb200_tray
from tests.support.machines.inventory import unit_list
from tests.support.machines.l40s import l40s_pcie
from tests.support.machines.p5 import aws_p5
from tests.support.machines.pod import pod
from tests.support.machines.records import ran
from tests.support.machines.unusual import gh200
from tests.support.whole_nodes import Fault, node, record

CHECKS = {check.id: check for check in registry().checks}

#: Checks that other node health tools also have.
WALKED = (
    "kernel.events", "host.inventory", "host.mounts", "host.file-systems", "host.services", "host.failed-units",
    "host.processes", "host.zombies", "node.expected", "fleet.host", "gpu.firmware", "gpu.clocks", "rdma.firmware",
    "nvlink.errors", "nvlink.switches", "pcie.replay", "counters.gpu-links", "trend.gpu-links", "gpu.driver",
    "xid.gpu", "xid.nvswitch",
)  # fmt: skip
BAD = {"fail", "warn"}


def fixtures(check: Check) -> Mapping[str, set[str]]:
    """Return the statuses of the findings in each fixture of a check."""
    statuses = {}
    for path in sorted((FIXTURES / check.id).glob("*.json")):
        body = json.loads(path.read_text())
        if "findings" in body:
            statuses[path.stem] = {str(finding["status"]) for finding in findings_of(check, Case(check.id, path, body))}
    return statuses


@pytest.mark.parametrize("name", WALKED)
def test_a_check_has_fixtures_of_a_fault_of_health_and_of_what_looks_like_a_fault(name: str) -> None:
    check = CHECKS[name]
    yielded = fixtures(check)
    sick = [case for case, statuses in yielded.items() if statuses & BAD]
    sound = [case for case, statuses in yielded.items() if not statuses & BAD]
    assert sick, "a fault that it finds"
    assert len(sound) >= 2, f"health, and what only looks like a fault: {sound}"
    assert any("pass" in yielded[case] for case in sound)
    assert SOURCES in check.page


# --- what must not be reported -------------------------------------------------------------------------------------

#: Processes of a node that is busy with files, each reported once by the kernel.
BUSY = (
    "<3>[431000.1] INFO: task tar:88121 blocked for more than 120 seconds.",
    "<6>[431000.2] Call Trace:",
    "<6>[431000.3]  io_schedule+0x46/0x80",
    "<6>[431000.4]  wbt_wait+0x9a/0xf0",
    "<3>[431000.5] INFO: task pt_data_worker:88410 blocked for more than 120 seconds.",
    "<6>[431000.6] Call Trace:",
    "<6>[431000.7]  folio_wait_writeback+0x28/0x80",
    "<4>[431100.1] nfs: server nas3 not responding, still trying",
    "<4>[431112.1] nfs: server nas3 OK",
    "<4>[431200.1] perf: interrupt took too long (3147 > 3128), lowering kernel.perf_event_max_sample_rate to 63500",
)

#: Kernel messages while a node boots after an intended reboot.
BOOTED = (
    "<4>[    2.1] mce: CPU0: Thermal monitoring enabled (TM1)",
    "<6>[    3.2] EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0 (INTERRUPT)",
    "<6>[    3.4] pcieport 0000:15:01.0: DPC: error containment capabilities: Int Msg #0, RPExt+ PoisonedTLP+",
    "<6>[    3.5] pcieport 0000:15:01.0: AER: enabled with IRQ 122",
    "<6>[    4.1] pcieport 0000:15:01.0: pciehp: Slot(3): Card present",
    "<6>[    9.8] EXT4-fs (nvme0n1p2): recovery complete",
    "<6>[   12.4] XFS (md0): Ending clean mount",
    *(f"<6>[   {at}.5] mlx5_core 0000:4f:00.0 ibp79s0: Link {word}" for at in (31, 35, 41) for word in ("down", "up")),
    "<4>[   60.1] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06  Release Build",
)  # fmt: skip


def logged(*lines: str) -> Machine:
    return node(kernel_log=lines)(hgx_h100("hgx-h100"))


QUIET: dict[str, Callable[[], Machine]] = {
    "heavy I/O": lambda: logged(*BUSY),
    "after a planned reboot": lambda: logged(*BOOTED),
    "container": pod,
    "virtual machine": cloud_vm,
    "cloud instance": aws_p5,
    "Arm, rack of 72": gb200_tray,
    "Arm, one GPU": gh200,
    "A100": dgx_a100,
    "B200": hgx_b200,
    "PCIe cards": l40s_pcie,
}


@pytest.mark.parametrize("name", QUIET)
def test_a_sound_node_has_no_warning_of_any_of_them(name: str) -> None:
    machine = QUIET[name]()
    checks = [CHECKS[check] for check in WALKED if CHECKS[check].scope is Scope.NODE and not CHECKS[check].history]
    report = judge([from_document(evidence(machine), machine.name)], checks, None)
    assert [finding["message"] for finding in report["findings"] if finding["status"] in BAD] == []


@pytest.mark.parametrize("file", [None, b"[class.login]\ngpus = 0\nhcas = 0\n"])
def test_a_login_node_has_no_warning_of_any_of_them(file: bytes | None) -> None:
    checks = [CHECKS[check] for check in WALKED if CHECKS[check].scope is Scope.NODE and not CHECKS[check].history]
    made = from_document(stripped("login1"), "login1")
    report = judge([made], checks, decode(file, "login.toml") if file else None)
    assert [finding["message"] for finding in report["findings"] if finding["status"] in BAD] == []


# --- the key that resolves an unknown result --------------------------------------------------------------------------

HOST = (FIXTURES / "nodes" / "hgx-h100.toml").read_text().partition("[class.h100.host]")
NODE_OF: dict[str, Callable[[str], Machine]] = {"hgx-h100": hgx_h100, "dgx-a100": dgx_a100}


def unclear(machine: Machine) -> Machine:
    """Make the driver hide the default of the application clock, as older ones do."""
    body = json.loads((FIXTURES / "gpu.clocks" / "a100-default-not-told.json").read_text())
    return replace(
        machine, records={**machine.records, **{key: documented(key, value) for key, value in body["records"].items()}}
    )


#: Check -> node, its state, further keys of its class, and the key that resolves the unknown result.
DECIDED: dict[str, tuple[str, Fault, str, str]] = {
    "host.inventory": ("hgx-h100", lambda machine: machine, "", "[class.h100.host]" + HOST[2]),
    "host.failed-units": (
        "hgx-h100", record(FAILED, ran(unit_list("motd-news.service loaded failed failed Message of the Day"))),
        "", '[class.h100.host]\nmay_fail = ["motd-news"]\n',
    ),
    "gpu.clocks": ("dgx-a100", unclear, "", "[class.a100.gpu_settings]\napplication_clock_mhz = 1275\n"),
}  # fmt: skip


def cluster(text: str) -> Cluster:
    return decode(text.encode(), "cluster.toml")


@pytest.mark.parametrize("name", DECIDED)
def test_a_key_of_the_cluster_file_decides_what_is_unknown(name: str) -> None:
    described, change, beside, key = DECIDED[name]
    machine = change(NODE_OF[described](described))
    made = [from_document(evidence(machine), machine.name)]
    header = "[class.h100]\ngpus = 8\n" if described == "hgx-h100" else "[class.a100]\ngpus = 8\n"
    before = judge(made, [CHECKS[name]], cluster(header + beside))["findings"]
    after = judge(made, [CHECKS[name]], cluster(header + beside + key))["findings"]
    assert "unknown" in {finding["status"] for finding in before}
    assert {finding["status"] for finding in after} <= {"pass", "skip"}
    path = key.strip("[\n").partition("]")[0].removeprefix("class.h100.").removeprefix("class.a100.")
    texts = [f"{finding['fix']} {finding['expected']} {finding['message']}" for finding in before]
    assert any(path.split(".")[0] in text for text in texts), f"the finding names the key: {texts}"


@pytest.mark.parametrize("name", sorted(set(WALKED) - set(DECIDED)))
def test_of_a_declared_sound_node_nothing_is_unknown(name: str) -> None:
    """Any other unknown result is a record that could not be read, which its finding names."""
    check = CHECKS[name]
    if check.scope is Scope.NODE and not check.history:
        machine = replace(hgx_h100("hgx-h100"))
        declared = cluster((FIXTURES / "nodes" / "hgx-h100.toml").read_text())
        report = judge([from_document(evidence(machine), machine.name)], [check], declared)
        assert {finding["status"] for finding in report["findings"]} <= {"pass", "skip"}
    for case, path in ((path.stem, path) for path in sorted((FIXTURES / name).glob("*.json"))):
        body = json.loads(path.read_text())
        for finding in findings_of(check, Case(name, path, body)) if "findings" in body else ():
            if finding["status"] == "unknown":
                assert finding["evidence"] or finding["fix"] or finding["expected"], (case, finding["message"])
