"""Time of a step: arithmetic, memory, exposed communication, bubble, optimizer.

Only one constant is fitted for each GPU generation and precision: the share of the datasheet's FLOP/s that large matrix
products reach in training. Everything else follows from the job and the cluster.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from preflight._startup.lightclass import dataclass, replace
from preflight.expectations.roofline.collectives import NIC_PAIRS, NICS, PAIRS, RING
from preflight.layout.arithmetic import model_flops, operations
from preflight.layout.hardware import Hardware
from preflight.layout.job import RINGS, LayoutError, TrainingJob, Transformer
from preflight.layout.memory import FUSED, GIB, memory
from preflight.layout.placement import RankPlacement, Spread
from preflight.layout.traffic import Exchange, exchanges, factor

#: Share of the datasheet's FLOP/s that matrix products reach, fitted to published runs (docs/plan.md).
EFFICIENCY = {("Ampere", "bf16"): 0.77, ("Hopper", "bf16"): 0.64, ("Hopper", "fp8"): 0.51}

#: Generations without published runs, and the generation whose share is used for each.
_LIKE = {"Blackwell": "Hopper", "Volta": "Ampere"}

#: Ranges of published runs, as ratios to the computed time: for dense models on fitted generations, for those on other
#: generations, and for models with experts, whose small products and exchanges vary most (docs/plan.md).
FITTED, NOT_FITTED, EXPERTS = (0.86, 1.16), (0.80, 1.28), (0.75, 4.0)

#: The same for frameworks other than Megatron-LM and NeMo, whose kernels and overlap vary.
UNTUNED = (0.78, 3.0)

#: Share of a GPU's memory above which PyTorch's allocator frees and reallocates it in each step, and the maximum
#: slowdown of a step then (llm-foundry's largest sequence: 1.4).
FULL, SLOWED = 0.92, 1.5

#: Ratio of the FLOP/s that a GPU sustains to those of its datasheet. GB200 has the chip of B200, whose datasheet states
#: 2250 instead of 2500 TFLOP/s; the power limits of GB300 and GB200 are 1400 and 1200 W, of B300 and B200 1100 and 1000
#: W, and bound the clock of large matrix products (NVIDIA's datasheets).
SUSTAINED = {"GB200": 2250 / 2500, "GB300": 2250 / 2500 * 1400 / 1200, "B300 SXM": 1100 / 1000}

#: NVLink domain size -> number of its GPUs that a job is assumed to use: 16 of 18 trays (Slurm, topology/block:
#: ``--segment=16``), so groups with power-of-two sizes remain within it.
SEGMENT = {72: 64}

#: Columns of a product's inner dimension that filling and draining its tiles costs: three stages of 64 and the
#: epilogue.
FILL = 448

#: Kernel -> GPU generation -> shares of the datasheet's bf16 FLOP/s that fused attention reaches in causal sequences
#: with heads of 128, forward and backward. NVIDIA's frameworks use cuDNN, others FlashAttention-2. FlashAttention in
#: Triton takes 1.3 to 2.5 times as long as that; here 1.4 times forward and 1.9 times backward (T. Dao,
#: FlashAttention-2, 2023; J. Shah et al., FlashAttention-3, 2024).
ATTENTION = {
    "cudnn": {"Ampere": (0.60, 0.55), "Hopper": (0.54, 0.49)},
    "flash-2": {"Ampere": (0.60, 0.55), "Hopper": (0.33, 0.29)},
    "triton": {"Ampere": (0.43, 0.29), "Hopper": (0.236, 0.153)},
}

#: Names of the attention kernels in texts.
_KERNELS = {"cudnn": "cuDNN", "flash-2": "FlashAttention-2", "triton": "FlashAttention in Triton"}

#: Exponent with which the clock of a busy GPU follows its power limit: at 600 of 700 W, a step takes 10 to 15% longer
#: on H100 (Factryze, Power Capping). A linear law would give 17%, a voltage in proportion to the clock 5%.
POWER = 0.75

#: Share of a GPU's SMs that the kernels of an exchange occupy while arithmetic hides it: 24 of 108 on A100, 24 of 132
#: on H100 (channels of NCCL's rings).
OCCUPIED = 0.2

#: Bytes per logit that the loss and its gradient move: of unfused kernels in float32, and of fused ones.
LOSS_BYTES = (36, 20)

#: Share of the memory bandwidth that element-wise kernels reach.
MEMORY_SHARE = 0.80

#: Latency of a collective in seconds: on NVLink, and added for each doubling of the nodes.
START, HOP = 15e-6, 8e-6

#: Share of one microbatch's backward pass that can hide the reduction of gradients.
BEHIND = 0.8

#: Share of overlapped tensor-parallel communication that remains exposed: the first and last part of each product.
UNHIDDEN = 0.3


@dataclass(frozen=True)
class StepPart:
    """The seconds of a step that are spent on one purpose."""

    name: str
    seconds: float  # exposed seconds, which add to the step
    hidden: float = 0.0  # seconds that overlap with arithmetic
    busbw: float | None = None  # assumed bus bandwidth in GB/s
    basis: str = ""  # basis of ``busbw``: measured or customary
    level: str = ""  # highest level of links that it crosses


@dataclass(frozen=True)
class Step:
    """The time of a step, and its parts."""

    parts: tuple[StepPart, ...]
    low: float
    high: float
    model_flops: float  # per GPU and step
    peak: float  # FLOP/s of a GPU in the job's precision
    bubble: float  # as a share of the steady time

    @property
    def seconds(self) -> float:
        """The sum of the exposed parts."""
        return sum(part.seconds for part in self.parts)

    @property
    def flops(self) -> float:
        """The model FLOP/s of a GPU, without recomputation."""
        return self.model_flops / self.seconds

    @property
    def mfu(self) -> float:
        """The model FLOP/s utilisation: the share of the datasheet's FLOP/s."""
        return self.flops / self.peak


