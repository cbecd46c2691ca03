"""Facts about an InfiniBand fabric, from sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight._startup.lazy_package import submodules

if TYPE_CHECKING:
    from preflight.facts.fabric import (  # noqa: F401
        compare,
        graph,
        load,
        reference,
        sweep,
    )
else:
    __getattr__ = submodules(__name__)
