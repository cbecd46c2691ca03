"""Judges of ``nvidia-smi``: queries, topology, NVLinks."""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

from preflight.checks.gpu import clocks, link_errors, memory, nvlink, nvlink_fabric, state, topology
from preflight.facts.nvidia import smi_xml
from preflight.facts.nvidia.model import GpuHealth, Health
from preflight.model import Finding, counted, each_of, failed, passed, unknown, warned
from preflight.parsers.nvidia.nvlink_status import GpuLinks
from preflight.parsers.nvidia.query_log import QueryLog, Tree, driver_version, errors_in
from preflight.parsers.nvidia.topology import NEAR_CODES, Matrix
from preflight.recognition.judges import Judge, Judged, Judges, PastedValue, lowered
from preflight.recognition.judges.hosts import driver as driver_on_hosts
from preflight.recognition.judges.lists import judge_memory_use, judge_number_of_gpus, narrow

#: Judge that receives the health of all GPUs, and the part from which it was read.
_HealthJudge = Callable[[Health, PastedValue], Iterator[Finding]]


def _of_health(core: Callable[[Health], Iterator[Finding]]) -> _HealthJudge:
    """Return the judge for a check core on the health of all GPUs."""
    return lambda health, _part: core(health)


def _intended(core: Callable[[Health], Iterator[Finding]]) -> _HealthJudge:
    """Return the judge for a setting that some sites choose on purpose.

    It warns instead of failing.
    """
    return lambda health, _part: lowered(core(health))


def _answers(health: Health, part: PastedValue) -> Iterator[Finding]:
    """Report GPUs that do not answer, errors instead of values, and missing GPUs."""
    gpus = part.value.gpus if health.gpus else ()
    bad = False
    for bus_id, tree in gpus:
        errors = errors_in(tree)
        if errors and not errors & {"gpu is lost", "gpu requires reset"}:
            bad, place = True, smi_xml.bus_address(bus_id)
            words = ", ".join(sorted(errors))
            named = place or "a GPU without an address in the text"
            yield unknown(f"{named} shows {words} instead of values",
                          subject=place, found=words, expected="values", evidence=part.evidence,
                          fix=f"Run `nvidia-smi -q -i {place or 'N'}` again; look for its Xids: "
                          "`dmesg -T | grep -i xid`.")  # fmt: skip
    lacking = list(_lacking(gpus, part.evidence))
    yield from lacking
    bad = bad or bool(lacking)
    for words in health.silent:
        address, _, error = words.rpartition(": ")
        yield failed(f"{words}: listed by the driver, but does not answer", subject=address, found=error,
                     expected="an answer", evidence=health.evidence)  # fmt: skip
    if health.partial:
        yield unknown(health.partial, found=len(health.gpus), evidence=health.evidence,
                      fix="Paste the complete output; a GPU missing from it may have fallen off the bus: "
                      "`dmesg | grep -i xid`.")  # fmt: skip
    elif health.gpus and not health.silent and not bad:
        yield passed(f"{each_of(len(health.gpus), 'GPU')} answers", evidence=health.evidence)


def _number(health: Health, part: PastedValue) -> Iterator[Finding]:
    return judge_number_of_gpus(len(health.gpus), health.evidence)


#: Judge of the driver's version, which all hosts of one text should share.
_same_driver = driver_on_hosts(driver_version)

#: Name of a judged section in a GPU's tree -> its name in messages. The check of ECC errors reports a missing ECC
#: section itself.
_SECTIONS = {
    "remapped_rows": "remapped rows", "retired_pages": "retired pages",
    "clocks_event_reasons": "clocks event reasons", "fabric": "fabric", "gpu_recovery_action": "recovery action",
}  # fmt: skip


def _product(tree: Tree) -> str | None:
    """Return the product name; None if it is missing, or damaged."""
    product = tree.get("product_name")
    return product if isinstance(product, str) else None


