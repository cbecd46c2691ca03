"""Parsers of the output of host tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight._startup.lazy_package import submodules

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
    __getattr__ = submodules(__name__)
