"""Parsers of tool and driver output: text in, typed values out."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight._startup.lazy_package import submodules

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
    )
else:
    __getattr__ = submodules(__name__)