def _lacking(gpus: tuple[tuple[str, Tree], ...], evidence: tuple[str, ...]) -> Iterator[Finding]:
    """Report sections that are missing for a GPU, but shown for its peers.

    Peers are GPUs of the same product, and those without a product name; for a GPU without a product name, all GPUs
    are.
    """
    shown: dict[object, set[str]] = {}
    for _, tree in gpus:
        shown.setdefault(_product(tree), set()).update(name for name in _SECTIONS if name in tree)
    anywhere, nameless = set().union(*shown.values()), shown.get(None, set())
    for bus_id, tree in gpus:
        product = _product(tree)
        expected = anywhere if product is None else shown[product] | nameless
        if lacking := [what for name, what in _SECTIONS.items() if name in expected and name not in tree]:
            place = smi_xml.bus_address(bus_id)
            named = place or "a GPU without an address in the text"
            yield unknown(
                f"{named}: the text lacks its {', '.join(lacking)}, which identical GPUs show", subject=place,
                found=", ".join(lacking), evidence=evidence, fix="Paste the complete output of `nvidia-smi -q`.",
            )  # fmt: skip


def _lifetime(health: Health) -> Iterator[Finding]:
    """Judge uncorrectable errors since the driver was loaded; warn of older ones."""
    yield from memory.judge_ecc_uncorrected(health)
    for gpu in health.gpus:
        sram, dram = gpu.ecc_aggregate_sram_uncorrected or 0, gpu.ecc_aggregate_dram_uncorrected or 0
        recent = (gpu.ecc_volatile_sram_uncorrected or 0) + (gpu.ecc_volatile_dram_uncorrected or 0)
        if sram + dram and not recent and not gpu.sram_threshold_exceeded:
            yield warned(
                f"{gpu.label}: {sram + dram} uncorrectable memory errors in its lifetime ({sram} SRAM, "
                f"{dram} DRAM), none since the driver was loaded",
                subject=gpu.address,
                found=f"{sram} SRAM, {dram} DRAM (aggregate)",
                expected="0",
                evidence=health.evidence,
                fix="Check that no row remapping or page retirement is pending; watch the GPU.",
            )


def _replays(health: Health) -> Iterator[Finding]:
    yield from link_errors.judge_replays(health, None)


def _driver_settings(health: Health) -> Iterator[Finding]:
    """Judge the application clocks, and report GPUs that they slow down."""
    yield from clocks.judge_clocks(health)
    for gpu in health.gpus:
        if (gpu.event_reasons or 0) & 0x02:
            yield warned(f"{gpu.label}: its clocks are limited by the application clocks setting",
                         subject=gpu.address, found="applications clocks setting active", expected="not active",
                         evidence=health.evidence)  # fmt: skip


def headroom(health: Health) -> Iterator[Finding]:
    """Judge how much of each GPU's memory is in use."""
    for gpu in health.gpus:
        used, total = gpu.memory_used_mib, gpu.memory_total_mib
        if used is not None and total:
            yield from judge_memory_use(
                gpu.label, gpu.address or gpu.label, used, total, health.evidence, gpu.utilisation_pct
            )


def _power(health: Health, part: PastedValue) -> Iterator[Finding]:
    """Compare each power limit with its default, or with that of the GPU's peers."""
    yield from state.judge_power_limit(health)
    yield from power_of_peers(health)


def power_of_peers(health: Health) -> Iterator[Finding]:
    """Compare the power limits of GPUs whose default is not in the text."""
    limits: dict[str, list[tuple[float, GpuHealth]]] = defaultdict(list)
    for gpu in health.gpus:
        if gpu.power_default_w is None and (limit := gpu.power_enforced_w or gpu.power_limit_w):
            limits[gpu.name or ""].append((limit, gpu))
    for own in limits.values():
        most = max(limit for limit, _ in own)
        for limit, gpu in own:
            if limit < most - 0.5:
                yield warned(
                    f"{gpu.label} is limited to {limit:g} W, its peers to {most:g} W",
                    subject=gpu.address,
                    found=f"{limit:g} W",
                    expected=f"{most:g} W, like its peers",
                    evidence=health.evidence,
                )


def _pcie_links(health: Health) -> Iterator[Finding]:
    """Judge each PCIe link by its maximum, or by those of the GPU's peers."""
    yield from state.judge_pcie_link(health)
    widths: dict[str, list[tuple[int, GpuHealth]]] = defaultdict(list)
    for gpu in health.gpus:
        if gpu.pcie_width and gpu.pcie_width_max is None:
            widths[gpu.name or ""].append((gpu.pcie_width, gpu))
    for own in widths.values():
        most = max(width for width, _ in own)
        report = narrow(sum(width == most for width, _ in own), len(own))
        for width, gpu in own:
            if width < most:
                yield report(f"{gpu.label}: PCIe link has {width} lanes, its peers have {most}", subject=gpu.address,
                             found=f"x{width}", expected=f"x{most}, like its peers",
                             evidence=health.evidence)  # fmt: skip


