"""A node's identity and the settings of its kernel and firmware: files of /proc, /sys and /etc.

The formats are those of machine-id(5), proc(5), Documentation/ABI/testing/sysfs-class-infiniband, the JSON that the
CUDA toolkit installs, and `nvidia-ctk --version`. Names and versions are made up.
"""

from __future__ import annotations

import json

from tests.support.machines.hcas import guid, verbs
from tests.support.machines.machine import Machine, Nic
from tests.support.machines.records import MISSING, Records, ok, ran

DMI = "file:/sys/class/dmi/id"
CPUINFO = "cmd:head -c 2048 /proc/cpuinfo"
TOOLKIT = "cmd:nvidia-ctk --version"

#: Model of the first CPU, by architecture and vendor of the host bridge.
_CPUS = {
    "8086": ("GenuineIntel", "Intel(R) Xeon(R) Platinum 8480C", "0x2b0005c0"),
    "1022": ("AuthenticAMD", "AMD EPYC 7742 64-Core Processor", "0x8301072"),
}


def files(machine: Machine) -> dict[str, str]:
    """Return path -> content of the plain files; ``Machine.settings`` changes them."""
    number = machine.number
    total_kib = 2113661788
    nodes = "".join(f"192.0.2.{host}\n" for host in range(1, 19))
    found = {
        "/proc/sys/kernel/random/boot_id": f"5e0d3c52-0000-4000-8000-{number:012x}",
        "/proc/sys/kernel/hostname": machine.name,
        "/sys/class/dmi/id/bios_version": "1.06.07",
        "/sys/class/dmi/id/bios_date": "05/14/2025",
        "/sys/class/dmi/id/product_name": "made-up 8U server",
        "/proc/meminfo": f"MemTotal:       {total_kib + 128 * (number % 3)} kB\nMemFree:        {total_kib // 2} kB",
        "/sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never",
        "/proc/sys/vm/nr_hugepages": "0",
        "/proc/sys/net/core/rmem_max": "212992",
        "/proc/sys/net/core/wmem_max": "212992",
        "/proc/sys/net/ipv4/tcp_rmem": "4096\t131072\t6291456",
        "/proc/sys/net/ipv4/tcp_wmem": "4096\t16384\t4194304",
        "/sys/module/ib_core/parameters/netns_mode": "Y",
        "/sys/module/mlx5_core/version": "24.10-2.1.8",
        "/usr/local/cuda/version.json": json.dumps(
            {"cuda": {"name": "CUDA SDK", "version": f"{machine.platform.cuda}.1"}}
        ),
    }
    if machine.imex:
        found["/etc/nvidia-imex/nodes_config.cfg"] = nodes.rstrip("\n")
    for socket, cpus in enumerate(machine.cpus if len(machine.cpus) <= 2 else (machine.cpus[0], machine.cpus[-1])):
        first = next((part for part in cpus.split(",") if part), "0").partition("-")[0]
        tens = -(-int(first) // 10) * 10
        found[f"/sys/devices/system/cpu/cpu{tens}/topology/physical_package_id"] = str(socket)
    return found | dict(machine.settings)


def render(machine: Machine) -> Records:
    records: Records = {f"file:{path}": ok(f"{text}\n") for path, text in files(machine).items()}
    machine_id = machine.settings.get("/etc/machine-id", f"{0x9B1D << 48 | machine.number:016x}")
    records["file:/etc/machine-id"] = ok(f"{machine_id}\n")  # a digest, in the collector's form
    records["file:/proc/net/vlan/config"] = MISSING
    if not machine.imex:
        records["file:/etc/nvidia-imex/nodes_config.cfg"] = MISSING
    records[CPUINFO] = ran(_cpuinfo(machine))
    records[TOOLKIT] = ran(
        "NVIDIA Container Toolkit CLI version 1.17.4\ncommit: 0123456789abcdef0123456789abcdef01234567\n"
    )
    records["cmd:ofed_info -s"] = ran("OFED-internal-24.10-2.1.8:\n")
    own = f"02:00:{machine.number >> 24 & 255:02x}:{machine.number >> 16 & 255:02x}"
    records[f"file:/sys/class/net/{machine.management}/address"] = ok(
        f"{own}:{machine.number >> 8 & 255:02x}:{machine.number & 255:02x}\n"
    )
    for _, nic in verbs(machine):
        if nic.here:
            records[f"file:/sys/class/net/{nic.netdev(machine.roce)}/address"] = ok(f"{_mac(machine, nic)}\n")
    changed = {path: text for path, text in machine.settings.items() if path.startswith(("cmd:", "file:"))}
    return {**records, **{key: ran(text) for key, text in changed.items()}}


def _mac(machine: Machine, nic: Nic) -> str:
    """Return the MAC of a port: six bytes of its GUID for Ethernet, twenty bytes that end in it for IPoIB."""
    octets = bytes.fromhex(guid(machine, nic).replace(":", ""))
    if not nic.ethernet(machine.roce):
        octets = bytes.fromhex("00000048") + nic.prefix.to_bytes(8, "big") + octets
    else:
        octets = b"\x02" + octets[3:]
    return ":".join(f"{octet:02x}" for octet in octets)


def _cpuinfo(machine: Machine) -> str:
    if machine.platform.architecture != "x86_64":
        return (
            "processor\t: 0\nBogoMIPS\t: 2000.00\nFeatures\t: fp asimd evtstrm aes\nCPU implementer\t: 0x41\n"
            "CPU architecture: 8\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\nCPU revision\t: 0\n\nprocessor\t: 1\n"
        )
    vendor = machine.platform.functions[0].ids.split(":")[0] if machine.platform.functions else "8086"
    name, model, microcode = _CPUS.get(vendor, _CPUS["8086"])
    return (
        f"processor\t: 0\nvendor_id\t: {name}\ncpu family\t: 6\nmodel\t\t: 143\nmodel name\t: {model}\nstepping\t: 8\n"
        f"microcode\t: {microcode}\ncpu MHz\t\t: 2000.000\ncache size\t: 107520 KB\nphysical id\t: 0\nflags\t\t: fpu"
    )
