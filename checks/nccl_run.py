"""A run's logs: which way the traffic took, and what nccl-tests measured."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from preflight import facts
from preflight.cluster import Site
from preflight.facts import RunFacts
from preflight.model import Finding, check, compare, failed, passed, skipped, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.nccl_log import Line, NcclLog
    from preflight.facts.nccl_tests import Report

TROUBLESHOOTING = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting.html"
PERFORMANCE = "https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"
ASK = "run again with NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET,GRAPH,ENV"

MIB, GIB = 2**20, 2**30


def _name(key: str) -> str:
    return key.removeprefix("log:")


def _quote(*lines: Line | None) -> str:
    """Return lines with their numbers, in order, at most 600 characters."""
    said = sorted({line for line in lines if line is not None}, key=lambda line: line.number)
    return "\n".join(str(line) for line in said)[:600]


def _nodes(run: RunFacts, key: str) -> int | None:
    """Number of nodes of a log: NCCL's own word, else the hosts of the nccl-tests reports in it."""
    if (log := run.nccl_logs.get(key)) is not None and log.nnodes is not None:
        return log.nnodes
    return max((report.nnodes for report in run.nccl_tests.get(key, ()) if report.nnodes), default=None)


def _no_nccl(run: RunFacts) -> Iterator[Finding]:
    """Say that no log tells anything of NCCL's transports; nothing where one does."""
    if not run.logs:
        yield unknown("no log was given", fix="give the job's log: --log FILE")
    elif not run.nccl_logs:
        yield unknown("no line of NCCL in any log", evidence=run.logs, fix=ASK)


def _traffic(nodes: int | None) -> str:
    return f"the traffic of {nodes} nodes" if nodes else "the network traffic"


# --- transport -------------------------------------------------------------------------------------


