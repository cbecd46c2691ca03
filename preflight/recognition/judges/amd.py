"""Judges of AMD GPUs, by ``amd-smi`` and ``rocm-smi``.

The checks of NVIDIA GPUs judge the values that both vendors report: PCIe links, temperature margins, replays, memory
in use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from preflight._startup.lightclass import replace
from preflight.checks.gpu import link_errors, state
from preflight.facts.nvidia.model import GpuHealth, Health
from preflight.model import Finding, Status, clause, failed, none_of, passed, some_of, unknown, warned
from preflight.parsers.amd.model import AmdGpu, AmdReport
from preflight.recognition.judges import Judge, Judges, PastedValue
from preflight.recognition.judges.gpu import headroom, images_agree, models_agree, power_of_peers
from preflight.recognition.judges.lists import judge_number_of_gpus, limited

#: Number of corrected errors at which one reading is not enough, and temperature that is high for every part whose
#: own limit the text does not show: judgement calls.
_MANY_CORRECTED, _HOT_C = 100, 100

#: Facts of ``amd-smi static`` that those of a later part of the same text are compared with.
_STATIC = ("address", "product", "pcie_width_max", "pcie_generation_max", "slowdown_c")


def _gpus(part: PastedValue) -> tuple[AmdGpu, ...]:
    """Return the GPUs of a part, with values of ``_STATIC`` from earlier parts."""
    report: AmdReport = part.value
    earlier: dict[int, dict[str, Any]] = {}
    for before in part.earlier:
        for gpu in before.gpus:
            earlier.setdefault(gpu.index, {}).update(
                {name: value for name in _STATIC if (value := getattr(gpu, name))}
            )  # fmt: skip
    return tuple(
        replace(gpu, **{name: value for name, value in earlier.get(gpu.index, {}).items() if not getattr(gpu, name)})
        for gpu in report.gpus
    )


def _health(part: PastedValue) -> Health:
    return Health("", tuple(map(_health_of, _gpus(part))), (), part.evidence, pasted=True)


def _health_of(gpu: AmdGpu) -> GpuHealth:
    margins = [gpu.slowdown_c[sensor] - degrees for sensor, degrees in gpu.temperatures_c.items()
               if sensor in gpu.slowdown_c]  # fmt: skip
    return GpuHealth(
        gpu.index, gpu.address or f"GPU{gpu.index}", "", name=gpu.product, vbios=gpu.vbios,
        pcie_width=gpu.pcie_width, pcie_width_max=gpu.pcie_width_max, pcie_generation=gpu.pcie_generation,
        pcie_generation_max=gpu.pcie_generation_max, pcie_replays=gpu.pcie_replays,
        utilisation_pct=gpu.utilization_percent, temperature_margin_c=int(min(margins)) if margins else None,
        power_limit_w=gpu.power_limit_w, memory_total_mib=gpu.memory_total_mib,
        memory_used_mib=gpu.memory_used_mib,
    )  # fmt: skip


def _advised(judge: Callable[[Health], Iterator[Finding]], fix: str) -> Judge:
    """Return the judge of a part; ``fix`` replaces the advice for NVIDIA GPUs."""

    def of_part(part: PastedValue) -> Iterator[Finding]:
        for finding in judge(_health(part)):
            yield finding if finding.status is Status.PASS else replace(finding, fix=fix)

    return limited(of_part)


def _number(part: PastedValue) -> Iterator[Finding]:
    fix = "`lspci -d 1002: | grep -c -e 'Processing acc' -e Display`; `dmesg -T | grep -i amdgpu`."
    return judge_number_of_gpus(len(part.value.gpus), part.evidence, fix)


@limited
def _uncorrected(part: PastedValue) -> Iterator[Finding]:
    """Report uncorrected and deferred errors by block, and GPUs without counts."""
    fine, silent = 0, []
    for gpu in _gpus(part):
        blocks = [item for item in gpu.errors if item.block != "total"]
        total = [item for item in gpu.errors if item.block == "total"]
        bad = [item for item in blocks if item.uncorrected] or [item for item in total if item.uncorrected]
        late = [item for item in blocks if item.deferred] or [item for item in total if item.deferred]
        label, subject = f"GPU{gpu.index}", gpu.address or f"GPU{gpu.index}"
        for item in bad:
            yield failed(f"{label}: {item.uncorrected} uncorrectable errors{_place(item.block)}", subject=subject,
                         found=str(item.uncorrected), expected="0", evidence=part.evidence,
                         fix="Drain the node, then `amd-smi reset -G`; replace the GPU if they return.")  # fmt: skip
        for item in late:
            yield warned(f"{label}: {item.deferred} deferred errors{_place(item.block)}: damaged data that a job may "
                         "still read", subject=subject, found=str(item.deferred), expected="0", evidence=part.evidence,
                         fix="Drain the node; `amd-smi bad-pages` lists the pages to be retired.")  # fmt: skip
        if not any(item.uncorrected is not None for item in gpu.errors):
            silent.append((label, subject))
        elif not bad and not late:
            fine += 1
    for label, subject in silent if len(silent) < len(part.value.gpus) else ():
        yield unknown(f"{label} shows no error counts, but its peers do", subject=subject, evidence=part.evidence,
                      expected="counts", fix="`amd-smi metric --ecc --ecc-blocks`")  # fmt: skip
    if fine:
        yield passed(f"no uncorrectable errors on {some_of(fine, len(part.value.gpus), 'GPU')}", evidence=part.evidence)


def _place(block: str) -> str:
    return "" if block == "total" else f" in {block}"


@limited
def _corrected(part: PastedValue) -> Iterator[Finding]:
    for gpu in _gpus(part):
        blocks = [item for item in gpu.errors if item.block != "total"] or gpu.errors
        for item in blocks:
            if (item.corrected or 0) > _MANY_CORRECTED:
                yield unknown(f"GPU{gpu.index}: {item.corrected} corrected errors{_place(item.block)}; a single "
                              "reading does not show the period", subject=gpu.address or f"GPU{gpu.index}",
                              found=str(item.corrected), expected="no growth between two readings",
                              evidence=part.evidence, fix="Read the counters again after an hour under load."
                              )  # fmt: skip


@limited
def _ecc_mode(part: PastedValue) -> Iterator[Finding]:
    """Warn of GPUs whose memory errors are neither detected nor counted."""
    states = {gpu.index: state for gpu in _gpus(part) if (state := gpu.ras.get("UMC"))}
    for index, state_of in states.items():
        if state_of != "ENABLED":
            report = warned if state_of == "DISABLED" else unknown
            yield report(f"GPU{index}: detection of memory errors (RAS, block UMC) is {state_of}",
                         subject=f"GPU{index}", found=state_of, expected="ENABLED", evidence=part.evidence,
                         fix="`amd-smi static --ras`; compare with a GPU of the same model.")  # fmt: skip
    if states and set(states.values()) == {"ENABLED"}:
        yield passed(f"{clause(len(states), 'GPU', 'detects')} memory errors", evidence=part.evidence)


@limited
def _throttled(part: PastedValue) -> Iterator[Finding]:
    """Report GPUs that heat slows down.

    A power cap under load and low clocks without load are normal.
    """
    gpus = _gpus(part)
    shown = [gpu for gpu in gpus if gpu.throttled is not None]
    for gpu in gpus:
        details: dict[str, Any] = {"subject": gpu.address or f"GPU{gpu.index}", "evidence": part.evidence,
                                   "fix": "Check cooling and power supply; `amd-smi metric --throttle --temperature`."
                                   }  # fmt: skip
        if gpu.throttled == ("unnamed",):
            yield unknown(f"GPU{gpu.index} is throttled, and the text does not show why: under load, its power cap "
                          "does so by design", found="THROTTLED", expected="the reason", **details)  # fmt: skip
        elif gpu.throttled:
            reasons = ", ".join(reason.replace("_", " ") for reason in gpu.throttled)
            report = failed if "prochot" in gpu.throttled else warned
            yield report(f"GPU{gpu.index} is slowed down: {reasons}", found=reasons, expected="none", **details)
        elif gpu.throttled is None and shown:
            yield unknown(f"GPU{gpu.index} shows no throttle status, but its peers do", expected="a status", **details)
    if shown and not any(gpu.throttled for gpu in shown):
        yield passed(f"heat slows down {none_of(len(shown), 'GPU')}", evidence=part.evidence)


_MARGIN = _advised(state.judge_temperature_margin, "Check fans, airflow and the power limit; `amd-smi metric -t -c`.")


@limited
def _heat(part: PastedValue) -> Iterator[Finding]:
    """Judge each GPU's margin to its limits, or its temperature if none is shown."""
    yield from _MARGIN(part)
    warm = [(max(gpu.temperatures_c.values()), gpu) for gpu in _gpus(part)
            if gpu.temperatures_c and not gpu.slowdown_c]  # fmt: skip
    for degrees, gpu in warm:
        if degrees >= _HOT_C:
            yield warned(f"GPU{gpu.index} is at {degrees:g} degrees C", subject=gpu.address or f"GPU{gpu.index}",
                         found=f"{degrees:g} degrees C", expected=f"below {_HOT_C} degrees C", evidence=part.evidence,
                         fix="Check fans, airflow and the power limit; `amd-smi metric -t -c`.")  # fmt: skip
    highest = max((degrees for degrees, _ in warm), default=None)
    if highest is not None and highest < _HOT_C:
        yield passed(f"the highest temperature is {highest:g} degrees C", evidence=part.evidence)


