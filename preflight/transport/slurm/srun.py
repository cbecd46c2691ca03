"""Transport over Slurm's ``srun``: one step with one task on each node.

The step runs within a job or as a separate job. The collector and all plans are passed to every task as arguments,
because srun forwards standard input only after every task has started, which never happens if a node has failed.
Answers are sent as lines (``line_protocol``). A node on which Slurm cannot start a task ends the entire step after 10
to 20 s; a new step without that node then collects from the nodes that have not answered. Steps, and a job created for
them, always end with the run.
"""

from __future__ import annotations

import json
import math
import os
import secrets
import selectors
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from preflight._startup.lightclass import replace
from preflight.evidence.document import Evidence, from_document, no_answer
from preflight.evidence.node_result import is_result
from preflight.evidence.self_judged import SelfJudged, of_answer
from preflight.transport.bootstrap_protocol import SCRIPT_OF_ARGUMENTS, arguments, request
from preflight.transport.errors import NoAnswer, TransportError, quoted, utc_now
from preflight.transport.local.process import has_ended, kill_group, pipes
from preflight.transport.slurm import error_messages
from preflight.transport.slurm.broadcast import NO_VERDICT, WHY, Broadcast
from preflight.transport.slurm.line_protocol import BOOT, StepAssembler, TaskAssembler

#: SLURM_* variables that srun inherits: those of the cluster's address and the account. All others belong to the
#: surrounding job and would attach the step to it.
PASSED_VARIABLES = frozenset({
    "SLURM_CONF", "SLURM_CLUSTERS", "SLURM_CLUSTER_NAME", "SLURM_JWT", "SLURM_ACCOUNT", "SLURM_PARTITION", "SLURM_QOS",
    "SLURM_RESERVATION", "SLURM_CONSTRAINT", "SLURM_WCKEY",
})  # fmt: skip

#: Seconds for Slurm's own commands; reserved for sending and receiving; for srun to end after a signal.
_COMMAND_S, _RETURN_S, _END_S = 15.0, 2.0, 5.0

#: sinfo's name for a node with an ending job, the wait for that end (its processes are killed, an epilog runs),
#: and the polling interval; seconds.
_COMPLETING, _COMPLETING_S, _AGAIN_S = "(completing", 15.0, 0.3

#: Seconds between checks of the clock; maximum number of restarts of a step without its failed nodes.
_TICK_S, _ROUNDS = 0.2, 8

#: States in which a node accepts no new job, or is used by other jobs (sinfo(1), NODE STATE CODES).
_AWAY = ("down", "drain", "fail", "unk", "maint", "power", "reboot", "not_responding", "blocked", "plnd")
_BUSY = ("alloc", "comp", "resv", "reserved")

PlanFor = Callable[[str, float], Mapping[str, Any]]

#: Called for a node that started, or ended with a document, with the time (monotonic clock).
OnEvent = Callable[[str, float, "Evidence | SelfJudged | None"], None]


class Times(Protocol):
    """Time limits in seconds: for one node once a task has started, and for all nodes."""

    @property
    def node_s(self) -> float:
        """Seconds for one node."""
        ...

    @property
    def run_s(self) -> float:
        """Seconds for all nodes."""
        ...


