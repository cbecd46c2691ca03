"""preflight: find out before the job starts why a GPU cluster would run slow.

Evidence is collected on nodes, judged by pure functions, and reported as text, HTML and JSON.
"""

from preflight.version import VERSION as __version__

__all__ = ["__version__"]