_LINK = _advised(
    state.judge_pcie_link, "Drain the node, reseat the GPU or its riser; `amd-smi metric --pcie`, `lspci -vv`."
)


@limited
def _pcie(part: PastedValue) -> Iterator[Finding]:
    """Judge each link by its maximum, or by its peers if none is shown."""
    yield from _LINK(part)
    widths = {gpu.index: gpu.pcie_width for gpu in _gpus(part) if gpu.pcie_width and not gpu.pcie_width_max}
    most = max(widths.values(), default=0)
    for index, width in widths.items():
        if width < most:
            yield warned(f"GPU{index}: the PCIe link has {width} lanes, but those of its peers have "
                         f"{most}", subject=f"GPU{index}",
                         found=f"x{width}", expected=f"x{most}", evidence=part.evidence,
                         fix="Reseat the GPU or its riser; `amd-smi static --bus` shows the maximum.")  # fmt: skip


def _groups(links: Mapping[int, set[int]]) -> list[set[int]]:
    """Return the sets of GPUs that XGMI links, directly or through others."""
    groups: list[set[int]] = []
    for gpu in links:
        if not any(gpu in group for group in groups):
            group, open_ = {gpu}, [gpu]
            while open_:
                open_ += (more := links[open_.pop()] - group)
                group |= more
            groups.append(group)
    return groups


