"""Checks of NCCL variables against installed software."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from preflight.checks.nccl.settings_scope import as_set, unread
from preflight.expectations import Site
from preflight.facts.nccl_environment import PROCESS, Setting
from preflight.facts.node import NodeFacts
from preflight.facts.versions import LIBRARIES
from preflight.model import Finding, check, counted, failed, passed, unknown, warned

if TYPE_CHECKING:
    from preflight.facts.nccl_settings.named_files import Named

GUIDE = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"

FILES = "env:files"

_NAMING = ("NCCL_TOPO_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_FILE", "NCCL_CONF_FILE", "NCCL_NET_PLUGIN")


@check(
    "nccl.named-files",
    title="The files named by NCCL variables exist and are valid",
    fault="A file named by an NCCL variable is missing or invalid",
    impact="slows-job",
    source=f"{GUIDE} (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE, NCCL_CONF_FILE, NCCL_NET_PLUGIN)",
    fix="Run `ls -l` on the path where the job runs; correct it, or mount the provider's topology file there.",
    action="fix-job",
    answers=("NT-ENV-10",),
)
def named_files(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for each file that an NCCL variable names.

    The GPUs of a topology file are compared with the PCI bus.

    ## Why it matters
    NCCL ignores a topology file that it cannot open, and in a virtual machine then treats all NICs as equally distant.
    A file for another instance type sends traffic over distant NICs.

    ## Verdicts
    An NCCL_TOPO_FILE that is missing, unreadable, or lists none of the node's GPUs fails; one that lacks some of them
    warns. Additional GPUs in it are harmless. An NCCL_TOPO_DUMP_FILE that cannot be written warns, and so does a
    missing NCCL_GRAPH_FILE or NCCL_CONF_FILE. A missing plug-in file fails if NCCL_NET requires its network, else it
    warns. A plug-in name that is not in the loader's directories is unknown, because LD_LIBRARY_PATH may contain it.

    ## False alarms
    A path that exists only inside the job's container; run the check there.
    """
    env = node.nccl_env
    settings = [one for name in _NAMING if (one := env.get(name)) is not None and one.value]
    if not settings:
        missing = list(unread(node, "a variable that names a file"))
        yield from missing or [passed("no variable names a file", evidence=[PROCESS])]
        return
    for setting in settings:
        by_name = setting.name == "NCCL_NET_PLUGIN" and "/" not in setting.value
        yield _plugin(node, setting) if by_name else _file(node, setting)


def _file(node: NodeFacts, setting: Setting) -> Finding:
    named = node.nccl_files.get(setting.name)
    if named is None or named.path != setting.value:
        return unknown(f"{setting.text} in {setting.where} names a file that was not collected",
                       subject=setting.name, evidence=[FILES],
                       fix=f"run `ls -l {setting.value!r}`")  # fmt: skip
    fault = _fault(node, setting, named)
    if fault is None:
        return passed(f"{setting.text} names a valid file", subject=setting.name, evidence=[setting.source, FILES])
    grade, what, expected = fault
    details: dict[str, Any] = {"subject": setting.name, "found": named.why or named.type or named.status}
    made: Finding = grade(f"{setting.text} in {setting.where} names {what}", expected=expected,
                        evidence=[setting.source, FILES], quote=as_set(setting), **details)  # fmt: skip
    return made


def _fault(node: NodeFacts, setting: Setting, named: Named) -> tuple[Any, str, str] | None:
    """Return the constructor, message and expectation for a bad file, else None."""
    if setting.name == "NCCL_TOPO_DUMP_FILE":
        return _dump(named)
    insists = setting.name == "NCCL_NET_PLUGIN" and bool(node.nccl_env.text("NCCL_NET"))
    grade = failed if insists or setting.name == "NCCL_TOPO_FILE" else warned
    if named.missing:
        return grade, "a file that does not exist", "a file"
    if named.status != "ok":
        return unknown, f"a file that could not be read ({named.why or named.status})", "a readable file"
    if named.type != "file":
        return grade, f"a {'directory' if named.type == 'dir' else named.type}, not a file", "a file"
    if "r" not in named.access:
        return grade, "a file that this user cannot read", "a readable file"
    return _topology(node, named) if setting.name == "NCCL_TOPO_FILE" else None


def _dump(named: Named) -> tuple[Any, str, str] | None:
    writable = "w" in named.access if named.status == "ok" else named.missing and "w" in named.folder_access
    if writable and named.type in ("", "file", "char"):
        return None
    return warned, "a file that this user cannot write, so NCCL dumps no topology", "a path that the job can write"


def _topology(node: NodeFacts, named: Named) -> tuple[Any, str, str] | None:
    if named.text is None:
        return failed, "a file that is not an NCCL topology file", "XML that begins with <system"
    from preflight.facts.nccl_settings.named_files import topology_gpus

    try:
        known = topology_gpus(named.text)
    except ValueError as error:
        return failed, f"a file that {error}", "XML that begins with <system"
    here = [gpu.address for gpu in node.gpus_on_bus]
    if not known or not here:
        return None  # a file of NICs and CPUs alone is legal
    strange = [address for address in known if address not in here]
    forgotten = [address for address in here if address not in known]
    if len(strange) == len(known):
        return (
            failed,
            f"a file that lists {counted(len(known), 'GPU')} ({strange[0]}, …), none of them of this node",
            f"the GPUs {here[0]}, …",
        )
    if forgotten:
        what = f"a file that lacks {len(forgotten)} of this node's {len(here)} GPUs ({forgotten[0]}, …)"
        return warned, what, f"the {len(here)} GPUs of this node"
    return None


