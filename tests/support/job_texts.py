"""A job's output as parts of a text."""

from __future__ import annotations

from preflight.parsers import job_log
from preflight.recognition.detector import TextPart
from preflight.recognition.formats import nccl_tests


def benchmark_parts(text: str) -> list[TextPart]:
    """Return the runs of nccl-tests in a text."""
    return nccl_tests.parts(job_log.parse(text))
