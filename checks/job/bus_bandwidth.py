"""Check of nccl-tests bandwidth against the hardware's limits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from preflight import parsers
from preflight._startup.lightclass import replace
from preflight.checks.job.benchmark_scale import short
from preflight.checks.job.nccl_tests import (
    GIB,
    MIB,
    no_measurement,
    no_report,
    over,
    reports,
    size_of,
    so_far,
    text_of,
)
from preflight.expectations import Site
from preflight.expectations.catalogue import PARTS, GpuModel, Part
from preflight.expectations.roofline.bound import RooflineVerdict, judge, proof
from preflight.expectations.roofline.collectives import SOURCE, Roofline, roofline
from preflight.expectations.roofline.machine import RooflineMachine, gpu_named, machine_of, switches_reduce
from preflight.facts.job import RunFacts
from preflight.model import Finding, Status, check, compare, counted, failed, passed, unknown, warned

if TYPE_CHECKING:
    from preflight.parsers.nccl_tests.text import Best, Report


@check(
    "nccl-tests.busbw",
    title="nccl-tests reaches the bus bandwidth of this hardware",
    fault="nccl-tests stays below the bus bandwidth of this hardware",
    impact="slows-job",
    source=f"{SOURCE}; a floor in the cluster file takes precedence",
    fix="Look at nccl.transport and nccl.gpudirect-rdma in `preflight check --log FILE`; then compare clocks, NVLink "
    "and HCAs with a good node.",
    answers=("NT-NCCL-3", "GS-3", "PA-25"),
    scope="run",
    unless=(no_report,),
)
def busbw(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the best bus bandwidth of large messages with the hardware's.

    ## Why it matters
    All ranks wait for the slowest path: one rail or NVLink that runs at half its rate halves the collective's bandwidth
    and lengthens every training step.

    ## Verdicts
    The best row is used, out of place or in place; the printed average includes tiny sizes and is a different number.
    For all_reduce, a floor in the cluster file decides. Otherwise, at least 0.90 of the usual bandwidth of such
    machines passes, at least 0.75 warns, and less fails; if NICs or the part are assumed, less only warns. More than
    the line rate is reported as *impossible*: check the labels. NVLink SHARP is taken into account only for types and
    operations that NVSwitches reduce. Without an expected value, a run below half of the best of the same runs in one
    log warns. Runs with small messages, or with fewer GPUs than the node has, are not judged.

    ## False alarms
    An algorithm or transport that was pinned on purpose with NCCL_ALGO or NCCL_NET.
    """
    listed = list(reports(run))
    fastest = _fastest(listed)
    for key, name, report in listed:
        best = report.best()
        finding = _beside(_busbw(run, key, name, report, site), name, report, fastest.get(_alike(key, report), 0.0))
        quote = text_of(run, key, best.row.line) if best else ""
        large = finding.status is not Status.PASS or not short(report, site)
        items = ("NT-NCCL-3", "GS-3", "PA-25") if report.collective == "alltoall" and large else ("NT-NCCL-3", "GS-3")
        yield replace(finding, subject=name, evidence=(key,), quote=finding.quote or quote, answers=items)


#: Share of the best of the same runs in one log below which a run is slow: a judgement call.
_OF_THE_BEST = 0.5


def _alike(key: str, report: Report) -> tuple[object, ...]:
    """Return what runs of the same command in one log have in common."""
    size = max((row.bytes for row in report.rows), default=0)
    return key, report.collective, report.nranks, report.nnodes, report.groups, size, report.device_names


def _fastest(listed: Sequence[tuple[str, str, Report]]) -> dict[tuple[object, ...], float]:
    """Return the best bus bandwidth among the runs of each command."""
    fastest: dict[tuple[object, ...], float] = {}
    for key, _, report in listed:
        if report.complete and (best := report.best()) is not None:
            same = _alike(key, report)
            fastest[same] = max(fastest.get(same, 0.0), best.busbw_gbytes_s)
    return fastest