def _plugin(node: NodeFacts, setting: Setting) -> Finding:
    name = setting.value
    if name.casefold() == "none":
        return passed(f"{setting.text}: no plug-in is loaded", subject=setting.name, evidence=[setting.source])
    files = [library.path for library in node.libraries]
    wanted = (f"/libnccl-net-{name}.so", f"/lib{name}.so", f"/{name}")
    keys = [setting.source, LIBRARIES]
    if found := next((path for path in files if path.endswith(wanted)), None):
        return passed(f"{setting.text} loads {found}", subject=setting.name, evidence=keys)
    return unknown(f"{setting.text} in {setting.where} needs libnccl-net-{name}.so, which the loader's "
                   "directories do not contain",
                   subject=setting.name, evidence=keys,
                   fix="run in the job: `ls $(echo $LD_LIBRARY_PATH | tr : ' ') | grep nccl-net`")  # fmt: skip


# --- PyTorch ---------------------------------------------------------------------------------------

#: PyTorch release that added the prefix TORCH_ (torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp).
PREFIXED = (2, 2)

_NEW, _OLD = "TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING"
_RENAMED = ("BLOCKING_WAIT", "DESYNC_DEBUG", "ENABLE_TIMING", "USE_TENSOR_REGISTER_ALLOCATOR_HOOK")


@check(
    "nccl.pytorch-variables",
    title="PyTorch's NCCL error handling is on",
    fault="PyTorch's NCCL error handling is off",
    impact="drifts",
    source="https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html; renamed in PyTorch 2.2",
    fix="From PyTorch 2.2 on, unset NCCL_ASYNC_ERROR_HANDLING and leave TORCH_NCCL_ASYNC_ERROR_HANDLING at its "
    "default.",
    action="fix-job",
    answers=("NT-ENV-7",),
    gating=False,  # never fails
)
def pytorch_variables(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare PyTorch's NCCL variables with the names that PyTorch reads.

    Error handling must be on.

    ## Why it matters
    If error handling is off, or set under a name that PyTorch does not read, the peers of a dead rank wait in a
    collective until the scheduler's limit, with all nodes allocated and idle.

    ## Verdicts
    The value 0 warns. From PyTorch 2.2 on, error handling is on by default (3), and the deprecated names without TORCH_
    warn. Before 2.2, the names with TORCH_ warn, because PyTorch does not read them; unset is unknown there, because
    the launcher decides. Without PyTorch, the rules for 2.2 apply.

    ## False alarms
    A job that handles dead ranks itself and therefore disables PyTorch's handling.
    """
    found = [_torch(package.version) for package in node.packages if package.name == "torch"]
    installed = max((one for one in found if one is not None), default=None)
    old = installed is not None and installed < PREFIXED
    warnings = list(_names(node, old=old))
    handling = node.nccl_env.get(_OLD if old else _NEW) or (None if old else node.nccl_env.get(_OLD))
    number = node.nccl_env.integer(handling.name) if handling is not None else None
    if handling is not None and number == 0:
        message = (
            f"{handling.text} in {handling.where} disables error handling, so a dead rank leaves its peers waiting"
        )
        warnings.append(warned(message, subject=handling.name, found=handling.value, expected="unset, or 1 to 3",
                           evidence=[handling.source], quote=as_set(handling)))  # fmt: skip
    missing = list(unread(node, _NEW))
    yield from (*warnings, *missing)
    if warnings or missing:
        return
    if handling is not None and number is not None:
        yield passed(f"{handling.text} keeps error handling on", subject=handling.name, evidence=[handling.source])
    elif installed is not None and old:
        release = ".".join(map(str, installed))
        yield unknown(f"{_OLD} is unset, so with PyTorch {release} error handling depends on the "
                      "launcher", subject=_OLD,
                      evidence=[PROCESS], fix="export it as 1, unless torchrun starts the job, which sets "
                                              "it")  # fmt: skip
    else:
        yield passed("no variable disables PyTorch's error handling, which is on by default", evidence=[PROCESS])


def _names(node: NodeFacts, *, old: bool) -> Iterator[Finding]:
    """Yield warnings for names that the installed PyTorch ignores or deprecates."""
    for stem in ("ASYNC_ERROR_HANDLING", *_RENAMED):
        plain, prefixed = f"NCCL_{stem}", f"TORCH_NCCL_{stem}"
        setting = node.nccl_env.get(prefixed if old else plain)
        if setting is None:
            continue
        what = (
            "is not read by the installed PyTorch, which is older than 2.2"
            if old
            else "has been deprecated since PyTorch 2.2, and NCCL never reads it"
        )
        yield warned(f"{setting.name} in {setting.where} {what}", subject=setting.name, found=setting.text,
                     expected=plain if old else prefixed, evidence=[setting.source], quote=as_set(setting))  # fmt: skip


def _torch(text: str) -> tuple[int, int] | None:
    parts = text.split(".")
    if len(parts) < 2 or not all(part.isdecimal() and len(part) < 4 for part in parts[:2]):
        return None
    return int(parts[0]), int(parts[1])
