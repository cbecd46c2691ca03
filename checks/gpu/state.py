"""Checks of GPU state: clocks, heat, power, PCIe link, modes, recovery action."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from preflight import facts
from preflight.checks.applicability import no_gpu
from preflight.checks.gpu.per_gpu import each_gpu
from preflight.checks.in_logs import IN_LOGS
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, failed, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.nvidia.model import GpuHealth, Health

NVML_API = "https://docs.nvidia.com/deploy/nvml-api/"

#: Margin to the slowdown temperature, in degrees Celsius, at or below which the check warns: a judgement call.
MARGIN_LOW_C = 5

#: Event reasons of a GPU that works and is not slowed down: none, or the power cap (NVML, nvmlClocksEventReason*).
_AT_WORK = (0x00, 0x04)

#: The event reason of an idle GPU (nvmlClocksEventReasonGpuIdle), and the first performance state that saves power.
_GPU_IDLE, _SAVING = 0x01, 5

#: Utilisation in percent below which a GPU is idle and its PCIe link may slow down: a judgement call.
IDLE_PCT = 10

#: GPUs on one module with a processor, connected by NVLink-C2C; their PCIe link may be narrow by design.
SUPERCHIPS = ("GH200", "GB200", "GB300")


def _slowed() -> Mapping[int, tuple[str, str]]:
    """Map the event reasons that slow a GPU, worst first, to names and next steps."""
    power = "Check power supply and cooling; `nvidia-smi -q -d PERFORMANCE` shows the reason."
    rack = "Check power supplies, PDU and the rack's power cap; the board received a power brake signal."
    return {
        facts.nvidia.model.HW_THERMAL: (
            "hardware thermal slowdown",
            "Check air or coolant flow, fans and heat sinks of this GPU.",
        ),
        facts.nvidia.model.POWER_BRAKE: ("power brake", rack),
        facts.nvidia.model.HW_SLOWDOWN: ("hardware slowdown", power),
    }


@check(
    "gpu.throttling",
    title="No GPU is slowed down by heat or power",
    fault="Heat or power slows a GPU down",
    impact="slows-job",
    source=f"{NVML_API} (nvmlClocksEventReasons); reasons as gated by cyclecloud-healthagent",
    fix="Run `nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER`.",
    answers=("AN-11",),
    unless=(no_gpu,),
)
def throttling(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for clock event reasons that slow a GPU.

    These are hardware and software thermal slowdown, power brake, and other hardware slowdown.

    ## Why it matters
    One GPU at half its clock makes every GPU of the job wait in each collective; utilisation still shows 100%.

    ## Verdicts
    Hardware reasons fail; software thermal slowdown warns. Idle clocks, the power cap under load and clocks set on
    purpose are normal and not reported. The reading is momentary: a node that throttles only under load passes when
    idle. In `amd-smi` output, processor hot (prochot) fails and thermal violations warn; no active violation has been
    seen on a real AMD GPU, so an unrecognised status is unknown.

    ## False alarms
    A power brake during a planned power test of the rack, or of the GPU by its vendor's tool.
    """
    yield from judge_throttling(node.gpu_health)


def judge_throttling(health: Health) -> Iterator[Finding]:
    """Judge the reasons for each GPU's reduced clocks."""

    def judge(gpu: GpuHealth) -> Finding | None:
        reasons = gpu.event_reasons or 0
        for bit, (name, fix) in _slowed().items():
            if reasons & bit:
                return failed(f"{name} is active", found=f"reasons {reasons:#x}", expected="none", fix=fix)
        if reasons & facts.nvidia.model.SW_THERMAL:
            return warned("software thermal slowdown is active", found=f"reasons {reasons:#x}", expected="none")
        return None

    yield from each_gpu(
        health, judge, what="clock event reasons", good="runs without a slowdown", needs=("event_reasons",)
    )


