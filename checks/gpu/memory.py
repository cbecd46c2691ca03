"""Checks of GPU memory: ECC, remapped rows, retired pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from preflight.checks.applicability import no_gpu
from preflight.checks.gpu.per_gpu import each_gpu
from preflight.checks.in_logs import IN_LOGS
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, counted, failed, skipped, warned

if TYPE_CHECKING:
    from preflight.facts.nvidia.model import GpuHealth, Health

ROW_REMAP = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/"
RESET = "Drain the node, then reset the GPU (`nvidia-smi -r -i N` ends all jobs on it) or reboot."
REPLACE = "Drain the node, run the vendor's field diagnostic, and have the GPU replaced."

#: Number of rows remapped for uncorrectable errors at which the vendor replaces a GPU.
REMAPPED_LIMIT = 512
#: Tolerated correctable errors since the driver was loaded.
SRAM_CORRECTED_LIMIT, DRAM_CORRECTED_LIMIT = 10_000, 20_000_000
#: Number of retired pages (Volta and older) at which a GPU is replaced, and number of pages retired for double-bit
#: errors at which the check warns.
RETIRED_LIMIT, RETIRED_DOUBLE_LIMIT = 60, 15


def _ecc_off(gpu: GpuHealth) -> str:
    return "ECC is off, so errors are not counted" if gpu.ecc is False else ""


def _mig_hides(gpu: GpuHealth) -> str:
    return "hidden with MIG on" if gpu.mig else ""


#: Series of GPUs for displays, whose ECC is off by default.
_WITHOUT_ECC = ("GeForce", "TITAN")


def is_for_displays(name: str | None) -> bool:
    """Return whether a GPU belongs to a series whose ECC is off by default."""
    return name is not None and any(series in name for series in _WITHOUT_ECC)


@check(
    "gpu.ecc-mode",
    title="ECC is on",
    fault="ECC is off",
    impact="loses-redundancy",
    explains=(("gpu.same-model", "node", "*", ""),),
    source="https://docs.nvidia.com/deploy/nvml-api/ (nvmlDeviceGetEccMode)",
    fix="Run `nvidia-smi -e 1`, then reset the GPU when no job uses it.",
    action="fix-site",
    unless=(no_gpu,),
)
def ecc_mode(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the ECC mode of each GPU, now and after a reset, with "on".

    ## Why it matters
    Without ECC, training continues with a flipped bit in a weight or gradient, and nothing counts it.

    ## Verdicts
    A GPU with ECC off fails; a change that turns it off at the next reset warns. For consumer parts, the check does not
    apply: the driver reports N/A, or ECC is off by default (GeForce).

    ## False alarms
    A site that disables ECC on GDDR parts (T4, A10, L4) on purpose to gain memory.
    """
    yield from judge_ecc_mode(node.gpu_health)


def judge_ecc_mode(health: Health) -> Iterator[Finding]:
    """Judge the ECC mode of each GPU."""

    def judge(gpu: GpuHealth) -> Finding | None:
        if gpu.ecc is False and is_for_displays(gpu.name):
            return skipped("ECC is off, as on all GPUs of this series", subject=gpu.address, evidence=health.evidence)
        if gpu.ecc is False:
            then = "" if gpu.ecc_pending is None else f" (after the next reset: {'on' if gpu.ecc_pending else 'off'})"
            return failed(f"ECC is off{then}", found="off", expected="on")
        if gpu.ecc_pending is False:
            return warned("ECC will be off after the next reset", found="on, pending off", expected="on")
        return None

    yield from each_gpu(health, judge, what="ECC mode", good="has ECC on", needs=("ecc", "ecc_pending"),
                        additive=True)  # fmt: skip


