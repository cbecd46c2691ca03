"""Checks of the kernel: modules, boot options, frequency governor, NUMA balancing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from preflight._startup.lightclass import dataclass
from preflight.checks.applicability import PCI_BUS
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.host import integer_file
from preflight.facts.kernel import CMDLINE, MODULES, RELEASE, release
from preflight.facts.node import NodeFacts
from preflight.model import (
    Finding,
    Status,
    all_of,
    check,
    failed,
    none_of,
    passed,
    skipped,
    some_of,
    verb,
    warned,
)
from preflight.parsers.host.boot_options import Option

PARAMETERS = "https://docs.kernel.org/admin-guide/kernel-parameters.html"


@dataclass(frozen=True)
class Needed:
    """A module that this node's hardware needs."""

    name: str
    without: str  # consequence if missing
    status: Status
    nvidia: bool = False  # whether a GPU needs it, else an RDMA NIC
    nics: tuple[str, ...] = ("15b3",)  # PCI vendors of the NICs that need it
    switches: bool = False  # whether only NVSwitches behind NICs need it


#: nvidia_uvm is loaded by the first CUDA program, so before that it is missing on healthy nodes.
NEEDED = (
    Needed("mlx5_core", "the NIC has no driver", Status.FAIL),
    Needed("mlx5_ib", "the NIC is not an RDMA device", Status.FAIL),
    Needed("efa", "the EFA devices have no driver", Status.FAIL, nics=("1d0f",)),
    Needed("ib_uverbs", "no program can open an RDMA device", Status.FAIL, nics=("15b3", "1d0f")),
    Needed("rdma_ucm", "programs that connect by RDMA CM fail (not NCCL)", Status.WARN),
    Needed("ib_umad", "nvlsm cannot reach the NVSwitches behind their bridge NICs", Status.WARN, switches=True),
    Needed("nvidia_uvm", "CUDA cannot start in a container, which cannot load it", Status.WARN, nvidia=True),
)


def no_module_needed(node: NodeFacts, site: Site) -> Finding | None:
    """Skip hardware that needs no module."""
    if _wanted(node, site):
        return None
    return skipped("the PCI bus has no NIC that needs a module, and no GPU driver is loaded",
                   evidence=[PCI_BUS, MODULES])  # fmt: skip


def _wanted(node: NodeFacts, site: Site) -> list[Needed]:
    vendors = {nic.vendor for nic in node.rdma_nics_on_bus}
    nvidia = bool(node.gpus_on_bus) and "nvidia" in node.modules  # gpu.driver reports a missing driver
    bridges = site.part is not None and site.part.switches_behind_nics and not node.in_virtual_machine
    return [
        needed
        for needed in NEEDED
        if (nvidia if needed.nvidia else vendors.intersection(needed.nics)) and (bridges or not needed.switches)
    ]


