"""Checks of NCCL variables left over from an experiment."""

from __future__ import annotations

from collections.abc import Iterator

from preflight import facts
from preflight.checks.nccl.settings_scope import place, redacted, rule_findings, unread
from preflight.expectations import Site
from preflight.facts.nccl_environment import PROCESS
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, passed, unknown
from preflight.textprep.agreement import verb

GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"


@check(
    "nccl.debug-output",
    title="NCCL's log is not left verbose",
    fault="NCCL's log was left verbose",
    impact="drifts",
    explains=(("nccl.run-settings", "log"),),
    source=f"{GUIDE}#nccl-debug; INFO is judged from 1000 ranks on, a judgement",
    fix="Set `NCCL_DEBUG=WARN` in production; give each process its own file: NCCL_DEBUG_FILE=/path/nccl.%h.%p.",
    action="fix-job",
    answers=("NT-ENV-1",),
    gating=False,  # never fails
)
def debug_output(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare NCCL_DEBUG, its subsystems and its file with production limits.

    ## Why it matters
    A line for every collective and rank fills the file system and slows every step. Ranks that share one log file
    overwrite each other's lines, and the error message is lost.

    ## Verdicts
    TRACE warns, and so do the subsystems ALL, COLL and CALL at INFO, INFO with more than 1000 ranks, and a file
    name without %h or %p. INFO alone passes: it costs some hundred lines per rank at start, and shows the selected
    network.

    ## False alarms
    A run that is being debugged right now.
    """
    found = [*rule_findings(node, site, "verbose_log"), *redacted(node)]
    missing = list(unread(node, "NCCL_DEBUG"))
    yield from (*found, *missing)
    if not found and not missing:
        setting = node.nccl_env.get("NCCL_DEBUG")
        yield passed(f"{setting.text} is not too verbose" if setting else "NCCL_DEBUG is not set", evidence=[PROCESS])


_CHANNELS = ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS")


@check(
    "nccl.pinned-choices",
    title="Algorithm, protocol and channels are left to NCCL",
    fault="Algorithm, protocol or channels are pinned",
    impact="slows-job",
    explains=(("nccl.run-settings", "log"),),
    source=f"{GUIDE} (variables for debugging); NCCL 2.30 src/graph/tuning.cc",
    fix="`unset` it; if a benchmark justifies it, set it only in that job's script, and note the benchmark there.",
    action="fix-job",
    answers=("NT-ENV-9",),
)
def pinned(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for pinned values that NCCL would choose for each size and topology.

    ## Why it matters
    The best choice for one message size and GPU generation is wrong for others. A pinned Ring disables NVLink SHARP, a
    pinned LL halves the bandwidth of large messages, and a forced number of channels takes SMs from the model.

    ## Verdicts
    NCCL_ALGO, NCCL_PROTO and NCCL_LAUNCH_MODE=GROUP warn, and so does a number of channels on a board with NVSwitches.
    LL128 forced on GPUs without NVLink fails: it can corrupt data.

    Settings required by Google's plug-ins (GPUDirect-TCPX and TCPXO: Simple, rings and trees, a number of channels)
    pass together with the plug-ins' own settings.

    ## False alarms
    Settings documented by a cloud provider whose plug-in needs one protocol.
    """
    found = [*rule_findings(node, site, "pinned_choices"), *redacted(node)]
    missing = list(unread(node, "an algorithm, a protocol or a number of channels"))
    yield from (one.about("NT-ENV-9") if one.subject in _CHANNELS else one.about() for one in found)
    yield from missing
    if any(one.subject in _CHANNELS for one in found) or missing:
        return
    env = node.nccl_env
    counted = [one for one in env.settings if one.name in _CHANNELS]
    forced = [one.text for one in counted if not facts.nccl_settings.leftovers.of_googles_plugin(env, one)]
    if counted and not forced:
        yield passed("the number of channels is set for Google's plug-in", evidence=[PROCESS])
    elif not forced:
        message = "the number of channels is left to NCCL" if found else "NCCL's own choices are not overridden"
        yield passed(message, evidence=[PROCESS])
    elif place(node, site).nvswitch is False:
        yield passed(
            f"{' and '.join(forced)} {verb(len(forced), 'is')} set on GPUs without NVSwitches", evidence=[PROCESS]
        )
    else:
        yield unknown(
            f"{' and '.join(forced)} {verb(len(forced), 'is')} set, but it is not known whether NVSwitches "
            "connect the GPUs",
            evidence=[PROCESS],
            fix="name the GPU part in the cluster file",
        )