def bubble(pipeline: int, virtual_stages: int, microbatches: int) -> float:
    """Return the pipeline bubble as a share of the steady time: (p-1)/(v m)."""
    return (pipeline - 1) / (virtual_stages * microbatches)


def bubble_share(pipeline: int, virtual_stages: int, microbatches: int) -> float:
    """Return the pipeline bubble as a share of the step: (p-1)/(v m + p - 1)."""
    return (pipeline - 1) / (virtual_stages * microbatches + pipeline - 1)


def active_stages(pipeline: int, microbatches: int) -> list[int]:
    """Return the number of busy stages in each slot, until the pipeline is empty.

    Each pass takes one slot; a stage may run a forward and a backward pass in the same slot.
    """
    steps = microbatches + 2 * pipeline - 2
    active = [0] * steps
    for stage in range(pipeline):
        forward = range(stage, stage + microbatches)
        backward = range(2 * pipeline - 2 - stage, 2 * pipeline - 2 - stage + microbatches)
        for number in {*forward, *backward}:
            active[number] += 1
    return active


def efficiency(hardware: Hardware, precision: str) -> float | None:
    """Return the share of FLOP/s that matrix products reach; None if unknown."""
    generation = hardware.gpu.generation
    return EFFICIENCY.get((_LIKE.get(generation, generation), "fp8" if precision == "fp8" else "bf16"))


def step(job: TrainingJob, hardware: Hardware) -> Step:
    """Return the time of a step. Raises LayoutError if the GPU or NIC is unknown."""
    peak, share = hardware.flops(job.schedule.precision), efficiency(hardware, job.schedule.precision)
    half, memory_rate = hardware.flops("bf16"), hardware.memory_bandwidth
    if peak is None or share is None or half is None:
        raise LayoutError(
            f"the arithmetic of {hardware.gpu.name} in {job.schedule.precision} is not in the catalogue, so the time "
            "of a step is unknown"
        )
    if memory_rate is None:
        raise LayoutError(
            f"the memory of {hardware.gpu.name} has several sizes, and their bandwidths differ; state it: "
            "--on '..., 80 GB'"
        )
    sustained = _sustained(hardware)
    ahead, back = (sustained * half * own for own in _attention(job, hardware)[1])
    rates = _Rates(
        sustained * share * peak, sustained * _bf16(hardware) * half, ahead, back, MEMORY_SHARE * memory_rate
    )
    hardware = segmented(hardware, job)
    forward, backward, last = _microbatch(job, rates)
    microbatches, stages = job.microbatches, job.parallel.pipeline
    depth = job.depths[-1] / job.layers  # relative depth of the last stage, which also computes the logits
    steady = microbatches * max(forward + backward, depth * (forward + backward) + last)
    waiting = (stages - 1) / job.parallel.virtual_stages * (forward + backward)
    parts = [StepPart("compute", steady), StepPart("bubble", waiting)]
    moved = exchanges(job, RankPlacement(hardware, job.gpus))
    parts += [part for exchange in moved if (part := _exposed(job, hardware, exchange, forward, backward)) is not None]
    # the pipeline also waits for tensor and expert communication of other stages
    inside = sum(part.seconds for part in parts if part.name in ("tensor", "expert", "context"))
    occupied = OCCUPIED * sum(part.hidden for part in parts if part.name in ("data", "context"))
    parts[0] = StepPart("compute", steady + occupied)
    parts[1] = StepPart("bubble", waiting + inside / microbatches * (stages - 1) / job.parallel.virtual_stages)
    parts.append(StepPart("optimizer", _optimizer(job, rates.memory)))
    total = sum(part.seconds for part in parts)
    low, high = _range(job, hardware)
    return Step(
        tuple(parts), low * total, high * total, model_flops(job.model, job.schedule.sequence) * job.tokens / job.gpus,
        peak, bubble(stages, job.parallel.virtual_stages, microbatches),
    )  # fmt: skip


