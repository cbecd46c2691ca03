"""Execution of a campaign's rounds until no more runs are needed."""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timezone
from statistics import median

from preflight.bench import campaign, port_readings, shared_uplinks
from preflight.bench.campaign import BROKE, CUT, BenchLaunch, Campaign, PlannedRound
from preflight.bench.planner import Round, next_round
from preflight.campaign import command_lines, execution, nodes, slurm_steps
from preflight.campaign.folder import CampaignFolder
from preflight.terminal import print_text

#: Maximum number of launches per run, since a launcher may be killed or fail before it measures.
_TRIES = 2

#: Reasons why a campaign ended.
COMPLETE, BUDGET, INTERRUPTED, NO_NODES, DISK = "complete", "budget", "interrupted", "nodes", "disk"


class CampaignRun:
    """A running campaign."""

    def __init__(self, folder: CampaignFolder, stop: threading.Event) -> None:
        """Use a new or resumed folder; setting ``stop`` ends the campaign."""
        self._folder, self._plan, self._stop = folder, folder.plan, stop
        self._until = time.monotonic() + folder.plan.budget_s
        self._began = time.time()
        self._seconds: list[float] = []  # durations of the rounds of this process
        self._left_out = dict(folder.done.left_out)
        self._fresh: dict[str, str] = {}  # nodes left out since the last round
        self._states: dict[str, nodes.NodeState] = {}  # states of the nodes before the round
        self._steps = slurm_steps.SlurmSteps(folder.plan) if folder.plan.via == "srun" else None

    def carry_out(self) -> Campaign:
        """Run all rounds, clean up the nodes, and return the campaign."""
        why = DISK
        try:
            why = self._rounds()
        except KeyboardInterrupt:
            why = INTERRUPTED
        except OSError as error:
            where = error.filename or self._folder.path
            print_text(f"error: {where}: {error.strerror}; the campaign ends\n", sys.stderr)
        used = sorted({end.node for made in self._folder.done.rounds for run in made.runs for end in run})
        left = nodes.sweep(self._plan, used, self._began)
        shutil.rmtree(command_lines.scratch(self._plan, os.environ), ignore_errors=True)
        line = campaign.end_document(why, left, _now())
        try:
            self._folder.record(line)
        except OSError:
            self._folder.keep(line)
        return self._folder.done

    def _rounds(self) -> str:
        done = self._folder.done
        if done.rounds and (places := done.open_runs(len(done.rounds))):
            self._launch(done.rounds[-1], self._usable(done.rounds[-1], places))
        while not self._stop.is_set():
            if self._seconds and time.monotonic() + median(self._seconds) > self._until:
                return BUDGET
            made = self._next()
            if isinstance(made, str):
                return made
            self._folder.record(campaign.round_document(made))
            self._launch(made, range(len(made.runs)))
            if time.monotonic() > self._until:
                return BUDGET
        return INTERRUPTED

    def _next(self) -> PlannedRound | str:
        """Return the next round, with usable nodes only, or the reason why there is none."""
        self._states = {}
        number = len(self._folder.done.rounds) + 1
        while True:
            done, reports = self._folder.done, self._folder.reports()
            planned = next_round(campaign.bench_plan(done, reports, self._left_out), campaign.past(done, reports))
            if planned is None:
                return COMPLETE if number > 1 else NO_NODES
            if not self._look([end.node for run in planned.runs for end in run if end.node not in self._states]):
                _announce(planned)
                fresh, self._fresh = self._fresh, {}
                return shared_uplinks.planned(done, reports, replace(planned, number=number), fresh)

    def _usable(self, made: PlannedRound, places: Sequence[int]) -> list[int]:
        """Return the runs of an interrupted round whose nodes are all still usable."""
        busy = self._look([end.node for place in places for end in made.runs[place]])
        return [place for place in places if busy.isdisjoint(end.node for end in made.runs[place])]

    def _look(self, wanted: Sequence[str]) -> frozenset[str]:
        """Check nodes before they run; return those that are left out."""
        away = self._steps.away(wanted) if self._steps and wanted else {}
        states = nodes.look(self._plan, [node for node in wanted if node not in away])
        self._states |= states | {node: nodes.NodeState(why) for node, why in away.items()}
        busy = away | {node: state.why for node, state in states.items() if state.why}
        self._fresh |= busy
        self._left_out |= busy
        for node, why in busy.items():
            print_text(f"{node} is left out: {why}\n", sys.stderr)
        return frozenset(busy)

    def _launch(self, made: PlannedRound, wanted: Sequence[int]) -> None:
        began = time.monotonic()
        for attempt in range(1, _TRIES + 1):
            done = self._folder.done
            first = max((launch.number for launch in done.launches), default=0) + 1
            places = [place for place in done.open_runs(made.number) if place in wanted]
            launches = [BenchLaunch(first + at, made.number, place) for at, place in enumerate(places)]
            if not launches or self._stop.is_set():
                break
            self._run(made, launches, last=attempt == _TRIES)
        if wanted and not self._stop.is_set():
            used = [end.node for place in wanted for end in made.runs[place]]
            readings = nodes.read_ports(self._plan, made.number, self._states, used)
            self._folder.record(port_readings.document(made.number, readings))
        self._seconds.append(time.monotonic() - began)

    def _run(self, made: PlannedRound, launches: Sequence[BenchLaunch], last: bool) -> None:
        """Run launches, and record their outcomes.

        A launch that fails before it has measured is repeated, unless this is the ``last`` try.
        """
        rails = campaign.rails(self._folder.done, self._folder.reports())

        def record(launch: BenchLaunch) -> None:
            names = [end.node for end in made.runs[launch.run]]
            self._folder.record(campaign.launch_document(launch, names, _now()))

        def command(launch: BenchLaunch) -> command_lines.LaunchCommand:
            if self._plan.via == "mpirun":
                os.makedirs(f"{command_lines.scratch(self._plan, os.environ)}/{launch.number}", mode=0o700)
            return command_lines.command(self._plan, made.runs[launch.run], rails, os.environ, launch.number,
                                         made.iterations)  # fmt: skip

        def cancel(launch: BenchLaunch) -> None:
            if self._steps:
                self._steps.cancel(launch)

        for ended in execution.run(
            launches, command, lambda launch: self._folder.output(launch.output), self._plan.at_once,
            self._plan.run_limit_s, self._until, self._stop, record, cancel,
        ):  # fmt: skip
            if ended.status == BROKE and not last and not self._folder.began(ended.output):
                ended = replace(ended, status=CUT)
            record(ended)
            if ended.status == CUT and ended.why:
                names = " and ".join(end.node for end in made.runs[ended.run])
                print_text(f"{names}: {ended.why}{'' if last else '; launched again'}\n", sys.stderr)


def _announce(planned: Round) -> None:
    count = len(planned.runs)
    print_text(f"round {planned.number}, {planned.purpose}: {count} pair{'s' * (count != 1)}\n", sys.stderr)


def _now() -> str:
    return datetime.now(timezone.utc).isoformat(timespec="milliseconds").replace("+00:00", "Z")
