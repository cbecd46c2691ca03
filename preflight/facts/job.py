"""Facts of a run: the logs given with ``--log``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence, Set
from functools import cached_property, partial
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from preflight import bench, parsers
from preflight._startup.lightclass import replace
from preflight.evidence.document import Evidence, EvidenceError

if TYPE_CHECKING:
    from preflight.facts.campaign_ports import PortErrors
    from preflight.facts.job_description import JobDescription
    from preflight.facts.node import NodeFacts
    from preflight.facts.nvidia.activity import GpuActivity
    from preflight.facts.trace.job import JobTrace
    from preflight.facts.trace.pauses import RankPauses
    from preflight.facts.training_run import Throughput, TrainingRun
    from preflight.parsers.job_log import JobLog
    from preflight.parsers.messages.scan import LoggedError
    from preflight.parsers.messages.signature import ErrorSignature
    from preflight.parsers.parsed import Parsed
    from preflight.parsers.training.nccl_ras import RasStatus
    from preflight.parsers.training.python_stacks import ProcessStacks
    from preflight.parsers.training.serving_metrics import ServingMetrics

T = TypeVar("T")

#: The node name of a run's evidence; no host can have it.
RUN = "@run"


_HOSTNAME = "file:/proc/sys/kernel/hostname"

#: Number of lines at the end of a log that are searched for program errors.
_END_LINES = 400
_TWO = 2  # minimum number of job sizes to compare
_TEXTPREP = ("preflight.textprep.line_prefixes", "preflight.textprep.lines")
#: Texts, one of which occurs in each program error.
_WORDS_OF_ERRORS = (
    "Traceback",
    "rror",
    "ERROR",
    "panic: ",
    "terminate called",
    "illed",
    "fault",
    "SIG",
    "exitcode",
    "MPI_ABORT",
)
#: Texts, one of which occurs in each line of a training step.
_STEPS = ("loss", "Loss", "LOSS", "train_step_timing", "global_step=", "'train_runtime'", "it/s", "s/it")
#: A text that each answer of NCCL's RAS contains.
_RAS = ("Communicators... ",)
#: Texts, one of which occurs in each dump of the stacks of a Python process.
_STACKS = (': "MainThread"', "(most recent call first):")
#: Texts, one of which occurs in each scrape of a serving engine.
_METRICS = ("\nvllm:", "\nray_vllm_", "\nsglang:", "\ntrtllm", "\ndynamo_", "\nnv_trt_llm_")

#: Texts, one of which occurs in each measurement of DCGM of the activity of SMs.
_ACTIVITY = ("DCGM_FI_PROF_SM_ACTIVE", "SMACT")


class RunFacts:
    """Facts from the logs of one run; each log is a record ``log:NAME``.

    ``nodes`` are those judged with the run. ``leaves`` returns node -> leaf, for nodes whose leaf is known.
    """

    def __init__(
        self,
        evidence: Evidence,
        nodes: Sequence[NodeFacts] = (),
        leaves: Callable[[], Mapping[str, str]] = dict,
    ) -> None:
        self.evidence = evidence
        self.nodes = tuple(nodes)
        self._leaves = leaves
        self._logs: dict[str, JobLog] = {}
        self.refused: dict[str, str] = {}  # record key -> reason, for unread logs that look like PyTorch's

    def host(self, name: str | None) -> NodeFacts | None:
        """Return the node whose host name a log prints; None if none or several match.

        NCCL prints a host's name up to the first dot. A node is matched by the name used to collect it, else by its
        host name (``/proc/sys/kernel/hostname``), for example if it was collected by address.
        """
        if name is None:
            return None
        for known in (self._by_target, self._by_hostname):
            if found := known.get(_label(name), []):
                return found[0] if len(found) == 1 else None
        return None

    @cached_property
    def _by_target(self) -> Mapping[str, list[NodeFacts]]:
        return _by(self.nodes, lambda node: node.node)

    @cached_property
    def _by_hostname(self) -> Mapping[str, list[NodeFacts]]:
        return _by(self.nodes, _hostname)

    @property
    def logs(self) -> tuple[str, ...]:
        """Record keys of the logs."""
        return tuple(sorted(key for key in self.evidence.records if key.startswith("log:")))

    def log(self, key: str) -> JobLog:
        """Return a log, parsed once; raises EvidenceError."""
        if key not in self._logs:
            raw = self.evidence.records[key]
            if isinstance(raw, _streamed_log().LogFile):
                self._logs[key] = _read(key, lambda: raw.log)
            else:
                self._logs[key] = parsers.job_log.parse(self.evidence.text(key))
        return self._logs[key]

    @cached_property
    def _job_logs(self) -> dict[str, JobLog]:
        """The logs that PyTorch's tools did not write, by record key."""
        return {key: self.log(key) for key in self.logs if key not in self._pytorch}

    @cached_property
    def nccl_logs(self) -> dict[str, parsers.nccl_log.NcclLog]:
        """The NCCL logs, by record key."""
        return {key: log.nccl for key, log in self._job_logs.items() if log.nccl is not None}

    @cached_property
    def nccl_tests(self) -> dict[str, tuple[parsers.nccl_tests.text.Report, ...]]:
        """The nccl-tests reports in each log, by record key.

        Raises EvidenceError if a log has too many.
        """
        for key, log in self._job_logs.items():
            if len(log.nccl_tests) > (most := parsers.nccl_tests.text.MOST_REPORTS) or (log.nccl_tests and log.dropped):
                raise EvidenceError(key, f"it has more than {most:,} nccl-tests reports; split it")
        return {key: log.nccl_tests for key, log in self._job_logs.items() if log.nccl_tests}

    @cached_property
    def next_round(self) -> bench.planner.Round | None:
        """The round that a campaign's planner would run next; None if there is none."""
        if self.campaign is None:
            return None
        done, reports = self.campaign, {key.removeprefix("log:"): own for key, own in self.nccl_tests.items()}
        plan = bench.campaign.bench_plan(done, reports, done.left_out)
        return bench.planner.next_round(plan, bench.campaign.past(done, reports))

    @cached_property
    def pairwise(self) -> tuple[bench.comparison.Comparison, ...]:
        """Runs of one collective over several groups of nodes, compared with each other.

        Raises EvidenceError if a log has too many reports.
        """
        reports = {key.removeprefix("log:"): own for key, own in self.nccl_tests.items()}
        if self.campaign is not None:
            given = bench.campaign.references(self.campaign, reports)
            return bench.comparison.compare(bench.campaign.observations(self.campaign, reports), given)
        if sum(max(report.groups, 1) for own in reports.values() for report in own) < 2:
            return ()
        runs = bench.observation.comparable(bench.observation.observations(reports))
        if runs and (leaves := self._leaves_of({node for run in runs for node in run.nodes})):
            runs = bench.observation.comparable(bench.observation.observations(reports, leaves))
        return bench.comparison.compare(runs)

    @cached_property
    def shared_uplinks(self) -> bench.shared_uplinks.SharedRuns | None:
        """The runs of a campaign that loaded all uplinks at once; None without any."""
        if self.campaign is None:
            return None
        reports = {key.removeprefix("log:"): own for key, own in self.nccl_tests.items()}
        return bench.shared_uplinks.shared_runs(self.campaign, reports)

    @cached_property
    def pair_times(self) -> list[bench.observation.PairTimes]:
        """Times of single iterations between two nodes."""
        return bench.observation.pair_times({key.removeprefix("log:"): own for key, own in self.nccl_tests.items()})

    def _leaves_of(self, hosts: Set[str]) -> Mapping[str, str]:
        """Return the leaves of the hosts in logs; empty if any of them is unknown."""
        # import-at-use: few runs are over several nodes
        from preflight.facts.fabric import leaves

        by_node = self._leaves()
        node_of = {host: node.node for host in hosts if host not in by_node and (node := self.host(host))}
        of_each = leaves.of_hosts([node_of.get(host, host) for host in sorted(hosts)], by_node)
        return {host: of_each[node_of.get(host, host)] for host in hosts} if of_each else {}

    @cached_property
    def campaign(self) -> bench.campaign.Campaign | None:
        """The campaign of ``preflight bench`` behind the logs; None if there was none.

        Raises EvidenceError if its record is damaged.
        """
        if bench.campaign.RECORD not in self.evidence:
            return None
        try:
            return bench.campaign.read_record(self.evidence.record(bench.campaign.RECORD).value)
        except ValueError as error:
            raise EvidenceError(bench.campaign.RECORD, str(error)) from None

    @cached_property
    def port_errors(self) -> tuple[PortErrors, ...]:
        """Errors that RDMA ports counted during the rounds of a campaign."""
        # import-at-use: only campaigns have readings of ports
        from preflight.facts import campaign_ports

        return campaign_ports.port_errors(self.campaign) if self.campaign is not None else ()

    @cached_property
    def _pytorch(self) -> dict[str, parsers.torch.TorchOutput]:
        found = {}
        for key in self.logs:
            raw = self.evidence.records[key]
            if isinstance(raw, _streamed_log().LogFile):
                try:
                    found[key] = _read(key, partial(getattr, raw, "pytorch"))
                except EvidenceError as error:
                    self.refused[key] = error.why
                continue
            text = self.evidence.text(key)
            if text.lstrip()[:1] in ("{", "[") and parsers.torch.begins(text[: 1 << 16]):
                found[key] = parsers.torch.parse(text)
        return {key: seen for key, seen in found.items() if seen}

    @cached_property
    def traces(self) -> dict[str, parsers.torch.TraceSummary]:
        """The logs that are traces of PyTorch's profiler, by record key."""
        return {key: seen.trace for key, seen in self._pytorch.items() if seen.trace}

    @cached_property
    def damaged_traces(self) -> dict[str, str]:
        """Record key -> reason, for traces that were not read completely."""
        return {
            key: f"line {output.cut[0][0]}: {output.cut[0][1]}"
            for key, output in self._pytorch.items()
            if output.trace and output.cut
        }

    @cached_property
    def job_trace(self) -> JobTrace:
        """The traces of all ranks, joined."""
        joined: JobTrace = importlib.import_module("preflight.facts.trace.job").join(self.traces)
        return joined

    @cached_property
    def trace_pauses(self) -> Mapping[str, RankPauses]:
        """The pauses of the CPUs in the traces, by record key."""
        pauses: Mapping[str, RankPauses] = importlib.import_module("preflight.facts.trace.pauses").pauses(self.traces)
        return pauses

    def step_budget(self, key: str) -> Mapping[str, float] | None:
        """Return the parts of a step in a trace as fractions, with pauses as one of them."""
        gpu, paused = self.traces[key].document["gpu"], self.trace_pauses.get(key)
        parts: Mapping[str, float] | None = gpu and gpu["budget"]
        return paused.budget(parts) if parts and paused else parts

    @cached_property
    def recordings(self) -> dict[str, parsers.torch.Recording]:
        """The logs that are dumps of PyTorch's flight recorder, by record key."""
        return {key: seen.recording for key, seen in self._pytorch.items() if seen.recording}

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of input among the logs, including unread PyTorch logs.

        They are ``trace``, ``recording``, ``watchdog``, ``errors``, ``serving``, ``steps``, ``ras``, ``stacks`` and
        ``activity``; ``sizes`` means logs of jobs of several sizes, and ``layout`` a described job. If a log cannot be
        read, only ``layout`` is possible.
        """
        described = {"layout"} if "job:description" in self.evidence else set[str]()
        try:
            inputs = {
                "trace": self.traces,
                "recording": {**self.recordings, **self.refused},
                "watchdog": self.watchdogs,
                "errors": self.program_errors,
                "serving": self.serving,
                "steps": self.training,
                "sizes": self.job_sizes,
                "ras": self.ras,
                "stacks": self.stacks,
                "activity": self.activity,
            }
        except EvidenceError:
            return frozenset(described)
        return frozenset(kind for kind, found in inputs.items() if found) | described

    @cached_property
    def description(self) -> JobDescription | None:
        """Description of the job given to ``preflight plan``; None without one.

        Raises EvidenceError if it cannot be read.
        """
        module = importlib.import_module("preflight.facts.job_description")
        description: JobDescription | None = module.described_job(self.evidence)
        return description

    @cached_property
    def program_errors(self) -> dict[str, list[tuple[ErrorSignature, list[LoggedError]]]]:
        """The errors of programs at the end of each log, by signature."""
        errors = {}
        for key, log in self._job_logs.items():
            end = log.text.end(_END_LINES)
            if not any(word in end.text for word in _WORDS_OF_ERRORS):
                continue
            scan = importlib.import_module("preflight.parsers.messages.scan")
            iterations = importlib.import_module("preflight.parsers.training.iteration_log")
            prefixes, texts = map(importlib.import_module, _TEXTPREP)
            lines = texts.lines_of(end)
            errors_of_all = [
                replace(error, writer=writer)
                for writer, own in prefixes.split_by_writer(lines)
                for error in scan.program_errors(own)
                if log.nccl is None or not scan.repeats_nccl(error.text)
            ]
            if not errors_of_all:
                continue
            steps = [line.number for line in lines if iterations.step_in(line) is not None]
            steps += [number for number, _ in log.repeated_steps]
            groups = list(scan.by_signature(scan.with_steps(errors_of_all, sorted(steps))))
            if groups:
                errors[key] = groups
        return errors

    @cached_property
    def serving(self) -> dict[str, ServingMetrics]:
        """The metrics of a serving engine in each log, by record key."""
        scraped = {}
        for key, log in self._job_logs.items():
            if any(hint in log.text.text for hint in _METRICS):
                metrics = importlib.import_module("preflight.parsers.training.serving_metrics").parse(log.text)
                if metrics is not None:
                    scraped[key] = metrics
        return scraped

    @cached_property
    def training(self) -> dict[str, TrainingRun]:
        """The training run in each log that prints steps, by record key."""
        runs = {}
        for key, log in self._job_logs.items():
            if any(word in log.text.text for word in _STEPS):
                run = importlib.import_module("preflight.facts.training_run").of_log(log)
                if run is not None:
                    runs[key] = run
        return runs

    @cached_property
    def job_sizes(self) -> dict[str, Throughput]:
        """The throughput per GPU in each log; empty unless job sizes differ."""
        if len(self.training) < _TWO:
            return {}
        throughput = importlib.import_module("preflight.facts.training_run").throughput
        rates = {key: rate for key, run in self.training.items() if (rate := throughput(run)) is not None}
        return rates if len({rate.ranks for rate in rates.values()}) >= _TWO else {}

    @cached_property
    def ras(self) -> dict[str, tuple[Parsed[RasStatus], ...]]:
        """The answers of NCCL's RAS in each log, by record key."""
        return self._in_logs("preflight.parsers.training.nccl_ras", _RAS)

    @cached_property
    def stacks(self) -> dict[str, tuple[ProcessStacks, ...]]:
        """The stacks of Python processes in each log, by record key."""
        return self._in_logs("preflight.parsers.training.python_stacks", _STACKS)

    @cached_property
    def activity(self) -> dict[str, tuple[GpuActivity, ...]]:
        """The activity of the GPUs in each DCGM log, by record key."""
        return self._in_logs("preflight.facts.nvidia.activity", _ACTIVITY)

    def _in_logs(self, parser: str, hints: Sequence[str]) -> dict[str, Any]:
        """Return what a parser finds in each log with one of the hints."""
        outputs = {}
        for key, log in self._job_logs.items():
            text = log.text
            if any(hint in text.text for hint in hints) and (parsed := importlib.import_module(parser).parse(text)):
                outputs[key] = parsed
        return outputs

    @cached_property
    def watchdogs(self) -> dict[str, parsers.torch.watchdog.Watchdog]:
        """The messages of PyTorch's watchdog in each log, by record key."""
        return {key: log.watchdog for key, log in self._job_logs.items() if log.watchdog}


