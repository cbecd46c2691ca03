"""Collection from Arista EOS switches: a closed list of show commands."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from preflight.evidence.document import SWITCH, Evidence, to_document
from preflight.parsers.switch import eos_answers
from preflight.terminal import UsageError
from preflight.transport.errors import NoAnswer, TransportError, utc_now

if TYPE_CHECKING:
    from preflight.collect.request import CollectRequest
    from preflight.collect.scheduler import NodeTransport

#: Seconds between two commands, and maximum bytes of an answer.
GAP_S, _MOST_BYTES = 0.2, 24 << 20

#: Runs commands on a host: host, commands, seconds between them, maximum bytes, deadline. An output that is too long is
#: None.
RunCommands = Callable[[str, Sequence[str], float, int, float], "list[bytes | None]"]


class WithEosSwitches:
    """A transport that reads EOS switches by commands, and all else with ``other``."""

    def __init__(self, other: NodeTransport, names: frozenset[str], commands: RunCommands, via: str) -> None:
        """Wrap a transport; ``via`` (ssh or eapi) is recorded in documents."""
        self._other, self._names, self._commands, self._via = other, names, commands, via

    def collect(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, Any]:
        """Carry out a plan by ``until``; always return a document."""
        if host not in self._names:
            return self._other.collect(host, plan, until)
        at = utc_now()
        try:
            records = self._records(host, plan, until)
        except NoAnswer as end:
            return end.document(host, at)
        except Exception as error:
            return NoAnswer("read", f"preflight failed: {type(error).__name__}: {error}").document(host, at)
        return to_document(
            Evidence(host, at, records, {"via": self._via, "notes": []}, kind=SWITCH, platform="eos")
        )  # fmt: skip

    def _records(self, host: str, plan: Mapping[str, Any], until: float) -> dict[str, dict[str, Any]]:
        commands = list(map(eos_answers.command, plan["questions"]))  # refuses others before it connects
        suffix = " | json" if self._via == "ssh" else ""
        answers: list[tuple[str, dict[str, Any]]] = []
        began = time.monotonic()
        for reading in range(2 if plan["window_s"] else 1):
            wanted = [command for command in commands if not reading or eos_answers.QUESTIONS[command].twice]
            if reading:
                rest = max(GAP_S, plan["window_s"] - (time.monotonic() - began))
                time.sleep(max(0.0, min(rest, until - time.monotonic())))
            texts = self._commands(host, [command + suffix for command in wanted], GAP_S, _MOST_BYTES, until)
            answers += [(command, _record(command, text)) for command, text in zip(wanted, texts, strict=False)]
            answers += [
                (command, {"status": "error", "why": f"{command}: the connection ended before the answer"})
                for command in wanted[len(texts) :]
            ]
        return eos_answers.records(answers)


def _record(command: str, text: bytes | None) -> dict[str, Any]:
    if text is None:
        return {"status": "error", "why": f"{command}: the answer exceeds {_MOST_BYTES >> 20} MiB"}
    return eos_answers.record(command, text.decode("utf-8", "replace"))


def with_eos(request: CollectRequest, transport: NodeTransport) -> WithEosSwitches:
    """Return a transport that also reads the EOS switches of a request.

    Raises UsageError.
    """
    assert request.cluster
    settings = request.cluster.switches.settings
    if settings.eos_via != "eapi":
        run = getattr(transport, "run_commands", None)
        if run is None:
            raise UsageError("[switches] eos: show commands are not run with --via openssh; omit it, or use eapi")
        return WithEosSwitches(transport, request.eos_switches, run, "ssh")
    # import-at-use: http.client and ssl, with eAPI alone
    from preflight.transport.eapi import Eapi

    base = request.cluster_file.parent if request.cluster_file else Path()
    ca = str(base / settings.eapi_ca) if settings.eapi_ca else ""
    try:
        eapi = Eapi.prepare(ca, settings.eapi_port or 443)
    except TransportError as error:
        raise UsageError(f"[switches] eos_via: {error}") from None
    return WithEosSwitches(transport, request.eos_switches, eapi.answers, "eapi")


def eos_plan(node: str, deadline_s: float, window_s: float | None) -> dict[str, Any]:
    """Return the plan of one EOS switch: a fixed list of show commands."""
    return {"node": node, "deadline_s": deadline_s, "questions": list(eos_answers.QUESTIONS), "window_s": window_s or 0}
