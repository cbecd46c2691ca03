"""Parsers of the output of network tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight._startup.lazy_package import submodules

if TYPE_CHECKING:
    from preflight.parsers.network import (  # noqa: F401
        ethtool_module,
        listening,
        lldp,
        perftest,
        ping,
    )
else:
    __getattr__ = submodules(__name__)
