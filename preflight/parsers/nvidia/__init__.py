"""Output of ``nvidia-smi``."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preflight.parsers.nvidia import (  # noqa: F401
        nvlink_errors,
        nvlink_status,
        topo_matrix,
        topology,
        xid_marks,
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
