"""Collection from switches by commands: a closed list for each platform."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from preflight.evidence.document import SWITCH, Evidence, to_document
from preflight.parsers.switch.session import COMMANDED, CommandLine
from preflight.terminal import UsageError
from preflight.transport.command_rules import CommandRules
from preflight.transport.errors import NoAnswer, TransportError, utc_now

if TYPE_CHECKING:
    from preflight.collect.request import CollectRequest
    from preflight.collect.scheduler import NodeTransport

#: Seconds between two commands, and maximum bytes of an answer.
GAP_S, _MOST_BYTES = 0.2, 24 << 20
#: Maximum load of the control plane in percent.
_MOST_LOAD = 90

Answers = list[tuple[str, dict[str, Any]]]


class RunCommands(Protocol):
    """Runs commands on a host, one after the other, until a monotonic time."""

    def __call__(self, host: str, commands: Sequence[str], rules: CommandRules, until: float) -> object:
        """Run them; raises NoAnswer."""


class WithCommandSwitches:
    """A transport that reads some switches by commands, and all else with ``other``."""

    def __init__(self, other: NodeTransport, runners: Mapping[str, tuple[RunCommands, str]]) -> None:
        """Wrap a transport.

        ``runners`` are by switch, each with its name in documents: ssh or eapi.
        """
        self._other, self._runners = other, runners

    def collect(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        """Carry out a plan by ``until``; always return a document."""
        if host not in self._runners:
            return self._other.collect(host, plan, until)
        at, platform = utc_now(), COMMANDED[plan["platform"]]
        run, via = self._runners[host]
        try:
            reading = _Reading(platform, host, run, via)
            records = reading.records(plan, until)
        except NoAnswer as end:
            return end.document(host, at)
        except Exception as error:
            return NoAnswer("read", f"preflight failed: {type(error).__name__}: {error}").document(host, at)
        return to_document(
            Evidence(host, at, records, {"via": via, "notes": reading.notes}, kind=SWITCH, platform=platform.name)
        )  # fmt: skip


class _Reading:
    """The answers of one switch."""

    def __init__(self, platform: CommandLine, host: str, run: RunCommands, via: str) -> None:
        self._platform, self._host, self._run, self._via = platform, host, run, via
        self.notes: list[str] = []

    def records(self, plan: Mapping[str, Any], until: float) -> dict[str, dict[str, Any]]:
        """Carry out a plan; raises NoAnswer.

        Other commands than the listed ones raise a ValueError before a connection is opened.
        """
        commands = list(map(self._platform.command, plan["questions"]))
        answers: Answers = []
        began = time.monotonic()
        for again in range(2 if plan["window_s"] else 1):
            wanted = [command for command in commands if not again or self._platform.commands[command].twice]
            if again:
                rest = max(GAP_S, plan["window_s"] - (time.monotonic() - began))
                time.sleep(max(0.0, min(rest, until - time.monotonic())))
            answers += self._answers(wanted, until)
        return self._platform.records(answers)

    def _answers(self, wanted: Sequence[str], until: float) -> Answers:
        """Return an answer to each command.

        A switch may close each connection after one command, so it is opened again as long as answers arrive.
        """
        answers: Answers = []

        def heard(output: bytes | None) -> None:
            command = wanted[len(answers)]
            answers.append((command, self._record(command, output)))
            load = self._platform.load(dict(answers))
            if load is not None and load > _MOST_LOAD:
                raise NoAnswer(
                    "collect", f"its control plane is busy: {load:.0f}% of CPU, limit {_MOST_LOAD}%; no more commands "
                    "were sent: try again later",
                )  # fmt: skip

        rules = CommandRules(GAP_S, _MOST_BYTES, heard)
        while len(answers) < len(wanted):
            before = len(answers)
            if before:
                time.sleep(GAP_S)
            sent = [self._platform.sent(command) if self._via == "ssh" else command for command in wanted[before:]]
            try:
                self._run(self._host, sent, rules, until)
            except NoAnswer:
                if not before or len(answers) > before:
                    raise
            if len(answers) == before:
                break
            if len(answers) < len(wanted) and not self.notes:
                self.notes.append(f"the switch closed a connection after {len(answers) - before} commands")
        why = "the connection ended before the answer"
        return answers + [(command, {"status": "error", "why": f"{command}: {why}"}) for command in
                          wanted[len(answers):]]  # fmt: skip

    def _record(self, command: str, output: bytes | None) -> dict[str, Any]:
        if output is None:
            return {"status": "error", "why": f"{command}: the answer exceeds {_MOST_BYTES >> 20} MiB"}
        return self._platform.record(command, output.decode("utf-8", "replace"))


def with_commands(request: CollectRequest, transport: NodeTransport) -> WithCommandSwitches:
    """Return a transport that also reads the switches of a request that need commands.

    Raises UsageError.
    """
    over_ssh: RunCommands | None = getattr(transport, "run_commands", None)
    over_eapi = _eapi(request)
    runners: dict[str, tuple[RunCommands, str]] = {}
    for name, platform in request.command_switches.items():
        if over_eapi and platform == "eos":
            runners[name] = over_eapi, "eapi"
        elif over_ssh:
            runners[name] = over_ssh, "ssh"
        else:
            raise UsageError("[switches]: commands are not run with --via openssh; omit it, or use eapi for EOS")
    return WithCommandSwitches(transport, runners)


def _eapi(request: CollectRequest) -> RunCommands | None:
    """Return eAPI if the cluster file has EOS switches that use it; raises UsageError."""
    assert request.cluster
    settings = request.cluster.switches.settings
    if settings.eos_via != "eapi" or "eos" not in request.command_switches.values():
        return None
    # import-at-use: http.client and ssl, with eAPI alone
    from preflight.transport.eapi import Eapi

    base = request.cluster_file.parent if request.cluster_file else Path()
    ca = str(base / settings.eapi_ca) if settings.eapi_ca else ""
    try:
        return Eapi.prepare(ca, settings.eapi_port or 443).run_commands
    except TransportError as error:
        raise UsageError(f"[switches] eos_via: {error}") from None


def command_plan(node: str, deadline_s: float, window_s: float | None, platform: str) -> dict[str, Any]:
    """Return the plan of one switch: a fixed list of commands."""
    questions = list(COMMANDED[platform].commands)
    return {"node": node, "deadline_s": deadline_s, "questions": questions, "window_s": window_s or 0,
            "platform": platform}  # fmt: skip
