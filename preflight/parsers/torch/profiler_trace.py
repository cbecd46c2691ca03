"""Traces of PyTorch's profiler: steps, kernels, collectives, waiting.

The file is Kineto's Chrome trace JSON. Its times are in microseconds; those in the facts, in milliseconds. A
collective's kernel runs from its own rank's call until all ranks have finished, so it includes waiting for other ranks.
``trace_names`` has the names of events, and ``trace_facts`` makes the facts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from preflight.parsers.torch import trace_names
from preflight.parsers.torch.collective_calls import CollectiveCalls, size_of
from preflight.parsers.torch.gpu_work import COMMUNICATION, COMPUTE, COPY, COPY_TO_GPU, GpuWork
from preflight.parsers.torch.host_activity import CudaMemory, HostActivity
from preflight.parsers.torch.intervals import Stretch, Stretches
from preflight.parsers.torch.kernel_times import KernelNumbers
from preflight.parsers.torch.launches import Launches
from preflight.parsers.torch.matrix_products import MatrixProducts
from preflight.parsers.torch.memory_copies import MemoryCopies
from preflight.parsers.torch.trace_events import NO_ARGUMENTS, Arguments, Event, event_of
from preflight.parsers.torch.trace_facts import TraceSummary, summarize
from preflight.parsers.torch.trace_names import NameCache

#: Maximum number of events that are processed in a trace, since each takes some bytes.
MOST = 24_000_000
#: Maximum valid time.
_SANE_US = 1e18

_MEMORY = "[memory]"
_TIMED = frozenset(("kernel", "gpu_memcpy", "gpu_memset"))


class Trace:
    """One trace, read event by event."""

    def __init__(self) -> None:
        self.events = 0
        self.dropped = 0
        self.untimed = 0  # kernels and copies without a valid time
        self.about: dict[str, Any] = {}
        self.steps: list[Stretch] = []  # in file order, by CPU times
        self.numbers: dict[float, int] = {}  # step numbers, by their start on the CPU
        self.work: dict[int | str | None, GpuWork] = {}  # by device
        self.calls = CollectiveCalls()
        self.collectives: dict[tuple[str, int | None], list[float]] = defaultdict(list)
        self.waits: dict[str, list[float]] = defaultdict(list)
        self.launches = Launches()
        self.loads: dict[Any, Stretches] = defaultdict(Stretches)  # by thread
        self.host = HostActivity()
        self.memory = CudaMemory()
        self.products = MatrixProducts()
        self.copies = MemoryCopies()
        self.data_parallel = False  # whether torch.nn.parallel.DataParallel is used
        self.backends: dict[str, int] = defaultdict(int)
        self.begin, self.end = float("inf"), float("-inf")
        self.kernels = KernelNumbers()
        self._kernels = NameCache(trace_names.kernel)
        self._operators = NameCache(trace_names.operator)
        self._calls = NameCache(trace_names.call)
        self._collective = NameCache(trace_names.collective)

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

    def event(self, value: Mapping[str, Any]) -> None:
        """Process the JSON object of an event."""
        self.batch((event_of(value),))

    def batch(self, events: Sequence[Event]) -> None:
        """Process several events of the list of events."""
        full = self.events >= MOST
        first, last, processors = self.begin, self.end, _PROCESSORS
        for event in events:
            if event.phase != "X":
                self.events += event.phase != ""
                if event.name == _MEMORY:
                    self.memory.add(event.arguments or NO_ARGUMENTS)
                continue
            self.events += 1
            begin, length = event.begin, event.length
            if not (-_SANE_US < begin < _SANE_US and 0 <= length < _SANE_US):
                self.untimed += event.category in _TIMED
                continue
            process = processors.get(event.category) or processors.get(event.category.lower(), _ignore)
            if process is _profile_span:
                continue
            end = begin + length
            if begin < first:
                first = begin
            if end > last:
                last = end
            if full:
                self.dropped += 1
            else:
                process(self, event, begin, end)
        self.begin, self.end = first, last

    def operator(self, event: Event, begin: float, end: float) -> None:
        """Process a CPU operator or annotation."""
        role = self._operators(event.name)
        if role == "step":
            self.steps.append((begin, end))
            match = trace_names.STEP.fullmatch(event.name)
            assert match
            self.numbers[begin] = int(match[1])
            return
        self.host.ran(begin, end)
        if not role:
            return
        if role == "read back":
            self.waits[event.name].append(event.length)
        elif role == "load":
            self.loads[event.thread].add(begin, event.length)
        elif role in ("backward", "optimizer"):
            self.launches.region(role == "backward", event.thread, begin, event.length)
        elif role == "product":
            self.products.called(event.name, event.arguments or NO_ARGUMENTS)
        elif role == "backend":
            match = trace_names.BACKEND.fullmatch(event.name)
            assert match
            self.backends[match[1]] += 1
            self.collectives[self._collective(match[2]), None].append(event.length)
        if trace_names.DATA_PARALLEL.fullmatch(event.name):
            self.data_parallel = True

    def runtime(self, event: Event, begin: float, end: float) -> None:
        """Process a call of the CUDA or HIP runtime or driver."""
        self.host.ran(begin, end)
        role = self._calls(event.name)
        if not role:
            return
        arguments = event.arguments or NO_ARGUMENTS
        if role == "launch":
            self.launches.started(event.thread, arguments.correlation, begin)
        elif role == "synchronise":
            self.waits[event.name].append(event.length)
            self.launches.waited(event.name, event.thread, begin, event.length)
        else:
            self.launches.copied(event.thread, arguments.correlation, begin, event.length)

    def kernel(self, event: Event, begin: float, end: float) -> None:
        """Process a GPU kernel."""
        arguments = event.arguments or NO_ARGUMENTS
        communicates, called = self._kernels(event.name)
        if not communicates:
            number = self.kernels.number(event.name, arguments.grid)
            self._work(event, arguments).add(begin, end, arguments.correlation, COMPUTE, number)
            self.products.ran(arguments.external_id, event.length)
            return
        self._work(event, arguments).add(begin, end, arguments.correlation, COMMUNICATION)
        kind = self._collective(arguments.collective or called or "other")
        size = size_of(arguments)
        self.collectives[kind, size if size >= 0 else None].append(event.length)
        self.calls.add(kind, arguments, begin, end)
        if called:
            self.backends["nccl"] += 1

    def copy(self, event: Event, begin: float, end: float) -> None:
        """Process a memory copy or fill on the GPU."""
        arguments = event.arguments or NO_ARGUMENTS
        if "Pageable" in event.name:
            self.launches.pageable(arguments.correlation)
        elif "DtoD" in event.name:
            self.copies.copied(arguments.copied_bytes, event.length)
        kind = COPY_TO_GPU if "HtoD" in event.name else COPY
        self._work(event, arguments).add(begin, end, arguments.correlation, kind)

    def function(self, event: Event, begin: float, end: float) -> None:
        """Process a Python function of a profile with stacks."""
        self.host.function(event.name, begin, event.length)

    def _work(self, event: Event, arguments: Arguments) -> GpuWork:
        device = event.process if arguments.device is None else arguments.device
        work = self.work.get(device)
        if work is None:
            work = self.work[device] = GpuWork()
        return work

    def summary(self) -> TraceSummary:
        """Return the facts of the complete trace; call it after the last event."""
        return summarize(self)


def _ignore(trace: Trace, event: Event, begin: float, end: float) -> None:
    """Ignore an event, apart from its times, which extend the span of the trace."""


def _profile_span(trace: Trace, event: Event, begin: float, end: float) -> None:
    """Skip the event of the profile itself, which would extend the span of the trace."""


_PROCESSORS: Mapping[str, Callable[[Trace, Event, float, float], None]] = {
    **dict.fromkeys(("cuda_runtime", "cuda_driver", "runtime", "hip_runtime"), Trace.runtime),
    **dict.fromkeys(("cpu_op", "operator", "user_annotation", "cpu_instant_event"), Trace.operator),
    **dict.fromkeys(("gpu_memcpy", "gpu_memset"), Trace.copy),
    "kernel": Trace.kernel, "python_function": Trace.function, "trace": _profile_span, "": _ignore,
    "gpu_user_annotation": _ignore,
}  # fmt: skip
