"""Checks of a GPU's rates in a trace: matrix products, and copies within it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from preflight.checks.job.torch_trace import each
from preflight.expectations import Site
from preflight.expectations.roofline.datasheets import BF16_FLOPS, bandwidth_of_name
from preflight.expectations.roofline.machine import gpu_named
from preflight.facts.job import RunFacts
from preflight.model import Finding, check, passed, unknown, warned

#: Judgement calls: share of the peak that the largest matrix product reaches, and minimum operations to judge it.
REACHED, LARGE = 0.40, 1e12
#: Judgement call: share of the memory's bandwidth that a large copy reaches.
REACHED_MEMORY = 0.60
#: Judgement call: multiple of the datasheet's bandwidth above which a rate cannot be true.
IMPOSSIBLE_MEMORY = 1.05


@check(
    "torch.matrix-product",
    title="The largest matrix product runs at the rate of the GPU",
    fault="The largest matrix product runs far below the rate of the GPU",
    impact="slows-job",
    source="NVIDIA's datasheets (dense bfloat16); 40% of the peak is a judgement, healthy GPUs reach 60 to 80%",
    fix="Check clocks, power cap and temperature of that GPU (`nvidia-smi -q -d PERFORMANCE,CLOCK,POWER`).",
    answers=("GS-5",),
    scope="run",
    gating=False,
    needs=("trace",),
)
def matrix_product(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the rate of the largest matrix product of a trace with the GPU's peak.

    ## Why it matters
    A throttled GPU, or a slower part than was ordered, computes at a fraction of the expected rate without an error.

    ## Verdicts
    A product of M x K by K x N takes 2 M N K operations; its kernels give the time. The largest bfloat16 or float16
    product that occurs at least three times is compared. A rate below 40% of the dense peak warns if the product has
    at least 10^12 operations and no side below 1024. Smaller products, a GPU without a peak in the tables, or a trace
    without shapes are unknown.

    ## False alarms
    A kernel that always shares the SMs with a collective; float32 accumulation on parts that halve it.
    """
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        product = facts["matrix_product"]
        if not product:
            yield unknown(f"{name}: no large 16-bit matrix product with shapes is in the trace",
                          fix="profile with record_shapes=True", **at)  # fmt: skip
            continue
        gpu = gpu_named(facts["devices"][0]) if len(facts["devices"]) == 1 else None
        peak = BF16_FLOPS.get(gpu.name) if gpu is not None else None
        message = f"{name}: the largest {product['dtype']} product, {product['operations']:.3g} operations, runs at "
        message += f"{product['flops'] / 1e12:.3g} TFLOP/s (median of {product['count']})"
        found = f"{product['flops'] / 1e12:.3g} TFLOP/s"
        if peak is None:
            yield unknown(f"{message}; the peak of {', '.join(facts['devices']) or 'its GPU'} is not known",
                          found=found, fix="compare with its datasheet", **at)  # fmt: skip
        elif product["flops"] >= REACHED * peak:
            yield passed(f"{message}, {product['flops'] / peak:.0%} of the peak", found=found, **at)
        elif product["operations"] < LARGE:
            yield unknown(f"{message}, {product['flops'] / peak:.0%} of the peak: too small to reach it",
                          found=found, fix="profile a step with larger products", **at)  # fmt: skip
        else:
            yield warned(f"{message}, {product['flops'] / peak:.0%} of the peak", found=found,
                         expected=f"at least {REACHED * peak / 1e12:.3g} TFLOP/s", **at)  # fmt: skip


@check(
    "torch.memory-bandwidth",
    title="Large copies within a GPU run at the bandwidth of its memory",
    fault="The memory of a GPU is far slower than its model's",
    impact="slows-job",
    source="NVIDIA's datasheets (memory bandwidth); 60% of it is a judgement, healthy GPUs reach 75 to 90%",
    fix="Measure that GPU alone (`nvbandwidth -t device_local_copy`, `dcgmi diag -r 3`), and check its memory clock "
    "(`nvidia-smi -q -d CLOCK`).",
    answers=("GS-5",),
    scope="run",
    gating=False,
    needs=("trace",),
)
def memory_bandwidth(run: RunFacts, site: Site) -> Iterator[Finding]:
    """Compare the fastest large copy within a GPU with its memory bandwidth.

    ## Why it matters
    Many kernels of a model wait for memory. Memory that runs at a low clock, or that belongs to a slower part than was
    ordered, slows down all of them without an error.

    ## Verdicts
    A copy of N bytes moves 2 N: it reads and writes each byte. Of at least three copies of 256 MiB or more, which fit
    in no cache, the fastest is compared, because kernels running at the same time slow a copy down. A rate below 60%
    of the datasheet's bandwidth warns. A trace without such copies, a GPU whose bandwidth is not in the tables, and a
    rate above that bandwidth are unknown.

    ## False alarms
    Kernels that use the memory during all of these copies.
    """
    for key, name, facts in each(run):
        at: dict[str, Any] = {"subject": name, "evidence": [key]}
        copies = facts["memory_copies"]
        if not copies:
            yield unknown(f"{name}: fewer than three copies of 256 MiB within a GPU are in the trace",
                          fix="profile `x.clone()` of a tensor of 1 GiB, three times", **at)  # fmt: skip
            continue
        devices = facts["devices"]
        peak = bandwidth_of_name(devices[0]) if len(devices) == 1 else None
        rate = copies["bytes_per_s"]
        message = f"{name}: copies within the GPU move up to {rate / 1e9:.4g} GB/s (best of {copies['count']})"
        at["found"] = f"{rate / 1e9:.4g} GB/s"
        if peak is None:
            yield unknown(f"{message}; the bandwidth of {', '.join(devices) or 'its memory'} is not known",
                          fix="compare with its datasheet", **at)  # fmt: skip
        elif rate > IMPOSSIBLE_MEMORY * peak:
            yield unknown(f"{message}, {rate / peak:.0%} of its bandwidth, which is impossible: the GPU is a different "
                          "model, or the times are wrong", fix="compare its name with `nvidia-smi -L`",
                          **at)  # fmt: skip
        elif rate < REACHED_MEMORY * peak:
            yield warned(f"{message}, {rate / peak:.0%} of its bandwidth",
                         expected=f"at least {REACHED_MEMORY * peak / 1e9:.4g} GB/s", **at)  # fmt: skip
        else:
            yield passed(f"{message}, {rate / peak:.0%} of its bandwidth", **at)