def _beside(finding: Finding, name: str, report: Report, fastest: float) -> Finding:
    """Warn instead of *unknown* if another run of the command is much faster."""
    best = report.best()
    if finding.status is not Status.UNKNOWN or best is None or not report.complete:
        return finding
    own = best.busbw_gbytes_s
    if report.nranks in (None, 1) or finding.found != f"{own:g} GB/s" or own >= _OF_THE_BEST * fastest:
        return finding
    return warned(
        f"{name}: best busbw at {size_of(best.row.bytes)} over {over(report)}: found {own:g} GB/s, but another run of "
        f"the same test in this log reached {fastest:g} GB/s",
        found=f"{own:g} GB/s", expected=f"about {fastest:g} GB/s",
        fix="Find what these runs share: a node, a rail, or a NIC (`preflight bench` compares pairs of nodes).",
    )  # fmt: skip


def _busbw(run: RunFacts, key: str, name: str, report: Report, site: Site) -> Finding:
    if report.average_ok is False:
        return failed(
            f"{name}: the printed average of {report.average_busbw_gbytes_s:g} GB/s is below NCCL_TESTS_MIN_BW",
            found=f"{report.average_busbw_gbytes_s:g} GB/s, mean over all sizes",
            expected="the run's own NCCL_TESTS_MIN_BW",
        )
    if not report.complete:
        return unknown(f"{name}: the run did not finish: {so_far(report)}", fix="let it run to completion")
    if report.copies > 1 or report.nranks == 1:
        each = "one rank" if report.nranks == 1 else f"{report.nranks} ranks"
        runs = f"{report.copies} runs of {each} each" if report.copies > 1 else "one rank"
        moved = "no data moved between GPUs" if report.nranks == 1 else "no run spans all of them"
        message = f"{name}: {runs}, so {moved}"
        fix = "under mpirun, build nccl-tests with MPI=1; otherwise set -g to the number of GPUs"
        return unknown(message, found=runs, expected="one run of all ranks", fix=fix)
    if row := report.unmeasured:
        return unknown(
            no_measurement(name, row), found="no rate", quote=text_of(run, key, row.line), fix="run it again"
        )
    nranks = report.nranks if report.groups == 1 else None
    if wrong := parsers.nccl_tests.collective.contradictions(report.rows, report.collective, nranks):
        return unknown(f"{name}: the columns contradict each other: {wrong[0]}", fix="check the original output")
    built = machine(report, site, run, key)
    roof = roofline(report.collective or "", built, report.nnodes or 1) if isinstance(built, RooflineMachine) else None
    floor_bytes = roof.smallest if roof else GIB if report.nnodes is not None and report.nnodes > 1 else 256 * MIB
    best = report.best(floor_bytes)
    if best is None:
        largest = max((row.bytes for row in report.rows), default=0)
        message = f"{name}: the largest message has {size_of(largest)}, expected at least {size_of(floor_bytes)}"
        return unknown(message, fix=f"run it again with `-b 8 -e {max(8 * GIB, floor_bytes) // GIB}G -f 2`")
    return _judged(run, key, name, report, site, best, built, roof)


