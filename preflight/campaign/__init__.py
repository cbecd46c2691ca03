"""``preflight bench``: rounds of benchmark runs between nodes.

``folder`` stores the plan, the journal and the outputs. ``command_lines`` builds the command line of a launch,
``execution`` runs the launches of a round, ``nodes`` checks the nodes before and after, and ``rounds`` runs all rounds.
``preflight.bench`` chooses the next runs and explains the results, without side effects.
"""

from __future__ import annotations
