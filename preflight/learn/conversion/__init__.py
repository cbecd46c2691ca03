"""A cluster file from the configuration of another tool.

The supported sources are nhc.conf of LBNL Node Health Check, and manifests of gcm's health checks.

The source is never executed. Settings without a counterpart are listed with file, line and reason, as comments in the
file and in the result.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight._startup.lightclass import dataclass
from preflight.errors import PreflightError
from preflight.expectations.cluster_file import ClusterFileError, decode
from preflight.learn.conversion.gcm import convert_gcm
from preflight.learn.conversion.nhc import convert_nhc
from preflight.learn.conversion.writer import describe_loss, write_classes

__all__ = ["Conversion", "ConversionError", "convert"]


class ConversionError(PreflightError):
    """The configuration of another tool cannot be read."""


@dataclass(frozen=True)
class Conversion:
    """The cluster file, and the settings of the source that the file lacks."""

    text: str  # empty: no setting has a counterpart
    kind: str  # nhc.conf or gcm manifest
    classes: int
    lost: tuple[str, ...]  # file, line, text and reason of each
    covered: tuple[str, ...]  # judged without a key


def convert(raw: bytes, source: str, hosts: Sequence[str] = ()) -> Conversion:
    """Convert a configuration.

    ``source`` is the name of its file, ``hosts`` are the names of all nodes.

    Raises ConversionError if the source cannot be parsed.
    """
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConversionError(f"{source}:{line}: not UTF-8 text (byte {error.start})") from None
    manifest = text.lstrip().startswith("{") and "||" not in text.lstrip().partition("\n")[0]
    kind = "gcm manifest" if manifest else "nhc.conf"
    try:
        classes, losses = (convert_gcm if manifest else convert_nhc)(text, hosts)
    except ValueError as error:
        raise ConversionError(f"{source}: {error}") from None
    lost = tuple(describe_loss(source, loss) for loss in losses if not loss.covered)
    covered = tuple(describe_loss(source, loss) for loss in losses if loss.covered)
    if all(each.pattern for each in classes):
        return Conversion("", kind, 0, lost, covered)
    made = write_classes(source, classes, losses)
    try:
        decode(made.encode(), source)
    except ClusterFileError as error:
        raise ConversionError(f"{source}: the converted file is not valid, please report it: {error}") from None
    return Conversion(made, kind, sum(not each.pattern for each in classes), lost, covered)
