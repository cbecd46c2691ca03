"""NCCL variables that must be equal on all ranks, and comparison of values."""

from __future__ import annotations

import re
from collections.abc import Mapping

from preflight.facts.nccl_settings.catalogue import table
from preflight.facts.nccl_settings.collect import CollectedSettings
from preflight.facts.nccl_settings.value_grammar import same_number
from preflight.facts.nccl_settings.violation import Violation

#: Variables in which ranks must not differ: they hang, or end with "message truncated" (NCCL user guide; NCCL 2.30
#: src/graph/).
MUST = frozenset({
    "NCCL_ALGO", "NCCL_PROTO", "NCCL_BUFFSIZE", "NCCL_LL_BUFFSIZE", "NCCL_LL128_BUFFSIZE", "NCCL_NTHREADS",
    "NCCL_LL128_NTHREADS", "NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_CTAS", "NCCL_MAX_CTAS",
    "NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS", "NCCL_CUMEM_ENABLE",
    "NCCL_NVLS_ENABLE", "NCCL_NET", "NCCL_P2P_NET_CHUNKSIZE",
})  # fmt: skip

#: Variables that name or describe an object of one node, and may differ between ranks.
_MAY_DIFFER = re.compile(
    r"NCCL_(?:(?:SOCKET|OOB_NET|FASTRAK|GPUDIRECTTCPX_SOCKET)_IFNAME|IB_HCA|IB_GID_INDEX|HOSTID|CONF_FILE|COMM_ID"
    r"|(?:TOPO|GRAPH|TOPO_DUMP|GRAPH_DUMP|TUNER_CONFIG)_FILE(?:_RANK)?|DEBUG\w*|\w+_DUMP\w*|IGNORE_CPU_AFFINITY"
    r"|PROXY_CPUSET|RAS_ADDR|TESTS_\w+|VERSION|HOME|ROOT|LIB\w*|INCLUDE_DIR|FASTRAK_CTRL_DEV|GPUDIRECTTCPX_\w+)"
)


def compared(name: str) -> bool:
    """Return whether a variable is compared between ranks."""
    return name.startswith(("NCCL_", "TORCH_NCCL_")) and not _MAY_DIFFER.fullmatch(name)


def values(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the values to compare: numbers as parsed, and without defaults."""
    known, found = table().variables, dict[str, str]()
    for name, value in variables.items():
        if not compared(name):
            continue
        variable = known.get(name)
        number = same_number(variable, value) if variable is not None else None
        if variable is not None and (not value or (number is not None and number == variable.number)):
            continue
        found[name] = str(number) if number is not None else value.casefold() if name == "NCCL_NET" else value
    return found


def disagreements(collected: CollectedSettings) -> list[Violation]:
    """Return the variables that have different values on some ranks.

    ``collected`` comes from a log or from a pasted list of all ranks.
    """
    found = []
    for name, used in collected.values.items():
        different = dict.fromkeys(values({name: value}).get(name, "default") for value in used)
        if compared(name) and len(different) > 1:
            settings = tuple(
                next(s for s in collected.settings if (s.name, s.value) == (name, value)) for value in used[:4]
            )
            what = f"{name} differs between ranks: {' and '.join(map(str, list(different)[:4]))}"
            found.append(Violation("ranks-differ", settings, what, "one value on all ranks", name in MUST))
    return found
