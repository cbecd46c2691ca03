"""Output of tools of the host."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preflight.parsers.host import (  # noqa: F401
        checkpoint,
        kernel_event_kinds,
        kernel_events,
        kernel_log,
        mounts,
        processes,
        raid_arrays,
        services,
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
