"""Context of a node's NCCL settings, and findings for settings that break a rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

from preflight import facts
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.nccl_environment import REDACTED, NcclEnvironment, Setting
from preflight.facts.node import NodeFacts
from preflight.model import Finding, failed, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.nccl_settings import SettingScope, Violation
    from preflight.facts.nccl_settings.catalogue import Version

T = TypeVar("T")


def unread(node: NodeFacts, names: str) -> Iterator[Finding]:
    """Yield *unknown* for each unreadable file that might set a variable."""
    for key, why in node.nccl_env.unreadable.items():
        path = key.partition(":")[2]
        yield unknown(f"{path} could not be read, so it may set {names}: the file {why}", subject=path, evidence=[key])


def nearest_of(name: str, names: Iterable[str]) -> str:
    """Return ``, nearest: X`` for the intended name, or an empty string."""
    from difflib import get_close_matches

    known = {candidate.casefold(): candidate for candidate in names}
    found = get_close_matches(name.strip().casefold(), known, n=1, cutoff=0.5)
    return f"; the nearest name is {known[found[0]]}" if found else ""


def as_set(setting: Setting) -> str:
    """Return the line that sets a variable, for quoting."""
    return f"{setting.line}: {setting.text}" if setting.line else setting.text


def concerned(env: NcclEnvironment) -> bool:
    """Return whether any NCCL variable is set, including misspelt ones.

    Rules are loaded only in that case.
    """
    return any("CCL" in setting.name.upper() or "NCL" in setting.name.upper() for setting in env.settings)


def environments(node: NodeFacts) -> Iterator[NcclEnvironment]:
    """Yield the environment of a new job, then those of the running ranks."""
    yield node.nccl_env
    ranks = known(lambda: node.nccl_ranks)
    for rank in ranks.environments if ranks is not None else ():
        yield rank.settings


def rule_findings(node: NodeFacts, site: Site, rule: str) -> Iterator[Finding]:
    """Yield a finding for each violation of a rule, in all environments.

    Violations shared by environments are reported once.
    """
    seen = set()
    for env in environments(node):
        if not concerned(env):
            continue
        for violation in facts.nccl_settings.lint(env, place(node, site, env), [rule]):
            same = (violation.rule, *((one.name, one.value) for one in violation.settings))
            if same not in seen:
                seen.add(same)
                yield finding(violation)


def redacted(node: NodeFacts) -> Iterator[Finding]:
    """Yield *unknown* for each NCCL setting that the collector redacted."""
    for setting in node.nccl_env.settings:
        if setting.name.startswith("NCCL_") and setting.value == REDACTED:
            yield unknown(f"the value of {setting.name} was redacted", subject=setting.name, evidence=[setting.source])


def finding(violation: Violation) -> Finding:
    """Return the finding for a violation.

    A violation that ends a job or disables its network fails; others warn.
    """
    grade = failed if violation.fatal else warned
    return grade(
        violation.what,
        subject=violation.names[0],
        found=", ".join(setting.value for setting in violation.settings),
        expected=violation.expected,
        evidence=list(dict.fromkeys(setting.source for setting in violation.settings)),
        quote="\n".join(as_set(setting) for setting in violation.settings[:8]),
    )


def place(node: NodeFacts, site: Site, env: NcclEnvironment | None = None) -> SettingScope:
    """Return the facts on which the effect of the node's NCCL settings depends."""
    env = env or node.nccl_env
    if not any(setting.name.startswith("NCCL_") for setting in env.settings):
        return facts.nccl_settings.SettingScope()
    names = {setting.name: setting.value for setting in (*node.nccl_env.settings, *env.settings)}
    return facts.nccl_settings.SettingScope(
        versions=nccl_versions(node),
        nvlink=known(lambda: has_nvlink(node, site)),
        nvswitch=site.part.nvswitch if site.part is not None else None,
        peer_memory=known(lambda: any(name in node.modules for name in facts.kernel.PEER_MODULES)),
        infiniband=known(lambda: _is_infiniband(node, site)),
        rails_apart=known(lambda: _rails_apart(node, site)),
        libfabric=bool(known(lambda: facts.rdma_ports.all_efa(site.roles(node).compute))),
        ranks=facts.rank_binding.world_size(names),
    )


def nccl_versions(node: NodeFacts) -> tuple[Version, ...]:
    """Return the installed NCCL versions; empty if unknown."""
    bundled = [package.version for package in node.packages if package.name.startswith("nvidia_nccl")]
    system = known(lambda: facts.versions.nccl_in_use(node.libraries)) or {}
    from preflight.facts.nccl_settings.catalogue import version

    found = []
    for text in dict.fromkeys([*bundled, *system.values()]):
        try:
            found.append(version(text))
        except ValueError:
            continue
    return tuple(found)


def has_nvlink(node: NodeFacts, site: Site) -> bool:
    """Return whether NVLink connects the GPUs; raises EvidenceError if unknown."""
    if site.part is not None and site.part.nvswitch:
        return True
    codes = {code for row in node.topology.links.values() for code in row.values()}
    return any(code.startswith("NV") for code in codes)


def _is_infiniband(node: NodeFacts, site: Site) -> bool | None:
    layers = {port.infiniband for port in site.roles(node).compute if port.active}
    return layers.pop() if len(layers) == 1 else None


def _rails_apart(node: NodeFacts, site: Site) -> bool | None:
    """Return whether every RoCE rail has its own subnet.

    None if there are fewer than two rails, or one has no address.
    """
    rails = [port.netdev for port in site.roles(node).compute if port.roce and port.active]
    networks = [{a.network for a in node.addresses.ipv4(rail)} for rail in rails if rail]
    if len(networks) < 2 or not all(networks):
        return None
    return sum(map(len, networks)) == len(set().union(*networks))


def known(fact: Callable[[], T]) -> T | None:
    """Return the value of ``fact``, or None if it is unknown."""
    try:
        return fact()
    except EvidenceError:
        return None