@check(
    "gpu.ecc-uncorrected",
    title="No uncorrectable memory errors since the driver was loaded",
    fault="A GPU has had uncorrectable memory errors",
    impact="blocks-job",
    explains=(
        ("gpu.row-remap", "part"),
        ("gpu.retired-pages", "part"),
        ("gpu.recovery-action", "part"),
        *IN_LOGS,
    ),
    source="https://docs.nvidia.com/deploy/xid-errors/ (48, 94, 95); gate of azurehpc-health-checks, GCM",
    fix=RESET,
    action="reset",
    separate=True,
    unless=(no_gpu,),
)
def ecc_uncorrected(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each GPU's volatile uncorrectable errors with 0.

    SRAM and DRAM errors and the driver's SRAM verdict are included.

    ## Why it matters
    An uncorrectable error kills the job that hits it, and a GPU that had one since its last reset may have another.

    ## Verdicts
    A single error fails. Volatile counts begin at the last reset or driver load; lifetime counts are not judged, since
    they include repaired errors. "SRAM threshold exceeded" is the driver's request to replace the GPU; drivers before
    550 do not report it. In pasted `amd-smi` output, errors are counted by block, and deferred ones warn.

    ## False alarms
    None that persists: a reset clears the count once the row is remapped; an error that returns is real.
    """
    yield from judge_ecc_uncorrected(node.gpu_health)


def judge_ecc_uncorrected(health: Health) -> Iterator[Finding]:
    """Judge the uncorrectable memory errors of each GPU."""

    def judge(gpu: GpuHealth) -> Finding | None:
        sram, dram = gpu.ecc_volatile_sram_uncorrected or 0, gpu.ecc_volatile_dram_uncorrected or 0
        if gpu.sram_threshold_exceeded:
            return failed(
                "the driver's SRAM error threshold is exceeded",
                found="SRAM threshold exceeded",
                expected="not exceeded",
                fix=REPLACE,
                action="replace",
            )
        if sram or dram:
            return failed(
                f"{sram + dram} uncorrectable memory error{'' if sram + dram == 1 else 's'} ({sram} SRAM, {dram} DRAM)",
                found=f"{sram} SRAM, {dram} DRAM",
                expected="0",
            )
        return None

    needs, also = ("ecc_volatile_dram_uncorrected",), ("ecc_volatile_sram_uncorrected",)
    what, good = "uncorrectable memory errors", "is free of uncorrectable memory errors"
    yield from each_gpu(health, judge, what=what, good=good, needs=needs, also=also, hidden=_ecc_off,
                        additive=True)  # fmt: skip


@check(
    "gpu.ecc-corrected",
    title="Correctable memory errors are few",
    fault="A GPU corrects many memory errors",
    impact="drifts",
    explains=(("trend.gpu-memory", "part"),),
    source="azurehpc-health-checks (SRAM > 10,000, DRAM > 20,000,000); GCM has 50,000,000",
    fix="Watch the GPU with `nvidia-smi -q -d ECC`; contact the vendor if the count keeps growing.",
    action="monitor",
    separate=True,
    unless=(no_gpu,),
)
def ecc_corrected(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each GPU's corrected errors with limits that operators use.

    ## Why it matters
    A corrected error costs nothing, but a GPU that corrects millions may soon have an uncorrectable one.

    ## Verdicts
    More than 10,000 in SRAM or 20 million in DRAM warn. The check never fails, because operators' limits differ by a
    factor of 2.5.

    ## False alarms
    A node that has been up for months accumulates more than one that was booted today.
    """
    yield from judge_ecc_corrected(node.gpu_health)


def judge_ecc_corrected(health: Health) -> Iterator[Finding]:
    """Judge the correctable memory errors of each GPU."""

    def judge(gpu: GpuHealth) -> Finding | None:
        sram, dram = gpu.ecc_volatile_sram_corrected or 0, gpu.ecc_volatile_dram_corrected or 0
        if sram > SRAM_CORRECTED_LIMIT or dram > DRAM_CORRECTED_LIMIT:
            return warned(
                f"many correctable memory errors ({sram} SRAM, {dram} DRAM)",
                found=f"{sram} SRAM, {dram} DRAM",
                expected=f"at most {SRAM_CORRECTED_LIMIT} SRAM, {DRAM_CORRECTED_LIMIT} DRAM",
            )
        return None

    needs, also = ("ecc_volatile_dram_corrected",), ("ecc_volatile_sram_corrected",)
    what, good = "correctable memory errors", "has few correctable memory errors"
    yield from each_gpu(health, judge, what=what, good=good, needs=needs, also=also, hidden=_ecc_off,
                        additive=True)  # fmt: skip


@check(
    "gpu.row-remap",
    title="No row remapping is pending or failed, and spare rows are left",
    fault="A row remapping is pending or failed, or spare rows are used up",
    impact="loses-redundancy",
    explains=(("gpu.recovery-action", "part"),),
    source=f"{ROW_REMAP} (row remapping); limit of 512: azurehpc-health-checks, OCI, DCGM",
    fix=RESET,
    action="reset",
    separate=True,
    unless=(no_gpu,),
)
def row_remap(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Judge each GPU's pending, failed and completed row remappings, and spare rows.

    ## Why it matters
    A pending remapping means that a row is known to be bad and still in use: the next job that touches it dies. A
    failed remapping means that no spare row is left.

    ## Verdicts
    A GPU fails with 512 rows remapped for uncorrectable errors (the vendor's limit), or with a failed or pending
    remapping. Banks with few or no spare rows warn. With MIG on, the driver reports N/A; GPUs before Ampere retire
    pages instead.

    ## False alarms
    None known: remappings for correctable errors, and a handful for uncorrectable ones, are completed repairs and pass.
    """
    yield from judge_row_remap(node.gpu_health)


def judge_row_remap(health: Health) -> Iterator[Finding]:
    """Judge the row remapper of each GPU."""

    def judge(gpu: GpuHealth) -> Finding | None:
        rows = gpu.remapped_uncorrected or 0
        if gpu.remap_failure:
            pending = ", and one waits for a reset" if gpu.remap_pending else ""
            return failed(f"a row remapping failed{pending}", found="failure", expected="none", fix=REPLACE,
                          action="replace")  # fmt: skip
        if rows >= REMAPPED_LIMIT:
            return failed(
                f"{rows} rows are remapped for uncorrectable errors",
                found=rows,
                expected=f"fewer than {REMAPPED_LIMIT}",
                fix=REPLACE,
                action="replace",
            )
        if gpu.remap_pending:
            return failed("a row remapping waits for a reset", found="pending", expected="none")
        *_, low, none = gpu.remap_banks or (0, 0)
        if low or none:
            return warned(
                f"few or no spare rows in {counted(low + none, 'memory bank')}",
                found=f"{low} with few, {none} with no spare rows",
                expected="spare rows in all banks",
                fix="Plan to replace the GPU: once a bank has no spare row, its next remapping fails.",
            )
        return None

    needs = ("remapped_uncorrected", "remap_pending", "remap_failure")
    what, good = "remapped rows", "has no pending or failed row remapping"
    yield from each_gpu(health, judge, what=what, good=good, needs=needs, hidden=_mig_hides, additive=True)


@check(
    "gpu.retired-pages",
    title="No page retirement is pending, and few pages are retired",
    fault="A page retirement is pending, or many pages are retired",
    impact="loses-redundancy",
    source="https://docs.nvidia.com/deploy/dynamic-page-retirement/; limits: azurehpc-health-checks, DCGM",
    fix=RESET,
    action="reset",
    separate=True,
    unless=(no_gpu,),
)
def retired_pages(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Judge the retired pages of GPUs that retire pages (Volta and older).

    ## Why it matters
    A page with a pending retirement is known to be bad but still given to jobs; a GPU with 60 retired pages cannot
    retire more.

    ## Verdicts
    A pending retirement or 60 retired pages fail; 15 pages retired for double-bit errors warn. Ampere and newer remap
    rows instead; the driver reports N/A there, and the check does not apply.

    ## False alarms
    Pages that an old GPU retired over time for single-bit errors; below the limit this is normal.
    """
    yield from judge_retired_pages(node.gpu_health)


def judge_retired_pages(health: Health) -> Iterator[Finding]:
    """Judge the retired pages of each GPU."""

    def judge(gpu: GpuHealth) -> Finding | None:
        single, double = gpu.retired_single or 0, gpu.retired_double or 0
        found = f"{single} single-bit, {double} double-bit"
        if single + double >= RETIRED_LIMIT:
            pending = ", and another retirement waits for a reset" if gpu.retired_pending else ""
            message = f"{single + double} pages are retired{pending}"
            return failed(message, expected=f"fewer than {RETIRED_LIMIT}", fix=REPLACE, action="replace", found=found)
        if gpu.retired_pending:
            return failed("a page retirement waits for a reset", expected="none", found=found)
        if double >= RETIRED_DOUBLE_LIMIT:
            message = f"{double} pages are retired for double-bit errors"
            return warned(message, expected=f"fewer than {RETIRED_DOUBLE_LIMIT}", fix=REPLACE, found=found)
        return None

    needs = ("retired_single", "retired_double", "retired_pending")
    yield from each_gpu(health, judge, what="retired pages", good="has few retired pages", needs=needs,
                        additive=True)  # fmt: skip
