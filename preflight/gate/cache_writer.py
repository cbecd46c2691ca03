"""Writing of verdicts to the state directory."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from preflight.gate import policy, verdict_cache
from preflight.gate.configured_rules import actions
from preflight.gate.state_dir import StateDir, StateDirError
from preflight.gate.values import dataclass

if TYPE_CHECKING:
    from typing import Any

    from preflight.gate.configuration import Configuration
    from preflight.gate.result import Judgement

_REPORT = "report.json"


@dataclass(frozen=True)
class CacheWriter:
    """Writer of verdicts to the state directory.

    ``store`` is None if verdicts are not cached, or if the directory cannot be used (``store_error``). ``config`` is
    None until the cluster file at ``cluster`` has been read; ``error`` is the error in that file.
    """

    store: StateDir | None
    store_error: str
    cluster: str | None
    config: Configuration | None = None
    error: str = ""

    def write(self, judgement: Judgement, *, complete: bool) -> str:
        """Write a verdict; return the error, or "".

        A verdict that is not ``complete`` is never served.
        """
        if self.store is None:
            return self.store_error
        gate = self.config.gate if self.config is not None else None
        refresh_s = (gate.refresh_s if gate is not None else None) or verdict_cache.REFRESH_S
        hooks = {name: _rules(gate.hook(name)) for name in policy.HOOKS} if gate is not None else {}
        path = self.cluster or ""
        inputs = self.config.inputs(path) if complete and self.config is not None else [(path or "?", [])]
        try:
            verdict_cache.put(self.store, judgement.verdict, refresh_s, hooks, inputs, self.error)
            if complete and judgement.report is not None:
                self.store.write(_REPORT, json.dumps(judgement.report).encode())
        except StateDirError as error:
            return str(error)
        return ""


def _rules(settings: Any) -> dict[str, Any]:
    return {"strict": bool(settings.strict), "cached": settings.cached is not False, "actions": actions(settings)}
