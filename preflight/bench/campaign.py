"""The data of a campaign: its plan, its journal, and its runs.

The planner and the report read the same journal and outputs, so a report can be recreated from the folder.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING, Any

from preflight.bench import baseline, observation, port_readings
from preflight.bench.baseline import BaselineEntry
from preflight.bench.comparison import References
from preflight.bench.observation import FAILED, RAN, UNFINISHED, WRONG, Observation, RunEnd, RunKind
from preflight.bench.planner import BenchPlan, Round
from preflight.bench.port_readings import NodeReading
from preflight.schemas.conform import find_error

if TYPE_CHECKING:
    from preflight.parsers.nccl_tests.model import Report

#: Key of the evidence record with a campaign's plan and journal.
RECORD = "bench:campaign"

PLAN = "preflight.bench.plan/1"
ROUND = "preflight.bench.round/1"
LAUNCH = "preflight.bench.launch/1"
END = "preflight.bench.end/1"

#: Schema of a journal line -> part of the journal's schema.
_PARTS = {ROUND: "round", LAUNCH: "launch", port_readings.SCHEMA: "ports", END: "end"}

#: Outcomes of a launch. CUT: preflight or a signal from outside ended it, so it has no result and is repeated.
OK, BROKE, TIMEOUT, CUT = "ok", "failed", "timeout", "cut"


@dataclass(frozen=True)
class CampaignPlan:
    """The nodes, measurement, launcher and limits of a campaign."""

    id: str
    seed: int
    nodes: tuple[str, ...]
    leaves: Mapping[str, str]  # node -> leaf; empty if unknown
    goal: str
    collective: str
    bytes: int
    iterations: int
    gpus: int  # number on each node
    budget_s: float
    run_limit_s: float
    at_once: int
    via: str  # mpirun or srun
    job: str | None
    binary: str  # its path on the nodes, or its name in their PATH
    mpi: str  # value of srun's --mpi
    ssh_config: str | None
    environment: Mapping[str, str] = field(default_factory=dict)
    loaded: bool = False  # whether to measure also with all uplinks in use
    baseline: tuple[BaselineEntry, ...] = ()  # rates of good runs, for comparison


@dataclass(frozen=True)
class PlannedRound:
    """A round as recorded in the journal: its runs, and the nodes that are left out."""

    number: int
    purpose: str
    load: str
    runs: tuple[tuple[RunEnd, ...], ...]
    left_out: Mapping[str, str]  # node -> reason
    iterations: int | None = None  # None: the number in the plan

    @property
    def round(self) -> Round:
        """The round, as used by the planner."""
        return Round(self.number, self.purpose, self.runs, self.load)


@dataclass(frozen=True)
class BenchLaunch:
    """A launch of a run, with its outcome; ``status`` is empty while it runs."""

    number: int
    round: int
    run: int  # index of the run in its round
    status: str = ""
    exit: int | None = None
    seconds: float = 0.0
    why: str = ""
    at: str = ""  # UTC time at which it ended, ISO 8601

    @property
    def output(self) -> str:
        """The name of the launch's output file."""
        return f"{self.number:04d}.txt"


@dataclass(frozen=True)
class Campaign:
    """A plan, with the rounds and launches so far."""

    plan: CampaignPlan
    rounds: tuple[PlannedRound, ...] = ()
    launches: tuple[BenchLaunch, ...] = ()  # each launch once, in its latest state
    end: str = ""  # reason why the campaign ended; empty if it has not
    left_behind: tuple[str, ...] = ()  # descriptions of leftover processes
    readings: tuple[NodeReading, ...] = ()  # port errors of each round and node

    @property
    def left_out(self) -> dict[str, str]:
        """The nodes that were left out of a round, each with its latest reason."""
        return {node: why for each in self.rounds for node, why in each.left_out.items()}

    def ends(self, launch: BenchLaunch) -> tuple[RunEnd, ...]:
        """Return the nodes of a launch, with their GPUs and leaves."""
        return self.rounds[launch.round - 1].runs[launch.run]

    def open_runs(self, number: int) -> list[int]:
        """Return the indexes of a round's runs that have no result yet."""
        done = {launch.run for launch in self.launches if launch.round == number and launch.status not in ("", CUT)}
        return [place for place in range(len(self.rounds[number - 1].runs)) if place not in done]


# --- documents ---------------------------------------------------------------------------------------


def plan_document(plan: CampaignPlan) -> dict[str, Any]:
    """Return a plan as ``preflight.bench.plan/1``."""
    document = {"schema": PLAN, **asdict(plan), "nodes": list(plan.nodes)}
    entries = document.pop("baseline")
    return {**document, **({"baseline": baseline.document(plan.baseline)["entries"]} if entries else {})}