def _xgmi(part: PastedValue) -> Iterator[Finding]:
    """Compare the links of all pairs.

    In a group that XGMI links, every pair has XGMI, and all groups have the same size.
    """
    gpus = {gpu.index: gpu.links for gpu in _gpus(part) if gpu.links}
    pairs = {(gpu, peer): (gpus[gpu].get(peer), gpus[peer].get(gpu)) for gpu in gpus for peer in gpus if gpu < peer}
    if not pairs:
        return
    details: dict[str, Any] = {
        "evidence": part.evidence,
        "fix": "`amd-smi xgmi`; `dmesg -T | grep -i xgmi`; reset all GPUs of the node.",
    }
    odd = Counter(link.type if link else "missing" for both in pairs.values() for link in both
                  if link is None or link.type not in ("XGMI", "PCIE"))  # fmt: skip
    if odd:
        listed = ", ".join(f"{count} {name}" for name, count in odd.items())
        yield unknown(f"the paths between GPUs are not all XGMI or PCIE: {listed}", found=listed,
                      expected="XGMI or PCIE", **details)  # fmt: skip
        return
    direct = {pair for pair, both in pairs.items() if all(link and link.type == "XGMI" for link in both)}
    some = {pair for pair, both in pairs.items() if any(link and link.type == "XGMI" for link in both)}
    if not some:
        yield unknown("no pair of GPUs has XGMI, and it is not known whether this machine should have any",
                      expected="XGMI, or cards without it", **details)  # fmt: skip
        return
    near: dict[int, set[int]] = {gpu: set() for gpu in gpus}
    for gpu, peer in some:
        near[gpu].add(peer)
        near[peer].add(gpu)
    groups = _groups(near)
    lacking = [pair for pair in pairs if pair not in direct and any(set(pair) <= group for group in groups)]
    denied = [pair for pair in direct if any(link and link.status == "DISABLED" for link in pairs[pair])]
    if lacking:
        yield warned(f"{_listed(lacking)} no XGMI, unlike the rest of their group", found=_names(lacking),
                     expected="XGMI", **details)  # fmt: skip
    if len({len(group) for group in groups}) > 1:
        sizes = ", ".join(f"{len(group)} ({', '.join(f'GPU{gpu}' for gpu in sorted(group)[:8])})" for group in groups)
        yield warned(f"XGMI links the GPUs in groups of different size: {sizes}", found=sizes,
                     expected="equally large groups, or cards without a bridge by design", **details)  # fmt: skip
    if denied:
        yield warned(f"{_listed(denied)} XGMI, but no access to each other's memory", found=_names(denied),
                     expected="ENABLED", **details)  # fmt: skip
    if not lacking and not denied and len({len(group) for group in groups}) == 1:
        yield passed(f"XGMI links all pairs of {len(gpus)} GPUs" if len(groups) == 1 else
                     f"XGMI links {len(gpus)} GPUs in {len(groups)} groups of {len(groups[0])}",
                     evidence=part.evidence)  # fmt: skip


