"""Check of the caches of memory registrations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

from preflight.checks.host.limits import nothing_to_pin
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.nccl_environment import PROCESS
from preflight.facts.nccl_settings.collect import RANKS, ranks
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, passed, warned

_OFF = frozenset(("0", "n", "no", "off", "false", "disable", "disabled"))
_ON = frozenset(("1", "y", "yes", "on", "true"))
#: Variable -> the values that disable a cache of registrations, and whose cache it is.
DISABLED_BY: Mapping[str, tuple[frozenset[str], str]] = {
    "UCX_RCACHE_ENABLE": (_OFF, "UCX"),
    "UCX_MEM_EVENTS": (_OFF, "UCX (it needs memory events)"),
    "FI_MR_CACHE_MAX_COUNT": (frozenset(("0",)), "libfabric"),
    "FI_MR_CACHE_MAX_SIZE": (frozenset(("0",)), "libfabric"),
    "FI_MR_CACHE_MONITOR": (frozenset(("disabled",)), "libfabric"),
    "FI_EFA_MR_CACHE_ENABLE": (_OFF, "libfabric's EFA provider"),
    "OFI_NCCL_MR_CACHE_DISABLE": (_ON, "aws-ofi-nccl"),
}


@check(
    "rdma.registration-cache",
    title="Caches of memory registrations are on",
    fault="A cache of memory registrations is off",
    impact="slows-job",
    source="ucx_info -cf (UCX_RCACHE_ENABLE, UCX_MEM_EVENTS); fi_mr(3), Memory Registration Cache; aws-ofi-nccl",
    fix="`unset` it, except while an error of the cache is being investigated.",
    action="fix-job",
    answers=("NT-PIT-6",),
    gating=False,
    unless=(nothing_to_pin,),
)
def registration_cache(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for variables that disable the caches of memory registrations.

    ## Why it matters
    Without a cache, UCX, libfabric or a plug-in registers each buffer again for each transfer. That takes longer than
    sending a small message, and fragments the memory that the NIC can address.

    ## Verdicts
    A variable that disables the cache of UCX, libfabric or aws-ofi-nccl warns, in the environment of preflight and of
    the ranks that run on the node. NCCL's own InfiniBand transport always has a cache, which no variable disables.
    Without the environment the result is unknown.

    ## False alarms
    A workaround for an error of the cache, set on purpose.
    """
    environments = [("the environment", node.evidence.value(PROCESS))]
    with suppress(EvidenceError):  # no job runs, or its processes belong to other users
        environments += [(f"the environment of {rank.who}", rank.variables)
                         for rank in ranks(node.evidence).environments]  # fmt: skip
    off: dict[str, Finding] = {}
    for where, variables in environments:
        for name, (values, cache) in DISABLED_BY.items():
            value = str(variables.get(name, ""))
            if value.strip().casefold() in values:
                off.setdefault(name, warned(
                    f"{name}={value} in {where} disables the registration cache of {cache}", subject=name,
                    found=value, expected="unset", evidence=[PROCESS if where == "the environment" else RANKS],
                ))  # fmt: skip
    yield from off.values()
    if not off:
        yield passed("no variable disables a registration cache", evidence=[PROCESS])
