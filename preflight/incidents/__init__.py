"""Incidents: groups of findings that one fault explains.

The modules compute incidents from the findings of a report, the parts of its nodes and the relations declared by
checks. They do not read evidence, judge or render. Incidents change neither the statuses nor the verdict and the exit
status. ``judge`` adds the incidents to the report; ``reports`` and ``commands`` show them.
"""

from __future__ import annotations

from preflight.incidents.changes import changes, recorded
from preflight.incidents.join import incidents
from preflight.incidents.order import sort_key

__all__ = ["changes", "incidents", "recorded", "sort_key"]