def models_agree(health: Health) -> Iterator[Finding]:
    """Compare the products of the GPUs in one output."""
    names = Counter(gpu.name for gpu in health.gpus if gpu.name)
    if len(names) > 1:
        listed = ", ".join(f"{number} {name}" for name, number in names.items())
        yield unknown(f"the GPUs are of different models: {listed}; a workstation may have one for its display",
                      found=listed, expected="one model", evidence=health.evidence)  # fmt: skip


def images_agree(health: Health) -> Iterator[Finding]:
    """Compare the VBIOS versions of GPUs of the same product."""
    versions: dict[str, Counter[str]] = defaultdict(Counter)
    for gpu in health.gpus:
        if gpu.vbios:
            versions[gpu.name or ""][gpu.vbios] += 1
    for name, images in versions.items():
        if len(images) > 1:
            listed = ", ".join(f"{image} ({number})" for image, number in images.items())
            yield warned(f"GPUs of one model{f' ({name})' if name else ''} have different VBIOS versions: {listed}",
                         found=listed, expected="one version", evidence=health.evidence)  # fmt: skip


_QUERY: tuple[tuple[str, _HealthJudge], ...] = (
    ("gpu.driver", _answers),
    ("gpu.count", _number),
    ("gpu.same-model", _of_health(models_agree)),
    ("gpu.firmware", _of_health(images_agree)),
    ("gpu.ecc-uncorrected", _of_health(_lifetime)),
    ("gpu.ecc-corrected", _of_health(memory.judge_ecc_corrected)),
    ("gpu.row-remap", _of_health(memory.judge_row_remap)),
    ("gpu.retired-pages", _of_health(memory.judge_retired_pages)),
    ("gpu.ecc-mode", _intended(memory.judge_ecc_mode)),
    ("gpu.throttling", _of_health(state.judge_throttling)),
    ("gpu.temperature-margin", _of_health(state.judge_temperature_margin)),
    ("gpu.power-limit", _power),
    ("gpu.pcie-link", _of_health(_pcie_links)),
    ("gpu.persistence", _of_health(state.judge_persistence)),
    ("gpu.mig", _intended(state.judge_mig)),
    ("gpu.compute-mode", _intended(state.judge_compute_mode)),
    ("gpu.recovery-action", _of_health(state.judge_recovery_action)),
    ("gpu.clocks", _of_health(_driver_settings)),
    ("gpu.memory-headroom", _of_health(headroom)),
    ("pcie.replay", _of_health(_replays)),
    ("gpu.fabric-state", _of_health(nvlink_fabric.judge_fabric_state)),
)


def _query(log: QueryLog) -> Judged:
    """Return the judges of one output; all of them share its parsed health."""
    health_by_record = functools.cache(functools.partial(smi_xml.of_paste, log))

    def of_part(judge: _HealthJudge) -> Judge:
        return lambda part: judge(health_by_record(part.evidence[0]), part)

    return (*((check, of_part(judge)) for check, judge in _QUERY), ("fleet.driver-equal", _same_driver))


def _nvlinks(part: PastedValue) -> Iterator[Finding]:
    gpus: tuple[GpuLinks, ...] = part.value
    health = Health("", tuple(map(_linked, gpus)), (), part.evidence, pasted=True)
    yield from nvlink.judge_nvlinks_of_peers(health)
    for gpu in gpus:
        rates = {number: rate for number, rate in enumerate(gpu.rates) if rate is not None}
        most = max(rates.values(), default=0.0)
        if slow := [number for number, rate in rates.items() if rate < most * (1 - nvlink.RATE_SPREAD)]:
            shown = ", ".join(f"link {number} at {rates[number]:g}" for number in slow[:8])
            yield warned(f"GPU{gpu.index}: {shown} GB/s, its other links at {most:g}", subject=f"GPU{gpu.index}",
                         found=shown, expected=f"{most:g} GB/s", evidence=part.evidence,
                         fix="`nvidia-smi nvlink -e`; reset all GPUs of the node; a link that stays slow is a hardware"
                         " fault.")  # fmt: skip


