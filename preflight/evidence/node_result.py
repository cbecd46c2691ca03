"""The document of a node that judged itself: verdict and compressed evidence.

Every command that reads evidence accepts it; the verdict is for ``preflight.judge.node_verdict``. In a run with
``--judge-on-nodes``, a node may send only the records that a report quotes; such a document is never saved.
"""

from __future__ import annotations

import base64
import binascii
import json
import zlib
from collections.abc import Mapping
from typing import Any

from preflight.evidence import json_limits
from preflight.schemas.conform import find_error

SCHEMA = "preflight.node-result/1"

#: The schema of the evidence in it.
_EVIDENCE = "preflight.evidence/1"

#: Maximum number of bytes of the unpacked evidence; a complete node takes 2 to 5 MB.
MOST = 64 << 20

#: Maximum characters of a verdict; that of a complete node has 45,000.
MOST_VERDICT = 1 << 20


def is_result(document: Mapping[str, Any]) -> bool:
    """Return whether a document is that of a node that judged itself."""
    return document.get("schema") == SCHEMA


def dump(node: str, verdict: Mapping[str, Any], evidence: str, complete: bool = True) -> str:
    """Return the document as JSON text.

    ``evidence`` is the text of the evidence, which is complete if ``complete``.
    """
    packed = base64.b64encode(zlib.compress(evidence.encode("ascii"), 6)).decode("ascii")
    document: dict[str, Any] = {"schema": SCHEMA, "node": node, "verdict": verdict, "evidence": packed}
    if not complete:
        document["complete"] = False
    return json.dumps(document, indent=0, ensure_ascii=True) + "\n"


def unpacked(document: Mapping[str, Any]) -> Any:
    """Return the decoded evidence document of a result; raises ValueError."""
    needed = "schema", "node", "evidence"
    if wrong := find_error({name: document[name] for name in needed if name in document}, "node-result-1", needed):
        raise ValueError(wrong)
    if not document.get("complete", True):
        raise ValueError("it has only a part of the evidence")
    try:
        unzip = zlib.decompressobj()
        text = unzip.decompress(base64.b64decode(document["evidence"], validate=True), MOST)
    except (binascii.Error, zlib.error) as error:
        raise ValueError(f"the evidence cannot be unpacked: {error}") from None
    if not unzip.eof:
        raise ValueError(f"the evidence is incomplete, or longer than {MOST} bytes")
    content = json_limits.decoded(text)
    if not isinstance(content, dict) or content.get("schema") != _EVIDENCE or content.get("node") != document["node"]:
        raise ValueError("the evidence in it is not that of its node")
    return content
