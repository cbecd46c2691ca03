"""The plan of a described job on a described cluster."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property

from preflight._startup.lightclass import replace
from preflight.expectations import Site
from preflight.expectations.roofline_table import FatTreeTable
from preflight.facts.job_description import JobDescription
from preflight.layout import hardware as hardware_module
from preflight.layout.description import REQUIRED, Described, describe
from preflight.layout.hardware import Fabric, Hardware, at_places, hardware_of, of_nodes
from preflight.layout.job import LayoutError, TrainingJob
from preflight.layout.measured import with_measurements
from preflight.layout.memory import Memory, memory
from preflight.layout.placement import RankPlacement
from preflight.layout.rank_map import RankMap, dense_map, expert_map
from preflight.layout.step import Step, segmented, step
from preflight.nodeset import fold
from preflight.parsers.job_config import hostfile
from preflight.parsers.job_config.settings import JobConfigError
from preflight.parsers.nccl_tests.model import Report

#: The fix if the cluster is unknown.
NAME_CLUSTER = 'name the cluster: --on "64 x HGX H100, rail-optimised, 1:1", or --cluster FILE with `part` and `nodes`'


class Plan:
    """The plan of a job on a cluster, as far as both are known."""

    def __init__(
        self, description: JobDescription, site: Site, reports: Mapping[str, Sequence[Report]] | None = None
    ) -> None:
        self.settings = description.settings
        self.hardware, self.no_hardware, self._no_order = _hardware(description, site)
        #: Notes about input that the plan does not use.
        self.ignored = _ignored(description, site)
        self._hostfile = description.hostfile[0] if description.hostfile is not None else ""
        fewer = description.settings.values.get("gpus_per_node")
        if self.hardware is not None and fewer is not None and 0 < fewer.value < self.hardware.machine.gpus:
            self.hardware = replace(self.hardware, ranks_per_node=fewer.value)
        gpus = self.hardware.gpus if self.hardware is not None else None
        each = self.hardware.each if self.hardware is not None else None
        self.described: Described = describe(description.settings, gpus, each)
        if (
            self.hardware is not None
            and description.hostfile is None
            and (stated := self.described.values.get("distribution"))
        ):
            self.hardware = replace(self.hardware, distribution=stated)
        self.measured: Mapping[str, str] = {}
        self.unused: Sequence[str] = ()
        if self.hardware is not None and reports:
            self.hardware, self.measured, self.unused = with_measurements(self.hardware, reports)
        self.placement, self.unplaced = self._placed()

    @property
    def job(self) -> TrainingJob | None:
        """The job; None if a setting is missing or the numbers are inconsistent."""
        return self.described.job

    def _placed(self) -> tuple[RankPlacement | None, str]:
        """Return the placement of the ranks, or None and the reason."""
        if self.job is None:
            return None, self.why_no_job
        if self.hardware is None or self._no_order:
            return None, self.no_hardware or self._no_order
        try:
            return RankPlacement(segmented(self.hardware, self.job), self.job.gpus), ""
        except LayoutError as error:
            return None, str(error)

    @cached_property
    def dense(self) -> RankMap | None:
        """The rank numbering for dense layers; None without a job."""
        return dense_map(self.job) if self.job is not None else None

    @cached_property
    def experts(self) -> RankMap | None:
        """The rank numbering for experts; None without a job."""
        return expert_map(self.job) if self.job is not None else None

    @cached_property
    def memory(self) -> Memory | None:
        """The memory of the most loaded GPU; None without a job."""
        return memory(self.job) if self.job is not None else None

    @cached_property
    def step(self) -> Step | str:
        """The time of a step, or the reason why it cannot be computed."""
        if self.job is None:
            return self.why_no_job
        if self.hardware is None:
            return self.no_hardware
        try:
            return step(self.job, self.hardware)
        except LayoutError as error:
            return str(error)

    @property
    def why_no_job(self) -> str:
        """The message about missing or inconsistent settings."""
        if self.described.missing:
            wanted = ", ".join(f"{name} ({REQUIRED.get(name, name)})" for name in self.described.missing)
            return f"the job does not state {wanted}"
        return "the numbers of the job are inconsistent"

    @property
    def fix_unplaced(self) -> str:
        """The fix if the placement of the ranks is unknown."""
        if self.hardware is None:
            return NAME_CLUSTER
        return f"correct {self._hostfile}" if self._hostfile else "state the order of the ranks: --hostfile FILE"

    @property
    def fix_no_job(self) -> str:
        """The fix for missing or inconsistent settings."""
        if self.described.missing:
            return "state it: " + " ".join(f"--set {name}=..." for name in self.described.missing)
        return "correct the sizes of the groups, the batch or the number of GPUs"


def _hardware(description: JobDescription, site: Site) -> tuple[Hardware | None, str, str]:
    """Return the cluster (or None), why it is unknown, why the rank order is unknown."""
    try:
        made = _cluster(description, site)
    except LayoutError as error:
        return None, str(error), ""
    why = ""
    if description.hostfile is not None:
        try:
            made = _in_order(made, *description.hostfile)
        except (LayoutError, JobConfigError) as error:
            why = str(error)
    return made if description.on else at_places(made, description.racks, description.leaves), "", why


def _cluster(description: JobDescription, site: Site) -> Hardware:
    """Return the cluster from --on, the evidence or the cluster file.

    Raises LayoutError if it is unknown.
    """
    if description.on:
        return hardware_module.described(description.on)
    members = site.members
    tree = members.tree
    if description.nodes:
        declared = tree.oversubscription
        made = of_nodes(description.nodes, declared if declared is not None else description.oversubscription)
        source = f"evidence of {fold(made.names)}"
        return replace(made, source=f"{source}, {site.path}" if declared is not None else source)
    if site.part is None:
        raise LayoutError("the cluster is not known")
    gpus = site.gpus.value
    hcas = site.hcas.value if site.hcas.value is not None else len(members.ports.compute or ()) or gpus
    listed = _members(description.chosen, members.nodes, site.path)
    units = tree.unit_nodes
    made = hardware_of(
        site.part, len(listed) or (units * (tree.units or 1) if units else None),
        gpus=gpus, nics=hcas, nic_gbps=site.rate_of_each(hcas or 0, gpus or 0).value,
    )  # fmt: skip
    ratio = tree.oversubscription if tree.oversubscription is not None else _ratio(tree, hcas, made.machine.nic_gbps)
    fabric = Fabric(units, True if members.rails else None, ratio)
    return replace(made, fabric=fabric, names=tuple(listed), source=site.path)


def _ignored(description: JobDescription, site: Site) -> Sequence[str]:
    """Return a note if --on replaces the cluster file's nodes."""
    if description.on and site.part is not None:
        return [f"{site.path}: its nodes and tree are ignored, because --on defines the cluster"]
    return ()


