"""The GPUs of a node, from NVML and ``nvidia-smi``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight._startup.lazy_package import submodules

if TYPE_CHECKING:
    from preflight.facts.nvidia import (  # noqa: F401
        health,
        link_errors,
        model,
        nvml,
        query,
        smi_xml,
    )
else:
    __getattr__ = submodules(__name__)
