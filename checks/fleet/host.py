"""Comparison of BIOS, processors, kernel and limits across nodes of one kind."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from preflight import facts
from preflight.checks.comparison.compare import compare
from preflight.checks.comparison.electorate import Trait
from preflight.checks.comparison.values import compute, on_the_host, several, text, where_there
from preflight.checks.host import kernel, limits
from preflight.checks.host import mounts as host_mounts
from preflight.checks.rdma import ip_rails
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts import inventory, system_settings
from preflight.facts.network_switch import OS_RELEASE
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check
from preflight.parsers.host.mounts import MOUNTS

#: Boot options that name a disk, an image or the node itself.
_OWN = ("BOOT_IMAGE", "root", "initrd", "resume", "ip", "BOOTIF", "ifname", "hostname", "rd.", "systemd.machine_id",
        "nfsroot", "imagename", "crashkernel", "xcat", "netroot")  # fmt: skip


def _boot_options(node: NodeFacts, site: Site) -> str | None:
    options = [str(one) for one in node.boot_options if not one.name.startswith(_OWN)]
    return " ".join(sorted(options)) or "none"


def _microcode(node: NodeFacts, site: Site) -> str | None:
    return node.parsed(system_settings.CPUINFO, system_settings.cpu).microcode or None


def _distribution(node: NodeFacts, site: Site) -> str | None:
    """Return the distribution's name; None in a container, which shows its image's."""
    if node.in_container or not node.evidence.exists(OS_RELEASE):
        return None
    return node.parsed(OS_RELEASE, system_settings.pretty_name)


def _memory(node: NodeFacts, site: Site) -> float:
    return node.parsed(system_settings.MEMINFO, system_settings.memory_gib)


def _sockets(node: NodeFacts, site: Site) -> str | None:
    found = system_settings.sockets(node.evidence)
    return None if found is None else str(found)


def _numa(node: NodeFacts, site: Site) -> str | None:
    return str(sum(bool(numa.cpus) for numa in node.numa_nodes))


def _smt(node: NodeFacts, site: Site) -> str | None:
    if not node.evidence.exists(inventory.SMT):
        return None
    return node.parsed(inventory.SMT, inventory.smt)


def _nvme(node: NodeFacts, site: Site) -> str | None:
    """Return the number of working drives, and the names and states of dead ones."""
    drives = inventory.nvme_drives(node.evidence)
    dead = ", ".join(f"{name} {state}" for name, state in drives if state != "live")
    working = sum(state == "live" for _, state in drives)
    return f"{working} ({dead})" if dead else str(working)


def _mounts(node: NodeFacts, site: Site) -> str | None:
    """Return the permanent mounts with their types.

    None in a container, which has its own mounts.
    """
    if node.in_container:
        return None
    lasting = node.parsed(MOUNTS, inventory.lasting)
    listed = (f"{place} {mount.kind}{' read-only' if mount.read_only else ''}" for place, mount in lasting.items())
    return ", ".join(sorted(listed)) or "none"


def _memlock(node: NodeFacts, site: Site) -> str | None:
    limit = node.memlock_bytes
    return "unlimited" if limit == float("inf") else facts.host.size_text(limit)


def _sysctl(name: str) -> Trait:
    """Return the trait of a rail setting: the larger of ``all`` and the interface's."""

    def read(node: NodeFacts, site: Site) -> str | None:
        rails = [port.netdev for port in compute(node, site) if port.roce and port.netdev]
        return several(facts.addresses.effective(node.evidence, rail, name) for rail in rails)

    return Trait(
        f"{name} of the rails",
        f"file:{facts.addresses.SYSCTL}/all/{name}",
        read,
        judged_by=(ip_rails.subnets,),
        expects=f"host.{name}",
    )


def _governor(node: NodeFacts, site: Site) -> str | None:
    key = "/sys/devices/system/cpu/cpufreq"
    if not node.evidence.exists(f"dir:{key}"):
        return None
    found = [node.evidence.text(one).strip() for one in node.evidence.keys(f"file:{key}/*/scaling_governor")]
    if not found:
        raise EvidenceError(f"file:{key}/policy*0/scaling_governor", "was not collected from this node")
    return several(found)


_NUMA = "file:/sys/devices/system/node/node*/cpulist"


def _spaced(words: str) -> str:
    return " ".join(words.split())


