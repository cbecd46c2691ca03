"""Registry of every function of preflight that reads data from nodes, users or colleagues.

``tests/robustness/test_parsers.py`` and ``python -m tests.robustness.fuzz`` drive all of them; an unregistered parser
fails a test. A seed is a text that the parser can read; texts from outside (``tests/data/outside``) are added.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from preflight.collect import targets
from preflight.evidence import document
from preflight.evidence.document import SWITCH, DocumentError, Evidence, EvidenceError, from_document
from preflight.expectations import Cluster
from preflight.expectations import cluster_file as cluster
from preflight.expectations.cluster_file import ClusterFileError
from preflight.facts import (
    addresses,
    compatibility,
    congestion,
    container,
    counter_growth,
    gids,
    gpudirect,
    host,
    inventory,
    kernel,
    kernel_log,
    lspci,
    nccl_environment,
    nccl_gpudirect,
    network_switch,
    nic_bandwidth,
    pci,
    port_qos,
    rank_binding,
    rdma_ports,
    steps_in_window,
    versions,
    xid,
)
from preflight.facts.fabric import reference
from preflight.facts.job import RunFacts
from preflight.facts.nccl_settings import catalogue as nccl_variables
from preflight.facts.nccl_settings import collect as nccl_lint_sources
from preflight.facts.nccl_settings import value_grammar as nccl_values
from preflight.facts.node import TOPO, NodeFacts
from preflight.facts.nvidia import query, smi_xml
from preflight.facts.roce_chain import addressing, chain
from preflight.facts.switch import eos, junos, linux, nxos, sonic
from preflight.parsers import registry as formats
from preflight.parsers import setting_lines as nccl_lint_spelled
from preflight.parsers.host import kernel_events, nhc_config, services
from preflight.parsers.host import kernel_log as kernel_lines
from preflight.parsers.host.ulimit import soft_limit
from preflight.parsers.job_config import deepspeed, hostfile, huggingface, megatron, nemo, reader, torchtitan
from preflight.parsers.nccl_tests import collective, table
from preflight.parsers.nvidia import nvlink_errors, nvlink_status
from preflight.parsers.record import lines_of_record
from preflight.parsers.switch import (
    eos_answers,
    junos_answers,
    linux_answers,
    nxos_answers,
    session,
    show_commands,
    sonic_commands,
)
from preflight.parsers.training.repeated_steps import read_repeated
from preflight.reports.topology_data import picture
from preflight.textprep import plain_text
from tests.support import external_texts, paths
from tests.support.clos import Clos
from tests.support.eos import EosLeaf
from tests.support.fixture import whole_node
from tests.support.junos import JunosLeaf
from tests.support.linux_switch import LinuxLeaf
from tests.support.nxos import NxosLeaf

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

DATA = paths.DATA

Call = Callable[[Any], object]


@dataclass(frozen=True)
class Parser:
    """One parser: its name, its exceptions, and texts that it reads."""

    name: str  # module.function, below preflight.facts or preflight
    call: Call
    seeds: tuple[str, ...]
    raises: tuple[type[Exception], ...] = (ValueError,)
    foreign: bool = True  # False: the operator's own list or file; reporting its errors takes longer, within bounds

    def __str__(self) -> str:
        return self.name


#: Parsers of one text.
TEXT: list[Parser] = []
#: Parsers of a decoded JSON value; a seed is its JSON.
VALUE: list[Parser] = []
#: Readers of a complete document; a seed is the name of a node in fixtures/nodes.
EVIDENCE: list[Parser] = []

#: Functions that receive foreign data without parsing it, each with the reason.
APART = {
    "parsers.host.services.state_in_words": "describes a state that a parser read",
    "nccl_environment.read": "driven as node.nccl_env",
    "port_qos.dcb_key": "makes a record's key",
    "parsers.switch.sonic_tables.records": "takes what parsers.switch.redis_dump returned",
    "job_description.record": "makes a record",
    "parsers.host.kernel_log.without_writer": "takes a prefix off a line for the parsers of kernel lines",
    "parsers.messages.traceback.names_exception": "looks at one line for the parsers of errors",
    "parsers.job_config.megatron.default": "looks a name up in a table",
    "nccl_root_cause.connection_evidence.at_port": "returns a function that looks at a port's facts",
    "gids.keys": "makes a record's key",
    "counter_growth.key_of": "makes a record's key",
    "nccl_settings.catalogue.read": "reads the table that ships with preflight",
    "counter_catalogue.counter": "looks a name up in a table",
    "time_series.series_of": "reads what preflight.history wrote: unit/history/test_history.py, fixtures of trend.*",
    "two_readings.twice": "calls the parser that it is given",
    "parsers.training.iteration_log.log_of": "takes the steps that a parser read",
    "parsers.training.progress_bar.seconds_of": "takes the digits and colons of a matched bar",
    "parsers.training.progress_bar.with_times": "takes the steps that a parser read",
    **dict.fromkeys(
        (
            "parsers.network.ip_link.is_head",
            "parsers.network.perftest.table_rows",
            "parsers.pci.lspci_tree.begins",
            "parsers.rdma.gid_row.mapped_ipv4",
            "parsers.rdma.port_list.rate",
            "parsers.rdma.port_list.word",
            "nvidia.smi_xml.bus_address",
            "parsers.cluster.columns.columns",
            "parsers.cluster.kubernetes_events.event_in",
            "parsers.cluster.slurm_jobs.plain",
            "parsers.host.command_line.facts",
            "parsers.host.disk_health.number",
            "parsers.host.command_line.summary",
            "parsers.messages.denials.without_denials",
            "parsers.messages.error_words.check_of",
            "parsers.messages.logged_level.ends_program",
            "parsers.messages.logged_level.error_text",
            "parsers.messages.logged_level.is_fault",
            "parsers.messages.logged_level.is_log_line",
            "parsers.messages.named_paths.paths_in",
            "parsers.messages.named_processes.processes_in",
            "parsers.host.kernel_log.without_writer",
            "parsers.messages.traceback.names_exception",
            "parsers.messages.traceback.begins",
            "parsers.messages.scan.begins_with",
            "parsers.messages.scan.error_in",
            "parsers.messages.scan.hints",
            "parsers.messages.scan.parser_of",
            "parsers.messages.scan.repeats_nccl",
            "parsers.messages.signature.signatures",
            "parsers.nvidia.dcgmi.cells_of",
            "parsers.nvidia.query_glued.apart",
            "parsers.nvidia.query_glued.is_glued",
            "parsers.nvidia.query_log.complete_bus_id",
            "parsers.nvidia.query_log.complete_version",
            "parsers.nvidia.query_log.has_data",
            "parsers.nvidia.query_log.number",
            "parsers.nvidia.query_log.numbers",
            "parsers.nvidia.query_log.value_at",
            "parsers.nvidia.query_xml.parse",
            "parsers.nvidia.topo_lines.cleaned",
            "parsers.nvidia.topo_lines.continues",
            "parsers.nvidia.topo_lines.is_row",
            "parsers.nvidia.topo_lines.names_of",
            "parsers.nvidia.xid_marks.address_of",
            "parsers.nvidia.xid_marks.cause_in",
            "parsers.nvidia.xid_marks.is_cleared",
            "parsers.nvidia.xid_marks.is_drivers",
            "parsers.nvidia.xid_marks.is_masked",
            "parsers.nvidia.xid_marks.is_unit_stump",
            "parsers.nvidia.xid_marks.named_gpu",
            "parsers.nvidia.xid_marks.uncoded_in",
            "parsers.output_heads.next_head",
        ),
        "called by the parsers of pasted formats, which are driven by their kinds",
    ),
}

#: Parsers with their own tests: tests/unit/parsers/test_nccl.py, tests/unit/parsers/test_torch_trace.py.
ELSEWHERE = (
    "parsers.text_block",
    "parsers.record",
    "parsers.amd.model",
    "parsers.nccl_log",
    "parsers.job_output",
    "parsers.nccl_tests.model",
    "parsers.job_log",
    "parsers.torch",
    "streamed_log",
)


#: Complete nodes, the last one recorded.
NODES = ("hgx-h100-roce", "hgx-h100", "one-pair", "soft-roce")


def _out(key: str) -> tuple[str, ...]:
    """Return a record's content on each machine that has it."""
    found = (whole_node(name)["records"].get(key, {}).get("out") for name in NODES)
    return tuple(dict.fromkeys(text for text in found if text))


