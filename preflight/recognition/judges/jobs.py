"""Judges of a job's limits, training steps, stacks, NCCL state and serving."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from preflight.checks.job.log_settings import judge_listed
from preflight.checks.job.ras import judge_ras
from preflight.checks.job.serving import judge_first_token, judge_queue
from preflight.checks.job.serving_cache import (
    judge_cache,
    judge_offload,
    judge_transfer,
    offloads_caches,
    transfers_caches,
)
from preflight.checks.job.stacks import judge_stacks
from preflight.checks.job.training_log import judge_steps
from preflight.facts.host import size_text
from preflight.facts.nccl_settings.collect import CollectedSettings
from preflight.model import Finding, passed, unknown, warned
from preflight.parsers.host.ulimit import ProcessLimits
from preflight.parsers.training.iteration_log import TrainingLog
from preflight.parsers.training.serving_log import ServingLog, ServingReport
from preflight.parsers.training.serving_metrics import ServingMetrics
from preflight.recognition.judges import Judged, Judges, PastedValue

#: Minimum limit on open files for a job of eight ranks with data loaders: a judgement call, as in host.open-files.
_FEW_FILES = 4096


def _memlock(part: PastedValue) -> Iterator[Finding]:
    limits: ProcessLimits = part.value
    if "max locked memory" not in limits.soft:
        return
    locked = limits.soft["max locked memory"]
    if locked is None:
        yield passed("locked memory is unlimited", evidence=part.evidence)
    else:
        yield warned(f"locked memory is limited to {size_text(locked)}, so RDMA cannot pin its buffers",
                     found=size_text(locked), expected="unlimited", evidence=part.evidence)  # fmt: skip


def _files(part: PastedValue) -> Iterator[Finding]:
    limits: ProcessLimits = part.value
    if "open files" not in limits.soft:
        return
    files = limits.soft["open files"]
    if files is not None and files < _FEW_FILES:
        yield warned(f"the limit on open files is {files}", found=files, expected=f"at least {_FEW_FILES}",
                     evidence=part.evidence)  # fmt: skip
    else:
        yield passed(f"the limit on open files is {'unlimited' if files is None else files}", evidence=part.evidence)


def _settings(part: PastedValue) -> Iterator[Finding]:
    collected: CollectedSettings = part.value
    return judge_listed(collected, part.evidence)


def _steps(part: PastedValue) -> Iterator[Finding]:
    log: TrainingLog = part.value
    return judge_steps(log, part.evidence)


# --- serving ------------------------------------------------------------------------------------------

#: KV cache usage at which it counts as full, and number of consecutive reports without a token that count as a hang:
#: judgement calls. An engine reports every 10 s, even while it compiles a graph or reads a long prompt.
_FULL, _SILENT = 0.95, 6


def _cache(part: PastedValue) -> Iterator[Finding]:
    log: ServingLog = part.value
    if log.cache_tokens and not log.reports:
        yield passed(f"the KV cache has room for {log.cache_tokens:,} tokens", evidence=part.evidence)
    used = [(item.cache_used, item) for item in log.reports if item.cache_used is not None]
    if not used:
        return
    full = [(share, item) for share, item in used if share >= _FULL and item.waiting]
    if full:
        share, item = max(full, key=lambda pair: pair[1].waiting or 0)
        yield warned(
            f"{item.waiting} requests wait while the KV cache is {100 * share:.0f}% full (line "
            f"{item.line}; in {len(full)} of {len(used)} reports)",
            found=f"{100 * share:.0f}%",
            expected=f"below {100 * _FULL:.0f}%, or no request waits",
            evidence=part.evidence,
            fix="Add replicas or GPUs, lower max_model_len, or quantise the KV cache.",
        )
    else:
        yield passed(
            f"the KV cache is at most {100 * max(share for share, _ in used):.0f}% full", evidence=part.evidence
        )


def _served(part: PastedValue) -> Iterator[Finding]:
    log: ServingLog = part.value
    if not log.reports:
        if log.started is not None:
            yield passed(f"the server started (line {log.started})", evidence=part.evidence)
        return
    silent: dict[str, list[ServingReport]] = {}
    for item in log.reports:
        idle = bool(item.running) and not item.generation_tokens_s and not item.prompt_tokens_s
        silent[item.engine] = [*silent.get(item.engine, ()), item] if idle else []
    for engine, reports in silent.items():  # only the last reports: an engine that continued did not hang
        if len(reports) >= _SILENT:
            of = f"engine {engine}: " if engine else ""
            yield warned(
                f"{of}{reports[-1].running} requests run, and the last {len(reports)} reports show no token (from line "
                f"{reports[0].line})", found="0 tokens/s", expected="above 0", evidence=part.evidence,
                fix="Look for a worker that hangs or has ended: `py-spy dump`, `nvidia-smi`, `dmesg | grep -i xid`.",
            )  # fmt: skip
            return
    if any(reports for reports in silent.values()):
        yield unknown("requests are running, but the last reports show no token; there are too "
                      "few of them to call this a hang",
                      evidence=part.evidence, fix="Paste more of the log.")  # fmt: skip
    elif any(item.generation_tokens_s or item.prompt_tokens_s for item in log.reports):
        queue = max((item.waiting or 0 for item in log.reports), default=0)
        yield passed(
            f"running requests produce tokens{f'; up to {queue} requests wait' if queue else ''}",
            evidence=part.evidence,
        )
    else:
        yield passed("no request runs in these reports", evidence=part.evidence)


def _metrics(metrics: ServingMetrics) -> Judged:
    """Return the judges of an engine's metrics.

    Those of cache transfers and of offloading are included only if the engine shows such metrics.
    """
    return tuple(
        (ident, partial(_judged, judge))
        for ident, judge in (
            ("serving.first-token", judge_first_token),
            ("serving.queue", judge_queue),
            ("serving.cache", judge_cache),
            ("serving.kv-transfer", judge_transfer),
            ("serving.offload", judge_offload),
        )
        if (judge is not judge_transfer or transfers_caches(metrics))
        and (judge is not judge_offload or offloads_caches(metrics))
    )


def _judged(
    judge: Callable[[ServingMetrics, Sequence[str]], Iterator[Finding]], part: PastedValue
) -> Iterator[Finding]:
    return judge(part.value, part.evidence)


def _ras(part: PastedValue) -> Iterator[Finding]:
    return judge_ras(part.value, part.earlier[-1] if part.earlier else None, part.complete, part.evidence)


def _stacks(part: PastedValue) -> Iterator[Finding]:
    """Judge the processes of all writers together, in the part of the first writer."""
    if all(part.value[0].line < other[0].line for other in part.others):
        yield from judge_stacks([part.value, *part.others], part.evidence)


JUDGES: Judges = {
    "nccl-env": (("nccl.run-settings", _settings),),
    "ncclras": (("nccl.ras", _ras),),
    "python stacks": (("torch.stacks", _stacks),),
    "ulimit": (("host.memlock", _memlock), ("host.open-files", _files)),
    "training log": (("torch.steps", _steps),),
    "serving metrics": _metrics,
    "serving log": (("gpu.memory-headroom", _cache), ("torch.hang", _served)),
}
