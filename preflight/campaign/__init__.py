"""``preflight bench``: rounds of benchmark runs between nodes.

``folder`` holds the plan, the journal and the outputs; ``command_lines`` makes the words of a launch; ``execution``
runs the launches of a round, ``nodes`` looks at the nodes before and after, ``rounds`` goes from round to round.
What to run next and what it shows is decided in ``preflight.bench``, which touches nothing.
"""

from __future__ import annotations
