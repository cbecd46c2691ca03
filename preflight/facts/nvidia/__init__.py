"""GPUs of a node, from NVML and ``nvidia-smi``."""

from __future__ import annotations

from typing import TYPE_CHECKING

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

    def __getattr__(name):
        from importlib import import_module

        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
