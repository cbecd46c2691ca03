"""Parsers of nccl-tests reports, as text and JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight._startup.lazy_package import submodules

if TYPE_CHECKING:
    from preflight.parsers.nccl_tests import (  # noqa: F401
        builder,
        collective,
        curve,
        json_output,
        markers,
        model,
        table,
        text,
        unwrap,
    )
else:
    __getattr__ = submodules(__name__)