@check(
    "kernel.modules",
    title="The modules that this hardware needs are loaded",
    fault="A module that this hardware needs is not loaded",
    impact="blocks-job",
    explains=(
        ("nvlink.fabric-manager", "node", "ib_umad"),
        ("rdma.device-nodes", "node", "ib_uverbs"),
        ("kernel.modules", "node", "ib_uverbs", "rdma_ucm"),
    ),
    source="https://docs.kernel.org/infiniband/user_verbs.html; NVIDIA driver README, chapter on kernel modules",
    fix="Run `modprobe NAME`, and list the module in /etc/modules-load.d to load it at boot.",
    action="fix-site",
    answers=("PA-13", "NT-PIT-3"),
    unless=(no_module_needed,),
)
def modules(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare loaded kernel modules with those that the NICs and GPUs need.

    ## Why it matters
    A module that was loaded manually is missing after the next reboot: the hardware is present, no tool complains, and
    NCCL uses TCP.

    ## Verdicts
    Missing RDMA drivers fail (gpu.driver reports a missing GPU driver). Missing rdma_ucm, ib_umad and nvidia_uvm warn;
    the first CUDA program loads nvidia_uvm.

    ## False alarms
    None known. A kernel does not list a built-in module without parameters, so its device files count as evidence.
    ib_umad is required only on HGX B200 and B300, for their NVLink subnet manager, which the host runs for a virtual
    machine.
    """
    wanted = _wanted(node, site)
    missing = [needed for needed in wanted if needed.name not in node.modules]
    for needed in missing:
        report = failed if needed.status is Status.FAIL else warned
        yield report(
            f"{needed.name} is not loaded: {needed.without}",
            subject=needed.name,
            found="not in /sys/module",
            expected="loaded",
            evidence=[MODULES, PCI_BUS],
            fix=f"Run `modprobe {needed.name}` and list it in /etc/modules-load.d.",
        )
    if len(missing) < len(wanted):
        there = ", ".join(needed.name for needed in wanted if needed not in missing)
        loaded = len(wanted) - len(missing)
        yield passed(f"{some_of(loaded, len(wanted), 'needed module')} {verb(loaded, 'is')} loaded", found=there,
                     evidence=[MODULES])  # fmt: skip


@dataclass(frozen=True)
class Hindrance:
    """A boot option that harms a training node."""

    takes: Callable[[Option], bool]
    effect: str


def _blocks(option: Option) -> bool:
    listed = option.value.replace("-", "_").split(",")
    ours = ("nvidia", "nvidia_uvm", "nvidia_peermem", "mlx5_core", "mlx5_ib", "ib_uverbs", "rdma_ucm", "efa")
    return option.name in ("module_blacklist", "modprobe.blacklist") and any(name in listed for name in ours)


def _debugs(option: Option) -> bool:
    return (option.name == "slub_debug" and option.value != "-") or (
        option.name in ("debug_pagealloc", "page_poison", "kmemleak") and option.value in ("on", "1")
    )


HINDRANCES = (
    Hindrance(lambda option: option.name == "mem" and bool(option.value), "hides memory from the kernel"),
    Hindrance(lambda option: option.name in ("maxcpus", "nr_cpus"), "leaves CPUs unused"),
    Hindrance(
        lambda option: option.name == "pci" and "nomsi" in option.value.split(","), "disables MSI for all devices"
    ),
    Hindrance(lambda option: option.name == "pcie_aspm" and option.value == "force", "lets PCIe links power down"),
    Hindrance(_blocks, "blocks a module of the GPU or NIC"),
    Hindrance(_debugs, "checks every kernel allocation"),
)


@check(
    "kernel.boot-options",
    title="No boot option limits the hardware",
    fault="A boot option limits the hardware",
    impact="slows-job",
    source=PARAMETERS,
    fix="Remove the option from /etc/default/grub, run `update-grub`, and reboot when the node is drained.",
    action="fix-site",
)
def boot_options(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for boot options that disable memory, CPUs, interrupts or drivers.

    ## Why it matters
    Such an option is often left over from debugging, or from another machine with the same image, and slows every job.

    ## Verdicts
    These options warn: mem=, maxcpus=, nr_cpus=, pci=nomsi, pcie_aspm=force, blacklisted GPU or NIC drivers, and
    allocation debugging. gpudirect.iommu judges the IOMMU's options.

    ## False alarms
    An option that the site chose on purpose, such as maxcpus= on nodes that are licensed by CPU.
    """
    options = node.boot_options
    found = [(option, h.effect) for option in options for h in HINDRANCES if h.takes(option)]
    for option, effect in found:
        yield warned(f"the boot option {option} {effect}", subject=option.name, found=str(option), expected="unset",
                     evidence=[CMDLINE])  # fmt: skip
    if not found:
        yield passed(f"{none_of(len(options), 'boot option')} limits the hardware", evidence=[CMDLINE])


CPUFREQ = "/sys/devices/system/cpu/cpufreq"


def no_cpufreq(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a node without cpufreq in /sys."""
    if node.evidence.exists(f"dir:{CPUFREQ}") or not node.numa_nodes:
        return None
    return skipped("the kernel has no cpufreq: the hypervisor or the firmware controls the CPU frequency",
                   evidence=[f"dir:{CPUFREQ}"])  # fmt: skip


@check(
    "kernel.cpu-governor",
    title="The CPUs run with the performance governor",
    fault="The CPUs do not run with the performance governor",
    impact="slows-job",
    source="https://docs.kernel.org/admin-guide/pm/cpufreq.html; vendors' tuning guides for GPU hosts",
    fix="Run `cpupower frequency-set -g performance`, or use the tuned profile throughput-performance.",
    action="fix-site",
    unless=(no_cpufreq,),
)
def cpu_governor(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the frequency governor of the CPUs with ``performance``.

    ## Why it matters
    NCCL's proxy threads wake for microseconds at a time. A governor that raises the clock only under load keeps them
    slow, and small messages take longer.

    ## Verdicts
    Any other governor warns. Every tenth CPU frequency policy is read.

    ## False alarms
    A site that accepts higher latency to save power. The check skips a virtual machine, which has no cpufreq.
    """
    keys = list(node.evidence.keys(f"file:{CPUFREQ}/policy*/scaling_governor"))
    governors = Counter(_governor(node, key) for key in keys)
    if not governors and not node.evidence.listing(f"dir:{CPUFREQ}"):
        yield skipped("no CPU has a frequency policy", evidence=[f"dir:{CPUFREQ}"])
    elif not governors:
        raise EvidenceError(f"file:{CPUFREQ}/policy*0/scaling_governor", "no policy was recorded")
    elif set(governors) == {"performance"}:
        yield passed(f"{all_of(len(keys), 'sampled CPU')} {verb(len(keys), 'has')} the governor performance",
                     found="performance", evidence=keys[:1])  # fmt: skip
    else:
        odd = {name: number for name, number in governors.items() if name != "performance"}
        number = sum(odd.values())
        yield warned(
            f"{some_of(number, len(keys), 'sampled CPU')} {verb(number, 'has')} the governor {' or '.join(odd)}, "
            "expected performance",
            found=", ".join(f"{name} ({number})" for name, number in odd.items()),
            expected="performance",
            evidence=keys[:3],
        )


_GOVERNORS = ("performance", "powersave", "schedutil", "ondemand", "conservative", "userspace")


def _governor(node: NodeFacts, key: str) -> str:
    if (word := node.evidence.text(key).strip()) not in _GOVERNORS:
        raise EvidenceError(key, f"holds {word[:40]!r}, not a governor")
    return word


BALANCING = "file:/proc/sys/kernel/numa_balancing"


@check(
    "kernel.numa-balancing",
    title="Automatic NUMA balancing is off",
    fault="Automatic NUMA balancing is on",
    impact="slows-job",
    source="https://docs.kernel.org/admin-guide/sysctl/kernel.html (numa_balancing)",
    fix="Run `sysctl -w kernel.numa_balancing=0`, and set it in /etc/sysctl.d.",
    action="fix-site",
)
def numa_balancing(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the setting kernel.numa_balancing with 0.

    ## Why it matters
    The kernel unmaps pages to detect which CPU uses them, and migrates them: data loaders and pinned buffers stall at
    random, and step times vary.

    ## Verdicts
    The value 1 (normal balancing) warns, and so does 3, which adds memory tiering. A kernel built without balancing has
    no such file, and passes.

    ## False alarms
    None known. The value 2 alone is memory tiering, which moves nothing between sockets; it passes.
    """
    if not node.evidence.exists(BALANCING) and node.parsed(RELEASE, release):  # /proc/sys exists
        yield passed("the kernel has no NUMA balancing", found="no such setting", evidence=[BALANCING])
        return
    yield judge_numa_balancing(integer_file(node.evidence, BALANCING), [BALANCING])


def judge_numa_balancing(value: int, evidence: Sequence[str]) -> Finding:
    """Judge a value of kernel.numa_balancing: 1 balances, 2 tiers memory, 3 does both."""
    if value & 1:
        return warned(f"NUMA balancing is on (kernel.numa_balancing={value}), expected 0", found=str(value),
                      expected="0", evidence=evidence)  # fmt: skip
    return passed(f"NUMA balancing is off (kernel.numa_balancing={value})", found=str(value), evidence=evidence)
