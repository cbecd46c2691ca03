"""Traces of PyTorch's profiler: steps, kernels, collectives, waiting.

Reads the Chrome trace JSON of Kineto, of PyTorch 1.8 … 2.13 with CUDA or ROCm. Times in the file are in microseconds;
here they are in milliseconds. A collective's kernel runs from its own rank's call until all ranks are done, so it
includes waiting for others.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import cached_property
from statistics import fmean, pstdev
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.parsers.torch.collective_calls import CallKey, CallSeries, CollectiveCalls, ordered, size_of
from preflight.parsers.torch.gradient_buckets import buckets
from preflight.parsers.torch.host_activity import CudaMemory, HostActivity
from preflight.parsers.torch.intervals import Coverage, Spans, Stretch, Stretches, clipped, percentile, total, without
from preflight.parsers.torch.launches import BackwardPass, Launches, within
from preflight.parsers.torch.matrix_products import NAMES as PRODUCTS
from preflight.parsers.torch.matrix_products import MatrixProducts
from preflight.parsers.torch.step_budget import StepBudget, budget

#: Maximum number of kernels and waits stored per trace; each takes 16 bytes.
MOST = 8_000_000

_STEP = re.compile(r"ProfilerStep\s*#\s*(\d{1,12})")
#: Kernels that communicate with other GPUs: NCCL and RCCL of any version, and their replacements in frameworks.
_NCCL = re.compile(
    r"nccl\w{0,12}?(AllReduce|AllGather|ReduceScatter|Broadcast|Reduce|SendRecv|AllToAll|Gather|Scatter|Generic)", re.I
)
_OTHER_COMMUNICATION = re.compile(
    r"cross_device_reduce|(?:one|two)_shot_all_reduce|multimem_all_(?:reduce|gather)|nvshmem|deep_ep::|mscclpp"
    r"|allreduce_fusion|(?:one|two)ShotAllReduce|userbuffers",
    re.I,
)
_SYNCHRONISE = re.compile(
    r"(?:cuda|hip)(?:Stream|Device|Event)Synchronize(?:_v\d+)?|cu(?:Stream|Ctx|Event)Synchronize"
    r"|cudaMemcpy(?:ToSymbol|FromSymbol)?|hipMemcpy(?:WithStream|DtoH|HtoD)?"
)
_COPIES = re.compile(r"(?:cuda|hip)Memcpy(?:2D)?Async")
_LAUNCHES = re.compile(r"\w{0,24}Launch(?:Cooperative|Host)?Kernel\w{0,12}|\w{0,24}GraphLaunch\w{0,8}")
#: .item(), bool() and float() of a tensor end in this operator.
_READ_BACK = "aten::_local_scalar_dense"
_LOADER = re.compile(r"enumerate\(DataLoader\)#\S{0,80}|\w{0,40}DataLoaderIter\.__next__|\[pl\]\[profile\]\S{0,80}next")
_BACKEND = re.compile(r"(nccl|gloo|mpi|ucc|xccl|hccl):(\w{1,40})")
_CPU_KINDS = {
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "runtime", "hip_runtime"), "runtime"),
    **dict.fromkeys(("cpu_op", "operator", "user_annotation", "cpu_instant_event"), "operator"),
    **dict.fromkeys(("gpu_memcpy", "gpu_memset"), "copy"),
    "kernel": "kernel", "gpu_user_annotation": "annotation", "python_function": "python", "trace": "trace",
}  # fmt: skip
_BACKWARD, _OPTIMIZER = "autograd::engine::evaluate_function", "Optimizer.step#"
#: Functions of torch.nn.parallel.DataParallel, which scatters a batch over the GPUs of one process.
_DATA_PARALLEL = re.compile(r"(?:autograd::engine::evaluate_function: )?(?:ReduceAddCoalesced|Gather|Scatter|Broadcast)"
                            r"(?:Backward)?")  # fmt: skip
_MEMORY = "[memory]"
_NUMBERS = frozenset((int, float))
_PLAIN, _STEP_ROLE = "plain", "step"
_CALLS = (("launch", _LAUNCHES), ("synchronise", _SYNCHRONISE), ("copy", _COPIES))
#: Maximum number of cached kernel names with their roles: a model has some hundred.
_MOST_NAMES = 1 << 14


def is_event(value: object) -> bool:
    """Return whether a value is an event of a Chrome trace."""
    return isinstance(value, dict) and isinstance(value.get("ph"), str)


@dataclass(frozen=True)
class TraceSummary:
    """A complete trace: its document, and values compared with other ranks' traces."""

    document: dict[str, Any]
    calls: Sequence[tuple[CallKey, CallSeries]]
    bare: Coverage  # communication on its GPU while no kernel computes, microseconds
    steps: Mapping[int, Stretch]  # by number, microseconds
    compute: Mapping[int, float]  # time of each step with compute kernels, microseconds
    tails: Sequence[Stretch]  # in each step, the part after the last kernel of the backward pass


