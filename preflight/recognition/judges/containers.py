"""Judges of ``docker inspect`` and ``podman inspect``.

Whether a container runs a job of several processes or nodes is not in the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from preflight.facts.host import size_text
from preflight.model import Finding, failed, passed, unknown, warned
from preflight.parsers.cluster.container_inspect import InspectedContainer
from preflight.recognition.judges import Judge, Judges, PastedValue
from preflight.recognition.judges.host_tools import ENOUGH_SHM, LITTLE_SHM
from preflight.recognition.judges.lists import limited

_RDMA = "/dev/infiniband"
_GPU_NODES = ("/dev/nvidia", "/dev/dri", "/dev/kfd")


def _each(judge: Callable[[InspectedContainer, PastedValue], Iterator[Finding]]) -> Judge:
    def judge_containers(part: PastedValue) -> Iterator[Finding]:
        containers: Sequence[InspectedContainer] = part.value
        for item in containers:
            yield from judge(item, part)

    return limited(judge_containers)


def _name(item: InspectedContainer) -> str:
    return item.name or "the container"


@_each
def _shm(item: InspectedContainer, part: PastedValue) -> Iterator[Finding]:
    if item.ipc == "host":
        yield unknown(f"{_name(item)} shares the host's /dev/shm, whose size is not in the text", subject=item.name,
                      found="IpcMode host", evidence=part.evidence, fix="`df -h /dev/shm` on the host.")  # fmt: skip
    elif item.shm_bytes is not None:
        size = size_text(item.shm_bytes)
        if item.shm_bytes < ENOUGH_SHM:
            much = "too little for several ranks" if item.shm_bytes < LITTLE_SHM else "little"
            yield warned(f"{_name(item)}: /dev/shm has {size}: {much}", subject=item.name, found=size,
                         expected="at least 8 GiB", evidence=part.evidence,
                         fix="Start it with `--shm-size=16g` or `--ipc=host`.")  # fmt: skip
        else:
            yield passed(f"{_name(item)}: /dev/shm has {size}", evidence=part.evidence)


@_each
def _memlock(item: InspectedContainer, part: PastedValue) -> Iterator[Finding]:
    if item.ulimits is None:
        return
    limit = item.ulimits.get("memlock")
    fix = "Start it with `--ulimit memlock=-1 --cap-add=IPC_LOCK`."
    if limit == -1 or item.privileged or "IPC_LOCK" in (item.capabilities or ()):
        yield passed(f"{_name(item)} may lock memory", evidence=part.evidence)
    elif limit is not None:
        yield warned(f"{_name(item)} may lock only {size_text(limit)}, but RDMA registers more", subject=item.name,
                     found=size_text(limit), expected="unlimited", evidence=part.evidence, fix=fix)  # fmt: skip
    elif item.devices and any(path.startswith(_RDMA) for path in item.devices):
        yield warned(f"{_name(item)} has RDMA devices, but no memlock limit of its own, so the daemon's default "
                     "applies",
                     subject=item.name, found="no memlock in Ulimits", expected="memlock -1", evidence=part.evidence,
                     fix=fix)  # fmt: skip
    else:
        yield unknown(f"{_name(item)} has no memlock limit of its own: the daemon's default, often 8 MiB or less, is "
                      "too little for RDMA", subject=item.name, found="no memlock in Ulimits",
                      expected="memlock -1, if the job uses RDMA", evidence=part.evidence, fix=fix)  # fmt: skip


@_each
def _rdma(item: InspectedContainer, part: PastedValue) -> Iterator[Finding]:
    if item.devices is None and not item.privileged:
        return
    if item.privileged or any(path.startswith(_RDMA) for path in item.devices or ()):
        yield passed(f"{_name(item)} has the RDMA devices of the host", evidence=part.evidence)
    else:
        yield unknown(f"{_name(item)} has no device of {_RDMA}, so NCCL uses TCP between nodes", subject=item.name,
                      found="none", expected=f"{_RDMA}, if the job runs on several nodes", evidence=part.evidence,
                      fix=f"Start it with `--device={_RDMA}`.")  # fmt: skip


@_each
def _gpus(item: InspectedContainer, part: PastedValue) -> Iterator[Finding]:
    nodes = [path for path in item.devices or () if path.startswith(_GPU_NODES)]
    named = (item.variables or {}).get("NVIDIA_VISIBLE_DEVICES", "")
    if item.gpus or nodes or item.privileged or (item.runtime == "nvidia" and named not in ("", "void", "none")):
        shown = item.gpus or (f"{len(nodes)} device nodes" if nodes else named or "all, privileged")
        yield passed(f"{_name(item)} has GPUs: {shown}", evidence=part.evidence)
    elif item.gpus == "" or item.runtime == "nvidia":
        yield unknown(f"{_name(item)} requests no GPU", subject=item.name, found="none",
                      expected="GPUs, if it runs a job", evidence=part.evidence,
                      fix="Start it with `--gpus all`.")  # fmt: skip


@_each
def _network(item: InspectedContainer, part: PastedValue) -> Iterator[Finding]:
    if item.network == "host":
        yield passed(f"{_name(item)} uses the host's network", evidence=part.evidence)
    elif item.network:
        yield unknown(f"{_name(item)} uses the network {item.network}: the interfaces of the compute fabric, and "
                      "RoCE's addresses, are missing in it", subject=item.name, found=item.network,
                      expected="host, if the job runs on several nodes", evidence=part.evidence,
                      fix="Start it with `--network=host`.")  # fmt: skip


@_each
def _state(item: InspectedContainer, part: PastedValue) -> Iterator[Finding]:
    if item.oom_killed:
        yield failed(f"{_name(item)} was killed because it reached its memory limit", subject=item.name,
                     found="OOMKilled true", expected="false", evidence=part.evidence,
                     fix="Raise `--memory`, or find the leak: `docker stats`, `dmesg -T | grep -i oom`.")  # fmt: skip
    elif item.exit_code and item.state != "running":
        words = f": {item.error}" if item.error else ""
        yield failed(f"{_name(item)} ended with exit code {item.exit_code}{words[:200]}", subject=item.name,
                     found=item.exit_code, expected="0", evidence=part.evidence,
                     fix=f"`docker logs --tail 100 {item.name or 'CONTAINER'}`")  # fmt: skip
    elif item.state in ("restarting", "dead", "paused"):
        yield warned(f"{_name(item)} is {item.state}", subject=item.name, found=item.state, expected="running",
                     evidence=part.evidence, fix=f"`docker logs --tail 100 {item.name or 'CONTAINER'}`")  # fmt: skip
    elif item.restarts:
        yield unknown(f"{_name(item)} was restarted {item.restarts} times", subject=item.name, found=item.restarts,
                      expected="0", evidence=part.evidence,
                      fix=f"`docker logs --tail 100 {item.name or 'CONTAINER'}`")  # fmt: skip
    elif item.state:
        yield passed(f"{_name(item)} is {item.state}", evidence=part.evidence)


JUDGES: Judges = {
    "docker inspect": (
        ("container.state", _state), ("host.shm", _shm), ("host.memlock", _memlock), ("rdma.device-nodes", _rdma),
        ("container.gpu-devices", _gpus), ("container.networks", _network),
    ),
}  # fmt: skip
