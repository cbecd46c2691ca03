"""Relations of a fault on a node to the same fault in the log of a job."""

from __future__ import annotations

IN_LOGS = (("job.errors", "log"), ("nccl.failures", "log"))
