"""Hints on how to collect a missing record, by the reason for its absence."""

from __future__ import annotations

from preflight.evidence.document import Evidence, EvidenceError

_PACKAGES = {
    **dict.fromkeys(
        ("ibstat", "ibnetdiscover", "iblinkinfo", "ibqueryerrors", "sminfo", "saquery"), " (package infiniband-diags)"
    ),
    "ibv_devinfo": " (package ibverbs-utils, or rdma-core)",
    "dcb": " (package iproute2)",
    "mlnx_qos": " (package mlnx-tools)",
    "nvidia-smi": " (it comes with the NVIDIA driver)",
    "lspci": " (package pciutils)",
    "chronyc": " (package chrony)",
    "ethtool": " (package ethtool)",
    "ip": " (package iproute2)",
    "find": " (package findutils)",
}


#: Kind of a record that no collector reads -> how to get it again.
_MADE = {
    "bench": "resume the campaign: `preflight bench --resume DIR`",
    "history": "run preflight again with --history",
}

#: Kinds of probes whose target is a path.
_PATHS = ("file", "files", "dir", "statvfs")


def collection_hint(key: str, evidence: Evidence) -> str:
    """Return advice on how to collect a missing record."""
    kind, _, target = key.partition(":")
    if not target:
        return "collect again with this version of preflight"
    if kind in _MADE:
        return _MADE[kind]
    named = target if kind in _PATHS else f"`{target}`" if kind == "cmd" else f"{key} (see `preflight probes`)"
    try:
        record = evidence.record(key)
    except EvidenceError:
        return f"collect again with this version of preflight, which {'runs' if kind == 'cmd' else 'reads'} {named}"
    if kind == "log":
        return f"read {target}, or collect it again"
    status = record.status
    if status == "missing" and kind == "cmd" and not record.why.startswith(("nothing to collect", "nothing to ask")):
        tool = target.split()[0]
        return f"install `{tool}`{_PACKAGES.get(tool, '')} on the node"
    if status == "missing" and kind in ("psutil", "nvml"):
        return f"install the Python package {'psutil' if kind == 'psutil' else 'nvidia-ml-py'} on the node"
    if status == "denied":
        return "run with --sudo, or as root"
    if status in ("timeout", "abandoned"):
        return f"find out why {named} hangs on the node"
    if status == "not-run":
        return "give the run more time: --deadline"
    if kind == "nvml":
        return "run `nvidia-smi -q` on the node, which reads the same library"
    return f"{'run' if kind == 'cmd' else 'check'} {named} on the node"
