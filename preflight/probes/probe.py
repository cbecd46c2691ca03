"""One probe as data, and the plan of probes that a collector runs."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import TYPE_CHECKING

from preflight._startup.lightclass import dataclass

if TYPE_CHECKING:
    from typing import Any

PLAN_SCHEMA = "preflight.plan/1"

#: Maximum output of one probe, bytes.
OUTPUT_CAP = 1_000_000

#: Names of environment variables that may leave a node; a trailing ``*`` matches any suffix.
ENVIRONMENT = (
    "NCCL_*", "nccl_*", "TORCH_NCCL_*", "TORCH_FR_*", "TORCH_DISTRIBUTED_DEBUG", "UCX_*", "NVSHMEM_*", "SHARP_COLL_*",
    "OFI_NCCL_*", "FI_*", "SLURM_*", "PMIX_*", "OMPI_COMM_WORLD_*", "OMPI_MCA_*", "CUDA_VISIBLE_DEVICES",
    "CUDA_DEVICE_ORDER", "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_IMEX_CHANNELS",
    "WORLD_SIZE", "RANK", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS",
    "KUBERNETES_SERVICE_HOST", "GLOO_SOCKET_IFNAME", "LD_LIBRARY_PATH", "LD_PRELOAD",
    "PCIDEVICE_*", "NETWORK_STATUS", "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER",
    "_SLURM_SPANK_OPTION_pyxis_container_image",
)  # fmt: skip


@dataclass(frozen=True)
class Probe:
    """One item to collect on a node.

    ``kind`` is ``cmd``, ``file``, ``files`` (every file of a directory, in one record), ``dir``, ``statvfs``, ``env``,
    ``nvml``, ``psutil``, ``redis`` or ``kube`` (the collector's own pod in the Kubernetes API); ``target`` the command
    line, path, call or table; ``needs`` the required privilege (``root``, or empty). ``each`` are path patterns whose
    base names fill ``{}``; ``listed`` is another command and a pattern, whose matches in the output fill ``{}`` as
    well. ``twice``: read again at the end of a window, if one is requested. ``omit`` matches lines of the output that
    are left out; with ``keep``, all lines without a match are left out, except the first. ``otherwise`` is collected if
    a command cannot be run or fails: a library call, which takes a separate process. ``digest``: only a digest of the
    content leaves the node, enough to compare two nodes. ``where``: collected only with one of these: ``nvidia``,
    ``rdma``, ``systemd``; without them the tool has nothing to report. ``fields`` are the fields to read from a Redis
    table (empty: all), or from the objects listed in the hash ``names``.
    """

    kind: str
    target: str
    why: str
    timeout_s: float = 10.0
    needs: str = ""
    each: tuple[str, ...] = ()
    listed: tuple[str, str] | tuple[()] = ()
    twice: bool = False
    omit: str = ""
    keep: str = ""
    otherwise: tuple[Probe, ...] = ()
    digest: bool = False
    where: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    names: str = ""

    @property
    def key(self) -> str:
        """The record key (before expansion of patterns)."""
        return f"{self.kind}:{self.target}"

    @property
    def argv(self) -> tuple[str, ...]:
        """The command as an argument vector; never given to a shell."""
        return tuple(_words(self.target)) if self.kind == "cmd" else ()

    def to_plan(self) -> dict[str, Any]:
        """Return the probe in the form that the collector reads."""
        return dict(self._plan)

    @cached_property
    def _plan(self) -> dict[str, Any]:  # the same for each of thousands of nodes
        plan: dict[str, Any] = {"key": self.key, "kind": self.kind, "target": self.target}
        plan["timeout_s"] = self.timeout_s
        if self.kind == "cmd":
            plan["argv"] = list(self.argv)
        if self.needs:
            plan["needs"] = self.needs
        if self.where:
            plan["where"] = list(self.where)
        if self.each:
            plan["each"] = list(self.each)
        if self.listed:
            plan["listed"] = {"argv": _words(self.listed[0]), "pattern": self.listed[1]}
        if self.twice:
            plan["twice"] = True
        if self.omit:
            plan["omit"] = self.omit
        if self.keep:
            plan["keep"] = self.keep
        if self.digest:
            plan["digest"] = True
        if self.fields:
            plan["fields"] = list(self.fields)
        if self.names:
            plan["names"] = self.names
        if self.otherwise:
            plan["otherwise"] = [probe.to_plan() for probe in self.otherwise]
        return plan


def _words(command: str) -> list[str]:
    """Split a command line into words as a shell does."""
    if not any(sign in command for sign in "'\"\\"):
        return command.split()
    import shlex

    return shlex.split(command)


def plan(
    probes: Iterable[Probe],
    *,
    node: str,
    deadline_s: float,
    sudo: bool = False,
    parallel: int = 8,
    output_cap: int = OUTPUT_CAP,
    window_s: float | None = None,
    tools: Iterable[str] = (),
) -> dict[str, Any]:
    """Return the plan document for a collector (``schemas/plan-1.json``)."""
    window = {} if window_s is None else {"window_s": window_s}
    return {
        **window,
        **({"tools": list(tools)} if tools else {}),
        "schema": PLAN_SCHEMA,
        "node": node,
        "deadline_s": deadline_s,
        "sudo": sudo,
        "parallel": parallel,
        "output_cap": output_cap,
        "environment": list(ENVIRONMENT),
        "probes": [probe.to_plan() for probe in probes],
    }
