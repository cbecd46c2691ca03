"""Collection from many nodes, each document saved as it arrives; resuming a run."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from preflight._startup.lightclass import replace
from preflight.archive.directory import save
from preflight.archive.lazy import Spool
from preflight.collect import journal
from preflight.collect.command_switches import with_commands
from preflight.collect.connection import connection
from preflight.collect.options import DEADLINE_S, FLEET_DEADLINE_S
from preflight.collect.progress import ProgressLine
from preflight.collect.request import Collected, CollectRequest
from preflight.collect.scheduler import Limits, NodeEvent, gather, interruptible
from preflight.collect.switch_lock import LockedSwitches
from preflight.collect.switches import as_switch
from preflight.evidence.document import Evidence
from preflight.terminal import UsageError, print_text, write_or_report
from preflight.transport.slurm.srun import Srun

if TYPE_CHECKING:
    from collections.abc import Iterator

    from preflight.evidence.self_judged import SelfJudged


def collect(request: CollectRequest) -> Collected:
    """Collect from many nodes; return their evidence."""
    options = request.options
    run_s = options.limits(FLEET_DEADLINE_S)
    limits = Limits(options.fanout, min(DEADLINE_S + options.extra_s, run_s), run_s)
    plan_for = request.plans()
    already = _already(request, plan_for("", DEADLINE_S))
    answered = {evidence.node for evidence in already}
    waiting = replace(request, nodes=tuple(node for node in request.nodes if node not in answered))
    if already:
        print_text(f"{len(already)} nodes have already answered; collecting from {len(waiting.nodes)}\n", sys.stderr)
    answers, saved = Spool(already), True
    if not waiting.nodes:
        return Collected(answers.documents(), via=options.via)
    with (
        connection(waiting) as transport,
        ProgressLine(len(waiting.nodes), through_openssh=transport.through_openssh) as shown,
        interruptible() as stop,
    ):
        for warning in transport.warnings:
            print_text(f"warning: {warning}\n", sys.stderr)
        documents: Iterator[Evidence | SelfJudged]
        if isinstance(transport, Srun):
            documents = transport.gather(waiting.nodes, plan_for, limits, lambda *event: shown(NodeEvent(*event)), stop)
        else:
            reader = with_commands(waiting, transport) if waiting.command_switches else transport
            locked = LockedSwitches(reader, waiting.switches) if waiting.switches else reader
            documents = gather(waiting.nodes, locked, plan_for, limits, on_event=shown, stop=stop)
        for answer in documents:
            if isinstance(answer, Evidence) and answer.node in request.switches:
                answer = as_switch(answer)
            if request.save is not None:
                evidence = answer if isinstance(answer, Evidence) else answer.read()
                saved = write_or_report(partial(save, request.save, [evidence]), request.save) and saved
                del evidence
            answers.add(answer)
            del answer  # release its memory for the next document
        through_openssh = transport.through_openssh
        unjudged = getattr(transport, "unjudged", None)
    _advise(answers.silent)
    return Collected(answers.documents(), None, options.via, through_openssh, saved, unjudged)


def _already(request: CollectRequest, plan: Mapping[str, Any]) -> list[Evidence]:
    """Return the answers that a resumed run already has.

    A run that resumes no other has none, and begins its journal.
    """
    options, folder = request.options, request.save
    if folder is None:
        return []
    flags = {"sudo": options.sudo, "fabric": options.fabric, "window": options.window_s}
    if request.switches:
        flags["switches"] = True
    run = journal.describe_run(request.nodes, request.cluster_file, plan, flags)
    try:
        if request.resume:
            return journal.proceed(folder, run)
        journal.begin(folder, run)
    except journal.ResumeError as error:
        raise UsageError(str(error)) from None
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}") from None
    return []


def _advise(answers: Sequence[Evidence]) -> None:
    """Print one fix for all rejected host keys."""
    refused = [e.node for e in answers if e.no_answer is not None and e.no_answer.get("phase") == "host-key"]
    if len(refused) > 1:
        # import-at-use: the single-file build has no paramiko
        from preflight.transport.ssh.host_keys import trust_command

        print_text(f"after verifying the host keys of {len(refused)} hosts: {trust_command(refused)}\n", sys.stderr)