def assumptions(job: TrainingJob, hardware: Hardware) -> Iterator[tuple[str, str, str]]:
    """Yield the rates and the range behind the time of a step: name, value, origin."""
    precision = job.schedule.precision
    peak, share, memory_rate = hardware.flops(precision), efficiency(hardware, precision), hardware.memory_bandwidth
    if peak is None or share is None or memory_rate is None:
        return
    sustained = _sustained(hardware)
    sheet = f"the datasheet's {peak / 1e12:,.0f} in {precision}"
    yield ("matrix products", f"{sustained * share * peak / 1e12:,.0f} TFLOP/s",
           f"{sustained * share:.3g} of {sheet}; fitted to published runs")  # fmt: skip
    if hardware.power_share < 1:
        yield ("power limit", f"{hardware.power_w:g} W", f"the clock falls to {hardware.power_share**POWER:.0%}")
    if job.schedule.fused_attention:
        kernel, (ahead, back) = _attention(job, hardware)
        half = sustained * (hardware.flops("bf16") or 0.0) / 1e12
        yield ("attention", f"{ahead * half:,.0f} TFLOP/s",
               f"{_KERNELS[kernel]} in benchmarks; backward {back * half:,.0f}")  # fmt: skip
    sheet = "the stated" if hardware.memory_rate else "the datasheet's"
    yield ("GPU memory", f"{MEMORY_SHARE * memory_rate / 1e12:.3g} TB/s",
           f"{MEMORY_SHARE:g} of {sheet} {memory_rate / 1e12:.3g}")  # fmt: skip
    low, high = _range(job, hardware)
    yield "range", f"{low:g} to {high:g}", "published runs: ratios of their times to the computed ones"


def _sustained(hardware: Hardware) -> float:
    """Return the FLOP/s that a GPU sustains, relative to those of its datasheet."""
    capped: float = hardware.power_share**POWER
    return SUSTAINED.get(hardware.gpu.name, 1.0) * capped


def _attention(job: TrainingJob, hardware: Hardware) -> tuple[str, tuple[float, float]]:
    """Return the job's attention kernel and its shares of the bf16 FLOP/s."""
    kernel = job.schedule.attention_kernel or ("cudnn" if job.schedule.framework in FUSED else "flash-2")
    return kernel, ATTENTION[kernel][_LIKE.get(hardware.gpu.generation, hardware.gpu.generation)]


def segmented(hardware: Hardware, job: TrainingJob) -> Hardware:
    """Return the hardware with NVLink domains of the size that a job uses.

    It is returned unchanged if nodes are named, or if the job or the number of racks does not allow such segments.
    """
    machine = hardware.machine
    size = SEGMENT.get(machine.domain)
    group = job.parallel.expert * job.parallel.expert_tensor
    if size is None or hardware.names or job.gpus <= size or size % group or job.gpus % size:
        return hardware
    racks, more = divmod(hardware.gpus or 0, machine.domain)
    if hardware.gpus is not None and not more and job.gpus // size > racks:  # complete racks, but too few
        return hardware
    return replace(hardware, machine=replace(machine, domain=size))