def _judged(
    run: RunFacts, key: str, name: str, report: Report, site: Site, best: Best, built: RooflineMachine | str,
    roof: Roofline | None,
) -> Finding:  # fmt: skip
    found = f"{best.busbw_gbytes_s:g} GB/s"
    what = f"{name}: best busbw at {size_of(best.row.bytes)} over {over(report)}"
    floor = site.threshold("all_reduce_busbw_gbytes_s")
    judged = (
        judge(best.busbw_gbytes_s, roof, built) if roof is not None and isinstance(built, RooflineMachine) else None
    )
    if judged is not None and roof is not None and judged.word == "impossible":
        return unknown(
            f"{what}: found {found}, more than the {roof.limit:.0f} GB/s that are possible",
            found=found,
            expected=f"at most {roof.limit:.0f} GB/s ({_line(roof)})",
            fix="check the number of GPUs and NICs, their rates, and what was pasted: ports.rate_gbps, hcas, part",
        )
    unfit = _unfit(report, site)
    if floor.value is not None and report.collective == "all_reduce" and not unfit:
        if roof is not None and floor.value > roof.limit:
            message = (
                f"{what}: found {found}, but the declared floor of {floor.value:g} GB/s is more than the "
                f"{roof.limit:.0f} GB/s that are possible"
            )
            return unknown(message, found=found, fix=f"correct it in the cluster file: {floor.key} = ...")
        finding = compare(best.busbw_gbytes_s, floor, what=what, at_least=True, unit="GB/s")
        if judged is None or roof is None:
            return finding
        message = f"{finding.message}; {_ratio(judged, roof)}"
        return replace(finding, message=message, quote=_figures(report, best, roof))
    if judged is None or roof is None or not isinstance(built, RooflineMachine) or unfit:
        why = unfit or (f" ({built})" if isinstance(built, str) else f" for {report.collective} here")
        if _is_of_a_slow_network(best, report):
            return warned(
                f"{what}: found {found}, no more than {_SLOW_GBYTES_S * 8:g} Gb/s between nodes: one slow port, "
                f"or TCP instead of RDMA; the expected value is unknown{why}",
                found=found,
                expected=f"more than {_SLOW_GBYTES_S:g} GB/s between nodes of {report.device_names[0]}",
            )
        message = f"{what}: found {found}, but no expected value is declared{why}"
        return unknown(message, found=found, fix=f"declare it in the cluster file: {floor.key} = ...")
    assumed = (
        "" if roof.nics is None or _certain(site, report) else "; NICs are assumed: declare hcas and ports.rate_gbps"
    )
    expected = f"about {roof.customary:.0f} GB/s ({_line(roof)}{assumed})"
    if judged.word == "as expected":
        message = f"{what}: {found}, {_ratio(judged, roof)}{proof(best.busbw_gbytes_s, roof, built)}"
        finding = passed(message, found=found)
        return replace(finding, expected=expected)
    causes = [*_causes_in_log(run, key), *judged.causes]
    grade = failed if judged.fails and _certain(site, report) else warned
    return grade(
        f"{what}: found {found}, {_ratio(judged, roof)}; likely cause: {causes[0]}",
        found=found,
        expected=expected,
        fix=f"{'Check these causes in order' if len(causes) > 1 else 'Check this cause'}: {'; '.join(causes)}.",
        quote=_figures(report, best, roof),
    )


#: Bus bandwidth of 100 Gb/s, in GB/s: nodes with SXM boards have at least that much for each GPU.
_SLOW_GBYTES_S = 12.5


def _is_of_a_slow_network(best: Best, report: Report) -> bool:
    """Return whether nodes of SXM boards exchange data at 100 Gb/s or less."""
    if (report.nnodes or 1) < 2 or report.groups > 1 or report.collective in (None, "sendrecv", "alltoall"):
        return False
    gpu = gpu_named(report.device_names[0]) if len(report.device_names) == 1 else None
    return any(part.gpu is gpu and part.nvswitch for part in PARTS) and best.busbw_gbytes_s <= _SLOW_GBYTES_S


def _ratio(judged: RooflineVerdict, roof: Roofline) -> str:
    line = f"line rate {roof.wire.line:.0f} GB/s, bound by {roof.wire.name}"
    return f"{100 * judged.ratio:.0f}% of the expected {roof.customary:.0f} GB/s ({line})"


def _line(roof: Roofline) -> str:
    return f"bound by {roof.wire.name}, line rate {roof.wire.line:.0f} GB/s, possible {roof.limit:.0f} GB/s"


def _figures(report: Report, best: Best, roof: Roofline) -> str:
    """Format the measured and the usual time of each of the largest sizes."""
    wanted = parsers.nccl_tests.collective.factor(roof.collective, roof.ranks)
    if wanted is None:
        return ""
    lines = [f"line {best.row.line} is the best; usual times for {roof.wire.name}:"]
    for point in parsers.nccl_tests.curve.curve(report.rows)[-6:]:
        usual = roof.seconds(point.bytes, wanted) * 1e6
        lines.append(f"{size_of(point.bytes)} in {point.time_us:g} us, usually {usual:.0f} us")
    return "\n".join(lines)