def _names(pairs: list[tuple[int, int]]) -> str:
    return ", ".join(f"GPU{gpu}-GPU{peer}" for gpu, peer in pairs[:8]) + (", …" if len(pairs) > 8 else "")


def _listed(pairs: list[tuple[int, int]]) -> str:
    return f"{_names(pairs)} {'has' if len(pairs) == 1 else 'have'}"


JUDGES: Judges = dict.fromkeys(
    ("amd-smi", "rocm-smi"),
    (
        ("gpu.count", _number),
        ("gpu.same-model", _advised(models_agree, "`amd-smi static --asic`")),
        ("gpu.firmware", _advised(images_agree, "`amd-smi firmware`; update all GPUs of the node to one version.")),
        ("gpu.ecc-uncorrected", _uncorrected),
        ("gpu.ecc-corrected", _corrected),
        ("gpu.ecc-mode", _ecc_mode),
        ("gpu.throttling", _throttled),
        ("gpu.temperature-margin", _heat),
        ("gpu.pcie-link", _pcie),
        ("gpu.power-limit", _advised(power_of_peers, "`amd-smi static --limit`; find out what set the lower cap.")),
        ("gpu.memory-headroom", _advised(headroom, "`amd-smi process`; if no process owns the memory, reset the GPU.")),
        ("pcie.replay", _advised(lambda health: link_errors.judge_replays(health, None),
                                  "`amd-smi metric --pcie` again after an hour shows whether the count grows.")),
        ("topology.nvlink", _xgmi),
    ),
)  # fmt: skip
