"""Settings of draining, with their defaults."""

from __future__ import annotations

from preflight._startup.lightclass import dataclass
from preflight.expectations.gate_table import Gate


@dataclass(frozen=True)
class Settings:
    """Settings of the breaker and of calls of Slurm's tools.

    ``bin`` is the folder of scontrol ("": the first of the usual ones); ``dry_run`` only reports the actions. The
    breaker drains at most ``share`` of the eligible nodes, but at least one and at most ``most``, within ``window_s``
    seconds; all three are judgement calls. A requeued job starts after ``put_back_s`` seconds at the earliest: by then
    the breaker lets the next node drain. ``call_s`` limits one call of scontrol (which waits for MessageTimeout, 10 s,
    several times), ``deadline_s`` all calls together.
    """

    bin: str = ""
    dry_run: bool = False
    share: float = 0.1
    most: int = 10
    window_s: int = 600
    put_back_s: int = 600
    call_s: float = 5.0
    deadline_s: float = 15.0


def of(gate: Gate) -> Settings:
    """Return the Slurm settings of the cluster file's table ``[gate]``."""
    usual = Settings()
    return Settings(
        bin=gate.slurm_bin or usual.bin,
        dry_run=bool(gate.dry_run),
        share=usual.share if gate.drain_share_pct is None else gate.drain_share_pct / 100,
        most=usual.most if gate.drain_most is None else gate.drain_most,
        window_s=usual.window_s if gate.drain_window_s is None else round(gate.drain_window_s),
    )
