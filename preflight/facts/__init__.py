"""Typed facts, read from evidence: ``parse_x(text) -> X``, one module per source."""

from preflight.facts.node import NodeFacts
from preflight.facts.run import RunFacts

__all__ = ["NodeFacts", "RunFacts"]