@check(
    "gpu.temperature-margin",
    title="Every GPU is well below its own slowdown temperature",
    fault="A GPU is close to its slowdown temperature",
    impact="slows-job",
    explains=(("gpu.throttling", "part"), ("trend.temperature", "part")),
    source=f"{NVML_API} (nvmlDeviceGetMarginTemperature, T.Limit of nvidia-smi)",
    fix="Compare `nvidia-smi -q -d TEMPERATURE` with a good GPU; then check fans, coolant flow and inlet temperature.",
    answers=("AN-11",),
    unless=(no_gpu,),
)
def temperature_margin(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each GPU's margin to its slowdown temperature with 0 and 5 degrees.

    ## Why it matters
    A GPU without margin lowers its clocks as soon as the job starts, and slows the job.

    ## Verdicts
    Each GPU is compared with its own limit (T.Limit on Hopper and newer, the slowdown threshold before), because an
    absolute limit would fail healthy parts. A margin of at most 0 fails, at most 5 warns. In pasted `amd-smi` output,
    the limits are those of `amd-smi static` before it in the text.

    ## False alarms
    A short peak at the end of a burn-in; check again after a minute.
    """
    yield from judge_temperature_margin(node.gpu_health)


def judge_temperature_margin(health: Health) -> Iterator[Finding]:
    """Judge the degrees that each GPU has left before it slows down."""

    def judge(gpu: GpuHealth) -> Finding | None:
        margin = gpu.margin_c if gpu.margin_c is not None else MARGIN_LOW_C + 1
        if margin <= 0:
            return failed(
                f"{-margin} C above its slowdown temperature" if margin else "at its slowdown temperature",
                found=f"{margin} C",
                expected="above 0 C",
            )
        if margin <= MARGIN_LOW_C:
            return warned(
                f"{margin} C left before it slows down", found=f"{margin} C", expected=f"more than {MARGIN_LOW_C} C"
            )
        return None

    has_margin = any(gpu.temperature_margin_c is not None for gpu in health.gpus) if health.gpus else True
    needs = ("temperature_margin_c",) if has_margin else ("temperature_c", "temperature_slowdown_c")
    good = f"is more than {MARGIN_LOW_C} C below the slowdown temperature"
    yield from each_gpu(health, judge, what="temperature margin", good=good, needs=needs)


@check(
    "gpu.power-limit",
    title="No GPU's power limit is below its default",
    fault="A GPU's power limit is below its default",
    impact="slows-job",
    source=f"{NVML_API} (nvmlDeviceGetEnforcedPowerLimit, nvmlDeviceGetPowerManagementDefaultLimit)",
    fix="Run `nvidia-smi -q -d POWER` and find out what capped it (power-capping service, BMC, `nvidia-smi -pl`).",
    action="fix-site",
    answers=("AN-11",),
    unless=(no_gpu,),
)
def power_limit(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each GPU's power limit with its default.

    ## Why it matters
    A GPU capped to 70% of its power lowers its clocks in every matrix multiplication; if it is the only one, it slows
    all others.

    ## Verdicts
    A limit below the default warns and never fails. A higher limit passes, and so does the one declared in the cluster
    file (`gpu_settings.power_limit_w`).

    ## False alarms
    A site that caps all GPUs on purpose, for its power budget; declare the limit in the cluster file.
    """
    declared = site.declared("gpu_settings.power_limit_w")
    yield from judge_power_limit(node.gpu_health, declared[""].value if declared else None)


def judge_power_limit(health: Health, meant: float | None = None) -> Iterator[Finding]:
    """Judge the power limit of each GPU.

    ``meant`` is the declared limit in watts, or None.
    """

    def judge(gpu: GpuHealth) -> Finding | None:
        limit, default = gpu.power_enforced_w or 0, gpu.power_default_w or 0
        if limit < default - 0.5 and (meant is None or abs(limit - meant) > 0.5):
            return warned(
                f"power limit ({limit:g} W) is below its default", found=f"{limit:g} W", expected=f"{default:g} W"
            )
        return None

    needs = ("power_enforced_w", "power_default_w")
    good = "has a power limit at or above the default" + ("" if meant is None else ", or the declared one")
    yield from each_gpu(health, judge, what="power limit", good=good, needs=needs)


@check(
    "gpu.pcie-link",
    title="Every GPU's PCIe link has full width, and full speed under load",
    fault="A GPU's PCIe link lost width or speed",
    impact="slows-job",
    explains=(
        ("pcie.replay", "part"),
        ("counters.gpu-links", "part"),
        ("kernel.events", "part", "*", "*PCIe error*"),
    ),
    source=f"{NVML_API} (nvmlDeviceGetCurrPcieLinkWidth, nvmlDeviceGetMaxPcieLinkWidth)",
    fix="Drain the node, reseat the GPU or its riser; compare with the PCIe switch above it (`lspci -vv`).",
    answers=("PA-04",),
    unless=(no_gpu,),
)
def pcie_link(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each GPU's PCIe link with the maximum of GPU and slot.

    The width is always judged, the generation under load.

    ## Why it matters
    A link that lost half its lanes halves all traffic to host and NIC, and GPUDirect RDMA with it.

    ## Verdicts
    The width never changes to save power: fewer lanes are a fault. The generation drops on an idle GPU, so a low one is
    a fault only under load (a utilisation of at least 10%). Cards with 8 lanes are compared with 8. Fewer lanes fail,
    and so does a low generation under load. Otherwise, a low generation warns if the driver's clock event reasons show
    work. It is unknown if nothing shows that the GPU is idle: neither its utilisation nor a performance state of P5 or
    slower. On GH200, GB200 and GB300, fewer lanes only warn if no GPU of the node has more: the processor reaches these
    GPUs over NVLink-C2C.

    ## False alarms
    None known: generation 1 on an idle GPU saves power and is not judged.
    """
    yield from judge_pcie_link(node.gpu_health)


def judge_pcie_link(health: Health) -> Iterator[Finding]:
    """Judge the width of each PCIe link and, under load, its generation."""

    def judge(gpu: GpuHealth) -> Finding | None:
        width, widest = gpu.pcie_width or 0, gpu.pcie_width_max or 0
        generation, newest = gpu.pcie_generation or 0, gpu.pcie_generation_max or 0
        if width < widest and gpu.name and any(part in gpu.name for part in SUPERCHIPS) and width == most:
            return warned(f"PCIe link has {width} of {widest} lanes, and no GPU of the node has more: by design, or "
                          "because of a fault; traffic with the processor uses NVLink-C2C", found=f"x{width}",
                          expected=f"x{widest}, or the lanes of a healthy node of this model")  # fmt: skip
        if width < widest:
            return failed(f"PCIe link has {width} of {widest} lanes", found=f"x{width}", expected=f"x{widest}")
        if generation < newest and (gpu.utilisation_pct or 0) >= IDLE_PCT:
            return failed(f"PCIe link runs at generation {generation} under load", found=generation, expected=newest)
        if generation < newest and gpu.event_reasons in _AT_WORK:
            return warned(f"PCIe link runs at generation {generation} of {newest}, although the GPU is not idle",
                          found=generation, expected=newest)  # fmt: skip
        if generation < newest and not _shows_idle(gpu):
            return unknown(f"PCIe link runs at generation {generation} of {newest}, and nothing shows that the GPU is "
                           "idle", found=generation, expected=f"{newest}, or an idle GPU",
                           fix="Run `nvidia-smi --query-gpu=index,utilization.gpu,pcie.link.gen.current --format=csv` "
                           "under load.")  # fmt: skip
        return None

    most = max((gpu.pcie_width or 0 for gpu in health.gpus), default=0)
    slower = [gpu for gpu in health.gpus if (gpu.pcie_generation or 9) < (gpu.pcie_generation_max or 0)]
    resting = sum(judge(gpu) is None for gpu in slower)
    good = "has a PCIe link of full width" + (f" ({resting} at a lower generation while idle)" if resting else "")
    needs = ("pcie_width", "pcie_width_max", "pcie_generation", "pcie_generation_max")
    yield from each_gpu(health, judge, what="PCIe link", good=good, needs=needs)


def _shows_idle(gpu: GpuHealth) -> bool:
    """Return whether the driver's values show that a GPU is idle."""
    if gpu.utilisation_pct is not None:
        return gpu.utilisation_pct < IDLE_PCT
    return bool((gpu.event_reasons or 0) & _GPU_IDLE) or (gpu.performance_state or 0) >= _SAVING


@check(
    "gpu.persistence",
    title="Persistence mode is on",
    fault="Persistence mode is off",
    impact="drifts",
    source="https://docs.nvidia.com/deploy/driver-persistence/",
    fix="Run `systemctl enable --now nvidia-persistenced` (or `nvidia-smi -pm 1`).",
    action="fix-site",
    unless=(no_gpu,),
)
def persistence(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the persistence mode of each GPU with "on".

    ## Why it matters
    Without persistence mode, the driver shuts down an unused GPU: every job start waits for seconds, and the volatile
    error counters are lost each time.

    ## Verdicts
    Persistence mode that is off only warns, because a job runs at full speed without it. If nvidia-persistenced holds
    the device open, the mode shows as on.

    ## False alarms
    A monitoring daemon (DCGM) that holds every GPU open keeps the driver loaded although the mode is
    off.
    """
    yield from judge_persistence(node.gpu_health)


def judge_persistence(health: Health) -> Iterator[Finding]:
    """Judge the persistence mode of each GPU."""

    def judge(gpu: GpuHealth) -> Finding | None:
        return None if gpu.persistence else warned("persistence mode is off", found="off", expected="on")

    yield from each_gpu(health, judge, what="persistence mode", good="has persistence mode on", needs=("persistence",))


@check(
    "gpu.mig",
    title="No GPU is partitioned into MIG instances",
    fault="A GPU is partitioned into MIG instances",
    impact="blocks-job",
    explains=(("gpu.row-remap", "part"), ("gpu.utilisation-visible", "node", "*", "")),
    source="https://docs.nvidia.com/datacenter/tesla/mig-user-guide/ (no NVLink and no P2P between instances)",
    fix="Run `nvidia-smi -i N -mig 0`, then reset the GPU when no job uses it.",
    action="fix-site",
    unless=(no_gpu,),
)
def mig(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the MIG mode of each GPU, now and after a reset, with "off".

    ## Why it matters
    A job sees a slice with a share of the memory, without NVLink or P2P to its peers; NCCL between slices
    goes through the host.

    ## Verdicts
    MIG fails, because preflight checks nodes for training across GPUs; a pending change only warns.

    ## False alarms
    A node that is partitioned on purpose, for inference or notebooks; skip the check there (`--skip gpu.mig`).
    """
    yield from judge_mig(node.gpu_health)


def judge_mig(health: Health, training: bool = True) -> Iterator[Finding]:
    """Judge the MIG mode of each GPU.

    ``training`` is false if the purpose of the node is unknown; MIG then only warns.
    """

    def judge(gpu: GpuHealth) -> Finding | None:
        if gpu.mig:
            report = failed if training else warned
            return report("MIG is on", found="on", expected="off")
        if gpu.mig_pending:
            return warned("MIG will be on after the next reset", found="off, pending on", expected="off")
        return None

    yield from each_gpu(health, judge, what="MIG mode", good="has MIG off", needs=("mig",))


@check(
    "gpu.compute-mode",
    title="Every GPU accepts compute processes",
    fault="A GPU does not accept every compute process",
    impact="blocks-job",
    explains=IN_LOGS,
    source=f"{NVML_API} (nvmlComputeMode_t)",
    fix="Run `nvidia-smi -i N -c DEFAULT`.",
    action="fix-site",
    unless=(no_gpu,),
)
def compute_mode(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Judge the compute mode of each GPU.

    The mode is Default, Exclusive (one process) or Prohibited.

    ## Why it matters
    A prohibited GPU refuses every CUDA context, and the job dies with "all CUDA-capable devices are busy or
    unavailable".

    ## Verdicts
    Prohibited fails. Exclusive warns: one process on each GPU works, but MPS, a debugger or a second context of the
    same rank does not.

    ## False alarms
    A batch system that sets Exclusive on purpose; training with one process on each GPU runs in this mode.
    """
    yield from judge_compute_mode(node.gpu_health)


def judge_compute_mode(health: Health) -> Iterator[Finding]:
    """Judge the compute mode of each GPU."""

    def judge(gpu: GpuHealth) -> Finding | None:
        if gpu.compute_mode == "Prohibited":
            return failed("compute mode is Prohibited", found="Prohibited", expected="Default")
        if gpu.compute_mode != "Default":
            return warned(f"compute mode is {gpu.compute_mode}", found=gpu.compute_mode, expected="Default")
        return None

    yield from each_gpu(health, judge, what="compute mode", good="has compute mode Default", needs=("compute_mode",))


@check(
    "gpu.recovery-action",
    title="The driver requests no recovery action",
    fault="The driver requires a recovery action",
    impact="blocks-job",
    source=f"{NVML_API} (NVML_FI_DEV_GET_GPU_RECOVERY_ACTION, driver 565 and newer)",
    fix="Drain the node, then do what the driver requests: `nvidia-smi -r -i N` (ends all jobs on that GPU), or "
    "reboot.",
    action="reset",
    separate=True,
    unless=(no_gpu,),
)
def recovery_action(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Read the recovery action that the driver requests, such as a reset or reboot.

    ## Why it matters
    The driver knows the effect of its last error on the GPU; a job that starts before the action is taken hits the same
    error again.

    ## Verdicts
    The driver's request overrides the table entry of an Xid. Anything but "None" fails; an action that this version
    does not know is unknown. Drivers before 565 do not report it; the check does not apply there.

    ## False alarms
    "Drain P2P" on a node with single-GPU jobs: they may continue until it is drained.
    """
    yield from judge_recovery_action(node.gpu_health)


def judge_recovery_action(health: Health) -> Iterator[Finding]:
    """Judge the recovery action that the driver requests for each GPU."""
    actions = {"Reboot": "reboot", "System Reboot": "reboot", "Recover IMEX Domain": "fix-site"}
    fixes = {
        "Reset": "Drain the GPU's jobs, then run `nvidia-smi -r -i N` (it ends all jobs on this GPU).",
        "Drain and Reset": "Wait for the jobs on this GPU to end, then run `nvidia-smi -r -i N`.",
        "Drain P2P": "Wait for jobs that use NVLink or P2P with this GPU to end, then reset it.",
        "Reboot": "Drain the node and reboot it.",
        "System Reboot": "Drain the node and reboot it.",
    }

    def judge(gpu: GpuHealth) -> Finding | None:
        action = gpu.recovery_action or ""
        if action == "None":
            return None
        if action.startswith("unknown"):
            return unknown(f"the driver requests a recovery action that is {action}", found=action, expected="None")
        return failed(f"the driver requests the recovery action {action}", found=action, expected="None",
                      fix=fixes.get(action, ""), action=actions.get(action, "reset"))  # fmt: skip

    needs = ("recovery_action",)
    yield from each_gpu(health, judge, what="recovery action", good="needs no recovery action", needs=needs)
