"""Parsers of the output of infiniband-diags, ibdiagnet and OpenSM."""

from __future__ import annotations

from typing import TYPE_CHECKING

from preflight._startup.lazy_package import submodules

if TYPE_CHECKING:
    from preflight.parsers.infiniband import (  # noqa: F401
        iblinkinfo,
        ibnetdiscover,
        ibqueryerrors,
        ibqueryerrors_data,
        sminfo_saquery,
    )
else:
    __getattr__ = submodules(__name__)
