"""Names of events in profiler traces: kernels, operators, runtime calls.

They cover PyTorch 1.8 … 2.13, CUDA and ROCm.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Generic, NamedTuple, TypeVar

from preflight.parsers.torch.matrix_products import NAMES as PRODUCTS

#: Maximum number of cached names; a trace has a few hundred.
_MOST_NAMES = 1 << 14

STEP = re.compile(r"ProfilerStep\s*#\s*(\d{1,12})")
BACKEND = re.compile(r"(nccl|gloo|mpi|ucc|xccl|hccl):(\w{1,40})")
#: Functions of torch.nn.parallel.DataParallel, which scatters a batch over the GPUs of one process.
DATA_PARALLEL = re.compile(r"(?:autograd::engine::evaluate_function: )?(?:ReduceAddCoalesced|Gather|Scatter|Broadcast)"
                           r"(?:Backward)?")  # fmt: skip
#: Kernels that communicate with other GPUs: NCCL and RCCL of any version, and their replacements in frameworks.
_NCCL = re.compile(
    r"nccl\w{0,12}?(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv|AllToAll|Gather|Scatter|Generic)", re.I
)
_OTHER_COMMUNICATION = re.compile(
    r"cross_device_reduce|(?:one|two)_shot_all_reduce|multimem_all_(?:reduce|gather)|nvshmem|deep_ep::|mscclpp"
    r"|allreduce_fusion|(?:one|two)ShotAllReduce|userbuffers",
    re.I,
)
_CALLS = (
    ("launch", re.compile(r"\w{0,24}Launch(?:Cooperative|Host)?Kernel\w{0,12}|\w{0,24}GraphLaunch\w{0,8}")),
    ("synchronise", re.compile(
        r"(?:cuda|hip)(?:Stream|Device|Event)Synchronize(?:_v\d+)?|cu(?:Stream|Ctx|Event)Synchronize"
        r"|cudaMemcpy(?:ToSymbol|FromSymbol)?|hipMemcpy(?:WithStream|DtoH|HtoD)?")),
    ("copy", re.compile(r"(?:cuda|hip)Memcpy(?:2D)?Async")),
)  # fmt: skip
#: The operator that .item(), bool() and float() of a tensor call.
_READ_BACK = "aten::_local_scalar_dense"
_LOADER = re.compile(r"enumerate\(DataLoader\)#\S{0,80}|\w{0,40}DataLoaderIter\.__next__|\[pl\]\[profile\]\S{0,80}next")
_BACKWARD, _OPTIMIZER = "autograd::engine::evaluate_function", "Optimizer.step#"

Meaning = TypeVar("Meaning")


class NameCache(Generic[Meaning]):
    """A function of a name, with cached results."""

    def __init__(self, find: Callable[[str], Meaning]) -> None:
        self._find = find
        self._known: dict[str, Meaning] = {}

    def __call__(self, name: str) -> Meaning:
        """Return the result for a name."""
        meaning = self._known.get(name)
        if meaning is None:
            meaning = self._find(name)
            if len(self._known) < _MOST_NAMES:
                self._known[name] = meaning
        return meaning


class KernelName(NamedTuple):
    """The role of a kernel, from its name."""

    communicates: bool
    collective: str  # collective of NCCL or RCCL; empty for any other kernel


def kernel(name: str) -> KernelName:
    """Return the role of a kernel with this name."""
    match = _NCCL.search(name)
    if match:
        return KernelName(True, match[1])
    return KernelName(_OTHER_COMMUNICATION.search(name) is not None, "")


def call(name: str) -> str:
    """Return the role of a CUDA or HIP call; empty if it has none."""
    return next((role for role, pattern in _CALLS if pattern.fullmatch(name)), "")


def operator(name: str) -> str:
    """Return the role of a CPU operator or annotation; empty if it has none."""
    if STEP.fullmatch(name):
        return "step"
    if name == _READ_BACK:
        return "read back"
    if name.startswith((_BACKWARD, _OPTIMIZER)):
        return "backward" if name.startswith(_BACKWARD) else "optimizer"
    if name in PRODUCTS:
        return "product"
    if _LOADER.fullmatch(name):
        return "load"
    if (match := BACKEND.fullmatch(name)) and match[1] != "nccl":  # collectives of NCCL are counted by their kernels
        return "backend"
    return "data parallel" if DATA_PARALLEL.fullmatch(name) else ""


def collective(name: str) -> str:
    """Return a collective's name in the spelling of nccl-tests.

    NCCL, PyTorch and Gloo use different spellings.
    """
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).strip("_").lower()
    plain = re.sub(r"^(all|reduce)_?(reduce|gather|scatter|to)", r"\1_\2", plain)
    for begins in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "broadcast"):
        if plain.replace("_", "").startswith(begins.replace("_", "")):
            return {"all_to_all": "alltoall", "send_recv": "sendrecv"}.get(begins, begins)
    return plain[:40]
