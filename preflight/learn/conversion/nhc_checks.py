"""Conversion of NHC checks to cluster file keys, or the reason if none fits."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from preflight.learn.conversion.draft import Draft
from preflight.learn.conversion.sizes import count, gib, kilobytes, percent
from preflight.nodeset import is_name

#: Tolerance by which a node's memory may differ from the declared value.
_MEMORY_TOLERANCE = 0.01

_DEVICE = re.compile(r"([A-Za-z][A-Za-z0-9_.-]{0,63})(?::([0-9]{1,3}))?")
_PATH = re.compile(r"/[^\x00-\x1f\x7f]{0,1000}")
_UNIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:-]{0,200}")
_COMMAND = re.compile(r"[A-Za-z0-9_./@:+-]{1,64}")
_COUNT = re.compile(r"[0-9]{1,9}")

#: Daemon -> the unit that starts it, if the names differ.
_UNITS = {"munged": "munge", "nv-fabricmanager": "nvidia-fabricmanager", "automount": "autofs", "dockerd": "docker"}
_DAEMONS = {"slurmd", "sshd", "chronyd", "rpcbind", "sssd", "containerd", "kubelet", "nvidia-persistenced", "opensm",
            "lldpd", "rsyslogd"}  # fmt: skip

_READ_ONLY, _READ_WRITE = r"/(^|,)ro($|,)/", r"/(^|,)rw($|,)/"


def convert_check(name: str, arguments: Sequence[str], draft: Draft) -> None:
    """Add the expectations of an NHC check to a class; record those without a key."""
    if convert := _CONVERTED.get(name):
        convert(draft, list(arguments))
    elif name in _COVERED:
        draft.lose(f"needs no key: {_COVERED[name]}", covered=True)
    elif name in _REASONS:
        draft.lose(_REASONS[name])
    else:
        draft.lose("is a site-specific check or command, which preflight does not run")


# --- hardware ---


def _physmem(draft: Draft, arguments: list[str]) -> None:
    low, high = [*(kilobytes(argument) for argument in arguments[:2]), None, None][:2]
    if low is None or high is None or len(arguments) > 3:
        return draft.lose("has sizes that NHC cannot parse either")
    if not 0 < low <= high:
        return draft.lose("has an empty range")
    middle = (low + high) / 2
    allowed = (high - low) / 2 / middle
    if len(arguments) == 3:
        share, size = percent(arguments[2]), kilobytes(arguments[2])
        if share is None and size is None:
            return draft.lose("has a tolerance that is neither a percentage nor a size")
        allowed += share / 100 if share is not None else (size or 0) / middle
    if high > low * (1 + 2 * _MEMORY_TOLERANCE):
        return draft.lose(
            f"accepts any memory from {low / 2**20:.6g} to {high / 2**20:.6g} GiB; host.memory_gib is one value, "
            "within 1%: set the nodes' value"
        )
    note = "" if allowed <= _MEMORY_TOLERANCE else f"NHC allows {allowed:.3g} of it, preflight 1%"
    draft.put(("host", "memory_gib"), gib(round(middle)), note.replace(f"{allowed:.3g}", f"{100 * allowed:.3g}%"))


def _cpuinfo(draft: Draft, arguments: list[str]) -> None:
    numbers = [int(text) if _COUNT.fullmatch(text) else None for text in arguments]
    if not 1 <= len(numbers) <= 3 or any(
        text and number is None for text, number in zip(arguments, numbers, strict=True)
    ):
        return draft.lose("has counts that are not numbers")
    sockets, cores, threads = [*numbers, None, None, None][:3]
    if sockets:
        draft.put(("host", "sockets"), sockets)
    if threads:
        draft.put(("host", "cpus"), threads)
    if cores and threads and threads in (cores, 2 * cores):
        draft.put(("host", "smt"), threads == 2 * cores)
    elif cores:
        draft.lose(f"{cores} cores: the number of cores has no key; host.cpus counts hardware threads")


def _swap(draft: Draft, arguments: list[str]) -> None:
    low, high = [*(kilobytes(argument) for argument in arguments[:2]), None, None][:2]
    if low is not None and len(arguments) == 1:
        return draft.lose("only sets the minimum swap; host.swap is true or false")
    if low is None or high is None:
        return draft.lose("has sizes that NHC cannot parse either")
    if high == 0:
        return draft.put(("host", "swap"), False)
    if low == 0:
        return draft.lose("accepts a node without swap and one with it; host.swap is true or false")
    draft.put(("host", "swap"), True, "the expected swap has no key")


def _ib(draft: Draft, arguments: list[str]) -> None:
    if not arguments or not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,3})?", arguments[0]) or len(arguments) > 2:
        return draft.lose("has a rate that is not a number of Gb/s")
    rate = float(arguments[0])
    if len(arguments) == 1:
        draft.put(("ports", "rate_gbps"), rate)
        return draft.lose("names no device: the rails are determined on the node", covered=True)
    match = _DEVICE.fullmatch(arguments[1])
    if match is None or not is_name(match[1]):
        return draft.lose("has a device that is not DEVICE or DEVICE:PORT")
    if match[2] not in (None, "1"):
        draft.lose(f"port {match[2]}: ports are declared by device; preflight judges each port of it")
    before = draft.rates.setdefault(match[1], (rate, draft.line, draft.text))
    if before[0] != rate:
        draft.lose(f"contradicts line {before[1]}, whose value is used: {before[0]:g} Gb/s")


def _gpu_count(draft: Draft, arguments: list[str]) -> None:
    if len(arguments) != 1 or not _COUNT.fullmatch(arguments[0]):
        return draft.lose("has a count that is not a number")
    draft.put(("gpus",), int(arguments[0]))


def _dmi(draft: Draft, arguments: list[str]) -> None:
    if arguments and arguments[0] in ("-!", "-n", "!"):
        return draft.lose("forbids a text in the DMI data; keys declare values that a node must have")
    while len(arguments) > 2 and arguments[0] in ("-h", "-t"):
        arguments = arguments[2:]
    for lead, path in (("BIOS Information: Version: ", ("firmware", "bios")),
                       ("System Information: Product Name: ", ("host", "server"))):  # fmt: skip
        value = arguments[0].removeprefix(lead).strip() if len(arguments) == 1 else ""
        if value and value != arguments[0] and not _is_pattern(value):
            return draft.put(path, value)
    draft.lose("of the DMI data only BIOS version (firmware.bios) and product name (host.server) have keys, as texts "
               "without wildcards")  # fmt: skip


# --- file systems ---


def _mount(draft: Draft, arguments: list[str], mode: str = "") -> None:
    options = _options(draft, arguments, flags="0r", taking="EFOefost") if arguments[:1] and not (
        arguments[0].startswith("/")) else None  # fmt: skip
    if options is None:
        if not arguments or not arguments[0].startswith("/"):
            return draft.lose("names no readable mount point")
        if any(argument.startswith("-") for argument in arguments[1:]):
            draft.lose("has options after the mount point, which NHC parses as source, type and options")
            arguments = arguments[:1]
        paths, sources, types = arguments[:1], arguments[1:2], arguments[2:3]
        wanted = [] if mode else arguments[3:4]
        given: set[str] = set()
    else:
        taken, rest = options
        paths = [*taken.get("f", []), *rest, *taken.get("F", [])]
        sources, types, wanted = taken.get("s", []), taken.get("t", []), taken.get("o", [])
        given = set(taken)
    for source in filter(None, sources):
        draft.lose(f"source {source}: the source is not compared, only whether and how it is mounted")
    for text in filter(None, wanted):
        if text in (_READ_ONLY, "ro"):
            mode = "ro"
        elif text in (_READ_WRITE, "rw"):
            mode = "rw"
        else:
            draft.lose(f"options {text}: of the options only ro and rw have a key")
    kinds = [text for text in types if text and not _is_pattern(text)]
    for text in types:
        if text and _is_pattern(text):
            draft.lose(f"type {text}: a type is declared by its name, without wildcards")
    if "0" in given:
        draft.lose("-0: NHC only logs that it is missing; preflight fails the node")
    if given & set("reEO"):
        draft.lose("NHC remounts it or runs a command (-r, -O, -e, -E); preflight never changes a node")
    if not paths:
        draft.lose("names no mount point")
    for path in paths:
        if not _PATH.fullmatch(path):
            draft.lose(f"{path[:80]} is not an absolute path")
            continue
        draft.mount(path, type=kinds[0] if kinds else None, read_write={"rw": True, "ro": False}.get(mode))


def _mount_rw(draft: Draft, arguments: list[str]) -> None:
    _mount(draft, arguments, "rw")


def _mount_ro(draft: Draft, arguments: list[str]) -> None:
    _mount(draft, arguments, "ro")


def _fs_free(draft: Draft, arguments: list[str]) -> None:
    path, limit = _of_path(draft, arguments)
    if not path:
        return
    if (share := percent(limit)) is not None:
        draft.mount(path, min_free_pct=share)
    elif (size := kilobytes(limit)) is not None:
        draft.mount(path, min_free_gib=gib(size))
    else:
        draft.lose("has a limit that is neither a percentage nor a size")


def _fs_used(draft: Draft, arguments: list[str]) -> None:
    path, limit = _of_path(draft, arguments)
    if not path:
        return
    if (share := percent(limit)) is not None:
        draft.mount(path, min_free_pct=100 - share)
    else:
        draft.lose("limits the used space by size: declare the expected free space")


def _fs_ifree(draft: Draft, arguments: list[str]) -> None:
    path, limit = _of_path(draft, arguments)
    if not path:
        return
    if (number := count(limit)) is not None:
        draft.mount(path, min_free_inodes=number)
    else:
        draft.lose("has a limit that is not a number of inodes")


def _fs_iused(draft: Draft, arguments: list[str]) -> None:
    draft.lose("limits the used inodes: declare the minimum of free ones (min_free_inodes)")


def _of_path(draft: Draft, arguments: list[str]) -> tuple[str, str]:
    if len(arguments) == 2 and _PATH.fullmatch(arguments[0]):
        return arguments[0], arguments[1]
    draft.lose("is not a mount point and one limit")
    return "", ""


# --- services and processes ---


def _service(draft: Draft, arguments: list[str]) -> None:
    options = _options(draft, arguments, flags="0fSrcsk", taking="udmeE")
    if options is None:
        return
    taken, rest = options
    if len(rest) != 1 or not _UNIT.fullmatch(rest[0]):
        return draft.lose("names no service")
    if taken.keys() & set("sk"):
        draft.append(("host", "forbidden_processes"), rest[0])
    else:
        draft.append(("host", "services"), rest[0])
    if "u" in taken:
        draft.lose(f"-u {taken['u'][-1]}: the user that a service runs as has no key")
    if "m" in taken or "f" in taken:
        draft.lose("-m, -f: a service is declared by its unit, not by the command line of its process")
    if "0" in taken:
        draft.lose("-0: NHC only logs it; preflight fails the node")
    if taken.keys() & set("SrcskeE"):
        draft.lose("NHC starts, restarts or stops it (-S, -r, -c, -s, -k, -e, -E); preflight never changes a node")


def _daemon(draft: Draft, arguments: list[str]) -> None:
    if not arguments or len(arguments) > 3:
        return draft.lose("names no daemon")
    name = arguments[0].rsplit("/", 1)[-1]
    if name not in _DAEMONS and name not in _UNITS:
        return draft.lose("names a process, but host.services lists units: add the unit that starts it")
    draft.append(("host", "services"), _UNITS.get(name, name))
    if len(arguments) > 1:
        draft.lose(f"{' '.join(arguments[1:])}: owner and arguments of a daemon have no key")


def _forbidden(draft: Draft, arguments: list[str]) -> None:
    if len(arguments) != 1 or not _COMMAND.fullmatch(arguments[0]):
        return draft.lose("forbids a process by owner or arguments; host.forbidden_processes lists names")
    draft.append(("host", "forbidden_processes"), arguments[0].rsplit("/", 1)[-1])


# --- shared ---


def _options(
    draft: Draft, arguments: Sequence[str], flags: str, taking: str
) -> tuple[dict[str, list[str]], list[str]] | None:
    """Split arguments into options and operands as getopts does; None if invalid."""
    made: dict[str, list[str]] = {}
    at = 0
    while at < len(arguments) and arguments[at].startswith("-") and len(arguments[at]) > 1:
        text = arguments[at][1:]
        at += 1
        if text == "-":
            break
        while text:
            letter, text = text[0], text[1:]
            if letter in taking:
                if not text and at >= len(arguments):
                    draft.lose(f"option -{letter} has no value")
                    return None
                value, text, at = (text, "", at) if text else (arguments[at], "", at + 1)
                made.setdefault(letter, []).append(value)
            elif letter in flags:
                made.setdefault(letter, [])
            else:
                draft.lose(f"has an option -{letter} that NHC does not support either")
                return None
    return made, list(arguments[at:])


def _is_pattern(text: str) -> bool:
    """Return whether NHC treats a string as a pattern instead of comparing it."""
    return text.startswith(("!", "/", "{")) or any(sign in text for sign in "*?[")


_CONVERTED: dict[str, Callable[[Draft, list[str]], None]] = {
    "check_hw_physmem": _physmem,
    "check_hw_cpuinfo": _cpuinfo,
    "check_hw_swap": _swap,
    "check_hw_ib": _ib,
    "check_gpu_count": _gpu_count,
    "check_dmi_data_match": _dmi,
    "check_fs_mount": _mount,
    "check_fs_mount_rw": _mount_rw,
    "check_fs_mount_ro": _mount_ro,
    "check_fs_free": _fs_free,
    "check_fs_used": _fs_used,
    "check_fs_ifree": _fs_ifree,
    "check_fs_iused": _fs_iused,
    "check_ps_service": _service,
    "check_ps_daemon": _daemon,
    "check_ps_blacklist": _forbidden,
}

_ALL_GPUS = "gpu.driver, xid.gpu, gpu.ecc-mode, gpu.row-remap and the other checks of gpu judge all GPUs"

#: NHC checks that preflight runs on every node: name -> check id.
_COVERED = {
    "check_nvsmi_healthmon": _ALL_GPUS,
    "check_nv_healthmon": _ALL_GPUS,
    "check_nvgpu_smi": _ALL_GPUS,
    "check_gpu_persistence": "gpu.persistence",
    "check_hw_topology": "topology.nearest-nic, numa.affinity, topology.nvlink",
    "check_vbios_version": "gpu.firmware compares the GPUs of a node; the class may declare their VBIOS",
    "check_hw_mcelog": "kernel.events reads machine checks from the kernel's log",
    "check_gpu_xid": "xid.gpu",
    "check_gpu_ecc": "gpu.ecc-uncorrected, gpu.row-remap",
    "check_nvlink_status": "nvlink.links",
    "check_gpu_clock_throttling": "gpu.throttling",
    "check_ib_link_flapping": "kernel.events, counters.flaps",
}

_NO_FILES = "tests a site-specific file: preflight reads only the files of its own probes"
_NO_COMMAND = "runs a command: preflight runs only its own probes"
_NO_LOAD = "limits what running jobs use: preflight judges the node, not its load"
_BENCHMARK = "runs a benchmark: preflight reads its log (`preflight read`)"
_ACTIVE = "sends traffic: preflight tests only pairs that are named (`preflight pair`)"

_REASONS = {
    "check_hw_eth": "interfaces without RDMA have no key; those of RDMA devices are judged with their ports",
    "check_hw_gm": "Myrinet has no check",
    "check_hw_mem": "memory and swap together have no key: declare host.memory_gib and host.swap",
    "check_hw_mem_free": _NO_LOAD,
    "check_hw_physmem_free": _NO_LOAD,
    "check_hw_swap_free": _NO_LOAD,
    "check_fs_size": "the size of a file system has no key: declare the free space to expect",
    "check_fs_inodes": "the number of all inodes has no key: declare the free inodes to expect",
    "check_all_fs_inodes": "mounts are declared one by one, not by type",
    "check_all_fs_ifree": "mounts are declared one by one, not by type",
    "check_all_fs_iused": "mounts are declared one by one, not by type",
    "check_all_fs_free": "mounts are declared one by one, not by type",
    "check_all_fs_size": "mounts are declared one by one, not by type",
    "check_all_fs_used": "mounts are declared one by one, not by type",
    "check_file_test": _NO_FILES,
    "check_file_stat": _NO_FILES,
    "check_file_contents": _NO_FILES,
    "check_cmd_output": _NO_COMMAND,
    "check_cmd_status": _NO_COMMAND,
    "check_cmd_dmesg": _NO_COMMAND,
    "check_dmi_raw_data_match": "of the DMI data only BIOS version (firmware.bios) and product name (host.server) have "
    "keys",
    "check_net_ping": _ACTIVE,
    "check_net_link": "interfaces without RDMA have no key; those of RDMA devices are judged with their ports",
    "check_gpfs_health": "runs mmhealth: declare the mounts of GPFS, and its unit in host.services",
    "check_raid_health": "kernel.events shows arrays that lost a member; their present state has no key",
    "check_cpu_stream": _BENCHMARK,
    "check_cuda_bw": _ACTIVE,
    "check_ib_bw_non_gdr": _ACTIVE,
    "check_nccl_allreduce_ib_loopback": _BENCHMARK,
    "check_net_socket": "sockets have no key: declare the unit that listens in host.services",
    "check_ps_cpu": _NO_LOAD,
    "check_ps_mem": _NO_LOAD,
    "check_ps_physmem": _NO_LOAD,
    "check_ps_time": _NO_LOAD,
    "check_ps_loadavg": _NO_LOAD,
    "check_ps_kswapd": _NO_LOAD,
    "check_ps_unauth_users": "NHC compares users with running jobs; host.forbidden_users lists forbidden names",
    "check_ps_userproc_lineage": "the ancestors of processes are not judged",
    "check_moab_sched": "Moab is not judged",
    "check_moab_rm": "Moab is not judged",
    "check_moab_torque": "TORQUE is not judged",
    "check_gpu_bw": _ACTIVE,
    "check_gpu_bandwidth": _ACTIVE,
    "check_ib_bw_gdr": _ACTIVE,
    "check_nccl_allreduce": _BENCHMARK,
}

_SETTINGS = (
    "CONFDIR CONFFILE DEBUG DETACHED_MODE DETACHED_MODE_FAIL_NODATA DF_CMD DF_FLAGS DFI_CMD DFI_FLAGS EVAL_LINE "
    "FORCE_SETSID HELPERDIR HOSTNAME HOSTNAME_S IGNORE_EMPTY_NOTE INCDIR JOBFILE_PATH LOGFILE LSF_BADMIN LSF_BHOSTS "
    "LSF_OFFLINE_ARGS LSF_ONLINE_ARGS MARK_OFFLINE MAX_SYS_UID MCELOG MCELOG_ARGS MCELOG_MAX_CORRECTED_RATE "
    "MCELOG_MAX_UNCORRECTED_RATE MDIAG_CMD NAME NHC_AUTH_USERS NHC_CHECK_ALL NHC_CHECK_FORKED NHC_RM NVIDIA_HEALTHMON "
    "NVIDIA_HEALTHMON_ARGS OFFLINE_NODE ONLINE_NODE PASSWD_DATA_SRC PATH PBSNODES PBSNODES_LIST_ARGS "
    "PBSNODES_OFFLINE_ARGS PBSNODES_ONLINE_ARGS PBS_SERVER_HOME RESULTFILE RM_DAEMON_MATCH SILENT SLURM_SCONTROL "
    "SLURM_SC_OFFLINE_ARGS SLURM_SC_ONLINE_ARGS SLURM_SERVER_HOME SLURM_SINFO STAT_CMD STAT_FMT_ARGS TIMEOUT "
    "VERBOSE"
)

#: Variables that change how NHC runs.
NHC_VARIABLES = frozenset(_SETTINGS.split())