def _members(chosen: Sequence[str], declared: Sequence[str] | None, path: str) -> Sequence[str]:
    """Return the chosen nodes, or, if there are none, those of the cluster file.

    Raises LayoutError if a chosen node is not in the cluster file.
    """
    if chosen and declared and (foreign := sorted(set(chosen) - set(declared))):
        raise LayoutError(f"not among the nodes of {path}: {fold(foreign)}")
    return chosen or declared or ()


def _ratio(tree: FatTreeTable, nics: int | None, nic_gbps: float | None) -> float | None:
    """Return the bandwidth ratio of a leaf's host links to its uplinks, or None."""
    if not (nics and tree.unit_nodes and tree.unit_leaves and tree.spines and tree.links_per_spine):
        return None
    faster = tree.uplink_gbps / nic_gbps if tree.uplink_gbps and nic_gbps else 1.0
    return max(1.0, tree.unit_nodes * nics / tree.unit_leaves / (tree.spines * tree.links_per_spine * faster))


def _in_order(made: Hardware, source: str, text: str) -> Hardware:
    """Return the cluster with its nodes and ranks in the order of a hostfile.

    Raises LayoutError if it does not fit the cluster, or JobConfigError.
    """
    each = made.machine.gpus
    names, order = hostfile.parse(text, source, each)
    short = {name.partition(".")[0]: name for name in made.names}
    names = tuple(short.get(name.partition(".")[0], name) if made.names else name for name in names)
    if made.names and (foreign := [name for name in names if name not in made.names]):
        raise LayoutError(f"{source}: not among the nodes of {made.source}: {fold(foreign)}")
    if not made.names and made.nodes is not None and len(names) > made.nodes:
        raise LayoutError(f"{source}: lists {len(names)} nodes, but the cluster has {made.nodes}")
    most = Counter(order).most_common(1)[0]
    if most[1] > each:
        raise LayoutError(f"{source}: {names[most[0]]} has {most[1]} slots, but only {each} GPUs")
    in_blocks = order == tuple(node for node in range(len(names)) for _ in range(each))
    return replace(made, nodes=len(names), names=names, order=() if in_blocks else order, distribution="block",
                   source=f"{source}; {made.source}")  # fmt: skip