def _linked(gpu: GpuLinks) -> GpuHealth:
    values: dict[str, Any] = {"links": gpu.up, "link_gbytes_s": gpu.gbytes_s}
    if gpu.cut:
        values = {"absent": {"links": "links are missing from the text"}}
    return GpuHealth(gpu.index, f"GPU{gpu.index}", gpu.uuid or "", name=gpu.name, **values)


def _number_in_matrix(part: PastedValue) -> Iterator[Finding]:
    return judge_number_of_gpus(len(part.value.gpus), part.evidence)


def _topology(part: PastedValue) -> Iterator[Finding]:
    matrix: Matrix = part.value
    for words in matrix.damage:
        yield unknown(words, evidence=part.evidence, fix="Run `nvidia-smi topo -m` again.")
    if (not matrix.damage or matrix.nvlinks_agree) and len(matrix.gpus) > 1:
        topo = matrix.topology()
        yield from topology.judge_topology(topo, topology.Wiring(pasted=True), part.evidence)


def _near(part: PastedValue) -> Iterator[Finding]:
    """Judge the nearest NIC of each GPU if some GPU has a close one.

    Otherwise the PCIe switches may be hidden.
    """
    matrix: Matrix = part.value
    topo = matrix.topology()
    if matrix.damage or not topo.nics:
        return
    codes = {gpu: topo.nearest_nics(gpu) for gpu in topo.gpus if gpu in topo.links}
    if codes and not any(code in NEAR_CODES for code, _ in codes.values()):
        far = ", ".join(sorted({code for code, _ in codes.values()}))
        yield unknown(
            f"no GPU has a NIC behind its own PCIe switch ({far}): by design, or a hypervisor hides the switches",
            found=far, expected="PIX or PXB", evidence=part.evidence,
            fix="Compare the slots with the server's manual (`lspci -tv`); a virtual machine needs an NCCL_TOPO_FILE.",
        )  # fmt: skip
        return
    yield from topology.judge_nearest_nics(codes, topo.lenders(), (warned, "far away"), part.evidence, topo.sharers())


def _peers(part: PastedValue) -> Iterator[Finding]:
    """Judge peer access between GPUs."""
    bad: dict[str, list[str]] = {}
    for gpu, row in part.value.access.items():
        for peer, code in row.items():
            if code != "OK" and (code not in bad or f"{peer}-{gpu}" not in bad[code]):
                bad.setdefault(code, []).append(f"{gpu}-{peer}")
    for code, pairs in bad.items():
        report = unknown if code in _OF_THE_PART else warned
        shown = f"{', '.join(pairs[:_PAIRS])}{', …' if len(pairs) > _PAIRS else ''}"
        yield report(
            f"no peer access between {counted(len(pairs), 'pair')} of GPUs ({shown}): {code}, "
            f"{_PEER_CODES.get(code, 'unknown')}",
            found=shown, expected="OK", evidence=part.evidence,
            fix=_BY_REGISTRY if code == "DR" else "NCCL uses host memory between these GPUs; check ACS and the IOMMU "
            "(`lspci -vv`), and the datasheet.",
        )  # fmt: skip
    if not bad and part.value.access:
        yield passed("all pairs of GPUs have peer access", evidence=part.evidence)


#: Maximum number of pairs that a message lists.
_PAIRS = 8
_PEER_CODES = {
    "CNS": "the chipset does not support it", "GNS": "the GPU does not support it",
    "TNS": "the topology does not support it", "NS": "not supported", "DR": "disabled by a registry key",
    "U": "unknown",
}  # fmt: skip

_BY_REGISTRY = (
    "`grep -r NVreg /etc/modprobe.d` and `cat /proc/driver/nvidia/params`: remove the module's option that disables "
    "peer access (RegistryDwords), then reload the driver."
)

#: Codes that are not proof of a fault: some GPU models have no peer access by design.
_OF_THE_PART = frozenset({"GNS", "NS", "U"})

JUDGES: Judges = {
    **dict.fromkeys(("nvidia-smi --query-gpu", "nvidia-smi -q", "nvidia-smi -q -x"), _query),
    "nvidia-smi nvlink -s": (("nvlink.links", _nvlinks),),
    "nvidia-smi topo -m": (
        ("gpu.count", _number_in_matrix),
        ("topology.nvlink", _topology),
        ("topology.nearest-nic", _near),
    ),
    "nvidia-smi topo -p2p": (("topology.nvlink", _peers),),
}