def _range(job: TrainingJob, hardware: Hardware) -> tuple[float, float]:
    """Return the range of 90% of published runs, as ratios to the computed time."""
    if job.model.experts:
        return EXPERTS
    if job.schedule.framework not in FUSED:
        return UNTUNED
    low, high = FITTED if hardware.gpu.generation not in _LIKE else NOT_FITTED
    if hardware.memory_gib is not None and memory(job).total > FULL * hardware.memory_gib * GIB:
        high = max(high, SLOWED)
    return low, high


def _bf16(hardware: Hardware) -> float:
    return efficiency(hardware, "bf16") or 0.0


@dataclass(frozen=True)
class _Rates:
    """The rates that a GPU reaches: FLOP/s, and bytes/s of its memory."""

    products: float
    bf16: float  # of products in bf16
    attention: float  # of fused attention, forward
    attention_back: float  # the same, backward
    memory: float


def _microbatch(job: TrainingJob, rates: _Rates) -> tuple[float, float, float]:
    """Return the seconds of a stage's forward and backward pass, and of the logits."""
    model, parallel, schedule = job.model, job.parallel, job.schedule
    own = operations(model, schedule.sequence)
    tokens = schedule.micro_batch * schedule.sequence / parallel.context
    layers, sparse = job.layers, job.expert_layers
    products = layers * own.attention * _attention_fill(job)
    products += (layers - sparse) * own.dense * _fill(model, model.feed_forward / parallel.tensor)
    products += sparse * own.sparse * _fill(model, model.expert_feed_forward)
    scores = layers * own.scores * (1 if schedule.fused_attention else 2)
    products_time = tokens * products / parallel.tensor / rates.products
    fused = schedule.fused_attention
    scores_time = tokens * scores / parallel.tensor / (rates.attention if fused else rates.bf16)
    softmax = 0.0
    if not schedule.fused_attention:  # the product, softmax and dropout read and write 16-bit scores
        softmax = tokens * layers * 12 * model.heads * schedule.sequence / parallel.tensor / rates.memory
    element = tokens * layers * _element_bytes(job) / rates.memory
    forward = products_time + scores_time + softmax + element
    # a fused kernel computes the scores again
    scores_back = scores_time * (2.5 * rates.attention / rates.attention_back if fused else 2)
    backward = 2 * products_time + scores_back + 2 * softmax + 2 * element
    if schedule.recompute == "full":
        backward += forward * job.recomputed
    elif schedule.recompute == "selective" and schedule.framework == "torchtitan":  # stores every second product
        backward += products_time / 2 + element
    elif schedule.recompute == "selective" and "core_attn" in schedule.recompute_modules.split(","):
        backward += scores_time + softmax
    loss = LOSS_BYTES[schedule.framework in FUSED] * model.vocabulary / rates.memory
    logits = tokens * (3 * own.output / rates.bf16 + loss) / parallel.tensor
    return forward, backward, logits


def _fill(model: Transformer, width: float) -> float:
    """Return the time of feed-forward products, relative to very large ones.

    Their inner dimensions are the hidden size and the width on a GPU; small ones are short compared with the pipeline
    depth of a tile.
    """
    into = (2 if model.gated else 1) / (3 if model.gated else 2)
    return into * (1 + FILL / model.hidden) + (1 - into) * (1 + FILL / max(1.0, width))


def _attention_fill(job: TrainingJob) -> float:
    """Return the time of attention's products, relative to very large ones.

    The output projection is a quarter of them.
    """
    width = job.model.heads * job.model.head_size / job.parallel.tensor
    return 0.75 * (1 + FILL / job.model.hidden) + 0.25 * (1 + FILL / max(1.0, width))


def _element_bytes(job: TrainingJob) -> float:
    """Return the bytes per token that one layer's element-wise kernels move."""
    model, tensor = job.model, job.parallel.tensor
    divided = tensor if job.parallel.sequence_parallel else 1
    hidden = 22 * model.hidden / divided
    each = 6 if model.gated else 4
    if job.schedule.framework not in FUSED and model.gated and not job.schedule.fused_kernels:
        # RMSNorm, rotary embedding and SwiGLU are several operations, partly in float32; each reads and writes
        hidden = (84 * model.hidden + 20 * (model.heads + model.kv_heads) * model.head_size) / divided
        each = 10
    inner = model.feed_forward
    if model.experts:
        sparse = model.active_experts * model.expert_feed_forward + model.shared_feed_forward
        part = model.expert_layers / model.layers
        inner = round(part * sparse + (1 - part) * inner)
        # rows are sorted by expert rank, by expert, and back: each reads and writes a row; the sum reads it once more
        hidden += part * 14 * model.active_experts * model.hidden / tensor
    return hidden + each * inner / tensor


