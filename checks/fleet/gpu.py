"""Checks of GPUs across nodes of one kind, and of multi-node NVLink."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from preflight._startup.lightclass import replace
from preflight.checks.comparison import declared_values
from preflight.checks.comparison.compare import compare, differences
from preflight.checks.comparison.electorate import Electorate, Trait, failing, poll
from preflight.checks.comparison.values import of_gpus
from preflight.checks.gpu import clocks, memory, nvlink_fabric, part, presence, processes, state
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts import system_settings
from preflight.facts.node import NodeFacts
from preflight.model import Finding, Status, check, passed, skipped, unknown

if TYPE_CHECKING:
    from preflight.facts.nvidia.model import GpuHealth


def _count(node: NodeFacts, site: Site) -> str | None:
    return str(len(node.gpus_on_bus)) if node.gpus_on_bus else None


def _on(value: bool | None) -> str:
    return "on" if value else "off"


def _memory(one: GpuHealth) -> str:
    return f"{one.memory_total_mib} MiB"


GPU = (
    Trait("GPU model", "nvml:gpus", of_gpus("name", lambda one: one.name), breaks=True,
          judged_by=(part.same_model, part.right_part), expects="gpu_settings.model", part=True),
    Trait("number of GPUs", "dir:/sys/bus/pci/devices", _count, breaks=True, judged_by=(presence.count,)),
    Trait("GPU memory", "nvml:gpus", of_gpus("memory_total_mib", _memory), breaks=True,
          judged_by=(part.same_model, part.right_part, processes.memory_headroom),
          expects="gpu_settings.memory_mib", form="{} MiB".format, part=True),
    Trait("ECC mode", "nvml:gpus", of_gpus("ecc", lambda one: _on(one.ecc)), judged_by=(memory.ecc_mode,),
          expects="gpu_settings.ecc"),
    Trait("MIG mode", "nvml:gpus", of_gpus("mig", lambda one: _on(one.mig)), breaks=True, judged_by=(state.mig,),
          expects="gpu_settings.mig"),
    Trait("persistence mode", "nvml:gpus", of_gpus("persistence", lambda one: _on(one.persistence)),
          judged_by=(state.persistence,), expects="gpu_settings.persistence"),
    Trait("compute mode", "nvml:gpus", of_gpus("compute_mode", lambda one: one.compute_mode),
          judged_by=(state.compute_mode,), expects="gpu_settings.compute_mode"),
    Trait("power limit", "nvml:gpus", of_gpus("power_enforced_w", lambda one: f"{one.power_enforced_w:g} W"),
          judged_by=(state.power_limit,), expects="gpu_settings.power_limit_w", form="{:g} W".format),
    Trait("application clock", "nvml:gpus",
          of_gpus("application_clock_mhz", lambda one: f"{one.application_clock_mhz} MHz"),
          judged_by=(clocks.clocks,), expects="gpu_settings.application_clock_mhz", form="{} MHz".format),
    Trait("highest SM clock", "nvml:gpus", of_gpus("sm_clock_max_mhz", lambda one: f"{one.sm_clock_max_mhz} MHz"),
          expects="gpu_settings.sm_clock_max_mhz", form="{} MHz".format),
)  # fmt: skip


@check(
    "fleet.gpu-settings",
    title="All nodes have the same GPUs with the same settings",
    fault="A node has different GPUs or GPU settings",
    impact="slows-job",
    source="https://docs.nvidia.com/deploy/nvml-api/ ; majority of at least 3 nodes and 60%",
    fix="Compare `nvidia-smi -q` of a node from each side; decide which is right, and set it: -pl (power), -ac "
    "or -rac (clocks), "
    "-e (ECC), -mig, -pm.",
    action="fix-site",
    answers=("PA-01",),
    scope="fleet",
)
def gpu_settings(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare the GPUs' model, number, memory, modes, power limit and clocks.

    ## Why it matters
    Every step waits for the slowest GPU of the job: one node with a lower power limit or clock slows down all of them.
    A node with less memory, or with MIG instances, ends the job.

    ## Verdicts
    A different model, number, memory or MIG mode fails; other differences warn. GPUs of one model are compared with
    each other; several models in one class of the cluster file fail. A node whose value contradicts the cluster file,
    the catalogue or one of its own checks does not vote on it. A node without GPUs in a class whose other nodes have
    GPUs is unknown, unless the cluster file states the number of GPUs: a node whose GPUs all fell off the bus looks the
    same.

    ## False alarms
    Nodes whose power is capped on purpose for their rack; give them their own class.
    """
    yield from compare(nodes, sites, GPU)
    yield from _mixed(nodes, sites)
    yield from _without_gpus(nodes, sites)


