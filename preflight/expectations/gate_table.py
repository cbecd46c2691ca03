"""Settings of the gate's hooks: the cluster file's table ``[gate]``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from preflight._startup.lightclass import dataclass, field, fields, replace
from preflight.expectations import schema
from preflight.expectations.waivers import check_globs

#: The hooks.
HOOKS = ("slurm-prolog", "slurm-healthcheck", "slurm-step", "slurm-controller", "init-container", "ci")

#: Prefix of the IDs of the checks of a job's layout.
LAYOUT = "layout."
_FAIL, _OTHER = ("drain", "refuse", "record", "allow"), ("refuse", "record", "allow")


def directory(value: Any) -> str:
    """Accept an absolute path of a directory, without ``..``, other than the root."""
    path = schema.absolute_path(value).rstrip("/")
    if not path or ".." in path.split("/"):
        raise ValueError('takes an absolute path without "..": "/usr/bin"')
    return path


@dataclass(frozen=True)
class GateHook:
    """Settings of one hook, which override those of all hooks."""

    fail: str | None = schema.key(schema.one_of(*_FAIL), "action for a node that fails")
    unknown: str | None = schema.key(schema.one_of(*_OTHER), "action for a node that could not be judged")
    error: str | None = schema.key(schema.one_of(*_OTHER), "action for a configuration error")
    strict: bool | None = schema.key(schema.boolean, "whether to refuse jobs on a node that could not be judged")
    deadline_s: float | None = schema.key(schema.number(1, 3600), "time limit of the hook in seconds")
    cached: bool | None = schema.key(schema.boolean, "whether a cached verdict is accepted")
    only: tuple[str, ...] | None = schema.key(check_globs, "the checks to run")
    skip: tuple[str, ...] | None = schema.key(check_globs, "checks to skip")


@dataclass(frozen=True)
class Gate:
    """Settings of all hooks; ``hooks`` contains the settings of single hooks."""

    strict: bool | None = schema.key(schema.boolean, "whether to refuse jobs on a node that could not be judged")
    dry_run: bool | None = schema.key(schema.boolean, "only report actions, and let every job start")
    refresh_s: float | None = schema.key(schema.number(5, 86400), "seconds after which a verdict is refreshed")
    deadline_s: float | None = schema.key(schema.number(1, 3600), "time limit of a hook in seconds")
    only: tuple[str, ...] | None = schema.key(check_globs, "the checks to run")
    skip: tuple[str, ...] | None = schema.key(check_globs, "checks to skip")
    shadow: tuple[str, ...] | None = schema.key(check_globs, "checks that are only reported")
    job: tuple[str, ...] | None = schema.key(check_globs, "checks that fail because of the job itself")
    site: tuple[str, ...] | None = schema.key(check_globs, "checks that fail because of the site, not a node")
    node: tuple[str, ...] | None = schema.key(check_globs, "checks that fail because of the node")
    layout: tuple[str, ...] | None = schema.key(check_globs, "checks of a job's layout whose failure refuses the job")
    publish: str | None = schema.key(directory, "shared directory to which each node writes its verdict")
    slurm_bin: str | None = schema.key(directory, "directory of scontrol and sinfo")
    drain_share_pct: float | None = schema.key(
        schema.number(0, 100), "maximum percentage of eligible nodes drained within drain_window_s"
    )
    drain_most: int | None = schema.key(
        schema.integer(0, 100_000), "maximum number of nodes drained within drain_window_s"
    )
    drain_window_s: float | None = schema.key(schema.number(1, 86400), "seconds over which drains are counted")
    hooks: Mapping[str, GateHook] = field(default_factory=dict)

    def named(self) -> Iterator[tuple[schema.KeyPath, tuple[str, ...]]]:
        """Yield each key that names checks, and the names."""
        for key in ("only", "skip", "shadow", "job", "site", "node", "layout"):
            yield ("gate", key), getattr(self, key) or ()
        for name, hook in self.hooks.items():
            yield ("gate", name, "only"), hook.only or ()
            yield ("gate", name, "skip"), hook.skip or ()

    def hook(self, name: str) -> GateHook:
        """Return the effective settings of a hook: its own, else those of all hooks."""
        own = self.hooks.get(name, GateHook())
        common = {key: getattr(self, key) for key in ("strict", "deadline_s", "only", "skip")}
        return replace(own, **{key: value for key, value in common.items() if getattr(own, key) is None})


def read(reader: schema.TableReader, body: Mapping[str, Any]) -> Gate:
    """Read the table; adds errors."""
    path = ("gate",)
    keys = {known.name: known.metadata["kind"] for known in fields(Gate) if known.metadata}
    reader.known(body, path, {*keys, *HOOKS})
    values = {name: reader.value(body, (*path, name), kind) for name, kind in keys.items()}
    hooks = {
        name: reader.dataclass(GateHook, reader.subtable(body, path, name), (*path, name))
        for name in HOOKS
        if name in body
    }
    for name, hook in hooks.items():
        if hook.fail == "drain" and name not in ("slurm-prolog", "slurm-healthcheck"):
            reader.add_error((*path, name, "fail"), "this hook cannot drain a node", 'write "refuse"')
    for glob in values.get("layout") or ():
        if not glob.startswith(LAYOUT):
            reader.add_error(("gate", "layout"), f"{glob!r} is not a check of a job's layout", f'write "{LAYOUT}NAME"')
    return Gate(**values, hooks=hooks)


def without_checks(reader: schema.TableReader, gate: Gate, ids: Callable[[], Sequence[str]]) -> None:
    """Add an error if the ``only`` and ``skip`` of a hook leave no check.

    ``ids`` returns the IDs of all checks, or nothing if they are unknown.
    """
    for name in HOOKS if any(globs for _, globs in gate.named()) else ():
        hook, known = gate.hook(name), ids()
        if known and not any(selected(check, hook.only, hook.skip) for check in known):
            own = gate.hooks.get(name)
            table = own if own and (own.only is not None or own.skip is not None) else gate
            path = ("gate", name) if table is own else ("gate",)
            key = "skip" if table.skip is not None else "only"
            reader.add_error(
                (*path, key), "only and skip together leave no check", "remove a check from skip, or add one to only"
            )
            return


def selected(check: str, only: Sequence[str] | None, skip: Sequence[str] | None) -> bool:
    """Return whether a check matches ``only`` (None for all) and not ``skip``."""
    return (only is None or matches(check, only)) and not matches(check, skip or ())


def matches(check: str, globs: Sequence[str]) -> bool:
    """Return whether a check's ID matches one of the patterns."""
    return any(fnmatchcase(check, glob) for glob in globs)
