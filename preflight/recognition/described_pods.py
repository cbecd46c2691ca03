"""Output of ``kubectl describe pod``, with an embedded network status.

An annotation of the pod contains the status of its networks, which is a separate output.
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

    The lines of annotations with a network status are among the remaining ones.
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