def _resolved(name: str) -> Call:
    """Return the parser of this name below preflight.facts or preflight; it is looked up when called."""
    module, *inside = name.split(".")

    def call(argument: Any) -> object:
        package = "preflight.facts" if find_spec(f"preflight.facts.{module}") else "preflight"
        path = f"{package}.{module}"
        found: Any = import_module(path)
        for part in inside:
            path = f"{path}.{part}"
            found = getattr(found, part) if hasattr(found, part) else import_module(path)
        result = found(argument)
        return tuple(result) if isinstance(result, Iterator) else result

    return call


def _text(
    name: str, *seeds: str, call: Call | None = None, tool: str = "", raises: type[Exception] = ValueError,
    foreign: bool = True,
) -> None:  # fmt: skip
    """Register a parser of text; ``tool`` is a format of ``parsers.provenance``, whose samples are seeds."""
    real = tuple(sample.text for sample in external_texts.samples(tool) if not sample.refused) if tool else ()
    TEXT.append(Parser(name, call or _resolved(name), (*seeds, *real), (raises,), foreign))


def _raw(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape" if all("\udc80" <= c <= "\udcff" for c in _lone(text)) else "replace")


def _lone(text: str) -> list[str]:
    return [character for character in text if "\ud800" <= character <= "\udfff"]


# --- texts -----------------------------------------------------------------------------------------

NETWORKS = json.dumps([{"name": "kube-system/cilium", "interface": "eth0", "ips": ["10.4.0.7"], "default": True,
                        "device-info": {"pci": {"pci-address": "0000:18:00.2", "rdma-device": "mlx5_2"}}}])  # fmt: skip
ANNOTATIONS = f"k8s.v1.cni.cncf.io/network-status={json.dumps(NETWORKS)}\n"
IP_ADDR = json.dumps([
    {"ifname": "lo", "addr_info": [{"family": "inet", "local": "127.0.0.1", "prefixlen": 8}]},
    {"ifname": "enp24s0", "addr_info": [{"family": "inet6", "local": "fe80::1", "prefixlen": 64}]},
])  # fmt: skip
DMESG = (
    "<4>[  431.250000] NVRM: Xid (PCI:0000:1b:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"
    "<4>[  432.5] nvidia-nvswitch3: SXid (PCI:0000:07:00.0): 20034, Fatal, Link 32 LTSSM Fault Up\n"
    "[Sun Feb 23 16:24:18 2025] NVRM: The NVIDIA GPU 0000:1b:00.0\n"
    "Feb 23 16:24:18 gpu001 kernel: [  431.25] NVRM: (PCI ID: 10de:2330) has fallen off the bus and is not responding\n"
    "4,1227,431250000,-;NVRM: Xid (PCI:0000:1b:00): 154, GPU recovery action changed from 0x1 to 0x0 (None)\n"
    "kern  :err   : 2025-03-19T06:41:07,218350+00:00 NVRM: GPU 0000:1b:00.0: RmInitAdapter failed! (0x62:0x40:2393)\n"
)
SERVICES = (
    "ServiceRecord dump:\n\t\tServiceID...............0x1000000000000001\n"
    "\t\tServiceName.............SHArP.AggregationManager\n"
)
LOST = "query failed (DR path slid 0; dlid 0; 0,1,3 Attr 0x11:1) bad status 110; Connection timed out\n"
MODULE = (
    "\tIdentifier                                : 0x18 (QSFP-DD Double Density 8X Pluggable Transceiver)\n"
    "\tModule temperature                        : 45.00 degrees C / 113.00 degrees F\n"
    "\tRx power (Channel 1)                      : 1.0000 mW / 0.00 dBm\n\tModule temperature high alarm : Off\n"
)
JOB_SCRIPT = (
    "TP=8\nARGS=( --num-layers 96 --hidden-size 12288 )\n"
    'torchrun --nproc-per-node 8 --nnodes $((2*TP)) train.py "${ARGS[@]}" --tensor-model-parallel-size ${TP:-4} \\\n'
    "  --micro-batch-size=1 --moe-layer-freq '([0]*3+[1]*93)' --bf16  # comment\n"
)
TORCHTITAN = "[model]\nflavor = '8B'\n[training]\nseq_len = 8192\n[parallelism]\ntensor_parallel_degree = 4\n"
NEMO_JOB = (
    "trainer:\n  devices: 8\nmodel:\n  num_layers: 8\n  hidden_size: ${.ffn}\n  optim: {name: distributed_fused_adam}\n"
)
DEEPSPEED = {"train_micro_batch_size_per_gpu": 2, "zero_optimization": {"stage": 3}, "bf16": {"enabled": True}}
MODEL_CONFIG = {"hidden_size": 4096, "num_hidden_layers": 32, "hidden_act": "silu", "num_local_experts": 8,
                "moe_intermediate_size": 1408, "n_shared_experts": 2}  # fmt: skip
TABLE = "#  size  count  type  redop  root  time  algbw  busbw #wrong  time  algbw  busbw #wrong"
ROW = "  33554432  8388608  float  sum  -1  150.4  223.10  418.31  0  149.1  225.05  421.97  0"
CLUSTER = (paths.ROOT / "preflight" / "demo" / "cluster.toml").read_text()

_text("addresses.parse_ip", IP_ADDR, *_out("cmd:ip -j addr"), tool="ip -j addr")
_text("addresses.default_routes", *_out("file:/proc/net/route"), tool="/proc/net/route")
_text("addresses.routes", *_out("file:/proc/net/route"), tool="/proc/net/route")
_text(
    "nccl_root_cause.connection_evidence.remote_gid",
    "NET/IB : Got completion from peer 10.0.0.9<41022> localGid fe80::1 remoteGids fe80::a288:c203:12:4 hca mlx5_3",
    "Call to ibv_modify_qp failed with 110 on dev mlx5_3:1, local GID ::ffff:10.0.0.8, remote GID ::ffff:10.0.0.9",
)
_text("parsers.host.checkpoint.newest", "1795228200.0 d \n1795230000.5 f step-12000\n",
      external_texts.text("find_newest.txt"))  # fmt: skip
_text("parsers.cluster.columns.columns", "PARTITION AVAIL TIMELIMIT NODES STATE NODELIST")
_text("parsers.host.checkpoint.seconds", "2026-11-21T03:00:00Z")
_text("steps_in_window.contradicts", " [2026-11-21 03:00:00] iteration        1/     100 |",
      call=lambda text: steps_in_window.contradicts(text, 1795230000.0))  # fmt: skip
_text("parsers.job_config.megatron.parse", JOB_SCRIPT, call=lambda text: megatron.parse(text, "train.sh"))
_text("parsers.job_config.megatron.begins", JOB_SCRIPT)
_text("parsers.job_config.shell_words.words", JOB_SCRIPT)
_text("parsers.job_config.shell_words.conditional", JOB_SCRIPT)
_text(
    "parsers.job_config.reader.parse",
    JOB_SCRIPT,
    TORCHTITAN,
    json.dumps(DEEPSPEED),
    json.dumps(MODEL_CONFIG),
    NEMO_JOB,
    call=lambda text: reader.parse(text, "job"),
)
_text("parsers.job_config.hostfile.parse", "gpu001 slots=8\ngpu002:8\n# comment\ngpu003\n",
      call=lambda text: hostfile.parse(text, "hosts", 8))  # fmt: skip
_text("parsers.job_config.nemo.decoded", NEMO_JOB, call=lambda text: nemo.decoded(text, "job.yaml"))
_text("parsers.job_config.nemo.looks_like", NEMO_JOB)
_text("parsers.host.clock_reading.is_synchronised", "Normal", "Not synchronised")
_text("parsers.host.clock_reading.offset_s", "0.000012 seconds fast of NTP time")
_text("parsers.host.clock_reading.parse_tracking", *_out("cmd:chronyc -n tracking")[:1], tool="chronyc")
_text("parsers.host.clock_reading.parse_show", "NTP=no\nNTPSynchronized=yes\n", tool="timedatectl")
_text("container.parse_annotations", ANNOTATIONS, tool="downward API")
_text("parsers.network.network_status.parse_network_status", NETWORKS, tool="network-status")
_text("container.gpu_nodes", "/dev/nvidia0\n/dev/nvidiactl\n")
_text("nic_firmware.key_of", "mlx5_0")
_text("nvidia.query.parse_query", *_out(query.QUERY), tool="nvidia-smi --query-gpu")
_text("parsers.nvidia.driver_version.driver_version", *_out(kernel.NVIDIA_VERSION), tool="NVRM version")
_text("nvidia.smi_xml.parse", *_out(smi_xml.XML), tool="nvidia-smi -q -x")
_text("host.memlock_bytes", *_out(host.LIMITS), tool="/proc/self/limits")
_text("host.open_files", *_out(host.LIMITS), tool="/proc/self/limits")
_text("parsers.host.ulimit.soft_limit", *_out(host.LIMITS), call=lambda text: soft_limit(text, "open files"))
_text("host.may_lock_memory", *_out(host.STATUS), tool="/proc/self/status")
_text("host.allowed_cpus", *_out(host.STATUS), tool="/proc/self/status")
_text("host.allowed_memory_nodes", *_out(host.STATUS), tool="/proc/self/status")
_text("host.port_range", "32768\t60999\n")
_text("counter_growth.parse_ethtool", tool="ethtool -S")
_text("cpu_time.parse", tool="/proc/stat")
_text("parsers.network.ethtool_module.parse_fec", tool="ethtool --show-fec")
_text("parsers.network.ethtool_module.parse_module", MODULE, tool="ethtool -m")
_text(
    "parsers.network.ethtool_module.parse_mlxlink",
    "Raw Physical BER : 2E-9\nEffective Physical BER : 15E-255\nSymbol BER : 15E-255\n",
    tool="mlxlink",
)
_text(
    "parsers.nccl_tests.markers.died",
    "mpirun noticed that process rank 2 with PID 1 on node n1 exited on signal 9 (Killed).",
)
_text("parsers.nccl_tests.markers.collective", "./build/all_reduce_perf_mpi")
_text("parsers.nccl_tests.json_output.may_be", '{"config": {}, "results": []}')
_text("parsers.training.iteration_log.fields_in", "step 12 | loss 2.5100 | dt: 210.40ms | tok/s: 5000")
_text("parsers.training.repeated_steps.time_reader", "step 12 | loss 2.5100 | dt: 210.40ms | tok/s: 5000")
_text("parsers.training.repeated_steps.read_repeated", "[rank1]: step 12 | loss 2.5100 | dt: 210.40ms\n",
      call=lambda text: read_repeated(enumerate(text.splitlines(), 1)))  # fmt: skip
_text("steps_in_window.seconds_since_1970", "2026-11-02T10:00:00Z")
_text("parsers.training.iteration_log.ranks_in", "using world size: 16, data-parallel size: 16")
_text("parsers.nccl_tests.markers.of_source", " .. n1 pid 12: Test failure all_reduce.cu:90")
_text("parsers.nccl_tests.table.without_rules", "| 8 | 2 | float |")
_text("parsers.nccl_tests.table.plain_numbers", "1,048,576  262,144  float  sum  -1  76,26  13,75  25,78  0")
_text("fabric.reference.read", call=lambda text: reference.read(_raw(text), "x"), tool="ibnetdiscover")
_text("fabric.reference.hours", "2026-11-20T03:00:00Z", call=lambda text: reference.hours(text, text))
_text("parsers.infiniband.ibqueryerrors.parse", tool="ibqueryerrors")
_text("parsers.infiniband.ibqueryerrors_data.parse", tool="ibqueryerrors --counters")
_text("parsers.infiniband.iblinkinfo.parse", tool="iblinkinfo")
_text("parsers.switch.printed_ports.prompt_name", "ops@leaf3:~$ show interfaces status", "leaf3(config)#sh int")
_text("parsers.switch.printed_ports.count", "1,024", "17")
_text("parsers.switch.printed_ports.speed", "400G(D)", "a-10G", "100000")
_text("parsers.switch.printed_ports.is_up", "notconnect", "up")
_text("parsers.switch.printed_ports.is_off", "disabled")
_text("parsers.switch.printed_ports.pfc_is_off", "Off 0", "3,4")
_text("parsers.infiniband.sminfo_saquery.parse_sminfo", "sminfo: iberror: failed: query\n", tool="sminfo")
_text("parsers.infiniband.sminfo_saquery.parse_services", SERVICES)
_text("parsers.infiniband.sminfo_saquery.lost", LOST)
_text("parsers.infiniband.ibnetdiscover.parse", tool="ibnetdiscover")
_text("parsers.infiniband.ibnetdiscover.gbps", "4xHDR", "1xSDR")
_text("unique_ids.guid", "a088:c203:0018:0000\n", "0xa088c20300180000")
_text("unique_ids.mac", "00:00:00:48:fe:80:00:00:00:00:00:00:a0:88:c2:03:00:18:00:00\n", tool="MAC addresses in sysfs")
_text("system_settings.chosen", tool="transparent huge pages in sysfs")
_text("system_settings.cpu", *_out("cmd:head -c 2048 /proc/cpuinfo"), "CPU implementer\t: 0x41\nCPU part\t: 0xd4f\n",
      tool="/proc/cpuinfo")  # fmt: skip
_text("system_settings.cuda_version", '{"cuda": {"name": "CUDA SDK", "version": "12.8.1"}}')
_text("system_settings.imex_nodes", "# the rack\n192.0.2.1\n192.0.2.2\n")
_text("system_settings.memory_gib", *_out("file:/proc/meminfo"), tool="/proc/meminfo")
_text("system_settings.pretty_name", 'PRETTY_NAME="Ubuntu 22.04.5 LTS"\n')
_text("system_settings.partition_key", "0xffff\n")
_text("parsers.nvidia.toolkit_version.toolkit_version", *_out("cmd:nvidia-ctk --version"))
_text("system_settings.vlans", "VLAN Dev name    | VLAN ID\nName-Type: VLAN_NAME_TYPE_RAW_PLUS_VID_NO_PAD\n"
      "enp24s0.100    | 100  | enp24s0\n")  # fmt: skip
_text("parsers.host.boot_options.parse", *_out(kernel.CMDLINE), 'a=1 b="c d" -- e')
_text("kernel.release", *_out(kernel.RELEASE))
_text("parsers.nvidia.driver_version.open_modules", *_out(kernel.NVIDIA_VERSION), tool="NVRM version")
_text("parsers.host.kernel_log.parse_uptime", "123456.78 2345678.90\n")
_text("kernel.iommu_type", "DMA-FQ\n")
_text("parsers.host.kernel_events.of_line", DMESG.splitlines()[0])
_text("parsers.host.kernel_log.parse", DMESG, *_out(kernel_log.DMESG), tool="dmesg")
_text("parsers.host.kernel_log.read_line", DMESG.splitlines()[0])
_text("parsers.host.kernel_log.message", DMESG.splitlines()[0])
_text("parsers.host.kernel_log.seconds", "[ 12.5]", "2026-02-18T12:54:01,123456+00:00")
_text(
    "parsers.host.kernel_events.events", DMESG,
    call=lambda text: kernel_events.events((1, 0.0, line) for line in text.split("\n")), tool="dmesg",
)  # fmt: skip
_text("xid.events", DMESG, call=lambda text: xid.events(kernel_lines.parse(text)), tool="dmesg")
_text("parsers.nvidia.query_log.measure", "67.03 W", "16x", "N/A")
_text("parsers.nvidia.query_log.flag", "Enabled", "No")
_text("parsers.nvidia.query_log.performance_state", "P0")
_text("parsers.rdma.port_values.state", "4: ACTIVE")
_text("parsers.rdma.port_values.rate", "400 Gb/sec (4X NDR)", "25.0 Gbps (32)")
_text("parsers.host.kernel_log.split_line", *DMESG.splitlines()[:2])
_text("parsers.setting_lines.listed", "NCCL_IB_HCA=mlx5", 'declare -x NCCL_DEBUG="INFO"')
_text("parsers.setting_lines.is_setting", "NCCL_IB_HCA=mlx5")
_text("parsers.setting_lines.may_stand_among", "PATH=/usr/bin")
_text("parsers.nvidia.xid_marks.xids_in", DMESG.splitlines()[0])
_text("parsers.nvidia.xid_marks.sxids_in", DMESG.splitlines()[1])
_text("parsers.nvidia.xid_marks.no_row_left", DMESG.splitlines()[0], "All reserved rows for bank are remapped")
_text(
    "parsers.nvidia.driver_version.loaded_module",
    "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.124.06  Wed Feb 26 01:20:09 UTC 2025\n",
)
_text("parsers.nvidia.xid_marks.own_words", "PCI:0000:18:00): 79, GPU has fallen off the bus.")
_text(
    "parsers.nvidia.xid_marks.required_recovery",
    "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
)
_text(
    "parsers.nvidia.xid_marks.is_fatal",
    "NVLink: fatal error detected on link 4",
    "Non-fatal, Link 4 Rx Short Error Rate",
)
_text("parsers.host.device_names.disk_of", "nvme0n1p2", "sda1")
_text("parsers.host.device_names.holds_data", "nvme0n1p2", "loop3")
_text("parsers.host.device_names.is_second_port", "ens1f1np1", "ens1f0np0")
_text("parsers.metric_samples.is_comment", "# HELP vllm:num_requests_running Requests", "up 1")
_text("parsers.metric_samples.labels_of", '{gpu="3",Hostname="n4"}', "{}")
_text("parsers.metric_samples.sample_of", 'DCGM_FI_DEV_XID_ERRORS{gpu="3"} 79', "up 1")
_text("parsers.host.device_names.is_virtual", "docker0", "ens1f0np0")
_text("parsers.nvidia.xid_marks.pid_in", "pid=4711, name=python", "pid='<unknown>'")
_text(
    "nccl_gpudirect.ability",
    "NVIDIA H100 80GB HBM3",
    "NVIDIA GeForce RTX 4090",
    call=lambda text: [nccl_gpudirect.ability(network, [text]) for network in ("IB", "AWS Libfabric", "Socket", text)],
)
_text("parsers.network.lldp.parse", tool="lldpcli")
_text(
    "parsers.switch.redis_dump.parse",
    '{"PORT|Ethernet0": {"type": "hash", "ttl": -0.001, "value": {"mtu": "9216"}}}',
    '{"PORT": {"Ethernet0": {"mtu": "9216", "members": ["a", "b"]}}}',
    '{"PORT|Ethernet0": {"mtu": "9216"}}',
)
_text("parsers.switch.eos_answers.question", "sh lldp nei det | json", "show interfaces")
_text("parsers.switch.eos_answers.answer", '{"modelName": "M", "systemMacAddress": "02:5e:00:00:00:13"}',
      call=lambda text: eos_answers.answer("show version", text))  # fmt: skip
_text(
    "parsers.switch.eos_answers.record",
    '{"modelName": "M"}',
    call=lambda text: eos_answers.record("show version", text),
)
_text("parsers.switch.sonic_tables.may_be_dump", '{"PORT|Ethernet0": {"mtu": "9216"}}')
_text("parsers.switch.session.parse", 'leaf4#show version | json\n{"modelName": "M"}\nleaf4#')
_text("parsers.switch.session.recorded", 'leaf4#show version | json\n{"modelName": "M"}\nleaf4#',
      f"leaf4# show version\n{NxosLeaf().texts()['show version']}\nleaf4# exit\n")  # fmt: skip
_text("parsers.switch.linux_answers.sent", "nproc")
_text("parsers.switch.linux_answers.question", "sudo vtysh -c 'show bgp summary json'", "ip -s -j link show")
for _command, _answer in LinuxLeaf().texts().items():
    _text("parsers.switch.linux_answers.answer", _answer, call=partial(linux_answers.answer, _command))
_text("parsers.switch.linux_answers.record", LinuxLeaf().texts()[linux_answers.BGP],
      call=lambda text: linux_answers.record(linux_answers.BGP, text))  # fmt: skip
_SONIC_CONFIG = '{"PORT|Ethernet0": {"mtu": "9216", "speed": "400000"}}'
_text("parsers.switch.sonic_commands.question", "sudo sonic-db-dump -n CONFIG_DB -y", "date")
_text("parsers.switch.sonic_commands.answer", _SONIC_CONFIG,
      call=partial(sonic_commands.answer, "sonic-db-dump -n CONFIG_DB -y"))  # fmt: skip
_text("parsers.switch.sonic_commands.record", _SONIC_CONFIG,
      call=partial(sonic_commands.record, "sonic-db-dump -n CONFIG_DB -y"))  # fmt: skip
_text("parsers.switch.sonic_commands.seconds", "Sat Nov 21 03:00:00 UTC 2026")
_text("parsers.switch.sonic_commands.reading_times", "Sat Nov 21 03:00:00 UTC 2026",
      call=lambda text: sonic_commands.reading_times({1: text, 2: text}))  # fmt: skip
_text("parsers.switch.junos_answers.question", "show int", "show version | display json")
_text("parsers.switch.junos_answers.sent", "show version")
for _command, _answer in JunosLeaf().texts().items():
    _text("parsers.switch.junos_answers.answer", _answer, call=partial(junos_answers.answer, _command))
_text("parsers.switch.junos_answers.record", JunosLeaf().texts()["show lldp neighbors"],
      call=lambda text: junos_answers.record("show lldp neighbors", text))  # fmt: skip
_text("parsers.switch.nxos_answers.question", "sh int trans det", "show interface")
for _command, _answer in NxosLeaf().texts().items():
    _text("parsers.switch.nxos_answers.answer", _answer, json.dumps(NxosLeaf().rows()[_command]),
          call=partial(nxos_answers.answer, _command))  # fmt: skip
_text("parsers.switch.nxos_answers.record", NxosLeaf().texts()["show lldp neighbors detail"],
      call=lambda text: nxos_answers.record("show lldp neighbors detail", text))  # fmt: skip
_text("parsers.switch.show_commands.typed_command", "sh int", "show interface",
      call=lambda text: show_commands.typed_command(text, nxos_answers.COMMANDS))  # fmt: skip
_text("lspci.parse", *_out(lspci.LSPCI), tool="lspci")
_text("nccl_environment.Selection.parse", "^=mlx5_0:1:2,mlx5_1:-1,", "mlx5")
_text("nccl_environment.strtoll", "-0x1F", "010", "4M", "99999999999999999999")
_text("nccl_environment.parse_file", "# NCCL_A=1\nNCCL_B=2 \n", tool="nccl.conf",
      call=lambda text: tuple(nccl_environment.parse_file(text, "file:x")))  # fmt: skip
_text("nccl_settings.catalogue.nearest", "NCCL_SOCKET_IFNAMES", "export NCCL_DEBUG")
_text("nccl_settings.value_grammar.faults", "allreduce:^ring,tree;broadcast:ring", "0x10", "'1'", call=lambda text: [
    tuple(nccl_values.faults(nccl_variables.table().variables[f"NCCL_{name}"], text, (2, 30, 7)))
    for name in ("ALGO", "IB_TIMEOUT", "NET_GDR_LEVEL", "TOPO_FILE", "IB_ADDR_RANGE", "RAS_ADDR", "CTA_POLICY")
])  # fmt: skip
_text(
    "nccl_settings.named_files.topology_gpus",
    '<system version="1"><pci busid="0000:1b:00.0" class="0x030200"/></system>',
)
_text("nccl_settings.collect.of_listing", "declare -x NCCL_DEBUG=\"INFO\"\n0: NCCL_IB_HCA=mlx5\n",
      call=lambda text: nccl_lint_sources.of_listing(text, "paste"))  # fmt: skip
_text("nccl_settings.catalogue.version", "2.27.5-1", "v2.5")
_text(
    "parsers.setting_lines.in_command",
    "mpirun -x NCCL_DEBUG=INFO -x NCCL_IB_HCA=mlx5_0,mlx5_1 ./all_reduce_perf -b 8",
)
_text("parsers.setting_lines.several", "NCCL_IB_HCA=mlx5_0 NCCL_DEBUG=INFO")
_text("parsers.setting_lines.begins_command", "$ NCCL_DEBUG=INFO torchrun --nproc-per-node=8 tune.py")
_text("parsers.setting_lines.on_one_node", "srun -N1 ./all_reduce_perf", "torchrun --standalone tune.py")
_text("parsers.setting_lines.on_lines", "export NCCL_IB_HCA=mlx5_0", "os.environ['NCCL_DEBUG'] = 'INFO'",
      call=lambda line: nccl_lint_spelled.on_lines(line, line))  # fmt: skip
_text("parsers.setting_lines.in_yaml", "    - name: NCCL_DEBUG", "  - NCCL_IB_DISABLE=1", "  NCCL_NET: Socket",
      call=lambda line: nccl_lint_spelled.in_yaml(line, "value: WARN", line or "env:"))  # fmt: skip
_text("parsers.nccl_tests.collective.factor", "all_reduce", call=lambda text: collective.factor(text, 8))
_text("parsers.nccl_tests.table.header", TABLE)
_text("parsers.nccl_tests.table.open_row", ROW, call=lambda text: table.open_row(1, text, table.header(TABLE)))
_text("parsers.nccl_tests.text.parse", *(path.read_text() for path in sorted(DATA.glob("nccl-tests/*.txt"))),
      tool="nccl-tests")  # fmt: skip
_text("parsers.nccl_tests.unwrap.unwrap_report", f"{TABLE[:60]}\n{TABLE[60:]}\n{ROW[:60]}\n{ROW[60:]}\n")
_text("parsers.nccl_tests.json_output.parse", (DATA / "nccl-tests" / "json_2gpu.json").read_text())
_text("parsers.qos.dcb.parse_pfc", *_out("cmd:dcb -j pfc show dev enp24s0"), tool="dcb -j pfc show")
_text("parsers.qos.dcb.parse_app", *_out("cmd:dcb -j app show dev enp24s0"), tool="dcb -j app show")
_text("parsers.qos.dcb.parse_buffer", *_out("cmd:dcb -j buffer show dev enp24s0"), tool="dcb -j buffer show")
_text("parsers.qos.dcb.parse_dcbx", *_out("cmd:dcb -j dcbx show dev enp24s0"), tool="dcb -j dcbx show")
_text("parsers.qos.mlnx_qos.parse_record", *_out("cmd:mlnx_qos -i enp24s0"), tool="mlnx_qos")
_text(
    "port_qos.parse_pause", "Pause parameters for eth0:\nAutonegotiate:\toff\nRX:\t\ton\nTX:\t\ton\n", tool="ethtool -a"
)
_text("port_qos.parse_traffic_class", "Global tclass=106\n")
_text("parsers.nvidia.nvlink_errors.parse", *_out(nvlink_errors.NVLINK_ERRORS), tool="nvidia-smi nvlink -e")
_text("parsers.nvidia.nvlink_status.parse", *_out(nvlink_status.NVLINK), tool="nvidia-smi nvlink -s")
_text("pci.address", "0000:1b:00.0", "00000000:1B:00.0", "1b:00.0")
_text(
    "parsers.network.perftest.cause",
    *(sample.text for sample in external_texts.samples("perftest")),
    tool="ibv_rc_pingpong",
)
_text("pod.is_device", "rdma/ib", "kubernetes.io/x", "cpu")
_text("pod.is_gpu", "nvidia.com/gpu")
_text("pod.is_rdma", "rdma/hca_shared_devices_a", "vpc.amazonaws.com/efa")
_text("pod.variable_of", "nvidia.com/mlnxnics")
_text("parsers.network.perftest.connected", tool="ibv_rc_pingpong")
_text(
    "parsers.network.perftest.parse_bandwidth",
    external_texts.text("ib_write_bw_softroce.txt"),
    external_texts.text("ib_read_bw_softroce.txt"),
)
_text("parsers.network.perftest.parse_latency", external_texts.text("ib_write_lat_softroce.txt"))
_text("parsers.network.perftest.parse_pingpong", tool="ibv_rc_pingpong")
_text("parsers.network.ping.parse", tool="ping")
_text("parsers.network.listening.listening", tool="/proc/net/tcp")
_text("rdma_ports.natural", "mlx5_10", "rocep24s0")
_text("rdma_ports.parse_ibstat", *_out("cmd:ibstat"), tool="ibstat")
_text("rdma_ports.parse_active_mtus", *_out("cmd:ibv_devinfo"), tool="ibv_devinfo")
_text("parsers.host.gcm_manifest.parse", (DATA / "conversion" / "manifest.json").read_text())
_text("parsers.host.nhc_config.parse", (DATA / "conversion" / "nhc.conf").read_text())
_text("parsers.host.nhc_config.words", "check_fs_mount_rw -t 'xfs' -f \"$LOCAL/a b\" # all", "export A=1",
      call=lambda text: nhc_config.words(text, {"LOCAL": "/local"}))  # fmt: skip
_text("parsers.host.services.parse", *_out(services.SERVICES), tool="systemctl show")
_text("parsers.host.services.fabric_manager_version", *_out(services.FABRIC_MANAGER),
      tool="nv-fabricmanager")  # fmt: skip
_text(
    "textprep.plain_text.strip_ray_repeat",
    "NCCL INFO Connected all rings [repeated 7x across cluster] (Ray deduplicates logs)",
)
_text("textprep.plain_text.limit_blank_runs", "cpus: 0 1" + " " * 300 + "2 3")
_text("textprep.plain_text.uncoloured", "\x1b[1;31mred\x1b[0m")
_text("textprep.plain_text.numbered", "one\n\n\ntwo", call=lambda value: list(plain_text.numbered(value)))
_text("textprep.plain_text.normalize_text", "\x1b[1;31mred\x1b[0m\r\n\x1b]0;title\x07\ufeff\x00")
_text("textprep.plain_text.integer", "9000\n", "-1", call=lambda value: plain_text.integer(value, "mtu"))
_text("textprep.plain_text.id_list", "0-3,8,12-13\n", call=lambda value: plain_text.id_list(value, "cpulist"))
_text("parsers.nvidia.topo_matrix.parse", *_out(TOPO), tool="nvidia-smi topo -m")
_text(
    "network_mounts.parse_mounts",
    "512 29 0:61 / /shared rw shared:271 - nfs4 192.0.2.200:/a rw,vers=4.2,addr=192.0.2.200\n",
    "513 29 0:62 / /scratch rw - lustre 192.0.2.1@o2ib:192.0.2.2@o2ib:/scratch rw,flock\n",
    tool="/proc/self/mountinfo",
)
_text("parsers.host.mounts.parse", *_out("file:/proc/self/mountinfo"), tool="/proc/self/mountinfo")
_text("parsers.host.raid_arrays.parse", *_out("file:/proc/mdstat"), tool="/proc/mdstat")
_text("parsers.host.mounts.parse_space", *_out(inventory.DISK_SPACE)[:1], tool="df --output")
_text(
    "parsers.host.processes.parse",
    "      1       0 Ss       0 root                             systemd\n"
    "  41210   41190 Z     1000 alice                            python3 <defunct>\n",
    tool="ps",
)
_text(
    "parsers.host.services.parse_units",
    "slurmd.service loaded failed failed Slurm node daemon\n* a\\x2db.mount loaded failed failed /a\n"
    "2 loaded units listed.\n",
    tool="systemctl list-units",
)
_text("inventory.lasting", *_out("file:/proc/self/mountinfo"), tool="/proc/self/mountinfo")
_text("inventory.cpus", "0-223\n", "0,2-7\n")
_text("inventory.smt", "on\n", "forceoff\n", "notimplemented\n")
_text("inventory.swap", "Filename\tType\tSize\tUsed\tPriority\n/swap.img file\t8388604\t0\t-2\n")
_text(
    "addresses.table",
    "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT\n"
    "eth0\t00000000\t010200C0\t0003\t0\t0\t100\t00000000\t0\t0\t0\n",
    "Iface\tDestination\n",
)
_text(
    "container_image.containerenv",
    'engine="podman-5.2.0"\nimage="registry.example/a:1"\nimageid="1f2e3d"\n',
    tool="podman's .containerenv",
)
_text("compatibility.built_for", "cuda: Optional[str] = '12.4'\n", "cuda = None\n", tool="torch/version.py")
_text("compatibility.driver_version", "550.54.15")
_text("versions.parse_libraries", *_out(versions.LIBRARIES)[:1],
      external_texts.text("find_libraries.txt"))  # fmt: skip

# --- documents, cluster files, host lists ----------------------------------------------------------


_DOCUMENT = json.dumps({"schema": "preflight.evidence/1", "node": "n", "collected_at": "2026-11-21T03:00:00Z",
                        "collector": {}, "records": {"file:/x": {"status": "ok", "out": "1\n"}}})  # fmt: skip
_text("evidence.decode", _DOCUMENT, call=lambda text: document.decode(_raw(text), "x"), raises=DocumentError)
_text("cluster.decode", CLUSTER, call=lambda text: cluster.decode(_raw(text), "x"), raises=ClusterFileError,
      foreign=False)  # fmt: skip
_text("nodeset.how_many", "gpu[001-064],login1", "a[1-2]b[3-4]")
_text("nodeset.unfold", "gpu[001-064],login1", "gpu[0-7]!gpu3", "a[1-2]b[3-4]", foreign=False)
_text("targets.from_text", "# all\ngpu[001-004] slots=8\nlogin1\n", raises=targets.TargetError, foreign=False,
      call=lambda text: targets.from_text(text, "hosts"))  # fmt: skip

# --- values ----------------------------------------------------------------------------------------

_PSUTIL = json.dumps({"eth0": [{"family": "inet6", "address": "fe80::1%eth0", "netmask": "ffff:ffff:ffff:ffff::"},
                               {"family": "inet", "address": "10.0.0.1", "netmask": "255.255.255.254"}]})  # fmt: skip
_ENVIRONMENT = {
    "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4(x2)", "WORLD_SIZE": "8", "CUDA_VISIBLE_DEVICES": "0,GPU-0000,MIG-1",
    "NCCL_IB_HCA": "^=mlx5_0:1", "NCCL_SOCKET_IFNAME": "eth0", "PCIDEVICE_NVIDIA_COM_RDMA": "0000:18:00.2,",
    "NETWORK_STATUS": NETWORKS, "KUBERNETES_SERVICE_HOST": "10.0.0.1", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "0",
}  # fmt: skip
_GPUS = tuple(query.GpuIdentity(index, f"0000:{index:02x}:00.0", "H100", f"GPU-{index:08d}-aaaa") for index in range(4))


def _environment(value: Any) -> Evidence:
    return Evidence("n", "", {"env:process": {"status": "ok", "value": value}})


def _pasted(kind: str) -> Call:
    """Return a reader of the first output of a kind in a text, as in ``preflight read``."""
    parser = formats.parser(kind)
    module = import_module(f"preflight.parsers.{formats.NETWORK[kind]}") if kind in formats.NETWORK else None

    def call(text: str) -> object:
        lines = lines_of_record(text)
        begin = next((at for at in range(len(lines)) if parser.begins(lines, at)), None)
        if begin is None:
            raise ValueError(f"there is no output of {kind} in it")
        value = parser.parse_lines(lines, begin).value
        return (module.facts(value), module.summary(value)) if module else value

    return call


_NIC_TEXTS = tomllib.loads((DATA / "nic" / "texts.toml").read_text(encoding="utf-8"))
for _kind in formats.NETWORK:
    _seeds = tuple(
        entry["text"] for name, entry in _NIC_TEXTS.items() if entry["kind"] == _kind and "prefix" not in name
    )
    TEXT.append(Parser(f"pasted.{_kind}", _pasted(_kind), _seeds))

_FRESH = DATA / "fresh"
_FRESH_KINDS: dict[str, list[str]] = {}
for _name, _entry in tomllib.loads((_FRESH / "index.toml").read_text(encoding="utf-8")).items():
    if "pdsh" not in _name:  # a host before each line is removed before a parser reads it
        _FRESH_KINDS.setdefault(_entry["kind"], []).append((_FRESH / _name).read_text(encoding="utf-8"))
for _kind, _seed_texts in _FRESH_KINDS.items():
    if _kind not in formats.NETWORK and any(_kind in family for family in formats.FAMILIES):
        TEXT.append(Parser(f"pasted.{_kind}", _pasted(_kind), tuple(_seed_texts)))


def _texts(value: Any) -> Mapping[str, str]:
    """Accept an environment as NodeFacts passes it to its readers: names and texts, else EvidenceError."""
    return NodeFacts(_environment(value)).environment


def _value(name: str, seed: str, *, call: Call | None = None, raises: type[Exception] = ValueError) -> None:
    VALUE.append(Parser(name, call or _resolved(name), (seed,), (raises,)))


_value("parsers.job_config.deepspeed.parse", json.dumps(DEEPSPEED), call=lambda value: deepspeed.parse(value, "job"))
_value("parsers.job_config.deepspeed.begins", json.dumps(DEEPSPEED))
_value(
    "parsers.job_config.huggingface.parse", json.dumps(MODEL_CONFIG), call=lambda value: huggingface.parse(value, "job")
)
_value("parsers.job_config.huggingface.begins", json.dumps(MODEL_CONFIG))
_value(
    "parsers.job_config.torchtitan.parse",
    json.dumps({"model": {"flavor": "8B"}, "training": {"seq_len": 8192}}),
    call=lambda value: torchtitan.parse(value, "job"),
)
_value("parsers.job_config.torchtitan.begins", json.dumps({"model": {}, "training": {"seq_len": 8192}}))
_value("parsers.job_config.nemo.begins", json.dumps({"model": {"num_layers": 2}}))
_value(
    "parsers.job_config.nemo.parse",
    json.dumps({"model": {"num_layers": 2, "hidden_size": "${.ffn}", "optim": {"name": "adam"}}, "trainer": {}}),
    call=lambda value: nemo.parse(value, "job"),
)
_value("addresses.parse_psutil", _PSUTIL)
_value("counter_growth.parse_files", json.dumps({"port_rcv_data": "12\n", "N": "N/A (no PMA)\n"}))
_value("pod.parse_pod", json.dumps({"namespace": "n", "name": "p", "node": "gpu001", "annotations": {"a": "b"},
                                    "containers": [{"name": "main", "init": False, "limits": {"rdma/ib": "1"},
                                                    "requests": {}, "claims": ["nics"]}]}))  # fmt: skip
_value("evidence.from_document", _DOCUMENT, call=lambda value: from_document(value, "x"), raises=DocumentError)


def _names(name: str, call: Callable[[Mapping[str, str]], object] | None = None) -> None:
    """Register a reader of the environment as passed by NodeFacts."""
    read = call or _resolved(name)
    _value(name, json.dumps(_ENVIRONMENT), call=lambda value: read(_texts(value)), raises=EvidenceError)


_names("rank_binding.rank")
_names("rank_binding.world_size")
_names("rank_binding.first_count", lambda names: rank_binding.first_count(names, ("WORLD_SIZE", "SLURM_NTASKS")))
_names("rank_binding.own_gpus", lambda names: rank_binding.own_gpus(names, _GPUS))
_names("nccl_settings.rank_agreement.values")
_names("container.in_pod")
_names("container.resources")
_value("container.networks", json.dumps(_ENVIRONMENT), call=lambda value: container.networks(_environment(value)),
       raises=EvidenceError)  # fmt: skip

# --- complete documents -------------------------------------------------------------------------------


def _evidence(name: str, call: Callable[[Evidence], object] | None = None) -> None:
    EVIDENCE.append(Parser(name, call or _resolved(name), NODES, (EvidenceError,)))


_evidence("job_description.described_job")
_evidence("container.usable_gpu_nodes")
_evidence("nvidia.link_errors.source")
_evidence("container.gpus_given", lambda e: container.gpus_given(e, NodeFacts(e).environment))


def _each_nic(read: Callable[[Evidence, str], object]) -> Callable[[Evidence], object]:
    return lambda e: [read(e, device) for device in rdma_ports.devices(e)[:2]]


_RAIL, _FUNCTION = "enp24s0", "0000:18:00.0"


def _qos(what: str) -> None:
    _evidence(f"port_qos.{what}", lambda e: getattr(port_qos, what)(e, _RAIL))


_evidence("addresses.addresses")
_evidence("addresses.effective", lambda e: addresses.effective(e, "enp24s0", "rp_filter"))
_evidence("clock.clock")
_evidence("network_mounts.nvme")
_evidence("inventory.nvme_drives")
_evidence("nic_bandwidth.cards", lambda e: nic_bandwidth.cards(e, rdma_ports.ports(e)))
_evidence("compatibility.build", lambda e: [compatibility.build(e, one) for one in versions.packages(e)])
_evidence("nvidia.query.driver")
_evidence("pod.pod")
_evidence("nvidia.health.health")
_evidence("nvidia.nvml.read_health")
_evidence("nvidia.link_errors.growth")
_evidence("nvidia.link_errors.replay_growth")
_evidence("nvidia.link_errors.totals")
_evidence("nvidia.nvml.part")
_evidence("nvidia.smi_xml.read_health")
_evidence("gpudirect.nic_functions", lambda e: gpudirect.nic_functions(e, pci.bus(e), rdma_ports.devices(e)))
_evidence("gpudirect.nic_link", _each_nic(gpudirect.nic_link))
_evidence("host.integer_file", lambda e: host.integer_file(e, "file:/proc/sys/kernel/numa_balancing"))
_evidence("host.shm_bytes")
_evidence("host.numa_nodes")
_evidence("system_settings.sockets")
_evidence("kernel.modules")
_evidence(
    "kernel.iommu_types", lambda e: kernel.iommu_types(e, ["file:/sys/class/infiniband/*/device/iommu_group/type"])
)
_evidence("kernel.iommu_is_on")
_evidence("kernel_log.kernel_log")
_evidence("interfaces.netdevs")
_evidence("congestion.ecn", lambda e: congestion.ecn(e, _RAIL, 3))
_evidence("congestion.cnp_dscp", lambda e: congestion.cnp_dscp(e, _RAIL, _FUNCTION))
_evidence("congestion.parameters", lambda e: congestion.parameters(e, _RAIL, _FUNCTION))
for _what in ("pfc", "dscp_map", "buffers", "dcbx", "pause"):
    _qos(_what)
_evidence("port_qos.trust", lambda e: port_qos.trust(e, _RAIL, empty_is_pcp=True))
_evidence("port_qos.traffic_class", lambda e: port_qos.traffic_class(e, "mlx5_0", 1))
_evidence(
    "counter_growth.port_growth", lambda e: [counter_growth.port_growth(e, port) for port in rdma_ports.ports(e)[:2]]
)
_evidence("counter_growth.totals", lambda e: [counter_growth.totals(e, port) for port in rdma_ports.ports(e)[:2]])
_evidence("cpu_time.cpu_window")
_evidence("gids.gid", lambda e: gids.gid(e, "rxe0", 1, 1))
_evidence("gids.rows_at_most", lambda e: gids.rows_at_most(e, "rxe0", 1))
_evidence("nccl_settings.named_files.named")
_evidence("nccl_settings.collect.ranks")
_evidence("pci.bus")
_evidence("rdma_ports.devices")
_evidence("rdma_ports.uverbs")
_evidence("rdma_ports.is_software", _each_nic(rdma_ports.is_software))
_evidence("rdma_ports.device_path", _each_nic(rdma_ports.device_path))
_evidence("rdma_ports.is_bluefield", _each_nic(rdma_ports.is_bluefield))
_evidence("rdma_ports.is_mlx5", _each_nic(rdma_ports.is_mlx5))
_evidence("rdma_ports.is_virtual_function", _each_nic(rdma_ports.is_virtual_function))
_evidence("rdma_ports.interfaces", lambda e: [rdma_ports.interfaces(e, port) for port in rdma_ports.ports(e)])
_evidence("rdma_ports.ports")
_LOSSLESS = chain.RocePolicy(lossless=chain.Want(True, "x"), pfc_priority=chain.Want(3, "x"))
_evidence("roce_chain.chain.chains", lambda e: chain.chains(
    NodeFacts(e), [port for port in rdma_ports.ports(e) if port.netdev], _LOSSLESS))  # fmt: skip
_evidence(
    "roce_chain.addressing.routable", lambda e: [addressing.routable(e, port) for port in rdma_ports.ports(e)[:2]]
)
_evidence("versions.packages")
_evidence("picture.picture", lambda e: picture(NodeFacts(e)))
_evidence("network_switch.network_switch", lambda e: network_switch.network_switch(e, NodeFacts(e).pci))
_evidence("cluster.Site.roles", lambda e: Cluster().site(NodeFacts(e)).roles(NodeFacts(e)))
_evidence("node.gpu_nic_pairs", lambda e: NodeFacts(e).gpu_nic_pairs(NodeFacts(e).rdma_devices))
_evidence("job.nccl_tests", lambda e: RunFacts(e).nccl_tests)


def _fact(name: str) -> None:
    _evidence(f"node.{name}", lambda e: getattr(NodeFacts(e), name))


for _name, _member in sorted(vars(NodeFacts).items()):
    if not _name.startswith("_") and not callable(_member):
        _fact(_name)


def _switch_records() -> str:
    """Return the records of a switch with one port: damaged records are long when printed."""
    records = Clos().switch("leaf1", None).records
    for record in records.values():
        for rows in (record["value"], record["value"].get("rows", {})):
            for name in [name for name in rows if "Ethernet" in name and not re.fullmatch(r"Ethernet0([|:]3)?", name)]:
                del rows[name]
    return json.dumps(records)


def _of_switch(value: Any, platform: str = "sonic") -> Evidence:
    if not isinstance(value, dict):
        raise EvidenceError("records", "is not an object")
    return Evidence("leaf1", "", value, kind=SWITCH, platform=platform)


def _eos_records() -> str:
    leaf = EosLeaf()
    for reading in (leaf.now, leaf.later):
        for answer in reading.values():
            for rows in (rows for rows in answer.values() if isinstance(rows, dict)):
                for name in [name for name in rows if name != "Ethernet1/1"]:
                    del rows[name]
    return json.dumps({
        f"eos:{question}": {"status": "ok", "value": answer, "again": {"status": "ok", "value": leaf.later[question]}}
        for question, answer in leaf.now.items()
    })  # fmt: skip


def _nxos_records() -> str:
    leaf = NxosLeaf()
    leaf.ports = {name: port for name, port in leaf.ports.items() if name == "Ethernet1/1"}
    return json.dumps(session.PLATFORMS[1].records(
        (command, nxos_answers.record(command, answer))
        for reading in (leaf.texts(), leaf.texts(later=True)) for command, answer in reading.items()
    ))  # fmt: skip


def _linux_records() -> str:
    leaf = LinuxLeaf()
    leaf.ports = {name: port for name, port in leaf.ports.items() if name == "swp5"}
    leaf.peers = {name: peer for name, peer in leaf.peers.items() if name == "swp5"}
    return json.dumps(linux_answers.records(
        (command, linux_answers.record(command, answer))
        for later in (False, True) for command, answer in leaf.texts(later).items()
    ))  # fmt: skip


_value("switch.eos.facts", _eos_records(), call=lambda value: eos.facts(_of_switch(value, "eos")),
       raises=EvidenceError)  # fmt: skip
_value("switch.values.as_object", "{}")
_value("parsers.switch.show_commands.load_of", "91.5")
_value("switch.values.as_text", '"up"')
_value("switch.values.as_number", "7")
_value("switch.values.number_in", '"7"')
_value("switch.values.as_decimal", "-1.5")
_text("switch.eos.dotted_address", "0200.5e10.0001", "Ethernet1/1")
_text("parsers.switch.show_commands.record_of", NxosLeaf().texts()["show version"],
      call=lambda text: show_commands.record_of("show version", text, nxos_answers.answer))  # fmt: skip
_text("parsers.switch.show_commands.by_key", "leaf4", call=lambda text: show_commands.by_key(
    "eos", [("show version", {"status": "ok", "value": text})] * 2, bool))  # fmt: skip
_value("switch.nxos.facts", _nxos_records(), call=lambda value: nxos.facts(_of_switch(value, "nxos")),
       raises=EvidenceError)  # fmt: skip
_value("switch.junos.facts", json.dumps({
    f"junos:{_command}": junos_answers.record(_command, _answer) for _command, _answer in JunosLeaf().texts().items()
}), call=lambda value: junos.facts(_of_switch(value, "junos")), raises=EvidenceError)  # fmt: skip
_value("switch.linux.facts", _linux_records(), call=lambda value: linux.facts(_of_switch(value, "linux")),
       raises=EvidenceError)  # fmt: skip
_value("switch.sonic.facts", _switch_records(), call=lambda value: sonic.facts(_of_switch(value)), raises=EvidenceError)

ALL = (*TEXT, *VALUE, *EVIDENCE)
