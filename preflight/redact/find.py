"""Where names stand in evidence, reports and logs: a host, a user or a job has no form of its own, but a place."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from preflight.redact.words import ACCOUNTS, is_domain

#: Called with the kind of a name and the name; returns what to put in its place.
Found = Callable[[str, str], str]

_HOST = r"[^\W_][\w.-]{0,252}"
_VALUE = r"[\"']?\s*[:=]\s*[\"']?"

#: Variables and keys whose value is a name, or a list of names.
_KEYS: Mapping[str, str] = {
    **dict.fromkeys(
        ("hostname", "host_name", "fqdn", "nodename", "node_name", "slurmd_nodename", "slurm_submit_host", "master_addr",
         "slurm_job_first_node", "slurm_topology_addr", "slurm_nodelist", "slurm_job_nodelist", "slurm_step_nodelist",
         "slurm_nodename", "slurmctld_host", "submit_host", "nodelist", "batchhost", "reqnodelist", "excnodelist",
         "slurm_job_exclude_nodes", "slurm_step_launcher_host", "ompi_mca_orte_node_regex", "prte_hosts"), "host"),
    **dict.fromkeys(
        ("user", "username", "logname", "slurm_job_user", "sudo_user", "userid", "user_name", "owner"), "user"),
    **dict.fromkeys(
        ("job_name", "jobname", "slurm_job_name", "slurm_job_account", "slurm_cluster_name", "slurm_job_partition",
         "slurm_job_reservation", "slurm_job_qos", "slurm_job_comment", "account", "partition", "namespace", "pod_name",
         "pod_namespace", "job_id_name", "wckey", "slurm_job_wckey", "clustername", "comment"), "name"),
}  # fmt: skip

#: What stands for no name where one could stand.
_NO_NAMES = frozenset("null none true false unknown n/a default main batch debug yes no".split())

_KEYED = re.compile(
    rf"(?<![A-Za-z0-9])(?P<key>{'|'.join(sorted((k for k in _KEYS if k not in ('comment', 'owner')), key=len, reverse=True))})"
    rf"(?:\\?[\"'])?\s{{0,3}}[:=]\s{{0,3}}(?:\\?[\"'])?(?P<name>[^\W_][\w.+@,\[\]-]{{0,2000}})",
    re.I,
)

#: Places by the form of the line or of what stands around.
_PLACES: tuple[tuple[str, re.Pattern[str], str], ...] = (
    # NCCL: `gpu001:4242:4250 [0] NCCL INFO …`; nccl-tests: `#  Rank  0 Group  0 Pid   4242 on gpu001 device  0`
    ("NCCL", re.compile(rf"(?m)(?:^|\s)(?P<name>{_HOST}):\d{{1,10}}:\d{{1,10}} \[\d{{1,4}}\]"), "host"),
    (" Pid ", re.compile(rf"\bPid\s{{1,8}}\d{{1,10}} on\s{{1,4}}(?P<name>{_HOST}) device"), "host"),
    # syslog: `Nov 21 03:00:00 gpu001 kernel:`, and that of RFC 5424: `2026-11-21T03:00:00.000000+00:00 gpu001 kernel:`
    (":", re.compile(rf"(?m)^(?:<\d+>)?[A-Z][a-z]{{2}} [ \d]\d \d\d:\d\d:\d\d (?P<name>{_HOST}) [\w./-]+(?:\[\d+\])?:"), "host"),
    (":", re.compile(rf"(?m)^\d{{4}}-\d\d-\d\dT[\d:.]{{8,15}}(?:Z|[+-]\d\d:?\d\d) (?P<name>{_HOST}) [\w./-]+(?:\[\d+\])?:"),
     "host"),
    # Slurm: `srun: error: gpu001: task 0: Exited`, `slurmstepd: error: *** STEP 1.0 ON gpu001 CANCELLED`
    ("srun", re.compile(rf"srun: (?:error|launch/slurm): (?:.{{0,40}}: )?(?P<name>{_HOST}(?:\[[\d,-]+\])?): tasks? "), "host"),
    (" ON ", re.compile(rf"\*\*\* (?:JOB|STEP) \S{{1,40}} ON (?P<name>{_HOST}) "), "host"),
    # torchrun: `host      : gpu001.cluster (rank …)`; ssh
    ("host", re.compile(rf"(?m)^\s*host\s{{1,8}}: (?P<name>{_HOST})$"), "host"),
    ("ssh", re.compile(rf"\bssh(?: -\S+)* (?:[\w.-]+@)?(?P<name>{_HOST})"), "host"),
    # the tools of infiniband-diags: `"MF0;leaf01:MQM9790/U1"`, `"gpu001 mlx5_0"`, `CA: gpu001 mlx5_0:`
    (";", re.compile(rf"(?:MF0|SwitchIB Mellanox Technologies|Quantum Mellanox Technologies);(?P<name>{_HOST}):"), "switch"),
    ("S-", re.compile(r'(?m)^Switch\s.{0,60}# "(?P<name>[A-Za-z][^\W_]*[\w.-]*\d[\w.-]*)"'), "switch"),
    ("=(", re.compile(r'"\s*(?P<name>[A-Za-z][\w.-]*)"\s+\d+\s+\d+\[[^\]\n]{0,8}\]\s+==\('), "switch"),
    (" ", re.compile(rf"(?:\"|\bCA: )\s*(?P<name>{_HOST}) (?:mlx\d_\d+|HCA-\d+|hfi\d_\d+|bnxt_re\d+|irdma\d+|ib\d)\s*[\":]"),
     "host"),
    # lldpcli, as JSON and as text
    ("chassis", re.compile(rf"\"chassis\":\s*\[\{{.{{0,600}}?\"name\":\s*\[\{{\"value\":\s*\"(?P<name>{_HOST})\""), "switch"),
    ("chassis", re.compile(rf"\"chassis\":\s*\{{\s*\"(?P<name>{_HOST})\":\s*\{{"), "switch"),
    ("SysName", re.compile(rf"SysName:\s{{1,20}}(?P<name>{_HOST})"), "switch"),
    # serial numbers, of modules, GPUs, boards
    ("erial", re.compile(r"(?i)serial(?:[ _]?(?:number|no\.?|num))?(?:\\?[\"'])?\s{0,40}[:=>]\s{0,3}(?:\\?[\"'])?(?P<name>[\w-]{5,64})"),
     "serial"),
    ("SN", re.compile(r"\b(?:Vendor SN|SN|S/N)\s{0,40}[:=]\s{0,3}(?P<name>[\w-]{5,64})"), "serial"),
    # people
    ("uid=", re.compile(r"\b(?:uid|gid|groups)=\d+\((?P<name>[^\W_][\w.-]{0,63})\)"), "user"),
    ("@", re.compile(r"(?<![\w.+-])(?P<name>[^\W_][\w.+-]{0,63})@(?=[A-Za-z][\w-]*\.[A-Za-z])"), "user"),
    (" user", re.compile(r"\b(?:for|of) user (?P<name>[^\W_][\w.-]{0,63})"), "user"),
)  # fmt: skip

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
    """Hand over what stands at a place for a name: one, a list, or a word that is none."""
    if kind == "serial":
        return found(kind, text) if re.search(r"\d", text) and re.search(r"[1-9A-Za-z]", text) else text
    if text.lower() in _NO_NAMES or (kind == "user" and text.lower() in ACCOUNTS):
        return text
    if kind != "host":
        return found(kind, text)
    return _FOLDED.sub(lambda match: found(kind, match[0]), text)


def domains(text: str) -> Iterator[str]:
    """Yield the names of domains, and of hosts in them."""
    for match in re.finditer(r"[^\W_][\w-]{0,62}(?:\.[^\W_][\w-]{0,62}){1,8}", text):
        if is_domain(match[0]):
            yield match[0]


def in_document(document: Mapping[str, Any], found: Found) -> None:
    """Hand over the names that stand in the frame of evidence or of a report."""
    node = document.get("node")
    if isinstance(node, str) and not node.startswith("@"):
        found("host", node)
    if isinstance(pair := document.get("pair"), dict):
        found("host", str(pair.get("peer", "")))
    if isinstance(collector := document.get("collector"), dict) and isinstance(user := collector.get("user"), str):
        found("user", user)
    records = document.get("records")
    for key, record in records.items() if isinstance(records, dict) else ():
        if key == "file:/proc/sys/kernel/hostname":
            found("host", record.strip() if isinstance(record, str) else str(_out(record)).strip())
        elif key == "kube:pod" and isinstance(record, dict) and isinstance(value := record.get("value"), dict):
            for name, kind in (("name", "host"), ("node", "host"), ("namespace", "name")):
                found(kind, str(value.get(name) or ""))
    for one in nodes if isinstance(nodes := document.get("nodes"), list) else ():
        if isinstance(one, dict) and isinstance(name := one.get("name"), str):
            found("host", name)


def _out(record: Any) -> Any:
    return record.get("out", "") if isinstance(record, dict) else ""
