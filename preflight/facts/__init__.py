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
        clock,
        compatibility,
        congestion,
        container,
        counter_table,
        counters,
        course,
        cpu_time,
        fabric,
        fabric_compare,
        fabric_graph,
        fabric_load,
        fabric_reference,
        fleet,
        gids,
        gpu,
        gpu_health,
        gpu_model,
        gpu_nvml,
        gpu_xml,
        gpudirect,
        held,
        host,
        identity,
        image,
        kernel,
        kernel_log,
        lspci,
        mounts,
        nccl_cause,
        nccl_env,
        nccl_gpudirect,
        nccl_lint,
        nccl_switches,
        net,
        network_switch,
        nic_bandwidth,
        node,
        pci,
        pod,
        qos,
        rdma,
        record,
        roce_addressing,
        roce_chain,
        roce_link,
        roce_marking,
        roce_service,
        run,
        run_log,
        settings,
        sharp,
        supply,
        versions,
        window,
        xid,
        xid_judged,
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
