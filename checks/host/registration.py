"""Check of memory registration caches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from preflight.checks.applicability import no_compute_port
from preflight.checks.host.limits import nothing_to_pin
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.nccl_environment import PROCESS, REDACTED
from preflight.facts.nccl_settings.collect import RANKS
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, passed, unknown, warned

_OFF = frozenset(("0", "n", "no", "off", "false", "disable", "disabled")).__contains__
_ON = frozenset(("1", "y", "yes", "on", "true")).__contains__
_ZERO, _DISABLED = frozenset(("0",)).__contains__, frozenset(("disabled",)).__contains__


def _without_cache(methods: str) -> bool:
    """Return whether a list of methods has neither UCX's cache nor on-demand paging."""
    return bool(methods) and not {"rcache", "odp"} & {method.strip() for method in methods.split(",")}


#: Variable -> whether a value disables a registration cache, and whose cache it is.
DISABLED_BY: Mapping[str, tuple[Callable[[str], bool], str]] = {
    "UCX_RCACHE_ENABLE": (_OFF, "UCX"),
    "UCX_MEM_EVENTS": (_OFF, "UCX (it needs memory events)"),
    "UCX_IB_REG_METHODS": (_without_cache, "UCX"),
    "FI_MR_CACHE_MAX_COUNT": (_ZERO, "libfabric"),
    "FI_MR_CACHE_MAX_SIZE": (_ZERO, "libfabric"),
    "FI_MR_CACHE_MONITOR": (_DISABLED, "libfabric"),
    "FI_EFA_MR_CACHE_ENABLE": (_OFF, "libfabric's EFA provider"),
    "OFI_NCCL_MR_CACHE_DISABLE": (_ON, "aws-ofi-nccl"),
}


@check(
    "rdma.registration-cache",
    title="Memory registration caches are on",
    fault="A memory registration cache is off",
    impact="slows-job",
    source="ucx_info -cf (UCX_RCACHE_ENABLE, UCX_MEM_EVENTS); fi_mr(3), Memory Registration Cache; aws-ofi-nccl",
    fix="`unset` the variable, except while an error of the cache is being investigated.",
    action="fix-job",
    answers=("NT-PIT-6",),
    gating=False,
    unless=(nothing_to_pin, no_compute_port),
)
def registration_cache(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for variables that disable memory registration caches.

    ## Why it matters
    Without a cache, UCX, libfabric or a plug-in registers each buffer again for each transfer. That takes longer than
    sending a small message, and fragments the memory that the NIC can address.

    ## Verdicts
    A variable that disables the cache of UCX, libfabric or aws-ofi-nccl warns if it is set in the environment of
    preflight or of a rank on the node; so does a list of UCX's registration methods with neither its cache nor
    on-demand paging. A variable whose value was redacted is unknown. Environments that are not readable, such as those
    of other users, are not judged. NCCL's own InfiniBand transport always has a cache, which no variable disables.
    Without the environment, the result is unknown.

    ## False alarms
    A variable that is set on purpose, as a workaround for an error of the cache.
    """
    own = node.evidence.value(PROCESS)
    if not isinstance(own, Mapping):
        raise EvidenceError(PROCESS, "is not an object")
    of_ranks = _of_ranks(node)
    off: dict[str, Finding] = {}
    redacted: dict[str, Finding] = {}
    for where, variables in [("the environment", own), *of_ranks]:
        evidence = [PROCESS if where == "the environment" else RANKS]
        for name, (disables, cache) in DISABLED_BY.items():
            value = str(variables.get(name, ""))
            if value == REDACTED:
                redacted.setdefault(name, unknown(
                    f"the value of {name} in {where} was redacted; it may disable the registration cache of {cache}",
                    subject=name, evidence=evidence,
                ))  # fmt: skip
            elif disables(value.strip().casefold()):
                off.setdefault(name, warned(
                    f"{name}={value} in {where} disables the registration cache of {cache}", subject=name,
                    found=value, expected="unset", evidence=evidence,
                ))  # fmt: skip
    findings = {**redacted, **off}
    yield from findings.values()
    if not findings:
        yield passed("no variable disables a registration cache in the environments that could be read",
                     evidence=[PROCESS])  # fmt: skip


def _of_ranks(node: NodeFacts) -> list[tuple[str, Mapping[str, str]]]:
    """Return the readable environments of ranks, with their names."""
    try:
        ranks = node.nccl_ranks
    except EvidenceError:
        return []
    return [(f"the environment of {rank.who}", rank.variables) for rank in ranks.environments]