def _certain(site: Site, report: Report) -> bool:
    """Return whether the part is known, and for several nodes the NICs as well."""
    if site.part is None:
        return False
    if report.nnodes == 1:
        return True
    declared = site.members.ports
    return declared.rate_gbps is not None and (site.hcas.value is not None or declared.compute is not None)


def _unfit(report: Report, site: Site) -> str:
    """Return why no expectation fits this run; empty if one does."""
    gpus = site.gpus.value
    if report.collective is None:
        return " for an unnamed collective"
    if report.groups > 1:
        return f" for {report.groups} separate communicators"
    if report.nnodes is None or report.nranks is None:
        return " for a run without its list of devices"
    if gpus is not None and report.nranks != gpus * report.nnodes:
        return f" for {report.nranks} GPUs on {counted(report.nnodes or 1, 'node')} of {gpus}"
    return ""


def machine(report: Report, site: Site, run: RunFacts, key: str) -> RooflineMachine | str:
    """Return the machine of a run, or the reason why it is unknown.

    The cluster file and the node's part take precedence; otherwise the GPU's CUDA name identifies complete boards.
    """
    ranks, nodes = report.nranks, report.nnodes
    if not ranks or not nodes or ranks % nodes:
        return "the list of devices is missing, or its nodes differ"
    part, gpus = site.part, ranks // nodes
    if part is None:
        gpu = gpu_named(report.device_names[0]) if len(report.device_names) == 1 else None
        part = _board(gpu, gpus) if gpu is not None else None
    if part is None:
        return "the part is not known: declare part = ... in the cluster file"
    nics = nics_of(site, gpus)
    rate = site.rate_of_each(nics or 0, gpus).value
    built = machine_of(part, gpus, nics if rate is not None else None, rate)
    if built is None:
        return f"{part.name}: NVLink does not connect its GPUs; not supported"
    if nodes > 1 and built.node_nics is None and built.domain == built.gpus:
        return "the NICs are not known: declare hcas = ... and ports.rate_gbps = ... in the cluster file"
    sharp = site.members.tree.sharp
    if sharp is None and site.link_layer.value == "Ethernet":
        sharp = False
    log = run.nccl_logs.get(key)
    pinned = log.variable("NCCL_ALGO") if log is not None else None
    ring = pinned is not None and pinned.value.strip(". ").lower() in ("ring", "allreduce:ring")
    in_switch = any(switches_reduce(row.dtype, row.redop) for row in report.rows)
    return replace(built, sharp=sharp, nvls=False if ring or not in_switch else None)


def nics_of(site: Site, gpus: int | None) -> int | None:
    """Return the number of compute NICs of a node; None if unknown.

    Without a declaration, a known part counts as having one NIC per GPU.
    """
    if site.hcas.value is not None:
        return int(site.hcas.value)
    if site.members.ports.compute is not None:
        return len(site.members.ports.compute)
    return gpus if site.part is not None else None


def _board(gpu: GpuModel, gpus: int) -> Part | None:
    """Return the part with this many GPUs of a model.

    None if they may be some of the GPUs of a larger board.
    """
    return next((part for part in PARTS if part.gpu is gpu and part.gpus == gpus and part.nvswitch), None)


def _causes_in_log(run: RunFacts, key: str) -> Iterator[str]:
    """Yield causes of a slow transport that the log itself shows.

    They take precedence over any guess from a figure.
    """
    if (log := run.nccl_logs.get(key)) is None:
        return
    if any(parsers.nccl_log.is_tcp(network) for network in log.network_names):
        yield "TCP sockets carry the traffic according to the log (nccl.transport)"
    elif log.channels and all(channel.gpudirect is False for channel in log.channels):
        yield "no channel uses GPUDirect RDMA according to the log (nccl.gpudirect-rdma)"
    off = log.variable("NCCL_NVLS_ENABLE")
    if off is not None and off.value.strip(". ") == "0":
        yield "NCCL_NVLS_ENABLE=0 according to the log"
    blocked = log.variable("NCCL_P2P_DISABLE")
    if blocked is not None and blocked.value.strip(". ") == "1":
        yield "NCCL_P2P_DISABLE=1 according to the log"
