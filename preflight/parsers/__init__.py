"""Parsers of what tools and drivers print: text in, typed values out."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preflight.parsers import (  # noqa: F401
        host,
        infiniband,
        job_log,
        job_output,
        line_selection,
        messages,
        nccl_log,
        nccl_tests,
        network,
        nvidia,
        parsed,
        provenance,
        qos,
        registry,
        switch,
        text_block,
        torch,
        trace,
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