def _optimizer(job: TrainingJob, memory_rate: float) -> float:
    """Return the seconds of Adam, which moves 30 bytes per parameter."""
    own = memory(job)
    divided = own.states / max(1e-9, job.schedule.master_bytes + job.schedule.moment_bytes)
    return 30 * divided / memory_rate


def bandwidth(hardware: Hardware, collective: str, spread: Spread) -> tuple[float, str]:
    """Return the busbw of a group's collective in GB/s, and its basis."""
    share = hardware.measured.get(f"{collective}/{spread.level}")
    customary = _customary(hardware, collective, spread)
    return (customary, "customary") if share is None else (share * customary, "measured")


def _customary(hardware: Hardware, collective: str, spread: Spread) -> float:
    machine, level = hardware.machine, spread.level
    inside = (
        PAIRS if collective in ("alltoall", "sendrecv") else RING.get(machine.gpu.generation, 0.76)
    ) * machine.nvlink
    if level == "NVLink":
        return inside
    if machine.node_nics is None:
        raise LayoutError("the NICs of a node are not known; name them, such as 8 x 400G")
    nic = machine.node_nics / machine.gpus  # share of one GPU
    over = hardware.fabric.oversubscription or 1.0 if level == "spine" else 1.0
    if collective == "sendrecv":
        return NICS * max(machine.nic or 0.0, nic) / over
    if collective == "alltoall":
        together = spread.ranks / max(1, spread.domains)  # number of the group's GPUs in one domain
        outside = (spread.ranks - together) / max(1, spread.ranks - 1)
        return min(inside, NIC_PAIRS * nic / over / max(outside, 1e-9))
    return min(inside, NICS * nic * max(1, spread.fewest) / over)  # all data passes the domain with the fewest GPUs


def seconds(hardware: Hardware, exchange: Exchange) -> tuple[float, float, str]:
    """Return the seconds of an exchange in a step, the assumed busbw, and its basis."""
    busbw, basis = bandwidth(hardware, exchange.collective, exchange.spread)
    each = exchange.size * factor(exchange.collective, exchange.spread.ranks) / (busbw * 1e9)
    nodes = exchange.spread.domains
    hops = max(0, nodes - 1).bit_length() * HOP
    return exchange.count * (each + START + hops), busbw, basis


def _exposed(
    job: TrainingJob, hardware: Hardware, exchange: Exchange, forward: float, backward: float
) -> StepPart | None:
    time, busbw, basis = seconds(hardware, exchange)
    schedule, parallel = job.schedule, job.parallel
    hidden = 0.0
    name = exchange.axis.partition(" ")[0]
    if name == "tensor" and schedule.overlap_tensor:
        hidden = (1 - UNHIDDEN) * time
    elif name == "context" and parallel.context_exchange in RINGS:
        # the ring overlaps with attention on the part that has already arrived
        hidden = min(time, 0.8 * job.microbatches * (forward + backward) * 0.5)
    elif name == "pipeline" and parallel.virtual_stages > 1:
        hidden = 0.8 * time
    elif name == "data" and parallel.sharding == "full":
        hidden = min(0.95 * time, BEHIND * job.microbatches * (forward + backward))
    elif name == "data":
        behind = forward if exchange.collective == "all_gather" else backward
        overlapped = schedule.overlap_parameters if exchange.collective == "all_gather" else schedule.overlap_gradients
        hidden = min(time, BEHIND * behind) if overlapped else 0.0
    return StepPart(name, time - hidden, hidden, busbw, basis, exchange.spread.level)


def joined(parts: Sequence[StepPart]) -> list[StepPart]:
    """Merge the parts with the same name, in order."""
    by_name: dict[str, StepPart] = {}
    for part in parts:
        if (old := by_name.get(part.name)) is None:
            by_name[part.name] = part
        else:
            by_name[part.name] = StepPart(
                part.name, old.seconds + part.seconds, old.hidden + part.hidden, min(old.busbw or 0, part.busbw or 0),
                part.basis if part.basis == old.basis else "measured and customary", part.level,
            )  # fmt: skip
    return list(by_name.values())
