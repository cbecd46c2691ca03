"""Facts, checks and recognition compile no pattern of a tool's output."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from preflight.checks import registry as checks
from preflight.parsers import registry
from preflight.parsers.nvidia.query_log import QueryLog
from preflight.recognition.formats import kinds
from preflight.recognition.formats.messages import PROGRAM_LOG
from preflight.recognition.judges import MODULES, checks_of
from tests.support.paths import ROOT

PLACES = ("preflight/facts", "preflight/recognition", "checks")

#: Small files of /proc, /sys, /etc and installed packages; each has this one reader.
FILES = {
    "preflight/facts/compatibility.py": "torch/version.py; versions of packages",
    "preflight/facts/container_image.py": "podman's .containerenv",
    "preflight/facts/cpu_time.py": "/proc/stat",
    "preflight/facts/host.py": "/proc/self/status, ip_local_port_range",
    "preflight/facts/nccl_settings/named_files.py": "NCCL's topology file",
    "preflight/facts/network_mounts.py": "options of a mount that the parser returned; NVMe's address",
    "preflight/facts/network_switch.py": "os-release, SONiC's and ONIE's files",
    "preflight/facts/rdma_ports.py": "uevent; names of devices",
    "preflight/facts/system_settings.py": "/proc/cpuinfo, meminfo and vlan/config, os-release",
    "preflight/facts/versions.py": "names of libraries, as find prints them",
}

#: Patterns of single names, numbers and words in values returned by a parser or in JSON records.
VALUES = {
    "checks/applicability.py": "names of device files",
    "checks/host/kernel_flood.py": "numbers in a message, to count alike ones",
    "checks/host/mounts.py": "words of errors",
    "checks/host/units.py": "names of services",
    "checks/job/stacks.py": "names of programs, files and frames that the parser returned",
    "preflight/facts/steps_in_window.py": "the time stamp in a line of a step",
    "preflight/facts/trace/purposes.py": "names of process groups",
    "checks/rdma/counter_totals.py": "names of counters",
    "checks/rdma/optics.py": "words of errors",
    "checks/rdma/ports.py": "names of interfaces",
    "preflight/facts/container.py": "names of devices",
    "preflight/facts/counter_catalogue.py": "names of counters",
    "preflight/facts/counter_growth.py": "names and numbers of counters",
    "preflight/facts/fabric/leaves.py": "descriptions of HCAs",
    "preflight/facts/fabric/sweep.py": "keys of records, GUIDs",
    "preflight/facts/inventory.py": "paths, versions of a bus",
    "preflight/facts/kernel.py": "a kernel's release",
    "preflight/facts/nccl_environment.py": "numbers, as C reads them",
    "preflight/facts/nccl_gpudirect.py": "names of GPUs, instances and NICs",
    "preflight/facts/nccl_root_cause/connection_evidence.py": "devices and GIDs in a message that the parser returned",
    "preflight/facts/nccl_root_cause/device_evidence.py": "words of a message that the parser returned",
    "preflight/facts/nccl_root_cause/network_evidence.py": "words of a message that the parser returned",
    "preflight/facts/nccl_settings/catalogue.py": "versions, names of settings",
    "preflight/facts/nccl_settings/collect.py": "names of settings",
    "preflight/facts/nccl_settings/leftovers.py": "names of settings",
    "preflight/facts/nccl_settings/rank_agreement.py": "names of settings",
    "preflight/facts/nccl_settings/unknown_names.py": "names of settings",
    "preflight/facts/nccl_settings/value_grammar.py": "values of settings",
    "preflight/facts/pci.py": "a PCI address",
    "preflight/facts/pod.py": "names of resources",
    "preflight/facts/port_stalls.py": "names of counters",
    "preflight/facts/rank_binding.py": "a number of ranks",
    "preflight/facts/roce_chain/model.py": "a name of an interface",
    "preflight/facts/switch/eos.py": "names of ports and addresses that the parser returned",
    "preflight/facts/switch/ethernet.py": "names of switches and ports, Ethernet addresses",
    "preflight/facts/switch/sonic.py": "keys and fields of a database that the parser returned",
    "preflight/facts/trace/ranks.py": "a rank in a name of a file",
    "preflight/facts/unique_ids.py": "GUIDs, LIDs and GIDs",
    "preflight/recognition/container_formats.py": "line numbers in preflight's own remarks",
    "preflight/recognition/formats/typed.py": "plural nouns in a summary of a parser",
    "preflight/recognition/guess.py": "words by which unknown text is guessed; no value is read",
    "preflight/recognition/judges/hardware.py": "words in a state or event of the BMC that the parsers returned",
    "preflight/recognition/judges/kernel.py": "words of lines that the parser returned and no rule knows",
    "preflight/recognition/judges/kubernetes_words.py": "words in a reason, status or message that the parser returned",
    "preflight/recognition/judges/slurm.py": "words in a reason or state that the parser returned",
    "preflight/recognition/rank_errors.py": "names of ranks and pods",
}

_FUNCTIONS = {"compile", "match", "fullmatch", "search", "findall", "finditer", "sub", "split", "regex"}


def modules() -> Iterator[Path]:
    for place in PLACES:
        yield from sorted((ROOT / place).rglob("*.py"))


def has_pattern(path: Path) -> bool:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Call):
            called = node.func
            if isinstance(called, ast.Attribute) and isinstance(called.value, ast.Name) and called.value.id == "re":
                return called.attr in _FUNCTIONS
            if isinstance(called, ast.Name) and called.id == "regex":
                return True
    return False


def test_each_pattern_outside_the_parsers_is_known() -> None:
    with_patterns = {str(path.relative_to(ROOT)) for path in modules() if has_pattern(path)}
    assert with_patterns == FILES.keys() | VALUES.keys()


def test_each_format_of_the_registry_is_recognised_by_its_parser() -> None:
    names = [name for family in registry.FAMILIES for name in family]
    assert len(names) == len(set(names))
    recognised = {kind.name: kind.matches for kind in (*kinds(), PROGRAM_LOG)}
    for name in names:
        assert recognised[name] is registry.parser(name).begins, name


def test_each_judge_has_the_id_of_a_check() -> None:
    from importlib import import_module

    ids = {check.id for check in checks().checks}
    for module in MODULES:
        for kind, judges in import_module(f"preflight.recognition.judges.{module}").JUDGES.items():
            if isinstance(judges, tuple):
                assert {id for id, _ in judges} <= ids, kind
                assert [check.id for check in checks_of(kind, None)] == list(dict.fromkeys(id for id, _ in judges))
    assert "gpu.driver" in {check.id for check in checks_of("nvidia-smi -q", QueryLog({}, ()))} <= ids


def test_each_signature_has_the_id_of_a_check_and_three_commands() -> None:
    from preflight.parsers.messages.scan import SIGNATURES

    ids = {check.id for check in checks().checks}
    assert len({signature.id for signature in SIGNATURES}) == len(SIGNATURES)
    for signature in SIGNATURES:
        assert signature.check in ids, signature.id
        assert len(signature.commands) == 3
        assert all(signature.hints), signature.id
