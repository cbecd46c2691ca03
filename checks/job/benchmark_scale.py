"""Comparison of a benchmark's scale with that of the job."""

from __future__ import annotations

from collections.abc import Sequence
from os.path import basename
from typing import TYPE_CHECKING

from preflight.checks.job.nccl_tests import GIB, MIB, over, size_of
from preflight.expectations import Site
from preflight.model import counted

if TYPE_CHECKING:
    from preflight.parsers.nccl_tests.text import Report

DECLARE = "declare the job in the cluster file ([class.NAME.model] gpus = ...), then run nccl-tests over as many GPUs"

#: The four collectives of training.
ALL = ("all_reduce", "all_gather", "reduce_scatter", "alltoall")


def wanted(site: Site) -> tuple[int, str] | None:
    """Return the job's number of GPUs and its source; None if it is not declared.

    The job's own number takes precedence over all GPUs of the class.
    """
    place = f"{basename(site.path)} class.{site.class_name}"
    if site.members.model.gpus is not None:
        return site.members.model.gpus, f"{place}.model.gpus"
    nodes, gpus = site.members.nodes, site.gpus.value
    return (len(nodes) * gpus, f"{place}: {len(nodes)} nodes of {gpus}") if nodes and gpus else None


def short(report: Report, site: Site) -> str:
    """Return why a complete run does not cover the job; empty if it does."""
    scale = wanted(site)
    if report.groups > 1:
        return f"measured over {over(report)}, in {report.groups} separate communicators, none of which spans all GPUs"
    if report.nranks is None:
        return "the log does not state the number of GPUs"
    if scale is None:
        return f"measured over {over(report)}; the job's number of GPUs is not declared"
    if report.nranks < scale[0]:
        return f"measured over {over(report)}; the job runs over {counted(scale[0], 'GPU')} ({scale[1]})"
    least = GIB if (report.nnodes or 1) > 1 else 256 * MIB
    largest = max((row.bytes for row in report.rows), default=0)
    if largest >= least:
        return ""
    return f"measured over {over(report)}, with messages up to {size_of(largest)}, less than {size_of(least)}"


def levels(reports: Sequence[Report]) -> tuple[list[str], list[str]]:
    """Return the collectives not measured within a node, and those not across nodes."""
    complete = [one for one in reports if one.complete and one.copies == 1 and one.groups == 1 and one.nranks != 1]
    inside = {one.collective for one in complete if one.nnodes == 1}
    above = {one.collective for one in complete if one.nnodes is not None and one.nnodes > 1}
    return [one for one in ALL if one not in inside], [one for one in ALL if one not in above]
