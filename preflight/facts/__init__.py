"""Typed facts, read from evidence: ``parse_x(text) -> X``, one module per source.

``facts.xid`` imports that parser when it is first spoken of: most nodes lack most of what there is to read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight.facts.node import NodeFacts
from preflight.facts.run import RunFacts

__all__ = ["NodeFacts", "RunFacts"]

if TYPE_CHECKING:
    from preflight.facts import (  # noqa: F401
        addresses,
        binding,
        checkpoint,
        clock,
        congestion,
        container,
        counter_table,
        counters,
        cpu_time,
        dcb,
        fabric,
        fabric_compare,
        fabric_graph,
        fabric_load,
        fabric_reference,
        gids,
        gpu,
        gpu_health,
        gpu_model,
        gpudirect,
        held,
        host,
        ib_manager,
        kernel,
        kernel_log,
        lldp,
        lspci,
        mlnx_qos,
        nccl_cause,
        nccl_collective,
        nccl_curve,
        nccl_env,
        nccl_lint,
        nccl_log,
        nccl_tests,
        net,
        network_switch,
        optics,
        perftest,
        ping,
        qos,
        rdma,
        roce_addressing,
        roce_chain,
        services,
        topo,
        torch_trace,
        versions,
        xid,
        xid_policy,
    )
else:

    def __getattr__(name):
        from importlib import import_module

        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
