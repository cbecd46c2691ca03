"""One planted node, collected by root, by an ordinary user and with --sudo: only the visible parts differ.

The node has a private mount namespace (``tests.support.hostroot``) with its /sys, /proc, /dev, tools and sudoers in
their usual places. sudo is the real one, with the exact line that ``preflight probes`` prints.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Container, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from preflight.checks import registry
from preflight.collect.sudoers import sudoers
from preflight.evidence.document import Evidence, from_document
from preflight.expectations.cluster_file import load
from preflight.judge import judge
from preflight.model import Scope
from preflight.probes.node import PROBES
from preflight.probes.probe import plan
from preflight.transport.local import node as local
from tests.support import hostroot
from tests.support.fixture import FIXTURES
from tests.support.machines import hgx_h100, with_nic
from tests.support.sshfarm.view import GID, UID, USER, Room

CHECKS = [check for check in registry().checks if check.scope is Scope.NODE]
NAME = "hgx-h100-roce"

_missing = [tool for tool in ("unshare", "setpriv", "sudo") if shutil.which(tool) is None]
pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to become an ordinary user"),
    pytest.mark.skipif(bool(_missing), reason=f"not installed: {', '.join(_missing)}"),
]

#: Output of tools for an ordinary user: lspci of pciutils 3.9, dmesg of util-linux 2.38 where kernel.dmesg_restrict is
#: 1, ethtool 6.1. ``$0.root`` prints the output for root.
_TO_A_USER = {
    "lspci": r""""$0.root" "$@" | sed '/^\t\t/d; s/^\tCapabilities: .*/\tCapabilities: <access denied>/' | uniq""",
    "ethtool": """[ "$1" = -m ] || exec "$0.root" "$@"; echo 'netlink error: Operation not permitted' >&2; exit 1""",
    "mlxlink": "echo '-E- Permission denied: run as root' >&2; exit 1",
    "dmesg": "echo 'dmesg: read kernel buffer failed: Operation not permitted' >&2; exit 1",
}

#: Parts of the planted node that only root sees: none of them may be guessed.
ROOT_ONLY = {
    "gpudirect.path",
    "pcie.max-read-request",
    "xid.gpu",
    "xid.nvswitch",
    "kernel.events",
    "optics.module",
    "optics.ber",
}

#: Parts of it that everybody sees.
TO_ALL = {"rdma.port-state"}


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that an ordinary user may enter; pytest's own are closed to others."""
    made = Path(tempfile.mkdtemp(prefix="preflight-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


@pytest.fixture(scope="module")
def node(folder: Path) -> Path:
    """A node with faults that everybody sees, and faults that only root sees: ACS, small reads, an XID."""
    machine = with_nic(hgx_h100(NAME, roce=True), "mlx5_9", state="DOWN", physical="Polling", max_read_request=512)
    machine = replace(
        machine,
        acs=("SrcValid", "ReqRedir", "CmpltRedir", "UpstreamFwd"),
        kernel_log=("<4>[421000.1] NVRM: Xid (PCI:0000:61:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen",),
    )
    root = hostroot.write(machine, folder / "root")
    for tool, lines in _TO_A_USER.items():
        script = root / "bin" / tool
        script.rename(f"{script}.root")
        script.write_text(f'#!/bin/sh\n[ "$(id -u)" = 0 ] && exec "$0.root" "$@"\n{lines}\n', encoding="utf-8")
        script.chmod(0o755)
    return root


def collect_as(
    node: Path, uid: int, *, sudo: bool = False, allowed: bool = True, window_s: float | None = None
) -> Evidence:
    """Collect in the node's namespace as a user; ``allowed`` is whether its sudoers list the user."""
    folder = Path(tempfile.mkdtemp(dir=node.parent))
    folder.chmod(0o755)
    rules = [line.replace("preflight ALL", f"{USER} ALL").replace("/usr/sbin/", f"{node}/bin/")
             for line in sudoers(PROBES)]  # fmt: skip
    text = "\n".join([f'Defaults env_reset, secure_path="{node}/bin:/usr/bin:/bin"', *(rules if allowed else []), ""])
    room = Room(folder / "room", hostroot.view(node, files={"/etc/sudoers": text}))
    hostroot.furnish(room.enter, node)
    become = ["setpriv", f"--reuid={uid}", f"--regid={GID if uid else 0}", "--clear-groups"]
    variables = [f"PATH={room.environment['PATH']}", f"HOME={folder}"]
    command = ["env", *variables, *room.command, *become, f"{node}/bin/python3"]
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec {shlex.join(command)} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    made = plan(PROBES, node=NAME, deadline_s=30, sudo=sudo, window_s=window_s)
    evidence = from_document(local.collect(made, str(python)), NAME)
    assert evidence.no_answer is None, evidence.no_answer
    assert evidence.collector["uid"] == uid
    return evidence


def report(evidence: Evidence) -> dict[str, Any]:
    return judge([evidence], CHECKS, load(FIXTURES / "nodes" / f"{NAME}.toml"))


def verdicts(evidence: Evidence) -> dict[str, str]:
    """Return check -> status."""
    found: dict[str, str] = report(evidence)["nodes"][0]["checks"]
    return found


def findings(evidence: Evidence, *, without: Container[str] = ()) -> list[tuple[str, ...]]:
    keys = ("check", "subject", "status", "message", "found", "expected", "fix")
    return [tuple(f[key] or "" for key in keys) for f in report(evidence)["findings"] if f["check"] not in without]


@pytest.fixture(scope="module")
def as_root(node: Path) -> Evidence:
    return collect_as(node, 0)


@pytest.fixture(scope="module")
def as_user(node: Path) -> Evidence:
    return collect_as(node, UID)


def test_root_sees_every_planted_fault(as_root: Evidence) -> None:
    loud = {check for check, status in verdicts(as_root).items() if status in ("fail", "warn")}
    assert loud == TO_ALL | {"gpudirect.path", "pcie.max-read-request", "xid.gpu"}


def test_an_ordinary_user_sees_less_and_nothing_else(as_root: Evidence, as_user: Evidence) -> None:
    to_root, to_user = verdicts(as_root), verdicts(as_user)
    assert to_root.keys() == to_user.keys()
    differ = {check: to_user[check] for check in to_root if to_root[check] != to_user[check]}
    assert differ == dict.fromkeys(ROOT_ONLY, "unknown")
    assert findings(as_root, without=ROOT_ONLY) == findings(as_user, without=ROOT_ONLY)


def test_what_only_root_sees_names_the_privilege(as_user: Evidence) -> None:
    unknown = [f for f in report(as_user)["findings"] if f["check"] in ROOT_ONLY and f["status"] == "unknown"]
    assert {found["check"] for found in unknown} == ROOT_ONLY
    assert [found["check"] for found in unknown if "--sudo" not in found["fix"]] == []


def test_with_sudo_the_report_is_roots(node: Path, as_root: Evidence) -> None:
    assert findings(collect_as(node, UID, sudo=True)) == findings(as_root)


def test_a_sudo_that_refuses_leaves_the_ordinary_user(node: Path, as_user: Evidence) -> None:
    refused = collect_as(node, UID, sudo=True, allowed=False)
    assert refused.collector["notes"] == ["needs root, but sudo denies it: sudo: a password is required"]
    assert verdicts(refused) == verdicts(as_user)
    assert findings(refused, without=ROOT_ONLY) == findings(as_user, without=ROOT_ONLY)


def test_counters_that_stand_still_are_read_twice_by_anybody(node: Path) -> None:
    """Planted files do not count: nothing grows, and no finding that needs traffic is reported."""
    evidence = collect_as(node, UID, window_s=1)
    statuses = {check: status for check, status in verdicts(evidence).items() if check.startswith("counters.")}
    still = dict.fromkeys(("loss", "link-quality", "flaps", "receiver", "visible"), "pass")
    assert statuses == {f"counters.{name}": status for name, status in {
        **still, "congestion": "unknown", "balance": "unknown", "traffic-class": "unknown", "cpu": "unknown",
        "gpu-links": "unknown",  # NVML's counters cannot be planted
    }.items()}  # fmt: skip
    message = next(f["message"] for f in report(evidence)["findings"] if f["check"] == "counters.cpu")
    assert "no CPU counted any time" in message, "a /proc/stat that was planted stands still"
