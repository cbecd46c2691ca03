"""Output of ``nvidia-smi``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight._startup.lazy_package import submodules

if TYPE_CHECKING:
    from preflight.parsers.nvidia import (  # noqa: F401
        nvlink_status,
        topo_matrix,
    )
else:
    __getattr__ = submodules(__name__)
