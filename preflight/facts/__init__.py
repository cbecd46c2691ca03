"""Typed facts, read from evidence: ``parse_x(text) -> X``, one module per source.

A module is imported on first use: most nodes lack most of the sources.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight._startup.lazy_package import submodules

if TYPE_CHECKING:
    from preflight.facts import (  # noqa: F401
        addresses,
        benchmark_metadata,
        campaign_ports,
        clock,
        collection_hint,
        compatibility,
        congestion,
        container,
        container_image,
        counter_catalogue,
        counter_growth,
        cpu_time,
        fabric,
        gids,
        gpudirect,
        host,
        interfaces,
        job,
        kernel,
        kernel_log,
        logged_faults,
        lspci,
        majority,
        nccl_environment,
        nccl_gpudirect,
        nccl_kill_switches,
        nccl_root_cause,
        nccl_settings,
        network_mounts,
        network_switch,
        nic_bandwidth,
        nic_firmware,
        node,
        nvidia,
        pci,
        pod,
        port_qos,
        port_stalls,
        rank_binding,
        rdma_ports,
        roce_chain,
        sharp_files,
        streamed_log,
        switch,
        system_settings,
        time_series,
        trace,
        two_readings,
        unique_ids,
        versions,
        xid,
    )
else:
    __getattr__ = submodules(__name__)
