"""Parsers of the output of NVIDIA's tools and of the driver."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight._startup.lazy_package import submodules

if TYPE_CHECKING:
    from preflight.parsers.nvidia import (  # noqa: F401
        nvlink_errors,
        nvlink_status,
        topo_matrix,
        topology,
        xid_marks,
    )
else:
    __getattr__ = submodules(__name__)