class Trace:
    """One trace, read event by event."""

    def __init__(self) -> None:
        self.events = 0
        self.dropped = 0
        self.about: dict[str, Any] = {}
        self.steps: dict[bool, list[Stretch]] = {False: [], True: []}  # as the CPU began them; as the GPU ran them
        self.tails: list[Stretch] = []
        self.numbers: dict[float, int] = {}  # as the CPU started them; as the GPU ran them
        self.kernels = 0
        self.calls = CollectiveCalls()
        self._names: dict[str, tuple[bool, str | None]] = {}  # for kernels: whether they communicate, and their name
        self.compute: dict[Any, Stretches] = defaultdict(Stretches)
        self.talk: dict[Any, Stretches] = defaultdict(Stretches)
        self.copies: dict[Any, Stretches] = defaultdict(Stretches)  # and fillings
        self.collectives: dict[tuple[str, int | None], list[float]] = defaultdict(list)
        self.waits: dict[str, list[float]] = defaultdict(list)
        self.launches = Launches()
        self.loads = Stretches()
        self.host = HostActivity()
        self.memory = CudaMemory()
        self.products = MatrixProducts()
        self.data_parallel = False  # torch.nn.parallel.DataParallel
        self._roles: dict[str, str] = {}  # CPU operators and annotations
        self._calls: dict[str, str] = {}  # CUDA or HIP functions
        self.backends: dict[str, int] = defaultdict(int)
        self.begin, self.end = float("inf"), float("-inf")

    def member(self, name: str, value: Any) -> None:
        """Process a member of the outermost object."""
        if name == "distributedInfo" and isinstance(value, dict):
            for key in ("backend", "rank", "world_size", "nccl_version"):
                if isinstance(value.get(key), (str, int)):
                    self.about[key] = value[key]
            config = value.get("pg_config")
            first = config[0] if isinstance(config, list) and config else None
            if isinstance(first, dict) and isinstance(first.get("backend_config"), str):
                self.about["backend_config"] = first["backend_config"]
        elif name == "deviceProperties" and isinstance(value, list):
            names = (str(one.get("name")) for one in value if isinstance(one, dict) and one.get("name"))
            self.about["devices"] = list(dict.fromkeys(names))[:16]
            self.about["device_count"] = len(value)
        elif name in ("host_name", "cuda_driver_version", "cuda_runtime_version") and isinstance(value, (str, int)):
            self.about[name] = value

    def batch(self, events: Sequence[object]) -> None:
        """Process elements of a list of events."""
        take = self._take
        for event in events:
            if type(event) is dict:
                phase = event.get("ph")
                if phase == "X":
                    take(event)
                elif type(phase) is str:
                    self.events += 1
                    if event.get("name") == _MEMORY:
                        self.memory.add(_args(event))

    def event(self, event: Mapping[str, Any]) -> None:
        """Process an event."""
        self.batch((event,))

    def _take(self, event: Mapping[str, Any]) -> None:
        """Process an event with a start and a duration; most of a trace needs little work."""
        self.events += 1
        begin, length = event.get("ts"), event.get("dur")
        if not (_real(begin) and _real(length)):
            return
        assert isinstance(begin, (int, float))
        assert isinstance(length, (int, float))
        category, name = event.get("cat"), event.get("name")
        kind = _CPU_KINDS.get(category) if type(category) is str else ""
        if kind is None:
            kind = _CPU_KINDS.get(str(category).lower(), "")
        if type(name) is not str:
            name = str(name or "")
        if kind != "trace":
            if begin < self.begin:
                self.begin = begin
            if begin + length > self.end:
                self.end = begin + length
        if self.events - self.dropped > MOST:
            self.dropped += 1
        elif kind == "kernel":
            self._kernel(name, event, begin, length)
        elif kind == "operator":
            role = self._roles.get(name) or self._role(name)
            if role is not _PLAIN:
                self._annotation(role, name, event, begin, length)
            if role is not _STEP_ROLE:
                self.host.ran(begin, length)
        elif kind == "runtime":
            self._call(name, event, begin, length)
            self.host.ran(begin, length)
        elif kind == "copy":
            self._copy(name, event, begin, length)
        elif kind == "annotation":
            if _STEP.fullmatch(name):
                self.steps[True].append((begin, begin + length))
        elif kind == "python":
            self.host.function(name, begin, length)

    def _copy(self, name: str, event: Mapping[str, Any], begin: float, length: float) -> None:
        """Add a memory copy or memset on the GPU."""
        args = _args(event)
        correlation, device = args.get("correlation"), args.get("device", event.get("pid"))
        device = device if isinstance(device, (int, str)) else None
        if "Pageable" in name:
            self.launches.pageable(correlation)
        self.copies[device].add(begin, length)
        self.launches.ran(device, correlation, begin, "HtoD" in name)

    def _call(self, name: str, event: Mapping[str, Any], begin: float, length: float) -> None:
        """Process a call of the CUDA or HIP runtime or driver."""
        role = self._calls.get(name)
        if role is None:
            role = next((role for role, pattern in _CALLS if pattern.fullmatch(name)), _PLAIN)
            if len(self._calls) < _MOST_NAMES:
                self._calls[name] = role
        if role == "launch":
            self.launches.started(_thread(event), _args(event).get("correlation"), begin)
        elif role == "synchronise":
            self.waits[name].append(length)
            self.launches.waited(name, _thread(event), begin, length)
        elif role == "copy":
            self.launches.copied(_thread(event), _args(event).get("correlation"), begin, length)

    def _kernel(self, name: str, event: Mapping[str, Any], begin: float, length: float) -> None:
        args = _args(event)
        device = args.get("device", event.get("pid"))
        device = device if isinstance(device, (int, str)) else None
        correlation = args.get("correlation")
        self.kernels += 1
        self.launches.ran(device, correlation, begin)
        communicates, called = self._names.get(name) or self._classified(name)
        if communicates:
            kind = _collective(str(args.get("Collective name") or called or "other"))
            self.talk[device].add(begin, length)
            size = size_of(args)
            self.collectives[kind, size if size >= 0 else None].append(length)
            self.calls.add(kind, args, begin, length)
            if called:
                self.backends["nccl"] += 1
        else:
            self.compute[device].add(begin, length)
            self.launches.computed(device, correlation, begin, length)
            self.products.ran(args.get("External id"), length)

    def _classified(self, name: str) -> tuple[bool, str | None]:
        """Return whether a kernel of this name communicates, and its name in NCCL."""
        match = _NCCL.search(name)
        answer = (match is not None or _OTHER_COMMUNICATION.search(name) is not None, match[1] if match else None)
        if len(self._names) < _MOST_NAMES:
            self._names[name] = answer
        return answer

    def _role(self, name: str) -> str:
        """Return the role of a CPU operator or annotation."""
        role = _role_of(name)
        if role is not _STEP_ROLE and len(self._roles) < _MOST_NAMES:
            self._roles[name] = role
        return role

    def _annotation(self, role: str, name: str, event: Mapping[str, Any], begin: float, length: float) -> None:
        if role is _STEP_ROLE:
            self.steps[False].append((begin, begin + length))
            match = _STEP.fullmatch(name)
            assert match
            self.numbers[begin] = int(match[1])
        elif role == "read back":
            self.waits[name].append(length)
        elif role == "load":
            self.loads.add(begin, length)
        elif role in ("backward", "optimizer"):
            self.launches.region(role == "backward", _thread(event), begin, length)
        elif role == "product":
            self.products.called(name, _args(event))
        elif role == "backend":
            match = _BACKEND.fullmatch(name)
            assert match
            self.backends[match[1]] += 1
            self.collectives[_collective(match[2]), None].append(length)
        if _DATA_PARALLEL.fullmatch(name):
            self.data_parallel = True

    def document(self) -> dict[str, Any]:
        """Return the facts; missing ones are None."""
        return self.summary.document

    @cached_property
    def summary(self) -> TraceSummary:
        """The content of the complete trace; no more events are accepted."""
        spans = {self.numbers[begin]: (begin, end) for begin, end in sorted(self.steps[False]) if begin in self.numbers}
        calls = self._calls_in_steps(spans)
        document = self._document(calls)
        bare = compute = Spans()
        alone = len(devices := {*self.compute, *self.talk}) == 1
        if alone:
            (device,) = devices
            compute = self.compute[device].joined()
            bare = without(self.talk[device].joined(), compute)
        computed = {number: total(clipped(compute, [span])) for number, span in spans.items()}
        self.compute.clear()
        self.talk.clear()
        self.copies.clear()
        self.launches, self.host = Launches(), HostActivity()
        # for a process with several GPUs, the GPU of a rank is unknown
        return TraceSummary(document, calls if alone else (), Coverage(bare), spans, computed,
                            self.tails if alone else ())  # fmt: skip

    def _calls_in_steps(self, spans: Mapping[int, Stretch]) -> Sequence[tuple[CallKey, CallSeries]]:
        """Return the collective calls in order, each with its step."""
        calls = ordered(self.calls)
        steps = sorted(spans.values())
        numbers = [self.numbers[begin] for begin, _ in steps]
        for _, series in calls:
            for begin, correlation in zip(series.begins, series.correlations, strict=True):
                launched = self.launches.begun.begin(correlation)
                at = within(steps, begin if launched is None else launched)
                series.steps.append(numbers[at] if at >= 0 else -1)
        return calls

    def _document(self, calls: Sequence[tuple[CallKey, CallSeries]]) -> dict[str, Any]:
        cpu = sorted(self.steps[False])
        lengths = [(end - begin) / 1000 for begin, end in cpu]
        loads = self.loads.joined()
        span = (self.end - self.begin) / 1000 if self.end > self.begin else None
        return {
            "rank": self._number("rank"), "world_size": self._number("world_size"),
            "backend": self.about.get("backend"), "backend_config": self.about.get("backend_config"),
            "nccl_version": self.about.get("nccl_version"), "host": self.about.get("host_name"),
            "devices": self.about.get("devices") or [], "device_count": self.about.get("device_count"),
            "events": self.events, "span_ms": _round(span),
            "steps": _sample(lengths), "gpu": self._gpu(cpu, calls),
            "collectives": [
                {"name": name, "bytes": size, **(_sample([one / 1000 for one in sample]) or {})}
                for (name, size), sample in sorted(self.collectives.items(), key=lambda item: -sum(item[1]))[:100]
            ],
            "pauses": self._pauses(cpu, loads), "memory": self.memory.document(),
            "matrix_product": self.products.largest(), "data_parallel": self.data_parallel,
            "collective_backends": dict(sorted(self.backends.items())),
            "synchronisations": [
                {"name": name, "count": len(sample), "total_ms": _round(sum(sample) / 1000),
                 "per_step": round(len(sample) / len(cpu), 3) if cpu else None}
                for name, sample in sorted(self.waits.items())
            ],
            "synchronised_ms": _round(total(clipped(self.launches.waits(), cpu)) / 1000) if cpu else None,
            "data_loader": None if not loads else {
                "count": len(self.loads), "total_ms": _round(total(loads) / 1000),
                "longest_ms": _round(max(end - begin for begin, end in loads) / 1000),
                "share_of_steps": round(total(loads) / 1000 / sum(lengths), 4) if sum(lengths) else None,
            },
        }  # fmt: skip

    def _pauses(self, steps: Sequence[Stretch], loads: Sequence[Stretch]) -> list[dict[str, Any]] | None:
        """Return the longest stretch without an operator of each step; None if unknown."""
        pauses = self.host.pauses(_apart(steps), loads)
        if pauses is None:
            return None
        return [
            {"step": pause.step, "ms": _round(pause.length_us / 1000), "function": pause.function} for pause in pauses
        ]

    def _gpu(self, steps: Sequence[Stretch], calls: Sequence[tuple[CallKey, CallSeries]]) -> dict[str, Any] | None:
        """Return the totals of the GPUs; None without a kernel."""
        if not self.kernels:
            return None
        busy = compute = talk = exposed = span = copied = 0.0
        parts: list[StepBudget] = []
        windows = _apart(steps)
        loads, waits = self.loads.joined(), self.launches.waits()
        tails: list[float] = []
        passes: list[BackwardPass] = []
        for device in {*self.compute, *self.talk}:
            computing, talking = self.compute[device].joined(), self.talk[device].joined()
            copies = self.copies[device].joined()
            bare = without(talking, computing)
            copying = without(without(copies, computing), talking)
            ends = [(each[0][0], each[-1][1]) for each in (computing, talking, copies) if each]
            first, last = min(begin for begin, _ in ends), max(end for _, end in ends)
            span += last - first
            compute, talk, exposed = compute + total(computing), talk + total(talking), exposed + total(bare)
            copied += total(copying)
            busy += total(computing) + total(bare) + total(copying)
            parts.append(budget(windows or [(first, last)], computing, talking, copies,
                                self.launches.activities(device), loads, waits))  # fmt: skip
            passes = self.launches.backward_passes(device, steps)
            after = [(each.end, each.until) for each in passes]
            tails += [total(clipped(bare, [tail])) for tail in after]
            self.tails += after
        gpus = len({*self.compute, *self.talk})
        longest = max(self.compute.values(), key=len, default=Stretches())
        return {
            "kernels": self.kernels, "launched": self.launches.count,
            "gpus": gpus, "span_ms": _round(span / 1000),
            "compute_ms": _round(compute / 1000), "communication_ms": _round(talk / 1000),
            "overlapped_ms": _round((talk - exposed) / 1000), "exposed_ms": _round(exposed / 1000),
            "idle_ms": _round((span - busy) / 1000), "copies_ms": _round(copied / 1000),
            "budget": _shares(parts),
            "overlap": round(1 - exposed / talk, 4) if talk else None,
            "exposed_share": round(exposed / span, 4) if span and talk else None,
            "communication_share": round(talk / span, 4) if span else None,
            "tail": _sample([tail / 1000 for tail in tails]),
            "buckets": buckets(calls, passes, [self.numbers[begin] for begin, _ in steps]) if gpus == 1 else None,
            "kernel_us": _round(longest.median_length()),
        }  # fmt: skip

    def _number(self, name: str) -> int | None:
        value = self.about.get(name)
        return value if type(value) is int else None


