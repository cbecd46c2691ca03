"""Where the log of a job shows the same fault as a check of a node."""

from __future__ import annotations

IN_LOGS = (("job.errors", "log"), ("nccl.failures", "log"))
