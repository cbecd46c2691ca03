"""Fat tree and model of a node class, and validation of its bandwidth floor."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from preflight._startup.lightclass import dataclass
from preflight.evidence import safe_read
from preflight.expectations import schema

if TYPE_CHECKING:
    from preflight.expectations.catalogue import Part
    from preflight.parsers.nccl_tests.model import Report


@dataclass(frozen=True)
class FatTreeTable:
    """The compute fabric: leaves above units of nodes, and spines above the units."""

    unit_nodes: int | None = schema.key(schema.integer(1, 100_000), "nodes under one group of leaves (a scalable unit)")
    unit_leaves: int | None = schema.key(schema.integer(1, 100_000), "leaf switches of a unit")
    units: int | None = schema.key(schema.integer(1, 100_000), "scalable units")
    spines: int | None = schema.key(schema.integer(1, 100_000), "spine switches")
    links_per_spine: int | None = schema.key(schema.integer(1, 1000), "links from each leaf to each spine")
    switch_gbytes_s: float | None = schema.key(
        schema.number(1, 1_000_000), "capacity of a leaf or spine switch, GB/s per direction"
    )
    uplink_gbps: float | None = schema.key(schema.number(1, 6400), "rate of a link between leaf and spine, Gb/s")
    oversubscription: float | None = schema.key(
        schema.number(1, 100), "ratio of a GPU's share at the leaf to that at the spine, by design; 1 is non-blocking"
    )
    sharp: bool | None = schema.key(schema.boolean, "whether the switches reduce (SHARP)")


@dataclass(frozen=True)
class Model:
    """The properties of the trained model that affect the network."""

    gpus: int | None = schema.key(schema.integer(1, 10**6), "GPUs that the job runs on")
    tokens_per_gpu: int | None = schema.key(schema.integer(1, 10**9), "tokens of a batch on each GPU")
    sharding: str | None = schema.key(
        schema.one_of("data", "fsdp"), '"data" for complete replicas, "fsdp" for sharded ones'
    )
    tensor_ways: int | None = schema.key(schema.integer(1, 1024), "GPUs that share a layer")
    feed_forward: int | None = schema.key(schema.integer(1, 10**7), "width of the feed-forward layer")
    experts: int | None = schema.key(schema.integer(1, 100_000), "experts of a mixture")
    active_experts: int | None = schema.key(schema.integer(1, 100_000), "experts that a token uses")
    expert_ways: int | None = schema.key(schema.integer(1, 100_000), "GPUs that share the experts of a layer")


def highest_floor(part: Part, gpus: int | None) -> tuple[float, float] | None:
    """Return the possible and the usual busbw of all_reduce, in GB/s.

    They are those of one node, or of one rack of an NVL72 system; None without a model.
    """
    from preflight.expectations.roofline.collectives import roofline
    from preflight.expectations.roofline.machine import machine_of

    machine = machine_of(part, gpus)
    if machine is None:
        return None
    if machine.domain > machine.gpus:  # a rack of trays
        found = roofline("all_reduce", machine, machine.domain // machine.gpus)
    else:
        found = roofline("all_reduce", machine, 1)
    return (found.limit, found.customary) if found is not None else None


def consistent(reader: schema.TableReader, name: str, members: Any, part: Part | None) -> None:
    """Add errors for contradictions in a class, such as a floor that no run reaches.

    The floor is compared with the busbw that the hardware can reach.
    """
    floor = members.thresholds.all_reduce_busbw_gbytes_s
    if floor is not None and part is not None and (known := highest_floor(part, members.gpus)) is not None:
        limit, customary = known
        if floor > limit:
            reader.add_error(
                ("class", name, "thresholds", "all_reduce_busbw_gbytes_s"),
                f"is {floor:g} GB/s, more than {part.name} can reach: {limit:.0f} GB/s over its NVLink",
                f"set the value of a good node, usually about {customary:.0f}",
            )
    tree = members.tree
    values = [getattr(tree, field) for field in ("unit_nodes", "unit_leaves", "units", "spines", "links_per_spine")]
    if any(value is not None for value in values[1:]) and None in values:  # `preflight plan` needs unit_nodes alone
        reader.add_error(
            ("class", name, "tree"), "describes the tree only partially",
            "set unit_nodes, unit_leaves, units, spines and links_per_spine",
        )  # fmt: skip
    model = members.model
    if model.experts is not None and (model.active_experts is None or model.active_experts > model.experts):
        reader.add_error(
            ("class", name, "model", "experts"), "needs the number of experts that a token uses",
            "add active_experts, at most experts",
        )  # fmt: skip
    if model.expert_ways is not None and (model.experts is None or model.expert_ways > model.experts):
        reader.add_error(
            ("class", name, "model", "expert_ways"), "exceeds the number of experts",
            "set experts, and expert_ways to at most that number",
        )  # fmt: skip


def baseline(reader: schema.TableReader, name: str, file: str | None, path: str) -> tuple[Report, ...]:
    """Read the nccl-tests output of a good run; adds errors.

    A relative file name is resolved against the folder of the cluster file.
    """
    if file is None:
        return ()
    from preflight.parsers.nccl_tests import text

    where, key = Path(path).parent / file, ("class", name, "baseline")
    try:
        if where.exists() and not where.is_file():
            raise OSError(0, "it is not a regular file")
        found = text.parse(safe_read.content(where, safe_read.BY_HAND).decode("utf-8", "replace"))
    except OSError as error:
        reader.add_error(key, f"{where} cannot be read: {error.strerror}", "correct the path")
        return ()
    complete = tuple(report for report in found if report.complete and report.rows)
    if not complete:
        reader.add_error(key, f"{where} has no complete report of nccl-tests", "save the output of a good run in it")
    return complete
