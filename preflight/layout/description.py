"""Derivation of a training job from its stated settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from preflight._startup.lightclass import dataclass, fields
from preflight.expectations.job_table import MAY_BE_ZERO, MOST_GPUS, NUMBERS
from preflight.layout.job import Parallelism, Schedule, TrainingJob, Transformer
from preflight.parsers.job_config import megatron
from preflight.parsers.job_config.settings import DEFAULT, JobSetting, JobSettings

#: Origin of a value that follows from the cluster.
CLUSTER = "the cluster"

#: Frameworks whose default global batch is micro-batch x data-parallel size, with their display names.
_BATCH_DEFAULTS = {"megatron": "Megatron-LM", "torchtitan": "torchtitan"}

#: Short names of settings on the command line.
SHORT = {
    "tp": "tensor", "pp": "pipeline", "cp": "context", "ep": "expert", "etp": "expert_tensor", "vp": "virtual_stages",
    "mbs": "micro_batch", "gbs": "global_batch", "seq": "sequence", "dp": "data",
}  # fmt: skip

#: Settings that are numbers of ranks or nodes.
_OF_RANKS = frozenset({"gpus", "nodes", "tensor", "pipeline", "context", "expert", "expert_tensor", "data", "replicas"})

#: Required settings, with the descriptions that are shown if they are missing.
REQUIRED = {
    "gpus": "number of GPUs (--gpus)",
    "layers": "number of layers",
    "hidden": "hidden size",
    "heads": "number of attention heads",
    "vocabulary": "size of the vocabulary",
    "sequence": "length of a sequence",
    "micro_batch": "micro-batch size",
    "global_batch": "global batch size",
}


@dataclass(frozen=True)
class Described:
    """The settings of a job, with derived and default values."""

    values: Mapping[str, Any]
    origins: Mapping[str, str]
    missing: tuple[str, ...]  # names of required settings without a value
    unread: frozenset[str]  # names of settings that are stated but unreadable
    job: TrainingJob | None  # None if a setting is missing or the numbers are inconsistent
    gaps: tuple[str, ...]  # descriptions of values that could not be read


def describe(settings: JobSettings, gpus: int | None = None, gpus_per_node: int | None = None) -> Described:
    """Add derived and default values to the settings of a job.

    ``gpus`` and ``gpus_per_node`` are the numbers of the cluster, if known.
    """
    settings = _sizes_checked(settings)
    stated = dict(settings.values)
    _complete(stated, gpus, gpus_per_node)
    if "global_batch" not in settings.unread:
        _default_batch(stated)
    # a default does not replace an unreadable value; unreadable nodes do not prevent a plan if the number of GPUs is
    # known
    unread = settings.unread - {"nodes", "gpus_per_node"}
    values = {name: setting.value for name, setting in stated.items() if name not in unread}
    origins = {name: setting.origin for name, setting in stated.items() if name not in unread}
    missing = tuple(name for name in REQUIRED if values.get(name) is None)
    missing += tuple(sorted(unread - set(missing)))
    if values.get("experts") and not values.get("active_experts"):
        missing += ("active_experts",)
    return Described(values, origins, missing, unread, None if missing else _job(values, origins), settings.gaps)


def _sizes_checked(settings: JobSettings) -> JobSettings:
    """Return the settings without sizes out of range, which become gaps."""
    wrong = {
        name: own for name, own in settings.values.items()
        if name in NUMBERS and isinstance(own.value, int)
        and not (0 if name in MAY_BE_ZERO else 1) <= own.value <= (MOST_GPUS if name in _OF_RANKS else own.value)
    }  # fmt: skip
    gaps = [
        f"{own.origin}: {name} is {own.value}; it must be {'at least 1' if own.value < 1 else f'at most {MOST_GPUS}'}"
        for name, own in wrong.items()
    ]
    values = {name: own for name, own in settings.values.items() if name not in wrong}
    return JobSettings(values, (*settings.gaps, *gaps), settings.unread | wrong.keys())


def _complete(stated: dict[str, JobSetting], gpus: int | None, gpus_per_node: int | None) -> None:
    """Add derived values and Megatron-LM's defaults."""

    def number(name: str) -> int:
        return int(stated[name].value)

    def add(name: str, value: Any, origin: str) -> None:
        stated.setdefault(name, JobSetting(value, origin))

    for name in megatron.DEFAULTS:
        if name not in stated and (setting := megatron.default(name)) is not None:
            stated[name] = setting
    if "nodes" in stated and "gpus" not in stated:
        each = stated["gpus_per_node"].value if "gpus_per_node" in stated else gpus_per_node
        if each is not None:
            add("gpus", number("nodes") * int(each), f"{stated['nodes'].origin} x {each}")
    if "data" in stated and "gpus" not in stated:
        ranks = number("tensor") * number("pipeline") * number("context")
        add("gpus", number("data") * ranks, f"{stated['data'].origin}: data x {ranks}")
    if gpus is not None:
        add("gpus", gpus, CLUSTER)
    if "shard_ranks" in stated and "gpus" in stated and "replicas" not in stated:
        shared = number("gpus") // (number("tensor") * number("pipeline")) / number("shard_ranks")
        if shared >= 1 and shared.is_integer():
            add("replicas", int(shared), stated["shard_ranks"].origin)
    if "hidden" in stated and "heads" in stated and number("heads"):
        add("head_size", number("hidden") // number("heads"), "hidden size / heads")
    if "content_size" in stated and stated["content_size"].value:
        stated["head_size"] = stated["content_size"]
    if "heads" in stated:
        groups = stated.get("query_groups")
        if groups is not None:
            add("kv_heads", groups.value, groups.origin)
        add("kv_heads", number("heads"), "as many as heads, because no grouped queries are stated")
    if "hidden" in stated:
        if stated["gated"].value:
            # as in Megatron-LM (arguments.py): as many parameters as without a gate, rounded down to a multiple of 64
            width, rule = int(4 * number("hidden") * 2 / 3 / 64) * 64, "8/3 of the hidden size"
        else:
            width, rule = 4 * number("hidden"), "4 x hidden size"
        add("feed_forward", width, f"{DEFAULT}Megatron-LM: {rule}")
    if "padded_vocabulary" in stated:
        stated["vocabulary"] = stated["padded_vocabulary"]
    elif "vocabulary" in stated:
        multiple = number("vocabulary_multiple") * number("tensor")
        padded = -(-number("vocabulary") // multiple) * multiple
        stated["vocabulary"] = JobSetting(padded, f"{stated['vocabulary'].origin}, padded to a multiple of {multiple}")
    if stated.get("experts") is not None and number("experts"):
        if "feed_forward" in stated:
            add("expert_feed_forward", stated["feed_forward"].value, stated["feed_forward"].origin)
        add("expert_tensor", number("tensor"), f"{DEFAULT}Megatron-LM: the tensor-parallel size")
        pattern = stated.get("expert_layer_pattern")
        if (
            pattern is not None
            and "layers" in stated
            and (dense := _dense(pattern.value, number("layers"))) is not None
        ):
            add("dense_layers", dense, pattern.origin)
    if "layers_per_virtual_stage" in stated and "layers" in stated and number("layers_per_virtual_stage"):
        of_stage = number("layers") // number("pipeline") // number("layers_per_virtual_stage")
        add("virtual_stages", max(1, of_stage), stated["layers_per_virtual_stage"].origin)
    if "accumulation" in stated and "micro_batch" in stated and "gpus" in stated:
        replicas = number("gpus") // (number("tensor") * number("pipeline") * number("context"))
        add("global_batch", number("accumulation") * number("micro_batch") * replicas, stated["accumulation"].origin)


def _default_batch(stated: dict[str, JobSetting]) -> None:
    """Add a framework's default global batch: one microbatch for each replica."""
    name = _BATCH_DEFAULTS.get(str(stated["framework"].value)) if "framework" in stated else None
    if name is None or not {"micro_batch", "gpus"} <= stated.keys():
        return
    ranks = int(stated["tensor"].value) * int(stated["pipeline"].value) * int(stated["context"].value)
    replicas = int(stated["gpus"].value) // ranks
    if replicas:
        batch = int(stated["micro_batch"].value) * replicas
        stated.setdefault("global_batch", JobSetting(batch, f"{DEFAULT}{name}: micro-batch x data-parallel size"))


def _dense(pattern: str, layers: int) -> int | None:
    """Return the number of layers without experts; None for an unknown pattern.

    Megatron's ``--moe-layer-freq`` is a number N (every N-th layer has experts) or a sum of lists such as
    ``([0]*3+[1]*58)``.
    """
    text = pattern.replace(" ", "").strip("()")
    if text.isdigit() and int(text):
        return layers - -(-layers // int(text))
    dense = 0
    for part in text.split("+"):
        listed, _, times = part.partition("*")
        if not (listed.startswith("[") and listed.endswith("]")) or (times and not times.isdigit()):
            return None
        numbers = listed[1:-1].split(",")
        if any(setting not in ("0", "1") for setting in numbers) or len(times) > 6:
            return None
        dense += numbers.count("0") * (int(times) if times else 1)
    return dense if dense <= layers else None


def _job(values: Mapping[str, Any], origins: Mapping[str, str]) -> TrainingJob | None:
    """Return the job for complete settings; None if the numbers do not fit together."""
    model, parallel, schedule = (
        kind(**{setting.name: values[setting.name] for setting in fields(kind) if values.get(setting.name) is not None})
        for kind in (Transformer, Parallelism, Schedule)
    )
    job = TrainingJob(model, parallel, schedule, values["gpus"], origins)  # type: ignore[arg-type]
    if min(job.gpus, job.parallel.model_ranks, job.schedule.micro_batch, job.model.layers, job.model.heads) < 1:
        return None
    model = job.model
    if model.dense_layers > model.layers or model.active_experts > model.experts or model.kv_heads > model.heads:
        return None
    divides = job.gpus % job.parallel.model_ranks == 0 and job.data > 0
    return job if divides and job.microbatches > 0 and job.expert_data > 0 else None
