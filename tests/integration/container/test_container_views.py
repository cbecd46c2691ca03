"""One planted node, seen from real podman and bubblewrap containers with fewer and fewer parts of it.

The reports differ only in what is visible: hidden parts are unknown, never absent, and a visible fault is still
reported. Missing parts of the container that a job needs are reported.
"""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from preflight.checks import registry
from preflight.evidence.document import from_document
from preflight.expectations.cluster_file import load
from preflight.judge import judge
from preflight.model import Scope
from preflight.probes.node import PROBES
from preflight.probes.probe import plan
from preflight.transport.local import node
from tests.integration.container.test_container import BWRAP
from tests.support import hostroot
from tests.support.fixture import FIXTURES
from tests.support.kubernetes import podman
from tests.support.machines import hgx_h100, with_nic

CHECKS = [check for check in registry().checks if check.scope is Scope.NODE]
NAME = "hgx-h100"
NULL = os.makedev(1, 3)

Verdicts = Mapping[str, str]
Engine = Callable[[Path, str], list[str]]


@pytest.fixture(scope="module")
def root() -> Iterator[Path]:
    """The root of a node with port mlx5_9 down; every user may enter it."""
    if os.geteuid() != 0:
        pytest.skip("root is needed to make device nodes")
    folder = Path(tempfile.mkdtemp(prefix="preflight-"))
    folder.chmod(0o755)
    machine = with_nic(hgx_h100(NAME), "mlx5_9", state="DOWN", physical="Polling")
    made = hostroot.write(machine, folder / "root", python=False)
    (made / "bin" / "find").unlink()  # the container's own list shows what is in /dev
    for sys in ("sys", "empty"):  # runc mounts the cgroups there
        (made / sys / "fs" / "cgroup").mkdir(parents=True)
    for name in (*(f"nvidia{index}" for index in range(8)), "nvidiactl", "nvidia-uvm"):
        os.mknod(made / "dev" / name, 0o20666, NULL)
        (made / "dev" / name).chmod(0o666)
    yield made
    shutil.rmtree(folder)


def devices(root: Path, *, infiniband: bool = True) -> list[str]:
    """Return the device nodes of a container of this node, below /dev."""
    folders = [root / "dev" / "infiniband"] if infiniband else []
    found = [path for folder in folders for path in folder.iterdir()] + list((root / "dev").glob("nvidia*"))
    return sorted(str(path.relative_to(root)) for path in found if path.is_char_device())


@pytest.fixture(scope="module")
def in_podman() -> Iterator[Engine]:
    if reason := podman.why_not():
        pytest.skip(f"podman: {reason}")
    engine = podman.Podman()

    def command(root: Path, view: str) -> list[str]:
        sys = root / "empty" if view == "no /sys" else root / "sys"
        options = [f"--volume={sys}:/sys:ro", f"--volume={root}/bin:/usr/local/bin:ro"]
        for path in devices(root, infiniband=view != "no /dev/infiniband"):
            options.append(f"--device={root}/{path}:/{path}")
        if view == "no RDMA class":
            options += ["--security-opt", "mask=/sys/class/infiniband:/sys/class/infiniband_verbs"]
        if view == "ordinary user":
            options += ["--user=1000", "--cap-drop=ALL", "--read-only", "--security-opt=no-new-privileges"]
        return engine.command(*options)

    yield command
    engine.close()