def read_plan(document: Any) -> CampaignPlan:
    """Return the plan in a document. Raises ValueError if it is invalid."""
    if wrong := find_error(document, "bench-plan-1", exact=True):
        raise ValueError(wrong)
    values = {key: value for key, value in document.items() if key != "schema"}
    entries = tuple(BaselineEntry(**entry) for entry in values.pop("baseline", ()))
    return CampaignPlan(**{**values, "nodes": tuple(values["nodes"])}, baseline=entries)


def round_document(made: PlannedRound) -> dict[str, Any]:
    """Return a round as a line of the journal."""
    return {
        "schema": ROUND, "round": made.number, "purpose": made.purpose, "load": made.load,
        "runs": [[{"node": end.node, "gpus": list(end.gpus)} for end in run] for run in made.runs],
        "left_out": [{"node": node, "why": why} for node, why in sorted(made.left_out.items())],
        **({} if made.iterations is None else {"iterations": made.iterations}),
    }  # fmt: skip


def launch_document(launch: BenchLaunch, nodes: Sequence[str], at: str) -> dict[str, Any]:
    """Return a launch as a journal line, of which its start and its end have one each."""
    document = {
        "schema": LAUNCH, "n": launch.number, "round": launch.round, "run": launch.run, "group": list(nodes),
        "state": "ended" if launch.status else "started", "at": at,
    }  # fmt: skip
    if launch.status:
        document |= {"status": launch.status, "exit": launch.exit, "seconds": round(launch.seconds, 3),
                     "why": launch.why}  # fmt: skip
    return document


def end_document(why: str, left_behind: Iterable[str], at: str) -> dict[str, Any]:
    """Return the last line of the journal."""
    return {"schema": END, "why": why, "left_behind": list(left_behind), "at": at}