def _apart(steps: Sequence[Stretch]) -> list[Stretch]:
    """Return the steps that do not overlap an earlier one."""
    apart: list[Stretch] = []
    for step in steps:
        if not apart or step[0] >= apart[-1][1]:
            apart.append(step)
    return apart


def _shares(parts: Sequence[StepBudget]) -> dict[str, float] | None:
    """Return the parts of the steps' time as fractions, over all GPUs of the trace."""
    sums = StepBudget(*map(sum, zip(*parts, strict=True)))
    if not sums.all:
        return None
    return {name: round(part / sums.all, 6) for name, part in zip(sums._fields[1:], sums[1:], strict=True)}


def _sample(values: Sequence[float]) -> dict[str, Any] | None:
    if not values:
        return None
    ordered = sorted(values)
    mean = fmean(ordered)
    return {
        "count": len(ordered), "total_ms": _round(sum(ordered)), "mean_ms": _round(mean), "min_ms": _round(ordered[0]),
        "p50_ms": _round(percentile(ordered, 0.5)), "p99_ms": _round(percentile(ordered, 0.99)),
        "p999_ms": _round(percentile(ordered, 0.999)), "max_ms": _round(ordered[-1]),
        "variation": round(pstdev(ordered) / mean, 4) if len(ordered) > 1 and mean else None,
    }  # fmt: skip


