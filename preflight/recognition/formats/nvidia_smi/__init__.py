"""Output formats of ``nvidia-smi``."""

from __future__ import annotations

from typing import Any

from preflight.model import counted
from preflight.parsers.nvidia.nvlink_error_text import GpuErrors
from preflight.parsers.nvidia.nvlink_status import GpuLinks
from preflight.parsers.nvidia.query_log import QueryLog
from preflight.parsers.nvidia.smi_table import SmiTable
from preflight.parsers.nvidia.topo_p2p import PeerAccess
from preflight.parsers.nvidia.topology import Matrix
from preflight.recognition.formats.nvidia_smi.query_facts import query_facts
from preflight.recognition.formats.typed import output_format


def _query(log: QueryLog) -> tuple[dict[str, Any], str]:
    facts = query_facts(log)
    products = sorted({gpu["product"] for gpu in facts["gpus"] if gpu["product"]})
    names = ", ".join(products[:3]) or "unnamed"
    return facts, f"{counted(len(facts['gpus']), 'GPU')} ({names}), driver {facts['driver'] or 'unknown'}"


def _matrix(matrix: Matrix) -> tuple[dict[str, Any], str]:
    missing = frozenset(matrix.missing_rows)
    facts = {
        "gpus": list(matrix.gpus), "nics": list(matrix.nics), "nic_devices": dict(matrix.devices),
        "links": matrix.links, "affinity": matrix.affinity, "nearest_nics": matrix.nearest_nics(),
        "complete_rows": list(matrix.complete_rows), "missing_rows": list(matrix.missing_rows),
        "cut_rows": [name for name in matrix.cut_rows if name not in missing],
    }  # fmt: skip
    gpus = frozenset(matrix.gpus)
    codes = sorted({code for gpu in gpus for peer, code in matrix.links.get(gpu, {}).items() if peer in gpus})
    joined = ", ".join(codes) or "no readable data"
    return facts, f"{counted(len(gpus), 'GPU')} connected by {joined}, {counted(len(matrix.nics), 'NIC')}"


def _peers(peers: PeerAccess) -> tuple[dict[str, Any], str]:
    other = sorted({cell for row in peers.access.values() for cell in row.values()} - {"OK"})
    access = "OK" if not other else f"{', '.join(other)} between some"
    return {"p2p": peers.access}, f"{counted(len(peers.gpus), 'GPU')}, peer access {access}"


def _nvlinks(gpus: tuple[GpuLinks, ...]) -> tuple[dict[str, Any], str]:
    facts = {
        "links": {f"GPU{gpu.index}": list(gpu.rates) for gpu in gpus},
        "names": {f"GPU{gpu.index}": gpu.name for gpu in gpus},
        "uuids": {f"GPU{gpu.index}": gpu.uuid for gpu in gpus},
    }
    most = max((len(gpu.rates) for gpu in gpus), default=0)
    rates = sorted({rate for gpu in gpus for rate in gpu.rates if rate})
    down = sum(rate is None for gpu in gpus for rate in gpu.rates)
    shown = f" of {', '.join(f'{rate:g}' for rate in rates)} GB/s" if rates else ""
    none = [f"GPU{gpu.index}" for gpu in gpus if not gpu.rates and not gpu.cut] if most else []
    without = f"; none on {', '.join(none)}" if none else ""
    return facts, f"{counted(len(gpus), 'GPU')} with {counted(most, 'NVLink')}{shown}, {down} inactive{without}"


def _nvlink_errors(gpus: tuple[GpuErrors, ...]) -> tuple[dict[str, Any], str]:
    facts = {
        "links": {f"GPU{gpu.index}": {str(link): dict(counts) for link, counts in gpu.links.items()} for gpu in gpus},
        "uuids": {f"GPU{gpu.index}": gpu.uuid for gpu in gpus},
    }
    total = sum(count for gpu in gpus for counts in gpu.links.values() for count in counts.values())
    return facts, f"{counted(len(gpus), 'GPU')}, {counted(total, 'error')}"


def _table(table: SmiTable) -> tuple[dict[str, Any], str]:
    facts = {
        "driver": table.driver, "cuda": table.cuda,
        "gpus": [
            {"index": gpu.index, "product": gpu.name, "bus_id": gpu.address, "persistence": gpu.persistence,
             "ecc_uncorrectable": gpu.uncorrectable, "temperature_c": gpu.temperature_c,
             "performance_state": gpu.performance_state, "power_draw_w": gpu.power_w, "power_limit_w": gpu.power_cap_w,
             "memory_used_mib": gpu.memory_used_mib, "memory_total_mib": gpu.memory_total_mib,
             "utilization_gpu_percent": gpu.utilisation_pct, "compute_mode": gpu.compute_mode, "mig": gpu.mig,
             "no_answer": list(gpu.errors)}
            for gpu in table.gpus
        ],
        "processes": [
            {"gpu": gpu, "pid": pid, "name": name, "used_mib": used} for gpu, pid, name, used in table.processes
        ],
    }  # fmt: skip
    processes = counted(len(table.processes), "process", "processes")
    return facts, f"{counted(len(table.gpus), 'GPU')}, driver {table.driver or 'unknown'}, {processes}"


KINDS = (
    output_format("nvidia-smi -q -x", _query),
    output_format("nvidia-smi -q", _query),
    output_format("nvidia-smi topo -p2p", _peers),
    output_format("nvidia-smi topo -m", _matrix),
    output_format("nvidia-smi nvlink -s", _nvlinks),
    output_format("nvidia-smi nvlink -e", _nvlink_errors),
    output_format("nvidia-smi --query-gpu", _query),
    output_format("nvidia-smi", _table),
)
