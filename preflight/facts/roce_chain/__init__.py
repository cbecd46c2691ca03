"""The RoCE chain of a port."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight._startup.lazy_package import submodules

if TYPE_CHECKING:
    from preflight.facts.roce_chain import (  # noqa: F401
        addressing,
        chain,
        flow_control,
        marking,
        model,
    )
else:
    __getattr__ = submodules(__name__)