def _collective(name: str) -> str:
    """Return a collective's name in the spelling of nccl-tests.

    NCCL, PyTorch and Gloo use different spellings.
    """
    plain = re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name).strip("_").lower()
    plain = re.sub(r"^(all|reduce)_?(reduce|gather|scatter|to)", r"\1_\2", plain)
    for begins in ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "send_recv", "broadcast"):
        if plain.replace("_", "").startswith(begins.replace("_", "")):
            return {"all_to_all": "alltoall", "send_recv": "sendrecv"}.get(begins, begins)
    return plain[:40]


def _role_of(name: str) -> str:
    if _STEP.fullmatch(name):
        return _STEP_ROLE
    if name == _READ_BACK:
        return "read back"
    if name.startswith((_BACKWARD, _OPTIMIZER)):
        return "backward" if name.startswith(_BACKWARD) else "optimizer"
    if name in PRODUCTS:
        return "product"
    if _LOADER.fullmatch(name):
        return "load"
    if (match := _BACKEND.fullmatch(name)) and match[1] != "nccl":  # NCCL's are counted by their kernels
        return "backend"
    return "data parallel" if _DATA_PARALLEL.fullmatch(name) else _PLAIN


def _args(event: Mapping[str, Any]) -> Mapping[str, Any]:
    args = event.get("args")
    return args if isinstance(args, dict) else {}


def _thread(event: Mapping[str, Any]) -> object:
    """Return the thread of a CPU event."""
    thread = event.get("tid")
    return thread if isinstance(thread, (int, str)) else None


def _real(value: object) -> bool:
    """Return whether a value is a number of plausible size (no bool, no NaN)."""
    return type(value) in _NUMBERS and -1e18 < value < 1e18  # type: ignore[operator]


def _round(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
