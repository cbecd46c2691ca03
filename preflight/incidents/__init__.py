"""Findings joined into causes: one incident for all that a single fault explains.

A module here takes the findings of a report, what its nodes are made of and the relations that checks declare, and
returns incidents; it reads no evidence, judges nothing and renders nothing. Statuses, verdict and exit status stay
those of the findings. ``judge`` adds the incidents to the report, ``reports`` and ``commands`` show them.
"""

from __future__ import annotations

from preflight.incidents.changes import changes, recorded
from preflight.incidents.join import incidents
from preflight.incidents.order import sort_key

__all__ = ["changes", "incidents", "recorded", "sort_key"]
