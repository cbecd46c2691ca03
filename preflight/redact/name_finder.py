"""Names of hosts, users and jobs, found by their context in files."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from preflight.redact import columns, lists, own_output
from preflight.redact.name_places import NUMBERED, PLACES
from preflight.redact.public_words import ACCOUNTS, NO_USERS, is_domain

#: A function that receives the kind of a name and the name, and returns the replacement.
Found = Callable[[str, str], str]

#: Variables and keys whose value is a name or a list of names.
_KEYS: Mapping[str, str] = {
    **dict.fromkeys(
        ("hostname", "host_name", "fqdn", "nodename", "node_name", "slurmd_nodename", "slurm_submit_host",
         "master_addr", "slurm_job_first_node", "slurm_topology_addr", "slurm_nodelist", "slurm_job_nodelist",
         "slurm_step_nodelist", "slurm_nodename", "slurmctld_host", "submit_host", "nodelist", "batchhost",
         "reqnodelist", "excnodelist", "slurm_job_exclude_nodes", "slurm_step_launcher_host",
         "ompi_mca_orte_node_regex", "prte_hosts", "ansible_host", "slurmctldhost", "backuphost", "controlmachine",
         "accountingstoragehost", "accountingstoragebackuphost", "storagehost", "dbdhost", "nodehostname", "lsb_hosts",
         "pbs_o_host", "hydra_host", "lldp_rem_sys_name", "systemname", "sys_name"), "host"),
    **dict.fromkeys(
        ("user", "username", "logname", "slurm_job_user", "sudo_user", "userid", "user_name", "owner", "ruser",
         "mail_user", "ansible_user", "storageuser", "accountingstorageuser"), "user"),
    **dict.fromkeys(
        ("job_name", "jobname", "slurm_job_name", "slurm_job_account", "slurm_cluster_name", "slurm_job_partition",
         "slurm_job_reservation", "slurm_job_qos", "slurm_job_comment", "account", "partition", "namespace", "pod_name",
         "pod_namespace", "job_id_name", "wckey", "slurm_job_wckey", "clustername", "comment", "groupid",
         "group_name"), "name"),
}  # fmt: skip

#: Values that are not names, although their key or context denotes a name.
_NO_NAMES = frozenset(("null", "none", "true", "false", "unknown", "n/a", "default", "main", "batch", "debug"))

#: Words that are not names after the word `user`.
_NO_PEOPLE = frozenset((
    "buildd", "mockbuild", "guide", "space", "code", "mode", "id", "name", "data", "defined", "level", "land",
    "input", "request", "manual", "interface", "specified", "and", "or", "is", "was", "has", "can", "may",
    "experience", "agent", "accounts", "account", "namespace", "namespaces", "process", "processes", "buffer",
    "memory", "the", "this", "a", "limit", "limits", "arn",
))  # fmt: skip

#: Keys whose value is a serial number.
_SERIALS = frozenset((
    "serial", "serial_number", "serial-number", "serialnumber", "serialnum", "board_serial", "vendorsn", "vendor_sn",
    "proc_board_id",
))  # fmt: skip

#: Tables of a SONiC configuration that name neighbours; the rows of the last one are named after them.
SONIC_NEIGHBOURS = ("BGP_NEIGHBOR", "DEVICE_NEIGHBOR", "DEVICE_NEIGHBOR_METADATA")

#: Keys of documents; a value that is numbered like a host is one.
_MAYBE_HOSTS = frozenset(("host", "hosts", "node", "nodes", "server", "worker", "workers", "machine"))

#: Keys whose values are names only in documents; in text, these words are too common.
_IN_DOCUMENTS = ("comment", "owner")

_IN_TEXT = "|".join(sorted((key for key in _KEYS if key not in _IN_DOCUMENTS), key=len, reverse=True))
_KEYED = re.compile(
    rf"(?<![A-Za-z0-9])(?P<key>{_IN_TEXT})"
    rf"(?:\\?[\"'])?\s{{0,3}}[:=]\s{{0,3}}(?:\\?[\"'])?(?P<name>[^\W_][\w.+@,\[\]-]{{0,2000}})",
    re.I,
)


#: An item of a host list, possibly with its number of slots or a port.
_FOLDED = re.compile(
    r"((?:[^\s,\[:]|:(?![0-9]+(?:,|\Z)))+(?:\[[\d,-]+\](?:[^\s,\[:]|:(?![0-9]+(?:,|\Z)))*)*)(:[0-9]+)?"
)


def in_text(text: str, found: Found) -> str:
    """Pass every name in a known context to ``found``; return the changed text."""

    def one(kind: str, name: str) -> str:
        return _name(kind, name, found)

    def each(match: re.Match[str]) -> str:
        return _replaced(match[0], one, ((of.rstrip("2345"), *_span(match, of)) for of in match.re.groupindex))

    for sign, pattern in PLACES:
        if sign in text:
            text = pattern.sub(each, text)
    for spans in (columns.cells, lists.items):
        text = _replaced(text, one, spans(text))
    if ":" in text or "=" in text:
        text = _KEYED.sub(
            lambda match: _replaced(match[0], one, [(_KEYS[match["key"].lower()], *_span(match, "name"))]), text
        )
    return text


def _span(match: re.Match[str], group: str) -> tuple[int, int]:
    """Return the start and end of a group, relative to its match."""
    start, end = match.span(group)
    return start - match.start(), end - match.start()


def _replaced(text: str, one: Found, spans: Iterable[tuple[str, int, int]]) -> str:
    """Return a text with each name replaced by the result of ``one``.

    ``spans`` contains the kind, start and end of each name.
    """
    pieces, done = [], 0
    for kind, start, end in spans:
        if start >= done:  # an unmatched group starts before
            pieces += [text[done:start], one(kind, text[start:end])]
            done = end
    return "".join(pieces) + text[done:]


def by_key(key: str, value: str, found: Found, ours: bool = False) -> str:
    """Pass the value of a key to ``found`` if it is a name.

    Return its replacement, or the unchanged value. ``ours`` means that the key is in a document of preflight.
    """
    if ours and key in own_output.KEYS:
        return value if " " in value else _name("host", value, found) if not value.startswith("@") else value
    if ours and key == "owner" and value in own_output.OWNERS:
        return value
    kind = _KEYS.get(key.lower())
    if kind is None and key.lower() in _MAYBE_HOSTS and NUMBERED.fullmatch(value):
        kind = "host"
    if key.lower() in _SERIALS:
        kind = "serial"
    return value if kind is None or not value.strip() else _name(kind, value, found)


def _name(kind: str, text: str, found: Found) -> str:
    """Pass the name or list of names in a text to ``found``; return the result."""
    if kind == "serial":
        letters = text.isalpha() and text.isupper() and len(text) > 6
        return found(kind, text) if letters or (re.search(r"\d", text) and re.search(r"[1-9A-Za-z]", text)) else text
    if (
        text.isdigit()
        or text.lower() in _NO_NAMES
        or (kind == "user" and text.lower() in (ACCOUNTS | NO_USERS | _NO_PEOPLE))
    ):
        return text
    if kind == "user":
        first, sign, rest = text.partition(",")
        return found(kind, first) + sign + rest
    if kind != "host":
        return found(kind, text)
    return _FOLDED.sub(lambda match: found(kind, match[1]) + (match[2] or ""), text)


def domains(text: str) -> Iterator[str]:
    """Yield the names of domains, and of hosts with a domain."""
    for match in re.finditer(r"(?<![\w.-])[^\W_][\w-]{0,62}(?:\.[^\W_][\w-]{0,62}){1,8}", text):
        if is_domain(match[0]):
            yield match[0]


def in_document(document: Mapping[str, Any], found: Found) -> None:
    """Pass the names in the top-level fields of a document to ``found``."""
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
        elif key == "redis:CONFIG_DB BGP_NEIGHBOR":
            in_sonic_table("BGP_NEIGHBOR", _value(record), found)
        elif key == "kube:pod" and isinstance(record, dict) and isinstance(value := record.get("value"), dict):
            for name, kind in (("name", "host"), ("node", "host"), ("namespace", "name")):
                found(kind, str(value.get(name) or ""))
    listed = document.get("nodes")
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict) and isinstance(called := one.get("name"), str):
            found("host", called)


def in_sonic_table(key: str, rows: Any, learn: Found) -> None:
    """Pass the names in a table of a SONiC configuration to ``learn``.

    ``key`` is the table, or one row of a dump: ``BGP_NEIGHBOR|192.0.2.1``.
    """
    table, _, row_name = key.partition("|")
    if table not in SONIC_NEIGHBOURS or not isinstance(rows, dict):
        return
    for name, row in {row_name: rows.get("value", rows)}.items() if row_name else rows.items():
        if isinstance(row, dict) and isinstance(row.get("name"), str):
            learn("host", row["name"])
        if table == SONIC_NEIGHBOURS[-1]:
            learn("host", name)


def _value(record: Any) -> Any:
    return record.get("value") if isinstance(record, dict) else None


def _out(record: Any) -> Any:
    return record.get("out", "") if isinstance(record, dict) else ""
