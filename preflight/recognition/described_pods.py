"""``kubectl describe pod``, with annotations that contain another output.

The embedded output is the status of the pod's networks.
"""

from __future__ import annotations

from collections.abc import Sequence

from preflight.recognition.detector import OutputFormat, TextPart, parts
from preflight.textprep.lines import Line, Lines, bare

DESCRIBE = "kubernetes describe"
#: Annotations with the status of a pod's networks.
_NETWORKS = ("network-status", "networks-status")


def read_described(lines: Lines, writer: str, kinds: Sequence[OutputFormat]) -> tuple[list[TextPart], list[Line]]:
    """Return the descriptions of pods, and the remaining lines.

    Annotations with networks remain.
    """
    if not any(line.text.startswith("Namespace:") or line.text.lstrip().startswith("State:") for line in lines):
        return [], list(lines)
    pods = list(parts(bare(lines), writer, [kind for kind in kinds if kind.name == DESCRIBE]))
    left: list[Line] = []
    networks = False
    for line in lines:
        if not any(part.first <= line.number <= part.last for part in pods):
            left.append(line)
            continue
        networks = any(name in line.text for name in _NETWORKS) or (
            networks and (not line.text or line.text[0].isspace())
        )
        if networks:
            left.append(line)
    return pods, left
