"""The smallest batch per GPU, in tokens, that is compute-bound."""

from __future__ import annotations

from math import ceil


def data_parallel(flops: float, all_reduce: float) -> float:
    """Return the tokens per GPU at which data parallelism is compute-bound.

    They are the FLOP/s over twice the bytes/s of the gradients' all-reduce.
    """
    return flops / (2 * all_reduce)


def fully_sharded(flops: float, all_reduce: float) -> float:
    """Return the tokens per GPU at which FSDP is compute-bound.

    FSDP gathers weights and scatters gradients, twice the traffic of data parallelism.
    """
    return 2 * data_parallel(flops, all_reduce)


def tensor_ways(flops: float, egress: float, feed_forward: int, ways: int) -> float:
    """Return the largest number of GPUs over which a layer should be split.

    It is the width of the feed-forward layer times a GPU's bytes/s, over its FLOP/s times (n-1)/n, where n is ``ways``.
    """
    return feed_forward * egress / (flops * (ways - 1) / ways) if ways > 1 else float("inf")


def least(
    flops: float, all_reduce: float, *, sharded: bool = False, experts: int = 0, active: int = 0, speedup: float = 1.0
) -> float:
    """Return the tokens per GPU that hide the exchange of gradients.

    The number is for data parallelism, or for FSDP if ``sharded``. With experts, it is multiplied by the ratio of all
    experts to active ones. Expert parallelism divides it by ``speedup``, the factor by which it reduces the data that
    cross the level whose all-reduce bandwidth, ``all_reduce``, is given in bytes/s.
    """
    bound = fully_sharded(flops, all_reduce) if sharded else data_parallel(flops, all_reduce)
    return bound * experts / active / speedup if experts and active else bound


def too_few(bound: float) -> int:
    """Return the largest number of tokens that is below a bound."""
    return ceil(bound - 1e-6) - 1