_PART = Trait("GPU model within a class", "dir:/sys/bus/pci/devices", lambda node, site: _part(node, site), breaks=True)


def _part(node: NodeFacts, site: Site) -> str | None:
    """Return the recognised part of a node with GPUs; None if unknown."""
    return site.part.name if site.part and node.gpus_on_bus else None


def _mixed(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Report nodes whose GPU model differs from that of most nodes in their class."""
    classes: dict[str, list[NodeFacts]] = defaultdict(list)
    for node in nodes:
        if sites[node.node].declared_class:
            classes[sites[node.node].class_name].append(node)
    for members in classes.values():
        for finding in differences(_PART, poll(_PART, members, sites)):
            yield replace(
                finding,
                subject="GPU model",
                fix="Give nodes of a different model their own class in the cluster file, or move the card.",
            )


def _without_gpus(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Report nodes without GPUs in a class whose other nodes have some.

    Nodes with a declared number of GPUs are left out.
    """
    classes: dict[str, list[NodeFacts]] = defaultdict(list)
    for node in nodes:
        classes[sites[node.node].class_name].append(node)
    for members in classes.values():
        counts = {node.node: node.remember_for_fleet("GPUs on the bus", _on_bus, node) for node in members}
        having = sum(1 for count in counts.values() if count)
        without = [name for name, count in counts.items() if count == 0 and sites[name].gpus.value is None]
        if not having or not without:
            continue
        expected = sites[without[0]].gpus.key
        yield unknown(
            f"no GPU on the PCI bus; {having} of the {len(members)} nodes of this class have some, and "
            "the expected number is not declared", subject="number of "
                                                           "GPUs", found="0", evidence=["dir:/sys/bus/pci/devices"],
            fix="If it is a GPU node, run `lspci -d 10de:` and power-cycle it. Otherwise give it its own class with "
            f"gpus = 0. {expected} states the number for this class.",
        ).on(without)  # fmt: skip


def _on_bus(node: NodeFacts) -> int | None:
    try:
        return len(node.gpus_on_bus)
    except EvidenceError:
        return None


def _cluster(node: NodeFacts) -> str | None:
    """Return the UUID of the node's NVLink domain; None for a single-node domain."""
    fabrics = [one.fabric for one in node.gpu_health.gpus if one.fabric is not None] if node.gpus_on_bus else []
    return " and ".join(sorted({fabric.cluster_uuid for fabric in fabrics if fabric.multi_node})) or None


def _clique(node: NodeFacts) -> str | None:
    fabrics = [one.fabric for one in node.gpu_health.gpus if one.fabric is not None] if node.gpus_on_bus else []
    return " and ".join(sorted({str(fabric.clique) for fabric in fabrics if fabric.multi_node})) or None


def _imex(node: NodeFacts) -> str | None:
    if not node.evidence.exists(system_settings.IMEX_NODES):
        return None
    return " ".join(sorted(node.parsed(system_settings.IMEX_NODES, system_settings.imex_nodes))) or None


@check(
    "fleet.nvlink-domain",
    title="The nodes of an NVLink domain agree on its members",
    fault="The nodes of an NVLink domain disagree on its members",
    impact="blocks-job",
    source="NVIDIA IMEX service guide (nodes_config.cfg is the same on all nodes of a domain); nvmlGpuFabricInfo_t",
    fix="Write the same /etc/nvidia-imex/nodes_config.cfg on all nodes of the domain, then `systemctl restart "
    "nvidia-imex`. For a wrong cluster UUID, check the fabric manager of the NVLink switches.",
    action="fix-site",
    answers=("GS-1",),
    scope="fleet",
    reads=("file:/etc/nvidia-imex/nodes_config.cfg", "nvml:gpus"),
)
def nvlink_domain(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare cluster UUID, clique and IMEX node list in each NVLink domain.

    Only domains that span nodes are compared.

    ## Why it matters
    Nodes that disagree cannot map each other's memory: NCCL silently falls back to the network, or the job ends with
    "CUDA_ERROR_INVALID_HANDLE" in its first exchange over NVLink.

    ## Verdicts
    Nodes with the same IMEX list must have the same cluster UUID; nodes with the same UUID must have the same list and
    clique. Nodes that differ from the majority fail; without a majority, all nodes of the domain fail. The domain of
    each rack is compared separately. A node that fails gpu.fabric-state does not vote.

    ## False alarms
    A rack that is partitioned on purpose has several cliques under one UUID.
    """
    labels: dict[str, _Labels] = {}
    unread: dict[str, EvidenceError] = {}
    for node in nodes:
        try:
            labels[node.node] = node.remember_for_fleet("NVLink domain", _labels, node, sites[node.node])
        except EvidenceError as error:
            if node.remember_for_fleet("any GPU", _has_gpus, node):
                unread[node.node] = error
            else:
                labels[node.node] = (None, None, None, {})
    apart = [name for name, (uuid, *_) in labels.items() if uuid is None]
    odd: set[str] = set()
    for trait, by, compared in DOMAIN:
        for finding in _agreement(labels, trait, by, compared):
            odd.update(finding.nodes)
            yield replace(finding, fix=_CLIQUE) if trait.what == "clique" and finding.status is Status.FAIL else finding
    if good := [name for name, (uuid, *_) in labels.items() if uuid is not None and name not in odd]:
        yield passed("cluster UUID, clique and IMEX node list are those of the domain's other nodes",
                     evidence=["nvml:gpus", system_settings.IMEX_NODES]).on(good)  # fmt: skip
    if apart:
        yield skipped("no NVLink domain spans these nodes", evidence=["nvml:gpus"]).on(apart)
    for name, refusal in unread.items():
        yield unknown(f"the NVLink domain could not be read: {refusal}", evidence=[refusal.key]).on([name])


#: Next step for a clique, which no file on the nodes sets.
_CLIQUE = (
    "Compare the partitions of the NVLink domain on its switch trays (NMX-C, `fmpm -l`): they set the clique. Then "
    "reset the GPUs of the node (`nvidia-smi -r`)."
)


def _has_gpus(node: NodeFacts) -> bool:
    return bool(node.gpus_on_bus)


#: Cluster UUID, clique and IMEX list; position of each -> the checks that expected another value.
_Labels = tuple["str | None", "str | None", "str | None", "Mapping[int, tuple[str, ...]]"]

#: Each compared value, with the positions in ``_Labels`` of the label that groups nodes, and of the value.
DOMAIN = (
    (
        Trait(
            "cluster UUID", "nvml:gpus", lambda node, site: _cluster(node), breaks=True, expects="nvlink.cluster_uuid"
        ),
        2,
        0,
    ),
    (
        Trait(
            "IMEX node list",
            system_settings.IMEX_NODES,
            lambda node, site: _imex(node),
            breaks=True,
            expects="nvlink.imex_nodes",
        ),
        0,
        2,
    ),
    (Trait("clique", "nvml:gpus", lambda node, site: _clique(node), breaks=True, expects="nvlink.clique"), 0, 1),
)


def _labels(node: NodeFacts, site: Site) -> _Labels:
    uuid = _cluster(node)
    labels = uuid, _clique(node), _imex(node) if uuid else None
    missed = failing((nvlink_fabric.fabric_state,), node, site) if uuid else ()
    by: dict[int, tuple[str, ...]] = {}
    for trait, _, compared in DOMAIN:
        label = labels[compared]
        declared = (declared_values.CHECK,) if label is not None and declared_values.misses(trait, label, site) else ()
        if all_missed := missed + declared:
            by[compared] = all_missed
    return (*labels, by)


def _agreement(labels: Mapping[str, _Labels], trait: Trait, by: int, compared: int) -> Iterator[Finding]:
    groups: dict[str, dict[str, str]] = defaultdict(dict)
    for name, label in labels.items():
        group, value = label[by], label[compared]
        if isinstance(group, str) and isinstance(value, str):
            groups[group][name] = value
    for members in groups.values():
        reported = {name: missed for name in members if (missed := labels[name][3].get(compared, ()))}
        yield from differences(trait, Electorate(
            {name: value for name, value in members.items() if name not in reported},
            {name: value for name, value in members.items() if name in reported}, reported, {},
        ))  # fmt: skip
