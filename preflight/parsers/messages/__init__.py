"""Error messages of drivers, CUDA, frameworks and schedulers.

The package has tables of signatures, and the search for lines that match one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from preflight.parsers.messages import (  # noqa: F401
        container_signatures,
        cuda_signatures,
        driver_signatures,
        error_words,
        host_signatures,
        logged_level,
        network_signatures,
        scan,
        signature,
        slurm_signatures,
        traceback,
        training_signatures,
    )
else:

    def __getattr__(name):
        try:
            return import_module(f"{__name__}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{__name__}.{name}":
                raise
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