@pytest.fixture(scope="module")
def in_bubblewrap() -> Engine:
    if BWRAP is None:
        pytest.skip("bubblewrap is not installed, or may not make namespaces here")

    def command(root: Path, view: str) -> list[str]:
        words = [BWRAP or "", "--unshare-all", "--die-with-parent", "--ro-bind", "/", "/", "--dev", "/dev",
                 "--proc", "/proc", "--ro-bind", f"{root}/bin", "/usr/local/bin",
                 "--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin"]  # fmt: skip
        words += ["--tmpfs", "/sys"] if view == "no /sys" else ["--ro-bind", f"{root}/sys", "/sys"]
        for path in devices(root, infiniband=view != "no /dev/infiniband"):
            words += ["--dev-bind", f"{root}/{path}", f"/{path}"]
        if view == "no RDMA class":
            words += ["--tmpfs", "/sys/class/infiniband", "--tmpfs", "/sys/class/infiniband_verbs"]
        if view == "ordinary user":
            words += ["--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
        return [*words, "/usr/bin/python3"]

    return command


def verdicts(command: list[str], tmp_path: Path) -> Verdicts:
    """Collect with the python of a container, judge, and return check -> status."""
    python = tmp_path / "python"
    # a separate session: the transport ends our process group, and podman removes its container afterwards
    python.write_text(f'#!/bin/sh\nexec setsid -w {shlex.join(command)} "$@"\n', encoding="utf-8")
    python.chmod(0o755)
    evidence = from_document(node.collect(plan(PROBES, node=NAME, deadline_s=60), str(python)), NAME)
    assert evidence.no_answer is None, evidence.no_answer
    assert evidence.collector["where"] == "container"
    report = judge([evidence], CHECKS, load(FIXTURES / "nodes" / f"{NAME}.toml"))
    found: Verdicts = report["nodes"][0]["checks"]
    return found


@pytest.fixture(scope="module", params=["podman", "bubblewrap"])
def engine(request: pytest.FixtureRequest) -> Engine:
    found: Engine = request.getfixturevalue(f"in_{request.param}")
    return found


@pytest.fixture(scope="module")
def complete(engine: Engine, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Verdicts:
    """Verdicts of a container with access to the complete node."""
    return verdicts(engine(root, "whole"), tmp_path_factory.mktemp("whole"))


#: View -> checks that fail because the container lacks something that it needs or the cluster file expects.
LACKS = {
    "no /dev/infiniband": {"rdma.device-nodes"},
    "no RDMA class": {"rdma.device-count"},
    "no /sys": set[str](),
    "ordinary user": set[str](),
}

#: Limits of a container without CAP_IPC_LOCK, if this machine has any.
OWN_LIMITS = {"host.memlock"}


@pytest.mark.parametrize("view", LACKS)
def test_what_is_not_shown_is_unknown_never_absent(
    engine: Engine, complete: Verdicts, view: str, root: Path, tmp_path: Path
) -> None:
    seen = verdicts(engine(root, view), tmp_path)
    assert seen.keys() == complete.keys()
    changed = {check: seen[check] for check in complete if seen[check] != complete[check]}
    failing = {check for check, status in changed.items() if status == "fail"}
    assert failing - OWN_LIMITS == LACKS[view], "what the container lacks is reported, and nothing else"
    assert {status for check, status in changed.items() if check not in failing} <= {"unknown"}


def test_a_container_with_all_of_the_node_sees_its_fault_and_no_other(complete: Verdicts) -> None:
    about_the_node = ("gpu.", "gpudirect.", "nvlink.", "pcie.", "rdma.", "topology.", "xid.", "kernel.modules")
    loud = {check for check, status in complete.items() if check.startswith(about_the_node) and status != "pass"}
    assert {check: complete[check] for check in loud if complete[check] != "skip"} == {
        "rdma.port-state": "fail", "rdma.bandwidth-per-gpu": "unknown",  # a container may see only some NICs
    }  # fmt: skip


def test_a_hidden_sys_makes_the_node_unknown(engine: Engine, root: Path, tmp_path: Path) -> None:
    seen = verdicts(engine(root, "no /sys"), tmp_path)
    of_the_node = ("gpu.", "gpudirect.", "nvlink.", "pcie.", "rdma.", "topology.", "xid.", "roce.", "rails.subnets")
    assert {status for check, status in seen.items() if check.startswith(of_the_node)} == {"unknown"}
