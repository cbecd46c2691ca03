"""One check on a case made by a test, judged like a fixture."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.checks.test_checks import CHECKS, findings_of
from tests.support.fixture import FIXTURES, Case


def judged(check: str, records: dict[str, Any], **body: Any) -> list[dict[str, Any]]:
    """Return the findings; ``body`` is the rest of a fixture: base, site, nodes."""
    path: Path = FIXTURES / check / "made-by-a-test.json"
    return findings_of(CHECKS[check], Case(check, path, {"records": records, **body}))