class Srun:
    """Slurm as a transport.

    ``job`` is the id of the job whose nodes are used; without it, a job is created.
    """

    def __init__(self, job: str | None, fold: Callable[[Sequence[str]], str], archive: bytes = b"") -> None:
        """Find the commands; raise TransportError if they are missing.

        ``fold`` writes node names as a folded list. ``archive`` is for nodes whose plans have them judge themselves.
        """
        self.job = job
        self.warnings: tuple[str, ...] = ()
        self.through_openssh: dict[str, str] = {}
        self._archive = archive
        self.unjudged: dict[str, str] = {}  # nodes that did not judge themselves, with the reason
        self._fold = fold
        self._name = f"preflight-{secrets.token_hex(4)}"
        self._commands = {name: shutil.which(name) or "" for name in ("srun", "scancel", "sinfo", "squeue")}
        if missing := [name for name, path in self._commands.items() if not path]:
            raise TransportError(f"no `{missing[0]}` in PATH: run on a login node of the cluster, or use --via ssh")
        self._environment = {k: v for k, v in os.environ.items() if not k.startswith("SLURM_") or k in PASSED_VARIABLES}

    def close(self) -> None:
        """Do nothing: a step ends with its iteration."""

    def gather(
        self, hosts: Sequence[str], plan_for: PlanFor, times: Times, on_event: OnEvent, stop: threading.Event
    ) -> Iterator[Evidence | SelfJudged]:
        """Collect from every node; yield one document for each, as they end."""
        until = time.monotonic() + times.run_s
        left = dict.fromkeys(hosts)
        last = NoAnswer("queue", "it was not started in time")
        for round_ in range(_ROUNDS):
            if not left or stop.is_set() or time.monotonic() + _RETURN_S > until:
                break
            if self.job is None:
                for node, why in self._unusable_at_last(list(left), until, stop).items():
                    del left[node]
                    yield self._ended(node, why, on_event)
            if not left:
                break
            step = _Step(self, list(left), plan_for, times, until, stop)
            for host in left if round_ == 0 else ():
                on_event(host, time.monotonic(), None)
            for evidence in step.run():
                del left[evidence.node]
                on_event(evidence.node, time.monotonic(), evidence)
                yield evidence
            last = step.last
            if not step.faulty:
                break
        if stop.is_set():
            last = NoAnswer("interrupted", "interrupted")
        for node in left:
            yield self._ended(node, last, on_event)

    def _ended(self, node: str, why: NoAnswer, on_event: OnEvent) -> Evidence:
        evidence = no_answer(node, why.phase, why.reason, utc_now())
        on_event(node, time.monotonic(), evidence)
        return evidence

    def command(self, hosts: Sequence[str], wanted: bytes, limit_s: float) -> list[str]:
        """Return the command line of one step."""
        number = str(len(hosts))
        where = [f"--jobid={self.job}", "--overlap"] if self.job else []
        return [
            self._commands["srun"], *where, f"--nodes={number}", f"--ntasks={number}", "--ntasks-per-node=1",
            f"--nodelist={self._fold(hosts)}", f"--job-name={self._name}", f"--time={math.ceil(limit_s / 60) + 1}",
            "--label", "--input=all", "--output=all", "--error=all", "--kill-on-bad-exit=0", "--wait=0",
            "--mpi=none", "--cpu-bind=none", "--chdir=/", "sh", "-c", SCRIPT_OF_ARGUMENTS, "sh", *arguments(wanted),
        ]  # fmt: skip

    def start(self, command: Sequence[str]) -> subprocess.Popen[bytes]:
        """Start srun in its own process group, safe from Ctrl-C; raises TransportError."""
        try:
            return subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0,
                start_new_session=True, env=self._environment,
            )  # fmt: skip
        except OSError as error:
            raise TransportError(f"{command[0]} could not be executed: {error.strerror}") from None

    def end(self, process: subprocess.Popen[bytes]) -> int | None:
        """End srun, its step and a job created for it.

        Returns srun's exit status if it had already ended, else None.
        """
        by_itself = has_ended(process.pid, 0.5)
        if not by_itself:
            process.terminate()
            has_ended(process.pid, _END_S)
        self.cancel(self._name)
        kill_group(process)
        for stream in pipes(process):
            stream.close()
        status = process.wait()
        return status if by_itself else None

    def cancel(self, name: str) -> None:
        """Cancel the jobs of this run by name; within a job, its steps."""
        if self.job is None:
            self._run("scancel", f"--name={name}")
            return
        steps = self._run("squeue", "--noheader", "--steps", f"--jobs={self.job}", "--format=%i %j")
        for line in steps.splitlines():
            ident, _, step = line.strip().partition(" ")
            if step.strip() == name:
                self._run("scancel", ident)

    def broadcast(self) -> Broadcast | None:
        """Return the transmission of the archive to one step; None without one."""
        return Broadcast(self._archive, shutil.which("sbcast") or "", self._environment) if self._archive else None

    def step(self) -> str:
        """Return the id of the running step, such as 4711.0; empty if there is none yet."""
        listing = self._run("squeue", "--noheader", "--steps", f"--user={os.getuid()}", "--format=%i %j")
        ids = [line.split()[0] for line in listing.splitlines() if line.split()[1:] == [self._name]]
        return ids[-1] if ids else ""

    def _unusable_at_last(self, hosts: Sequence[str], until: float, stop: threading.Event) -> dict[str, NoAnswer]:
        """Return the nodes that are still unusable after completing jobs have ended.

        The ending job is usually preflight's previous one.
        """
        until = min(until - _RETURN_S, time.monotonic() + _COMPLETING_S)
        while True:
            found = self._unusable(hosts)
            ending = any(_COMPLETING in why.reason for why in found.values())
            if not ending or time.monotonic() > until or stop.wait(_AGAIN_S):
                return found

    def _unusable(self, hosts: Sequence[str]) -> dict[str, NoAnswer]:
        """Return the nodes that accept no job now, with the reason.

        One of them would delay all other nodes.
        """
        unusable: dict[str, NoAnswer] = {}
        listed = set()
        for node, state, reason in self._states(hosts):
            listed.add(node)
            if _is_away(state):
                unusable[node] = NoAnswer("queue", f"the node accepts no job from Slurm: it is {state}{reason}")
            elif state.startswith(_BUSY):
                fix = "collect within that job with --job ID, or use --via ssh"
                unusable[node] = NoAnswer("queue", f"other jobs use the node exclusively ({state}): {fix}")
        if listed:
            unusable.update(
                {one: NoAnswer("resolve", "Slurm does not know this node") for one in hosts if one not in listed}
            )
        return {node: why for node, why in unusable.items() if node in set(hosts)}

    def away(self, hosts: Sequence[str]) -> dict[str, str]:
        """Return the nodes that accept no new job, such as drained ones, with the reason.

        Steps of a job that already has these nodes would still start there.
        """
        wanted = set(hosts)
        return {node: f"Slurm: it is {state}{reason}" for node, state, reason in self._states(hosts)
                if node in wanted and _is_away(state)}  # fmt: skip

    def _states(self, hosts: Sequence[str]) -> Iterator[tuple[str, str, str]]:
        """Yield node, state, and reason in parentheses, as sinfo lists them."""
        listing = self._run("sinfo", "--noheader", "--Node", f"--nodes={self._fold(hosts)}", "--format=%N|%T|%E")
        for line in listing.splitlines():
            node, _, rest = line.strip().partition("|")
            state, _, reason = rest.partition("|")
            yield node, state, f" ({quoted(reason.encode())})" if reason.strip() not in ("", "none") else ""

    def _run(self, name: str, *arguments: str) -> str:
        """Return the output of a Slurm command; empty if it fails."""
        try:
            ran = subprocess.run(
                [self._commands[name], *arguments], stdin=subprocess.DEVNULL, capture_output=True,
                timeout=_COMMAND_S, check=False, env=self._environment,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired):
            return ""
        return ran.stdout.decode("utf-8", "backslashreplace") if ran.returncode == 0 else ""