def record(done: CampaignPlan, lines: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a campaign as an evidence record."""
    return {"status": "ok", "value": {"plan": plan_document(done), "journal": list(lines)}}


def read_record(value: Any) -> Campaign:
    """Return the campaign in a record. Raises ValueError if it is invalid."""
    if not isinstance(value, dict) or not isinstance(value.get("journal"), list):
        raise ValueError("it has no plan or journal")
    plan = read_plan(value.get("plan"))
    if wrong := next((wrong for wrong in find_line_errors(value["journal"]) if wrong), ""):
        raise ValueError(wrong)
    return campaign(plan, value["journal"])


def find_line_errors(lines: Iterable[Any]) -> Iterator[str]:
    """Yield the error in each journal line; empty for a valid line."""
    runs: list[int] = []
    for line in lines:
        schema = line.get("schema") if isinstance(line, dict) else None
        part = _PARTS.get(schema) if isinstance(schema, str) else None
        if part is None:
            yield "unknown schema"
            continue
        wrong = find_error(line, "bench-journal-1", part=part, exact=True)
        if not wrong and part == "round":
            runs.append(len(line["runs"]))
            wrong = "" if line["round"] == len(runs) else "its rounds are not in order"
        elif not wrong and part == "launch":
            listed = line["round"] <= len(runs) and line["run"] < runs[line["round"] - 1]
            wrong = "" if listed else "its round or run is not in the journal"
            if line["state"] == "ended" and "status" not in line:
                wrong = wrong or "status is missing"
        elif not wrong and part == "ports":
            wrong = "" if line["round"] <= len(runs) else "its round is not in the journal"
        yield wrong


def campaign(plan: CampaignPlan, lines: Iterable[Mapping[str, Any]]) -> Campaign:
    """Build a campaign from valid journal lines."""
    rounds: list[PlannedRound] = []
    launches: dict[int, BenchLaunch] = {}
    readings: list[NodeReading] = []
    end, left_behind = "", tuple[str, ...]()
    for line in lines:
        if line["schema"] == ROUND:
            rounds.append(_round(plan, line))
            end = ""  # the campaign was resumed
        elif line["schema"] == LAUNCH:
            launches[line["n"]] = BenchLaunch(line["n"], line["round"], line["run"], line.get("status", ""),
                                         line.get("exit"), line.get("seconds", 0.0), line.get("why", ""),
                                         line["at"] if "status" in line else "")  # fmt: skip
            end = ""
        elif line["schema"] == port_readings.SCHEMA:
            readings += port_readings.from_line(line)
        else:
            end, left_behind = line["why"], tuple(line["left_behind"])
    return Campaign(plan, tuple(rounds), tuple(launches.values()), end, left_behind, tuple(readings))


def _round(plan: CampaignPlan, line: Mapping[str, Any]) -> PlannedRound:
    runs = tuple(
        tuple(RunEnd(end["node"], tuple(end["gpus"]), plan.leaves.get(end["node"])) for end in run)
        for run in line["runs"]
    )
    return PlannedRound(line["round"], line["purpose"], line["load"], runs,
                        {entry["node"]: entry["why"] for entry in line["left_out"]},
                        line.get("iterations"))  # fmt: skip


# --- runs --------------------------------------------------------------------------------------------


def observations(done: Campaign, reports: Mapping[str, Sequence[Report]]) -> list[Observation]:
    """Return the runs of launches with a result; ``reports`` is by output file name."""
    return [
        _observation(done, launch, reports.get(launch.output, ()))
        for launch in done.launches if launch.status not in ("", CUT)
    ]  # fmt: skip


def past(done: Campaign, reports: Mapping[str, Sequence[Report]]) -> list[tuple[Round, list[Observation]]]:
    """Return the rounds with their runs, as the planner expects them."""
    runs = observations(done, reports)
    ended = [launch for launch in done.launches if launch.status not in ("", CUT)]
    return [
        (made.round, [run for run, launch in zip(runs, ended, strict=True) if launch.round == made.number])
        for made in done.rounds
    ]


def bench_plan(done: Campaign, reports: Mapping[str, Sequence[Report]], without: Iterable[str] = ()) -> BenchPlan:
    """Return the planner's plan, without some nodes; rails come from the outputs."""
    plan, out = done.plan, frozenset(without)
    return BenchPlan(tuple(node for node in plan.nodes if node not in out), plan.leaves, rails(done, reports),
                     plan.goal, plan.seed, plan.loaded, references(done, reports))  # fmt: skip


def references(done: Campaign, reports: Mapping[str, Sequence[Report]]) -> References:
    """Return the baseline's references for the same GPU model and NCCL version."""
    if not done.plan.baseline:
        return {}
    models = {model for run in observations(done, reports) for model in run.models}
    versions = {report.nccl_version or "" for own in reports.values() for report in own}
    return baseline.references(done.plan.baseline, models, versions)


def rails(done: Campaign, reports: Mapping[str, Sequence[Report]]) -> tuple[str, ...]:
    """Return the PCI addresses of a node's GPUs in order; empty if nodes differ."""
    orders = {
        end.gpus for run in observations(done, reports) for end in run.ends
        if len(end.gpus) == done.plan.gpus and run.outcome == RAN
    }  # fmt: skip
    return orders.pop() if len(orders) == 1 and done.plan.collective != "sendrecv" else ()


def _observation(done: Campaign, launch: BenchLaunch, reports: Sequence[Report]) -> Observation:
    planned = done.ends(launch)
    report = reports[-1] if reports else None
    each = len(planned[0].gpus) or done.plan.gpus
    kind = RunKind(done.plan.collective, each * len(planned), len(planned), done.rounds[launch.round - 1].load)
    empty = Observation(kind, planned, outcome=FAILED, why=launch.why, source=launch.output)
    if report is None:
        return replace(empty, outcome=UNFINISHED if launch.status == TIMEOUT else FAILED)
    if report.copies > 1:
        return replace(empty, why="each process ran alone: the binary was built without MPI, or for a different MPI")
    ends = _ends(planned, report, done.plan)
    if ends is None:
        return replace(empty, why="its device list differs from the launch in hosts or GPUs")
    outcome, why = observation.outcome_of(report)
    if outcome == RAN and launch.status != OK:
        outcome, why = FAILED, launch.why
    elif outcome != RAN and launch.status == TIMEOUT:
        outcome, why = UNFINISHED, launch.why
    elif outcome == UNFINISHED and launch.why:
        outcome, why = FAILED, launch.why
    busbw = observation.busbw_of(report) if outcome != WRONG else {}
    return Observation(kind, ends, busbw, outcome, why, launch.output, observation.models_of(report.devices))


def _ends(planned: Sequence[RunEnd], report: Report, plan: CampaignPlan) -> tuple[RunEnd, ...] | None:
    """Return the ends with the GPUs in a report; None if it has other hosts or GPUs."""
    if not report.devices or report.nranks is None:
        return tuple(planned)
    listed = observation.ends_of(plan.collective, report.devices, plan.leaves, report.gpus_per_device)
    if len(listed) != len(planned) or report.nranks != (len(planned[0].gpus) or plan.gpus) * len(planned):
        return None
    by_label = {_label(end.node): end for end in listed}
    own = [by_label.get(_label(end.node)) for end in planned]
    pairs = zip(planned, listed if None in own else own, strict=True)  # hosts may be addresses: in rank order
    return tuple(replace(end, gpus=shown.gpus) for end, shown in pairs if shown is not None)


def _label(name: str) -> str:
    return name.partition(".")[0].casefold()
