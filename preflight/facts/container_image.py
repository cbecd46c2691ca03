"""The container image that the collector ran in, if any."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from preflight.evidence.document import Evidence, EvidenceError
from preflight.facts.pod import pod

if TYPE_CHECKING:
    from preflight.facts.node import NodeFacts

PODMAN = "file:/run/.containerenv"

#: Variables that contain the image of a process.
VARIABLES = (
    "APPTAINER_CONTAINER", "SINGULARITY_CONTAINER", "_SLURM_SPANK_OPTION_pyxis_container_image",
    "SLURM_SPANK__SLURM_SPANK_OPTION_pyxis_container_image",
)  # fmt: skip


def image(node: NodeFacts) -> str:
    """Return the container image, or "none: …" outside containers.

    Empty if a container does not show its image.
    """
    where = node.evidence.collector.get("where")
    if where in ("host", "vm"):
        return f"none: preflight ran on the {'host' if where == 'host' else 'virtual machine'}"
    if where != "container":
        return ""
    return _variable(node) or _podman(node.evidence) or _kubernetes(node.evidence)


def _variable(node: NodeFacts) -> str:
    try:
        environment = node.environment
    except EvidenceError:
        return ""
    return next((value for name in VARIABLES if (value := environment.get(name, ""))), "")


def _podman(evidence: Evidence) -> str:
    try:
        return containerenv(evidence.text(PODMAN))
    except (EvidenceError, ValueError):
        return ""


def containerenv(text: str) -> str:
    """Return the image and its id from podman's ``.containerenv``.

    Raises ValueError if there is none.
    """
    fields = dict(re.findall(r'^(image|imageid)="([^"\n]{1,400})"$', text, re.MULTILINE))
    if "image" not in fields:
        raise ValueError(f"{text.strip()[:60]!r} names no image")
    return " ".join(fields[name] for name in ("image", "imageid") if name in fields)


def _kubernetes(evidence: Evidence) -> str:
    try:
        found = pod(evidence)
    except EvidenceError:
        return ""
    images = [container.image for container in found.containers if not container.init]
    return " and ".join(dict.fromkeys(images)) if all(images) else ""
