"""Parsers of the output of QoS tools."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight._startup.lazy_package import submodules

if TYPE_CHECKING:
    from preflight.parsers.qos import (  # noqa: F401
        dcb,
        mlnx_qos,
    )
else:
    __getattr__ = submodules(__name__)
