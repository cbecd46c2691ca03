"""Check of NCCL settings in a log or a pasted list of ``NAME=value`` lines.

The rules are the same as for a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight._startup.lightclass import replace
from preflight.checks.nccl.settings_scope import finding
from preflight.expectations import Site
from preflight.facts.job import RunFacts
from preflight.facts.nccl_environment import strtoll
from preflight.facts.nccl_root_cause.device_evidence import setting as set_on
from preflight.facts.nccl_settings import SettingScope, lint
from preflight.facts.nccl_settings.catalogue import version
from preflight.facts.nccl_settings.collect import of_listing, of_log
from preflight.facts.nccl_settings.rank_agreement import disagreements
from preflight.facts.rank_binding import world_size
from preflight.model import Finding, all_of, check, passed, unknown, verb

if TYPE_CHECKING:
    from preflight.facts.nccl_environment import Setting
    from preflight.facts.nccl_settings import Violation
    from preflight.facts.nccl_settings.catalogue import Version
    from preflight.facts.nccl_settings.collect import CollectedSettings
    from preflight.parsers.nccl_log import NcclLog

GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
GIVE_SETTINGS = (
    "run again with NCCL_DEBUG=INFO, which includes subsystem ENV by default, or pass the output of `env | grep NCCL`"
)


#: Rule -> the check that reports its violations on a node.
_CHECKS = {
    "deprecated-name": "nccl.variable-version", "bad-value": "nccl.variable-values",
    "contradiction": "nccl.contradictions", "socket-threads": "nccl.socket-threads",
    "verbose-log": "nccl.debug-output", "shared-log-file": "nccl.debug-output", "pinned": "nccl.pinned-choices",
    "pinned-channels": "nccl.pinned-choices", "ll128": "nccl.pinned-choices", "fabric-fit": "nccl.fabric-fit",
    "left-over": "nccl.left-over-disables", "local-interface": "nccl.socket-ifname",
    "ranks-differ": "fleet.ranks-agree",
}  # fmt: skip

#: Rules about names that NCCL does not read: a log shows only names that NCCL read.
_READ_ANYWAY = frozenset({"unknown-name", "too-new-name", "ended-name"})


def no_log(run: RunFacts, site: Site) -> Finding | None:
    """Return *unknown* if no log was given, else None."""
    return None if run.logs else unknown("no log was given", fix=f"pass the job's log: --log FILE; {GIVE_SETTINGS}")


@check(
    "nccl.run-settings",
    title="The NCCL settings of the run are valid and equal on every rank",
    fault="The NCCL settings of the run are invalid, or differ between ranks",
    impact="slows-job",
    source=f"{GUIDE}; `NAME set by environment to VALUE` lines of NCCL 2.4 … 2.30",
    fix="Correct the variable where the job sets it: its script, its image, /etc/nccl.conf or ~/.nccl.conf.",
    action="fix-job",
    scope="run",
    gating=False,  # a log shows past settings, a node future ones
    unless=(no_log,),
)
def run_settings(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Judge the settings in a log or pasted list by the same rules as for a node.

    ## Why it matters
    The log of a slow job shows the effective settings, even without access to its nodes.

    ## Verdicts
    Names, values, contradictions, verbosity and pinned choices are judged as by the checks of nodes, such as
    nccl.variable-values; a value that differs between ranks is judged too. A disabled transport warns, except RDMA if
    the cluster file declares hcas = 0. A log shows numbers as NCCL parsed them: a ``true`` that became 0 is not
    visible. A log alone does not show whether the devices named by a setting exist; NCCL_SOCKET_IFNAME warns if all
    its interfaces are loopback or bridges, unless the job has one node. The settings of a pasted command, script or
    manifest are judged as written, whether or not they were in force.

    ## False alarms
    A log of several consecutive jobs with different settings on purpose.
    """
    for key in run.logs:
        yield from _one(run, site, key)


def _one(run: RunFacts, site: Site, key: str) -> Iterator[Finding]:
    name = key.removeprefix("log:")
    log = run.nccl_logs.get(key)
    collected = of_log(log.environment, key) if log is not None else of_listing(run.log(key).text, key)
    if collected is None or (not collected.settings and log is not None):
        what = ": no NCCL line shows a setting" if log is not None else " has no NCCL setting"
        yield unknown(f"{name}{what}", subject=name, evidence=[key], fix=GIVE_SETTINGS)
        return
    ranks = log.nranks if log is not None else world_size({one.name: one.value for one in collected.settings})
    here = SettingScope(
        versions=_versions(log.nccl_version if log is not None else None),
        rdma=False if site.hcas.value == 0 else None,
        ranks=ranks,
        nodes=log.nnodes if log is not None else None,
        libfabric=log is not None and any("Libfabric" in name for name in log.network_names),
    )
    violations = [one for one in violated(collected, here) if log is None or one.rule not in _READ_ANYWAY]
    disables = {violation.names[0] for violation in violations if violation.rule == "left-over"}
    for violation in violations:
        reported = replace(finding(violation), message=f"{name}: {violation.what}")
        check = _CHECKS.get("left-over" if violation.names[0] in disables else violation.rule, "")
        nodes = _nodes_with(run, log, violation.settings[0]) if log is not None and check else []
        yield reported.from_cause((check, *nodes) if nodes else ())
    if not violations:
        count = len(collected.values)
        yield passed(f"{name}: {all_of(count, 'setting')} {verb(count, 'is')} valid", subject=name, evidence=[key],
                     found=_first(collected))  # fmt: skip


def violated(collected: CollectedSettings, here: SettingScope) -> list[Violation]:
    """Return the violations of all rules, and the variables that differ between ranks."""
    return [*lint(collected.environment, here), *disagreements(collected)]


def judge_listed(collected: CollectedSettings, evidence: Sequence[str]) -> Iterator[Finding]:
    """Judge settings of a command, script, manifest or list, without a log of the job."""
    ranks = world_size({setting.name: setting.value for setting in collected.settings})
    violations = violated(collected, SettingScope(ranks=ranks, nodes=collected.nodes))
    yield from map(finding, violations)
    if collected.settings and not violations:
        yield passed(f"{all_of(len(collected.values), 'setting')} {verb(len(collected.values), 'is')} valid",
                     evidence=evidence,
                     found=_first(collected))  # fmt: skip
    elif not collected.settings:
        names = ", ".join(collected.placeholders[:4])
        yield unknown(f"the values of {names} are placeholders", evidence=evidence, fix=GIVE_SETTINGS)


def _nodes_with(run: RunFacts, log: NcclLog, setting: Setting) -> list[str]:
    """Return the nodes on which a setting of the log has the same value."""
    hosts = next(
        (shown.hosts for shown in log.environment if (shown.name, shown.value) == (setting.name, setting.value)), ()
    )
    nodes = filter(None, map(run.host, hosts))
    return [node.node for node in nodes if (own := set_on(node, setting.name)) and _same(own.value, setting.value)]


def _same(value: str, logged: str) -> bool:
    """Return whether NCCL logs ``value`` as ``logged``; it logs numbers as parsed."""
    return value == logged or (strtoll(value) is not None and strtoll(value) == strtoll(logged))


def _first(collected: CollectedSettings) -> str:
    return ", ".join(setting.text for setting in collected.environment.settings[:4])[:200]


def _versions(text: str | None) -> tuple[Version, ...]:
    try:
        return (version(text),) if text else ()
    except ValueError:
        return ()
