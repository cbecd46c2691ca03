"""Where names stand in evidence, reports and logs: a host, a user or a job has no form of its own, but a place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from preflight.redact.words import ACCOUNTS, is_domain

#: Called with the kind of a name and the name; returns what to put in its place.
Found = Callable[[str, str], str]

_HOST = r"[^\W_][\w.-]{0,252}"

#: Variables and keys whose value is a name, or a list of names.
_KEYS: Mapping[str, str] = {
    **dict.fromkeys(
        ("hostname", "host_name", "fqdn", "nodename", "node_name", "slurmd_nodename", "slurm_submit_host",
         "master_addr", "slurm_job_first_node", "slurm_topology_addr", "slurm_nodelist", "slurm_job_nodelist",
         "slurm_step_nodelist", "slurm_nodename", "slurmctld_host", "submit_host", "nodelist", "batchhost",
         "reqnodelist", "excnodelist", "slurm_job_exclude_nodes", "slurm_step_launcher_host",
         "ompi_mca_orte_node_regex", "prte_hosts"), "host"),
    **dict.fromkeys(
        ("user", "username", "logname", "slurm_job_user", "sudo_user", "userid", "user_name", "owner"), "user"),
    **dict.fromkeys(
        ("job_name", "jobname", "slurm_job_name", "slurm_job_account", "slurm_cluster_name", "slurm_job_partition",
         "slurm_job_reservation", "slurm_job_qos", "slurm_job_comment", "account", "partition", "namespace", "pod_name",
         "pod_namespace", "job_id_name", "wckey", "slurm_job_wckey", "clustername", "comment"), "name"),
}  # fmt: skip

#: What stands for no name where one could stand.
_NO_NAMES = frozenset(("null", "none", "true", "false", "unknown", "n/a", "default", "main", "batch", "debug"))

#: Keys whose values are names only in documents: in a text too much else is called so.
_IN_DOCUMENTS = ("comment", "owner")

_IN_TEXT = "|".join(sorted((key for key in _KEYS if key not in _IN_DOCUMENTS), key=len, reverse=True))
_KEYED = re.compile(
    rf"(?<![A-Za-z0-9])(?P<key>{_IN_TEXT})"
    rf"(?:\\?[\"'])?\s{{0,3}}[:=]\s{{0,3}}(?:\\?[\"'])?(?P<name>[^\W_][\w.+@,\[\]-]{{0,2000}})",
    re.I,
)

#: Places by the form of the line or of what stands around: what has to be in the text, the place, what stands there.
_WHERE: tuple[tuple[str, str, str], ...] = (
    # NCCL: `gpu001:4242:4250 [0] NCCL INFO …`; nccl-tests: `#  Rank  0 Group  0 Pid   4242 on gpu001 device  0`
    ("NCCL", r"(?m)(?:^|\s)(?P<name>HOST):\d{1,10}:\d{1,10} \[\d{1,4}\]", "host"),
    (" Pid ", r"\bPid\s{1,8}\d{1,10} on\s{1,4}(?P<name>HOST) device", "host"),
    # syslog: `Nov 21 03:00:00 gpu001 kernel:`; RFC 5424: `2026-11-21T03:00:00.000000+00:00 gpu001 kernel:`
    (":", r"(?m)^(?:<\d+>)?[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d (?P<name>HOST) [\w./-]+(?:\[\d+\])?:", "host"),
    (":", r"(?m)^\d{4}-\d\d-\d\dT[\d:.]{8,15}(?:Z|[+-]\d\d:?\d\d) (?P<name>HOST) [\w./-]+(?:\[\d+\])?:", "host"),
    # Slurm: `srun: error: gpu001: task 0: Exited`, `slurmstepd: error: *** STEP 1.0 ON gpu001 CANCELLED`
    ("srun", r"srun: error: (?P<name>HOST(?:\[[\d,-]+\])?): tasks? ", "host"),
    (" ON ", r"\*\*\* (?:JOB|STEP) \S{1,40} ON (?P<name>HOST) ", "host"),
    # torchrun: `  host      : gpu001.cluster`; ssh
    ("host", r"(?m)^\s*host\s{1,8}: (?P<name>HOST)$", "host"),
    ("ssh", r"\bssh(?: -\S+)* (?:[\w.-]+@)?(?P<name>HOST)", "host"),
    # the tools of infiniband-diags: `"MF0;leaf01:MQM9790/U1"`, `"gpu001 mlx5_0"`, `CA: gpu001 mlx5_0:`
    (";", r"(?:MF0|SwitchIB Mellanox Technologies|Quantum Mellanox Technologies);(?P<name>HOST):", "switch"),
    ("S-", r'(?m)^Switch\s.{0,60}# "(?P<name>[A-Za-z][^\W_]*[\w.-]*\d[\w.-]*)"', "switch"),
    ("=(", r'"\s*(?P<name>[A-Za-z][\w.-]*)"\s+\d+\s+\d+\[[^\]\n]{0,8}\]\s+==\(', "switch"),
    (" ", r'(?:"|\bCA: )\s*(?P<name>HOST) (?:mlx\d_\d+|HCA-\d+|hfi\d_\d+|bnxt_re\d+|irdma\d+|ib\d)\s*[":]', "host"),
    ("==>", r'==>[^\n"]{0,80}"\s*(?P<name>[A-Za-z][\w.-]*)"', "switch"),
    (" for ", r'\b(?:Errors|Data Counters) for (?:0x[0-9a-fA-F]{1,16} )?"(?P<name>[A-Za-z][\w.-]*)"', "switch"),
    ("Switch: ", r"(?m)^Switch: 0x[0-9a-fA-F]{1,16} (?P<name>[A-Za-z][\w.-]*):$", "switch"),
    # lldpcli, as JSON of either kind and as text
    ("chassis", r'"chassis":\s*\[\{.{0,600}?"name":\s*\[\{"value":\s*"(?P<name>HOST)"', "switch"),
    ("chassis", r'"chassis":\s*\{\s*"(?P<name>HOST)":\s*\{', "switch"),
    ("SysName", r"SysName:\s{1,20}(?P<name>HOST)", "switch"),
    # serial numbers, of modules, GPUs, boards
    ("erial", r"""(?i)serial(?:[ _]?(?:number|no\.?|num))?(?:\\?["'])?\s{0,40}[:=>]\s{0,3}(?:\\?["'])?"""
     r"(?P<name>[\w-]{5,64})", "serial"),
    ("SN", r"\b(?:Vendor SN|SN|S/N)\s{0,40}[:=]\s{0,3}(?P<name>[\w-]{5,64})", "serial"),
    # people
    ("uid=", r"\b(?:uid|gid|groups)=\d+\((?P<name>[^\W_][\w.-]{0,63})\)", "user"),
    ("@", r"(?<![\w.+-])(?P<name>[^\W_][\w.+-]{0,63})@(?=[A-Za-z][\w-]*\.[A-Za-z])", "user"),
    (" user", r"\b(?:for|of) user (?P<name>[^\W_][\w.-]{0,63})", "user"),
)  # fmt: skip
_PLACES = tuple((sign, re.compile(where.replace("HOST", _HOST)), kind) for sign, where, kind in _WHERE)