def report_subjects(name: str, reports: Sequence[parsers.nccl_tests.text.Report]) -> tuple[str, ...]:
    """Return the subjects of findings about a log's nccl-tests reports, in order."""
    return tuple(
        f"{name}{f' lines {one.first_line}-{one.last_line}' if len(reports) > 1 else ''}: "
        f"{one.collective or 'nccl-tests'}"
        for one in reports
    )


def _streamed_log() -> ModuleType:
    """Return the module ``streamed_log``, which is imported only if a log is given."""
    return importlib.import_module("preflight.facts.streamed_log")


def _read(key: str, call: Callable[[], T]) -> T:
    """Call a function that reads a log; raise EvidenceError if it fails."""
    try:
        return call()
    except OSError as error:
        raise EvidenceError(key, f"the log cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise EvidenceError(key, str(error)[:1000]) from None


def _label(name: str) -> str:
    return name.strip().partition(".")[0].casefold()


def _hostname(node: NodeFacts) -> str:
    try:
        return node.evidence.text(_HOSTNAME)
    except EvidenceError:
        return ""


def _by(nodes: Sequence[NodeFacts], name: Callable[[NodeFacts], str]) -> dict[str, list[NodeFacts]]:
    found: dict[str, list[NodeFacts]] = {}
    for node in nodes:
        if label := _label(name(node)):
            found.setdefault(label, []).append(node)
    return found
