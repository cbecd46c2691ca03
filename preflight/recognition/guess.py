"""A guess at what an unrecognised text is, and the commands to run instead."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from preflight.recognition.stated_facts import of_text


class Guess(NamedTuple):
    """A guess at what a text is, and commands whose output is recognised."""

    looks_like: str
    commands: tuple[str, str, str]
    stated: Mapping[str, Any] = {}  # values stated in the text


_GPU = ("nvidia-smi -q", "nvidia-smi topo -m", "dmesg -T | grep -i -e xid -e nvrm")
_AMD = ("amd-smi static --json", "amd-smi metric --json", "amd-smi topology --json")
_NETWORK = ("ibstat", "ethtool -S INTERFACE", "ip -s link")
_JOB = ("the job's output from its first line, with NCCL_DEBUG=INFO", "nvidia-smi", "dmesg -T | tail -100")
_SLURM = ("scontrol show node NODE", "sinfo -R", "sacct -j JOB --format=JobID,State,ExitCode,NodeList")
_PODS = ("kubectl describe pod POD", "kubectl get events --sort-by=.lastTimestamp", "kubectl logs POD --previous")
_DRIVER = ("nvidia-smi", "cat /proc/driver/nvidia/version", "ldconfig -p | grep -e cuda -e nvidia-ml")
_PCI = ("lspci -vv", "nvidia-smi topo -m", "ibstat")
_LIMITS = ("nvidia-smi", "dmesg -T | tail -100", "ulimit -a")
_DISKS = ("df -h /dev/shm", "mount", "dmesg -T | tail -100")
_HOST = ("lscpu", "numactl -H", "dmesg -T | tail -100")
_HOST_SIDE = ("ethtool -S INTERFACE", "mlnx_qos -i INTERFACE", "ethtool INTERFACE")
_SONIC = (
    "sonic-db-dump -n COUNTERS_DB -y",
    "sonic-db-dump -n APPL_DB -y",
    "sonic-db-dump -n CONFIG_DB -y",
)
_NXOS = (
    "show interface (with the line of the prompt)",
    "show interface transceiver details",
    "show lldp neighbors detail",
)
_EOS = (
    "show interfaces | json (with the line of the prompt)",
    "show interfaces phy detail | json",
    "show interfaces transceiver dom thresholds | json",
)

#: Name, pattern and commands; the first pattern found near the start of the text applies.
_LOOKS: tuple[tuple[str, re.Pattern[str], tuple[str, str, str]], ...] = tuple(
    (name, re.compile(pattern, re.MULTILINE), commands)
    for name, pattern, commands in (
        (
            "a BGP summary of a switch, which is not read yet",
            r"^BGP summary information for VRF|^IPv4 Unicast Summary|^BGP router identifier \S{1,40}, local AS number",
            _EOS,
        ),
        ("output of a SONiC switch", r"^admin@\S{1,60}:\S{1,20}\$ show ", _SONIC),
        ("output of an Arista EOS switch", r"^[\w.-]{1,60}[#>] ?sh(?:ow?)? (?:int|lldp|ver)|^Arista DCS-", _EOS),
        ("output of a Cisco NX-OS switch", r"^\|? *QOS GROUP \d", _NXOS),
        ("output of a Cumulus Linux switch", r"^\S{1,80}[$#] nv show ", _HOST_SIDE),
        (
            "output of a Juniper switch",
            r"^Physical interface: [a-z]{2}-\d|^Interface +Admin Link Proto|^ {0,8}Queue: \d, Forwarding classes: ",
            _HOST_SIDE,
        ),
        (
            "a table of the OSU benchmarks",
            r"^# OSU [\w -]{2,60} Test v",
            ("all_reduce_perf -b 8 -e 8G -f 2 -g 1", "ib_write_bw NODE", "ibstat"),
        ),
        ("dcgmi", r"(?i)(?<![\w-])dcgmi?(?![\w-])|DCGM_FI_", ("dcgmi diag -r 1", "dcgmi health -c", "nvidia-smi -q")),
        ("nvidia-smi dmon or pmon", r"^# ?gpu +(?:pwr|pid|sm|fb)\b", _GPU),
        ("a list of GPUs (nvidia-smi -L)", r"^GPU \d{1,3}: .{1,100}\(UUID: ", _GPU),
        ("nvidia-smi", r"(?i:\bnvidia-smi\b)|\bNVML\b", _GPU),
        ("amd-smi or rocm-smi", r"(?i)\b(?:rocm|amd)-smi\b|ROCm System Management", _AMD),
        ("nvcc", r"nvcc: NVIDIA|Cuda compilation tools", _DRIVER),
        ("mlxlink", r"(?i)^\s*Operational Info\b|\bmlxlink\b", _NETWORK),
        ("ibdiagnet", r"(?i)\bibdiagnet\b", ("iblinkinfo", "ibqueryerrors", "sudo preflight check --fabric")),
        ("a list of network interfaces", r"(?i)^\d{1,4}: \S{1,32}: <|^\s+inet6? |flags=\d+<UP", _NETWORK),
        ("a list of PCI devices", r"^(?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7] [A-Z]", _PCI),
        ("kubectl", r"^NAME +READY +STATUS|^NAME +STATUS +ROLES|^apiVersion: |^kind: |\bkubectl\b", _PODS),
        ("Slurm", r"^\s*JOBID +PARTITION|^PARTITION +AVAIL|(?i:\bs(?:batch|run|lurmd?|acct|control)\b)", _SLURM),
        ("a Python traceback", r"^Traceback \(most recent call last\)|^\s+File \".{1,200}\", line \d", _JOB),
        ("an NCCL topology file", r"<system version=|<cpu numaid=", _PCI),
        ("a list of processes", r"^\s*(?:USER +PID|PID +(?:USER|TTY)|top - )", _LIMITS),
        ("file systems", r"^Filesystem +(?:Size|1K-blocks|Inodes)", _DISKS),
        ("the host's memory usage", r"^\s+total +used +free", _HOST),
        ("a web page", r"(?i)<html|<!doctype html", _GPU),
        ("JSON", r"\A\s*(?:\{\s*[\"}]|\[\s*(?:[\[{\"\]]|-?\d+(?:\.\d+)?\s*(?:,|\]\s*(?:\Z|[\]},]))))", _JOB),
        ("the log of a job", r"(?i)\b(?:epoch|rank|step|loss|torch|cuda|nccl|mpi)\b", _JOB),
    )
)  # fmt: skip

#: What an empty text is called.
EMPTY = "an empty text"

#: Maximum number of examined characters.
_LOOKED_AT = 20_000


def guess(text: str) -> Guess:
    """Guess what a text is; ``looks_like`` is empty if no pattern matches."""
    head = text[:_LOOKED_AT]
    if not head.strip():
        return Guess(EMPTY, ("nvidia-smi", "dmesg -T | grep -i -e xid -e nvrm", "preflight check"))
    for name, pattern, commands in _LOOKS:
        if pattern.search(head):
            return Guess(name, commands, of_text(text))
    return Guess("", ("nvidia-smi", "dmesg -T | grep -i -e xid -e nvrm", "preflight check"), of_text(text))
