"""Environments of this process and of running ranks, and files they name."""

import os
import re

from . import files, paths
from .records import Record, refusal, text
from .redact import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict, Iterator, List, Tuple

#: Variables of which a rank, or a worker that a rank started, has one. SLURM_LOCALID is not listed, because batch
#: scripts have it too.
_RANK = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID", "SLURM_STEP_ID")
_SIGNS = tuple(name.encode("ascii") + b"=" for name in _RANK)

#: Variables that always differ between ranks, and would make all environments differ.
_OWN = ("RANK", "LOCAL_RANK", "GROUP_RANK", "ROLE_RANK", "CUDA_VISIBLE_DEVICES")
_OWN_PREFIXES = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_NODE_RANK", "PMIX_", "SLURM_")
_SHARED = ("SLURM_JOB_ID", "SLURM_NTASKS", "SLURM_STEP_NUM_TASKS", "SLURM_NNODES", "SLURM_STEP_NUM_NODES")

#: Variables with a rank's number in its job; the first one that a process has is used.
_NUMBERS = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")

#: Maximum number of processes read, of bytes of each environment, of distinct environments, and of pids and rank
#: numbers returned for each.
_PROCESSES, _BYTES, _KINDS, _PIDS, _RANKS = 20000, 1000000, 64, 16, 1024

#: Variables with the path of a file that NCCL opens.
_NAMED = ("NCCL_CONF_FILE", "NCCL_TOPO_FILE", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_FILE", "NCCL_NET_PLUGIN")
_CONTENT_CAP = 200000


def answer(target: str, allowed: "List[str]") -> Record:
    """Answer a probe of kind ``env``."""
    if target == "process":
        return {"status": "ok", "value": environment(allowed, os.environ)}
    if target == "ranks":
        return ranks(allowed)
    if target == "files":
        return {"status": "ok", "value": named_files(allowed)}
    return {"status": "error", "why": "this collector knows no such environment"}


def ranks(allowed: "List[str]", proc: str = "/proc") -> Record:
    """Return the distinct start environments of the ranks on this node."""
    kinds: Dict[Tuple[str, Tuple[Tuple[str, str], ...]], Dict[str, Any]] = {}
    denied, looked, cut = 0, 0, False
    try:
        pids = sorted(int(entry) for entry in os.listdir(proc) if entry.isdigit())
    except OSError as error:
        return refusal(error)
    for pid in pids:
        if pid == os.getpid():
            continue
        looked += 1
        if looked > _PROCESSES:
            cut = True
            break
        try:
            variables = _environ("{}/{}/environ".format(proc, pid))
        except PermissionError:
            denied += 1
            continue
        except OSError:  # it has ended, or is a thread of the kernel
            continue
        if not any(name in variables for name in _RANK):
            continue
        passed = environment(allowed, variables)
        same = tuple((name, passed[name]) for name in sorted(passed) if not _own(name))
        name = _first_line("{}/{}/comm".format(proc, pid))
        kind = kinds.get((name, same))
        if kind is None:
            if len(kinds) >= _KINDS:
                cut = True
                continue
            kind = kinds[name, same] = {"pids": [], "count": 0, "name": name, "environment": dict(same)}
        kind["count"] += 1
        _add_number(kind, variables)
        if len(kind["pids"]) < _PIDS:
            kind["pids"].append(pid)
    value: Dict[str, Any] = {"environments": list(kinds.values()), "denied": denied, "cut": cut}
    return {"status": "ok", "value": value}


def _add_number(kind: "Dict[str, Any]", variables: "Dict[str, str]") -> None:
    """Add a rank's number in its job, under the name of the variable that holds it."""
    for name in _NUMBERS:
        number = variables.get(name, "")
        if re.match("[0-9]{1,7}$", number):
            numbers = kind.setdefault("numbers", {}).setdefault(name, [])
            if int(number) not in numbers and len(numbers) < _RANKS:
                numbers.append(int(number))
            return


def _own(name: str) -> bool:
    return name in _OWN or (name.startswith(_OWN_PREFIXES) and name not in _SHARED)


def _environ(path: str) -> "Dict[str, str]":
    """Read a process's start environment; empty unless it is a rank."""
    with open(path, "rb", buffering=0) as stream:
        raw = stream.read(_BYTES)
    if not any(sign in raw for sign in _SIGNS):  # nearly all processes of a node are not ranks
        return {}
    pairs = (entry.partition(b"=") for entry in raw.split(b"\0"))
    return {text(name): text(value) for name, sign, value in pairs if sign}


def _first_line(path: str) -> str:
    found = files.read_file(path, 100).get("out", "")
    return str(found).split("\n")[0]


# --- named files -----------------------------------------------------------------------------------


def named_files(allowed: "List[str]") -> "Dict[str, Any]":
    """Examine the files that NCCL's variables name, and this user's access to them."""
    found: Dict[str, Any] = {}
    for variable in _NAMED:
        path = _value_of(variable)
        if not path or (variable == "NCCL_NET_PLUGIN" and "/" not in path):
            continue
        entry = _look(path)
        if entry["status"] == "ok" and variable in ("NCCL_CONF_FILE", "NCCL_TOPO_FILE"):
            record = files.read_file(path, _CONTENT_CAP)
            content = str(record.get("out", ""))
            if record["status"] != "ok":
                entry.update(status=record["status"], why=record.get("why", ""))
            elif variable == "NCCL_CONF_FILE":
                entry["out"] = _only_settings(content, allowed)
            elif "<system" in content:
                entry["out"] = content
        found[variable] = dict(entry, path=path)
    return found


def _only_settings(content: str, allowed: "List[str]") -> str:
    """Blank every line that does not set a variable allowed to leave the node."""
    lines = []
    for line in content.split("\n"):
        name, sign, value = line.partition("=")
        lines.append(line if sign and environment(allowed, {name.strip(): value}) else "")
    return "\n".join(lines)


def _value_of(variable: str) -> str:
    """Return a variable's value from the environment, or NCCL's user or system file."""
    if variable in os.environ:
        return os.environ[variable]
    user = os.environ.get("NCCL_CONF_FILE") or paths.home("~/.nccl.conf")
    for conf in (user, "/etc/nccl.conf"):
        for name, value in _settings(conf):
            if name == variable:
                return value
    return ""


def _settings(conf: str) -> "Iterator[Tuple[str, str]]":
    for line in str(files.read_file(conf, _CONTENT_CAP).get("out", "")).split("\n"):
        name, sign, value = line.partition("=")
        if sign and not line.startswith("#"):
            yield name, value


def _look(path: str) -> "Dict[str, Any]":
    """Return the type of a path, and this user's access to it and its directory."""
    entry: Dict[str, Any] = {"status": "ok", "folder_access": _access(os.path.dirname(path) or ".")}
    try:
        entry["type"] = files.kind(os.stat(path).st_mode)
    except OSError as error:
        return dict(entry, **refusal(error))
    return dict(entry, access=_access(path))


def _access(path: str) -> str:
    return "".join(letter for letter, mode in (("r", os.R_OK), ("w", os.W_OK)) if os.access(path, mode))