_FOLDED = re.compile(r"[^\s,\[]+(?:\[[\d,-]+\][^\s,\[]*)*")


def in_text(text: str, found: Found) -> str:
    """Hand every name in a known place to ``found``; return the text with what that gave."""

    def replace(kind: str) -> Callable[[re.Match[str]], str]:
        def one(match: re.Match[str]) -> str:
            start, end = match.span("name")
            put = _name(kind, match["name"], found)
            return match.string[match.start() : start] + put + match.string[end : match.end()]

        return one

    for sign, pattern, kind in _PLACES:
        if sign in text:
            text = pattern.sub(replace(kind), text)
    if ":" in text or "=" in text:
        text = _KEYED.sub(lambda match: replace(_KEYS[match["key"].lower()])(match), text)
    return text


def by_key(key: str, value: str, found: Found) -> str:
    """Hand the value of a key or variable to ``found`` if it is a name; return what to write."""
    kind = _KEYS.get(key.lower())
    if key.lower() in ("serial", "serial_number", "board_serial"):
        kind = "serial"
    return value if kind is None or not value.strip() else _name(kind, value, found)


def _name(kind: str, text: str, found: Found) -> str:
    """Hand over what a place for names holds: a name, a list of names, or a word that is no name."""
    if kind == "serial":
        return found(kind, text) if re.search(r"\d", text) and re.search(r"[1-9A-Za-z]", text) else text
    if text.lower() in _NO_NAMES or (kind == "user" and text.lower() in ACCOUNTS):
        return text
    if kind != "host":
        return found(kind, text)
    return _FOLDED.sub(lambda match: found(kind, match[0]), text)


def domains(text: str) -> Iterator[str]:
    """Yield the names of domains, and of hosts in them."""
    for match in re.finditer(r"(?<![\w.-])[^\W_][\w-]{0,62}(?:\.[^\W_][\w-]{0,62}){1,8}", text):
        if is_domain(match[0]):
            yield match[0]


def in_document(document: Mapping[str, Any], found: Found) -> None:
    """Hand over the names that stand in the frame of evidence or of a report."""
    node = document.get("node")
    if isinstance(node, str) and not node.startswith("@"):
        found("host", node)
    if isinstance(pair := document.get("pair"), dict):
        found("host", str(pair.get("peer", "")))
    if isinstance(collector := document.get("collector"), dict) and isinstance(who := collector.get("user"), str):
        found("user", who)
    records = document.get("records")
    for key, record in records.items() if isinstance(records, dict) else ():
        if key == "file:/proc/sys/kernel/hostname":
            found("host", record.strip() if isinstance(record, str) else str(_out(record)).strip())
        elif key == "kube:pod" and isinstance(record, dict) and isinstance(value := record.get("value"), dict):
            for name, kind in (("name", "host"), ("node", "host"), ("namespace", "name")):
                found(kind, str(value.get(name) or ""))
    listed = document.get("nodes")
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict) and isinstance(called := one.get("name"), str):
            found("host", called)


def _out(record: Any) -> Any:
    return record.get("out", "") if isinstance(record, dict) else ""
