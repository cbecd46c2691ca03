"""GPUs withheld by real control groups (v1 and v2): listed, but cannot be opened.

Slurm's ConstrainDevices and container engines leave the device nodes in place, so a list of /dev shows all GPUs.
access(2), which follows the control group, shows whether a silent GPU was lost or withheld.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import struct
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from preflight.evidence.document import from_document
from preflight.expectations.cluster_file import decode
from preflight.facts.container import GPU_NODES, USABLE_NODES, gpu_nodes, usable_gpu_nodes
from preflight.judge import judge
from tests.integration.container.test_container import BWRAP, collect
from tests.support.machines import evidence
from tests.support.machines.pod import CLUSTER, pod
from tests.support.whole_nodes import CHECKS, gpu

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to make device nodes and control groups"),
    pytest.mark.skipif(BWRAP is None, reason="bubblewrap is not installed, or may not make namespaces here"),
]

MAJOR, WITHHELD = 195, 3

#: Number of bpf(2), its commands, and the type of a device control program, from linux/bpf.h.
_BPF = {"x86_64": 321, "aarch64": 280}
_LOAD, _ATTACH, _OF_DEVICES, _AT_DEVICES = 5, 8, 15, 6


def _instruction(code: int, to: int, source: int, offset: int, number: int) -> bytes:
    return struct.pack("<BBhi", code, to | source << 4, offset, number)


#: Allow all devices but one. Major and minor number are the second and third word of the context.
PROGRAM = b"".join((
    _instruction(0x61, 2, 1, 4, 0), _instruction(0x61, 3, 1, 8, 0), _instruction(0xB7, 0, 0, 0, 1),
    _instruction(0x55, 2, 0, 2, MAJOR), _instruction(0x55, 3, 0, 1, WITHHELD), _instruction(0xB7, 0, 0, 0, 0),
    _instruction(0x95, 0, 0, 0, 0),
))  # fmt: skip


def _bpf(command: int, attributes: bytes) -> int:
    libc = ctypes.CDLL(None, use_errno=True)
    number = libc.syscall(_BPF[platform.machine()], command, ctypes.c_char_p(attributes), len(attributes))
    if number < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(number)


def _withhold_by_program(group: Path) -> None:
    code, licence = ctypes.create_string_buffer(PROGRAM, len(PROGRAM)), ctypes.create_string_buffer(b"GPL")
    loaded = _bpf(_LOAD, struct.pack("<IIQQ", _OF_DEVICES, len(PROGRAM) // 8, ctypes.addressof(code),
                                     ctypes.addressof(licence)))  # fmt: skip
    folder = os.open(group, os.O_RDONLY)
    _bpf(_ATTACH, struct.pack("<IIII", folder, loaded, _AT_DEVICES, 0))
    os.close(folder)
    os.close(loaded)


def _withhold_by_list(group: Path) -> None:
    (group / "devices.deny").write_text(f"c {MAJOR}:{WITHHELD} rwm")


#: Type of the mount and its options -> how a device is withheld from a group of it.
HIERARCHIES: dict[str, tuple[str, Callable[[Path], None]]] = {
    "version 1": (r" - cgroup \S+ \S*\bdevices\b", _withhold_by_list),
    "version 2": (r" - cgroup2 ", _withhold_by_program),
}


@pytest.fixture(params=HIERARCHIES)
def withholding(request: pytest.FixtureRequest, nodes: list[str]) -> Iterator[Path]:
    """Enter a control group that withholds one GPU for the duration of a test."""
    pattern, withhold = HIERARCHIES[request.param]
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    roots = [Path(line.split()[4]) for line in mounts if re.search(pattern, line)]
    if not roots:
        pytest.skip(f"control groups of {request.param} are not mounted here")
    group = Path(tempfile.mkdtemp(prefix="preflight-", dir=roots[0]))
    before = roots[0] / _own_group(request.param)
    try:
        withhold(group)
        (group / "cgroup.procs").write_text(str(os.getpid()))
        yield group
    finally:
        (before / "cgroup.procs").write_text(str(os.getpid()))
        group.rmdir()


def _own_group(hierarchy: str) -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        number, controllers, path = line.split(":", 2)
        if number == "0" if hierarchy == "version 2" else "devices" in controllers.split(","):
            return path.lstrip("/")
    raise AssertionError(hierarchy)


#: The driver's device nodes and their minor numbers.
NODES = {"nvidiactl": 255, **{f"nvidia{minor}": minor for minor in range(8)}}


@pytest.fixture
def nodes(tmp_path: Path) -> list[str]:
    """Return the options that bind the device nodes of eight GPUs into a container."""
    options = []
    for name, minor in NODES.items():
        path = tmp_path / name
        os.mknod(path, 0o20666, os.makedev(MAJOR, minor))
        path.chmod(0o666)
        options += ["--dev-bind", str(path), f"/dev/{name}"]
    return options


def test_what_the_group_withholds_is_listed_and_not_usable(withholding: Path, nodes: list[str]) -> None:
    collected = collect(*nodes)
    assert gpu_nodes(collected.text(GPU_NODES)) == set(NODES)
    assert set(NODES) - gpu_nodes(collected.text(USABLE_NODES)) == {f"nvidia{WITHHELD}"}
    assert usable_gpu_nodes(collected) == 7


def test_without_such_a_group_all_are_usable(nodes: list[str]) -> None:
    assert usable_gpu_nodes(collect(*nodes)) == 8


def test_a_gpu_that_was_withheld_is_not_called_lost(withholding: Path, nodes: list[str]) -> None:
    """Seven of a pod's eight GPUs answer: the eighth was withheld if it may not be opened, else it was lost."""
    machine = gpu(WITHHELD, answers=False)(pod())
    checks = [check for check in CHECKS if check.id in ("gpu.driver", "container.gpu-devices")]
    for records, failing in (
        ({USABLE_NODES: collect(*nodes).records[USABLE_NODES]}, "container.gpu-devices"), ({}, "gpu.driver"),
    ):  # fmt: skip
        made = evidence(replace(machine, records={**machine.records, **records}))
        report = judge([from_document(made, "pod")], checks, decode(CLUSTER.encode(), "pod.toml"))
        assert [check for check, status in report["nodes"][0]["checks"].items() if status == "fail"] == [failing]