@check(
    "nccl.transport",
    title="Traffic between nodes takes RDMA, not TCP",
    source=f"{TROUBLESHOOTING}; line formats as in NCCL 2.4 … 2.30",
    fix="Set NCCL_NET=IB so that a run fails rather than falls back, then cure the first cause that the log states.",
    answers=("NT-NCCL-1", "NT-NCCL-2", "NT-LENS-3", "NT-PIT-2"),
    scope="run",
)
def transport(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the network that NCCL's log shows in use between nodes with InfiniBand, RoCE or a plug-in.

    NCCL falls back to TCP without an error: the job runs, at a tenth of the fabric's bandwidth, and
    its CPUs copy what the HCAs should.

    Channel lines ("via NET/X") decide; without them "Using network X" does. That a transport was initialised or
    a plug-in loaded is no use of it. One node needs no network, whatever NCCL chose.

    A false alarm: a cluster without RDMA; say hcas = 0 in the cluster file.
    """
    yield from _no_nccl(run)
    for key, log in run.nccl_logs.items():
        yield _transport(log, _nodes(run, key), site, key)


def _transport(log: NcclLog, nodes: int | None, site: Site, key: str) -> Finding:
    name, networks = _name(key), log.network_names
    if nodes == 1:
        return _one_node(log, key)
    if not networks:
        return unknown(f"{name}: no line says which network is used", evidence=[key], fix=ASK)
    if any(facts.nccl_log.is_tcp(network) for network in networks):
        if nodes is None and not log.channels:
            return unknown(
                f"{name}: NCCL chose TCP sockets, and nothing says whether the run had several nodes",
                evidence=[key],
                fix=ASK,
                quote=_quote(_decisive(log)),
            )
        return _fallback(log, nodes, site, key)
    if log.ofi_provider is not None and log.ofi_provider.name.startswith(("tcp", "sockets", "udp")):
        return failed(
            f"{name}: libfabric's {log.ofi_provider.name} provider carries {_traffic(nodes)}, expected efa",
            subject=name,
            found=log.ofi_provider.name,
            expected="an RDMA provider",
            evidence=[key],
            quote=_quote(log.ofi_provider.first, _decisive(log)),
        )
    found = " and ".join(_kind(log, network) for network in networks)
    return passed(f"{name}: {found} carries {_traffic(nodes)}", subject=name, found=found, evidence=[key])


def _one_node(log: NcclLog, key: str) -> Finding:
    """GPUs of one node that talk over a network cannot use NVLink, PCIe or shared memory."""
    name = _name(key)
    if not log.channels:
        return skipped(f"{name}: one node, no traffic between nodes", subject=name, evidence=[key])
    count = sum(channel.count for channel in log.channels)
    return warned(
        f"{name}: one node, but {count} channel connections over NET/{log.channels[0].network}",
        subject=name,
        found=f"NET/{log.channels[0].network}",
        expected="P2P or SHM between the GPUs of one node",
        evidence=[key],
        why="GPUs of one node that cannot use peer-to-peer or shared memory run at the pace of a NIC.",
        fix="Remove NCCL_P2P_DISABLE and NCCL_SHM_DISABLE; ranks in separate containers must share /dev/shm and IPC.",
        quote=_quote(log.channels[0].first),
    )


def _decisive(log: NcclLog, *, tcp: bool = True) -> Line | None:
    """Return the first line that shows TCP (or else the first network) in use."""
    said = [(c.network, c.first) for c in log.channels] or [(use.name, use.first) for use in log.networks]
    return next((line for network, line in said if facts.nccl_log.is_tcp(network) is tcp), said[0][1] if said else None)


def _fallback(log: NcclLog, nodes: int | None, site: Site, key: str) -> Finding:
    name = _name(key)
    if site.hcas.value == 0:
        return passed(
            f"{name}: TCP carries {_traffic(nodes)}, as the site has no HCA ({site.hcas.source})",
            subject=name,
            found="NET/Socket",
            evidence=[key],
        )
    total = sum(channel.count for channel in log.channels)
    tcp = sum(channel.count for channel in log.channels if facts.nccl_log.is_tcp(channel.network))
    share = f" on {tcp} of {total} channels" if tcp < total else ""
    cause = log.obstacles[0] if log.obstacles else None
    message = f"{name}: TCP sockets carry {_traffic(nodes)}{share}, expected RDMA"
    if cause is not None:
        message += f"; first stated cause, line {cause.number}: {cause.message[:120]}"
    elif log.ib_devices:
        names = ", ".join(f"{device.name}:{device.port}" for device in log.ib_devices[:4])
        message += f"; RDMA was found and not used: {names}"
    return failed(
        message,
        subject=name,
        found="NET/Socket",
        expected="NET/IB, or a plug-in's network",
        evidence=[key],
        quote=_quote(cause, _decisive(log)),
    )


def _kind(log: NcclLog, network: str) -> str:
    """Name a network, with what its ports speak where the log lists them."""
    layers = sorted({"RoCE" if device.roce else "InfiniBand" for device in log.ib_devices})
    return f"NET/{network}" + (f" ({' and '.join(layers)})" if layers else "")


# --- GPUDirect RDMA --------------------------------------------------------------------------------


@check(
    "nccl.gpudirect-rdma",
    title="Every network channel uses GPUDirect RDMA",
    source=f"{TROUBLESHOOTING}#gpu-direct; `/GDRDMA` on channel lines, NCCL 2.4 … 2.30",
    fix="Load nvidia-peermem, or use the open kernel modules (DMA-BUF); then check GPU-NIC locality, ACS and IOMMU.",
    scope="run",
)
def gpudirect_rdma(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the network channels that end in /GDRDMA with all network channels of each log.

    Without GPUDirect RDMA each byte is copied through host memory: half the bandwidth or less, and CPU
    and memory traffic that grow with it.

    Only channel lines show use: "GDR 1" on the ring line, "DMA-BUF is available" and "GPU Direct RDMA
    Enabled for HCA" tell what could be used. Channels of one GPU far from every NIC stage through the
    host by design, so that some without only warn.
    """
    yield from _no_nccl(run)
    for key, log in run.nccl_logs.items():
        yield _gpudirect(log, _nodes(run, key), key)


def _gpudirect(log: NcclLog, nodes: int | None, key: str) -> Finding:
    name = _name(key)
    channels = [channel for channel in log.channels if not facts.nccl_log.is_tcp(channel.network)]
    if nodes == 1:
        return skipped(f"{name}: one node, no traffic between nodes", subject=name, evidence=[key])
    if not channels and log.network_names and all(facts.nccl_log.is_tcp(network) for network in log.network_names):
        return skipped(f"{name}: TCP sockets have no GPUDirect RDMA (see nccl.transport)", subject=name, evidence=[key])
    if not channels:
        return unknown(f"{name}: no channel line shows whether GPUDirect RDMA is used", evidence=[key], fix=ASK)
    total = sum(channel.count for channel in channels)
    direct = sum(channel.count for channel in channels if channel.gpudirect)
    if direct == total:
        return passed(f"{name}: all {total} network channels use GPUDirect RDMA", subject=name, evidence=[key])
    say = warned if direct else failed
    return say(
        f"{name}: {total - direct} of {total} network channels go without GPUDirect RDMA",
        subject=name,
        found=f"{direct} of {total} with /GDRDMA",
        expected="all",
        evidence=[key],
        quote=_quote(next(channel.first for channel in channels if not channel.gpudirect), *log.gpudirect_disabled[:1]),
    )


# --- nccl-tests ------------------------------------------------------------------------------------


def _reports(run: RunFacts) -> Iterator[tuple[str, str, Report]]:
    """Yield (record key, what to call it, report)."""
    for key, reports in run.nccl_tests.items():
        for report in reports:
            where = f" lines {report.first_line}-{report.last_line}" if len(reports) > 1 else ""
            yield key, f"{_name(key)}{where}: {report.collective or 'nccl-tests'}", report


def _no_report(run: RunFacts) -> Iterator[Finding]:
    if not run.logs:
        yield unknown("no log was given", fix="give the output of nccl-tests: --log FILE")
    elif not run.nccl_tests:
        yield skipped("no nccl-tests report in the logs", evidence=run.logs)


def _text_of(run: RunFacts, key: str, *numbers: int) -> str:
    """Return lines of a log with their numbers, at most 600 characters."""
    lines = run.evidence.text(key).split("\n")
    return "\n".join(f"{number}: {lines[number - 1].rstrip()}" for number in sorted(set(numbers)))[:600]


def _so_far(report: Report) -> str:
    """Say how far an unfinished run came."""
    best = report.best()
    best_so_far = f", best busbw so far {best.busbw_gbytes_s:g} GB/s" if best else ""
    where = report.cut_rows[-1].bytes if report.cut_rows else None
    return f"{len(report.rows)} rows{best_so_far}" + (f", stopped at {_size(where)}" if where is not None else "")


def _size(size: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (2**10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


@check(
    "nccl-tests.wrong-values",
    title="nccl-tests finds no wrong value",
    source=f"{PERFORMANCE}; nccl-tests 2.19.6 src/common.cu",
    fix="Repeat on halves of the nodes until one remains; then read its Xid, ECC and NVLink counters.",
    scope="run",
)
def wrong_values(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the wrong values that each nccl-tests run counted with none.

    A collective that returns wrong numbers trains a wrong model, at full bandwidth and without an error.

    A run with -c 0 prints "0 OK" too: it counts as not validated. A run that ended early or stopped
    with an error has validated only what it printed.
    """
    yield from _no_report(run)
    for key, name, report in _reports(run):
        yield _wrong(run, key, name, report)


def _wrong(run: RunFacts, key: str, name: str, report: Report) -> Finding:
    rows, bad = report.rows, report.wrong_rows
    if bad or report.out_of_bounds or report.out_of_bounds_ok is False:
        counted = f"{report.out_of_bounds} failed checks" if report.out_of_bounds else f"{len(bad)} rows"
        return failed(
            f"{name}: wrong values in {counted}, expected none",
            subject=name,
            found=counted,
            expected="0",
            evidence=[key],
            quote=_text_of(run, key, *(row.line for row in bad[:3])) if bad else "",
        )
    if report.failures:
        first = report.failures[0]
        return failed(
            f"{name}: stopped: {first.text[:200]}",
            subject=name,
            found=f"{_so_far(report)}, then an error",
            expected="a complete run",
            evidence=[key],
            why="A run that stops with an error is what the training job would have met.",
            quote=_text_of(run, key, first.line),
        )
    if not report.complete:
        message = f"{name}: the run did not finish: {_so_far(report)}, none of them wrong"
        return unknown(message, subject=name, evidence=[key], fix="run it to its end")
    if not report.validated:
        message = f"{name}: the run did not validate its results, though it says {report.out_of_bounds} OK"
        return unknown(message, subject=name, evidence=[key], fix="run again with -c 1")
    return passed(f"{name}: 0 wrong values in {len(rows)} rows", subject=name, found="0", evidence=[key])


@check(
    "nccl-tests.busbw",
    title="nccl-tests reaches the bus bandwidth of this hardware",
    source=f"{PERFORMANCE}; floors: cluster file, else part catalogue",
    fix="See nccl.transport and nccl.gpudirect-rdma first; then compare clocks, NVLink and HCA rates with a good node.",
    answers=("NT-NCCL-3",),
    scope="run",
)
def busbw(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the best bus bandwidth of large messages with the expected one, GB/s.

    All ranks wait for the slowest path: one rail or NVLink that runs at half its rate halves the
    collective, and every training step is that much longer.

    The best row of at least 256 MiB on one node, 1 GiB on several, out of place or in place, is
    compared; the printed average takes in tiny sizes and is another number. A floor that is only
    customary for the part warns, one from the cluster file fails; several nodes are judged only by the
    cluster file's. A run of fewer GPUs than the node has is no measure of the node.
    """
    yield from _no_report(run)
    for key, name, report in _reports(run):
        finding = _busbw(name, report, site)
        best = report.best()
        quote = _text_of(run, key, best.row.line) if best else ""
        yield replace(finding, subject=name, evidence=(key,), quote=finding.quote or quote)


def _busbw(name: str, report: Report, site: Site) -> Finding:
    nodes, ranks = report.nnodes, report.nranks
    if report.average_ok is False:
        return failed(
            f"{name}: printed average {report.average_busbw_gbytes_s:g} GB/s, below NCCL_TESTS_MIN_BW",
            found=f"{report.average_busbw_gbytes_s:g} GB/s, mean over all sizes",
            expected="the run's own NCCL_TESTS_MIN_BW",
        )
    if not report.complete:
        return unknown(f"{name}: the run did not finish: {_so_far(report)}", fix="run it to its end")
    if report.copies > 1 or ranks == 1:
        runs = f"{report.copies} runs of one rank each" if report.copies > 1 else "one rank"
        message = f"{name}: {runs}: no data moved between GPUs"
        return unknown(message, fix="under mpirun, build nccl-tests with MPI=1; else give -g the number of GPUs")
    floor_bytes = GIB if nodes is not None and nodes > 1 else 256 * MIB
    best = report.best(floor_bytes)
    if best is None:
        largest = max((row.bytes for row in report.rows), default=0)
        message = f"{name}: largest message {_size(largest)}, expected at least {_size(floor_bytes)}"
        return unknown(message, fix="run again with -b 8 -e 8G -f 2")
    gpus = f"{ranks} GPUs on {nodes} node{'s' if nodes != 1 else ''}" if ranks else "an unknown number of GPUs"
    what = f"{name}: best busbw at {_size(best.row.bytes)} over {gpus}"
    expected = site.all_reduce_busbw_gbytes_s
    if unfit := _unfit(report, site):
        found = f"{best.busbw_gbytes_s:g} GB/s"
        message = f"{what}: found {found}, nothing says what to expect{unfit}"
        return unknown(message, found=found, fix=f"say it in the cluster file: {expected.key} = ...")
    return compare(best.busbw_gbytes_s, expected, what=what, at_least=True, unit="GB/s")


def _unfit(report: Report, site: Site) -> str:
    """Say why the expectation is not one for this run; empty where it is."""
    from_site = site.members.thresholds.all_reduce_busbw_gbytes_s is not None
    gpus = site.gpus.value
    if report.collective != "all_reduce":
        return f" of {report.collective or 'a collective that is not named'}"
    if report.groups > 1:
        return f" of {report.groups} communicators side by side"
    if report.nnodes is None or report.nranks is None:
        return " of a run whose list of devices is not here"
    if report.nnodes > 1 and not from_site:
        return " of several nodes"
    if gpus is not None and report.nranks != gpus * report.nnodes:
        return f" of {report.nranks} GPUs where {report.nnodes} x {gpus} would be all"
    return ""