HOST = (
    Trait(
        "BIOS version",
        f"{system_settings.DMI}/bios_version",
        on_the_host(where_there(f"{system_settings.DMI}/bios_version")),
        expects="firmware.bios",
    ),
    Trait(
        "server model",
        f"{system_settings.DMI}/product_name",
        on_the_host(where_there(f"{system_settings.DMI}/product_name")),
        expects="host.server",
    ),
    Trait(
        "CPU model",
        system_settings.CPUINFO,
        text(system_settings.CPUINFO, lambda cpuinfo: system_settings.cpu(cpuinfo).model),
        expects="host.cpu",
    ),
    Trait("CPU microcode", system_settings.CPUINFO, _microcode, expects="firmware.microcode"),
    Trait("CPU sockets", system_settings.SOCKETS, _sockets, expects="host.sockets", part=True),
    Trait("NUMA nodes (NPS)", _NUMA, _numa, expects="host.numa_nodes", required=True),
    Trait(
        "memory",
        system_settings.MEMINFO,
        _memory,
        tolerance=0.01,
        unit="GiB",
        expects="host.memory_gib",
        required=True,
        part=True,
    ),
    Trait("logical CPUs", inventory.ONLINE, text(inventory.ONLINE, inventory.cpus), expects="host.cpus", required=True),
    Trait("multithreading (SMT)", inventory.SMT, _smt, expects="host.smt", required=True),
    Trait("NVMe drives", inventory.NVME, _nvme, expects="host.nvme", required=True, part=True),
    Trait("swap", inventory.SWAPS, text(inventory.SWAPS, inventory.swap), expects="host.swap", required=True),
    Trait("mounts", MOUNTS, _mounts, items=", ", judged_by=(host_mounts.declared_mounts,)),
    Trait("kernel release", facts.kernel.RELEASE, text(facts.kernel.RELEASE), expects="versions.kernel"),
    Trait("distribution", OS_RELEASE, _distribution, expects="versions.os"),
    Trait(
        "boot options",
        facts.kernel.CMDLINE,
        _boot_options,
        items=" ",
        judged_by=(kernel.boot_options,),
        expects="host.boot_options",
    ),
    Trait(
        "frequency governor",
        "dir:/sys/devices/system/cpu/cpufreq",
        _governor,
        judged_by=(kernel.cpu_governor,),
        expects="host.governor",
    ),
    Trait(
        "transparent huge pages",
        system_settings.HUGE_PAGES,
        where_there(system_settings.HUGE_PAGES, system_settings.chosen),
        expects="host.transparent_huge_pages",
    ),
    Trait(
        "reserved huge pages",
        "file:/proc/sys/vm/nr_hugepages",
        where_there("file:/proc/sys/vm/nr_hugepages"),
        expects="host.huge_pages",
    ),
    Trait(
        "numa_balancing",
        "file:/proc/sys/kernel/numa_balancing",
        where_there("file:/proc/sys/kernel/numa_balancing"),
        judged_by=(kernel.numa_balancing,),
        expects="host.numa_balancing",
    ),
    _sysctl("rp_filter"),
    _sysctl("arp_ignore"),
    _sysctl("arp_announce"),
    Trait(
        "ephemeral ports",
        facts.host.PORT_RANGE,
        text(facts.host.PORT_RANGE, _spaced),
        judged_by=(limits.local_ports,),
        expects="host.local_port_range",
    ),
    *(
        Trait(
            name,
            f"file:/proc/sys/net/{folder}/{name}",
            where_there(f"file:/proc/sys/net/{folder}/{name}", _spaced),
            expects=f"host.{name}",
        )
        for folder, name in (("core", "rmem_max"), ("core", "wmem_max"), ("ipv4", "tcp_rmem"), ("ipv4", "tcp_wmem"))
    ),
    Trait(
        "RDMA network namespaces",
        system_settings.NETNS,
        where_there(system_settings.NETNS),
        expects="host.rdma_namespaces",
    ),
    Trait("locked memory", facts.host.LIMITS, _memlock, judged_by=(limits.memlock,), expects="host.memlock"),
)


@check(
    "fleet.host",
    title="BIOS, processor, kernel and limits are the same on all nodes",
    fault="A node's BIOS, processor, kernel or limits differ",
    impact="drifts",
    source="https://docs.kernel.org/admin-guide/ (kernel-parameters, sysctl); server vendors' tuning guides: one "
    "profile for all; majority of at least 3 nodes and 60%",
    fix="Compare the BIOS profile (`dmidecode -t bios`), image and `tuned-adm active` of a node from each side; "
    "decide which is right and apply it to all.",
    action="fix-site",
    scope="fleet",
)
def host_settings(nodes: Sequence[NodeFacts], sites: Mapping[str, Site]) -> Iterator[Finding]:
    """Compare firmware, processors, memory, drives, mounts, kernel and limits.

    ## Why it matters
    A job runs at the pace of its slowest node. If a different BIOS profile or governor costs one node a few per cent,
    all other nodes wait for it in every step. A node with less memory can end the job.

    ## Verdicts
    Each value that differs warns. Boot options that name a disk, an image or the node are ignored; memory within 1%
    counts as equal. Permanent mounts of disks and network file systems are compared by path and type; mounts by an
    automounter, a job or a container are ignored. A node that fails the check of a value (governor, boot options,
    locked memory, …) does not vote on it.

    ## False alarms
    Nodes from two deliveries; give each delivery its own class in the cluster file.
    """
    yield from compare(nodes, sites, HOST)