def _is_away(state: str) -> bool:
    return state.endswith("*") or state.startswith(_AWAY)


class _Step:
    """One srun, from its start to its end."""

    def __init__(
        self, srun: Srun, hosts: Sequence[str], plan_for: PlanFor, times: Times, until: float, stop: threading.Event
    ) -> None:
        self._srun, self._hosts, self._times, self._until, self._stop = srun, hosts, times, until, stop
        left_s = until - time.monotonic()
        self._broadcast = srun.broadcast()
        place = self._broadcast.place if self._broadcast else ""
        self._wanted = request(_plans(hosts, plan_for, min(times.node_s, left_s) - _RETURN_S, place), BOOT)
        self._open = dict.fromkeys(hosts)
        self._tasks = StepAssembler()
        self._status: dict[str, int | None] = {}
        self._rest = b""
        self._cause = ""
        self.faulty: dict[str, NoAnswer] = {}  # nodes on which the step could not be started
        self.last = NoAnswer("collect", "no answer")

    def run(self) -> Iterator[Evidence | SelfJudged]:
        """Yield the documents of this step's nodes; unfinished nodes go to the next step."""
        began = time.monotonic()
        process = self._srun.start(self._srun.command(self._hosts, self._wanted, self._until - began))
        if self._broadcast:
            self._broadcast.start(self._srun.step)
        try:
            for task in self._talk(process):
                yield self._document(task.node, task, "")
        finally:
            if self._broadcast:
                self._broadcast.close()
            status = self._srun.end(process)
        for node, why in self.faulty.items():
            if self._open.pop(node, 0) is None:
                yield no_answer(node, why.phase, why.reason, utc_now())
        late = f"no answer within {time.monotonic() - began:.3g} s" if status is None else ""
        for node in [node for node in self._open if node in self._tasks.of]:
            if not self.faulty or self._status.get(node) is not None:
                yield self._document(node, self._tasks.of[node], late)
        if not self._tasks.begun and not self._cause and late:
            self.last = NoAnswer("queue", f"{late}: Slurm started no task; is the partition busy?")
        else:
            words = self._cause or late or f"srun ended with status {status}"
            self.last = NoAnswer("start", words) if not self._tasks.begun else NoAnswer("collect", late or words)

    def _talk(self, process: subprocess.Popen[bytes]) -> Iterator[TaskAssembler]:
        """Yield tasks with complete answers until srun ends or time is up."""
        _, stdout, stderr = pipes(process)  # standard input stays open: closing it would end the collectors
        with selectors.DefaultSelector() as selector:
            reading = {stdout, stderr}
            for stream in reading:
                selector.register(stream, selectors.EVENT_READ)
            limit, begun = self._until - _RETURN_S, False
            while reading and self._open and not self._stop.is_set():
                now = time.monotonic()
                if self._tasks.begun and not begun:
                    limit, begun = min(limit, now + self._times.node_s), True
                if now > limit:
                    return
                for key, _ in selector.select(_TICK_S):
                    data = os.read(key.fd, 65536)
                    if not data:
                        selector.unregister(key.fileobj)
                        reading.discard(key.fileobj)
                    elif key.fileobj is stderr:
                        self._hear_error(data)
                    else:
                        for node, task in self._tasks.hear(data):
                            if self._open.pop(node, 0) is None:
                                yield task

    def _hear_error(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        self._rest = self._rest[-65536:]
        for line in lines:
            if self._tasks.hear_error(line):
                continue
            message = error_messages.meaning(line)
            if message.answer is not None:
                self.faulty[message.node] = message.answer
            elif message.task is not None:
                self._tasks.assign(message.task, message.node)
                self._status[message.node] = message.status
            elif message.cause:
                self._cause = message.cause

    def _document(self, node: str, task: TaskAssembler, ended: str) -> Evidence | SelfJudged:
        self._open.pop(node, None)
        try:
            document = task.document(ended, self._status.get(node))
            if self._broadcast and is_result(document):
                return of_answer(document, node, *task.protocol.packed())
            if self._broadcast:
                self._srun.unjudged[node] = WHY.get(str(document.get("unjudged")), NO_VERDICT)
            return replace(from_document(document, node), node=node)  # a node must not answer for another one
        except NoAnswer as answer:
            return no_answer(node, answer.phase, answer.reason, utc_now())
        except ValueError as error:
            return no_answer(node, "read", f"the answer is damaged: {error}", utc_now())


def _plans(hosts: Sequence[str], plan_for: PlanFor, deadline_s: float, archive: str) -> dict[str, Any]:
    """Return the distinct plans, and the index of each node's plan.

    ``archive`` is the path, on the nodes, of the archive with which they judge themselves.
    """
    plans: dict[str, int] = {}
    of: dict[str, int] = {}
    before: tuple[dict[str, Any], int] | None = None  # neighbours mostly have the same plan
    for host in hosts:
        plan = {key: value for key, value in plan_for(host, max(deadline_s, 1.0)).items() if key != "node"}
        if "judge" in plan:
            plan["judge"] = {**plan["judge"], "archive": archive}
        if before is None or before[0] != plan:
            before = plan, plans.setdefault(json.dumps(plan, sort_keys=True), len(plans))
        of[host] = before[1]
    return {"plans": [json.loads(plan) for plan in plans], "of": of}
