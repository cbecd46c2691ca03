"""Check of NCCL's SHARP plug-in on the node."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from preflight.checks.applicability import RDMA_CLASS, no_gpu, no_rdma
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.nccl_environment import PROCESS
from preflight.facts.node import NodeFacts
from preflight.facts.sharp_files import FILES, SharpPlugin, on_the_path, plugin
from preflight.model import Finding, check, failed, passed, skipped, unknown, warned


def no_infiniband(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a node whose compute ports are not InfiniBand."""
    ports = site.roles(node).compute
    if not ports or any(port.infiniband for port in ports):
        return None
    return skipped("the compute ports are not InfiniBand, which SHARP needs", evidence=[RDMA_CLASS])


@check(
    "nccl.sharp-plugin",
    title="NCCL's SHARP plug-in is complete and in the loader's path",
    fault="NCCL's SHARP plug-in is incomplete",
    impact="slows-job",
    source="https://github.com/Mellanox/nccl-rdma-sharp-plugins; HPC-X manual, NCCL-RDMA-SHARP plugins; ld.so(8)",
    fix="Load HPC-X in the job (`source hpcx-init.sh; hpcx_load`), or add the folders of libnccl-net.so and "
    "libsharp_coll.so to LD_LIBRARY_PATH.",
    action="fix-job",
    answers=("NT-SHP-3",),
    gating=False,  # NCCL continues without SHARP
    unless=(no_gpu, no_rdma, no_infiniband),
)
def sharp_plugin(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for the SHARP plug-in and its library on the loader path.

    They are libnccl-net.so and libsharp_coll.so.

    ## Why it matters
    If either is missing, NCCL silently uses its own InfiniBand transport, and the switches reduce nothing.

    ## Verdicts
    A plug-in without its library, or an empty file for either, warns; it fails if NCCL_COLLNET_ENABLE=1 requests SHARP.
    A missing plug-in warns if SHARP is requested. If both exist outside the loader's path, the result is unknown,
    because the job may set LD_LIBRARY_PATH; so is a plug-in outside SHARP's folders, which may belong to another
    network. The check does not apply if neither is installed or requested, or if the compute fabric is not InfiniBand.
    The check searches /opt to a depth of four and the usual folders, and loads no library.

    ## False alarms
    A plug-in with a RUNPATH to a library elsewhere; an image that contains both, checked from its host.
    """
    found, requested = plugin(node), node.nccl_env.integer("NCCL_COLLNET_ENABLE") == 1
    if not found.plugins:
        yield _none(found, requested)
        return
    grade: Any = failed if requested else warned
    empty = [one for one in (*found.plugins, *found.libraries) if one.size_bytes == 0]
    at = found.plugins[0].path
    if empty:
        yield grade(f"{empty[0].path} is an empty file", subject=empty[0].path, found="0 bytes",
                  expected="a shared library", evidence=[FILES])  # fmt: skip
    elif not found.libraries:
        yield grade(f"{at} is installed, but libsharp_coll.so, which it loads, is not", subject=at,
                  found="no libsharp_coll.so", expected="libsharp_coll.so.5 or the like", evidence=[FILES])  # fmt: skip
    else:
        yield _loadable(node, found)


def _none(found: SharpPlugin, requested: bool) -> Finding:
    if found.others:
        message = f"{found.others[0].path} is a network plug-in, but it is not known whether it is SHARP's"
        return unknown(
            message, evidence=[FILES], fix="run `ldd` on it in the job's environment, or read the job's NCCL log"
        )
    if requested:
        return warned("NCCL_COLLNET_ENABLE=1 requests SHARP, but no SHARP plug-in is installed", found="no plug-in",
                      expected="libnccl-net.so of nccl-rdma-sharp-plugins", evidence=[FILES, PROCESS])  # fmt: skip
    # a job may still request it: the checklist item stays open
    return skipped("no SHARP plug-in is installed or requested", evidence=[FILES, PROCESS]).about()


def _loadable(node: NodeFacts, found: SharpPlugin) -> Finding:
    try:
        search = node.environment.get("LD_LIBRARY_PATH", "")
    except EvidenceError:
        search = ""
    loaded = [on_the_path(libraries, search) for libraries in (found.plugins, found.libraries)]
    if all(loaded):
        paths = ", ".join(one.path for one in loaded if one)
        return passed(f"the loader finds {paths}", found=paths, evidence=[FILES, PROCESS])
    missed = (found.plugins if loaded[0] is None else found.libraries)[0].path
    return unknown(f"{missed} is installed, but not on the loader's path; a job may set LD_LIBRARY_PATH",
                   evidence=[FILES, PROCESS], fix="run `preflight check` inside the job")  # fmt: skip
