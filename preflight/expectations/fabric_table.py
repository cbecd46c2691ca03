"""Expectations for the InfiniBand fabric: the cluster file's table ``[fabric]``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from preflight._startup.lightclass import dataclass, field
from preflight.evidence import safe_read
from preflight.expectations import schema

if TYPE_CHECKING:
    from preflight.facts.fabric.reference import Reference


def device(value: Any) -> str:
    """Accept the name of an RDMA device that is safe as an argument of a command."""
    import re

    if not isinstance(value, str) or not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9_.]{0,63}", value):
        raise ValueError('takes the name of an RDMA device: "mlx5_0"')
    return value


@dataclass(frozen=True)
class FabricTable:
    """The table ``[fabric]``; without it, nothing is expected and no node sweeps."""

    sweep_from: str | None = schema.key(schema.text, "the one node that sweeps the fabric with --fabric")
    device: str | None = schema.key(device, "RDMA device from which the fabric is swept; default: the first active one")
    reference: str | None = schema.key(schema.file_name, "file of a good sweep: `ibnetdiscover > FILE`, or evidence")
    oversubscription: float | None = schema.key(
        schema.number(0.1, 100), "ratio of the link rates below and above a leaf, by design; 1 is non-blocking"
    )
    sharp: bool | None = schema.key(schema.boolean, "whether jobs should use SHARP, the reduction inside the switches")


@dataclass(frozen=True)
class FabricSite:
    """The expectations for a sweep, and their source."""

    path: str = ""
    settings: FabricTable = field(default_factory=FabricTable)
    reference: Reference | None = None

    def source(self, key: str) -> str:
        """Return the name of a key of the table for a finding."""
        return f"{Path(self.path).name or 'cluster.toml'} fabric.{key}"


def read(reader: schema.TableReader, body: Any, path: str) -> FabricSite:
    """Read the table, and the reference file that it names; adds errors."""
    settings = reader.dataclass(FabricTable, body, ("fabric",))
    if settings.reference is None:
        return FabricSite(path, settings)
    from preflight.facts.fabric import reference as fabric_reference

    file = Path(path).parent / settings.reference
    try:
        if file.exists() and not file.is_file():
            raise ValueError("it is not a regular file")
        return FabricSite(
            path, settings, fabric_reference.read(safe_read.content(file, safe_read.DOCUMENT), settings.reference)
        )
    except OSError as error:
        reader.add_error(("fabric", "reference"), f"{file} cannot be read: {error.strerror}", "correct the path")
    except ValueError as error:
        fix = "sweep again while the fabric is good: `ibnetdiscover > FILE`"
        reader.add_error(("fabric", "reference"), f"{file} is not a reference: {error}", fix)
    return FabricSite(path, settings)
