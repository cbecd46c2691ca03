"""The operating system: addresses, sysctls, clock, governor, installed libraries, checkpoints."""

from __future__ import annotations

import ipaddress
from typing import Any

from preflight.facts.sharp_files import FILES as SHARP
from preflight.facts.versions import LIBRARIES
from preflight.probes.declared import checkpoints
from preflight.probes.node import PROBES
from tests.support.machines.hcas import address, management_address, verbs
from tests.support.machines.machine import Machine
from tests.support.machines.records import DIRECTORY, MISSING, Records, listing, ok, ran

#: A mount over the management network; the server has an address from a documentation block.
NFS = (
    "512 29 0:61 / /shared rw,relatime shared:271 - nfs4 192.0.2.200:/shared rw,vers=4.2,rsize=1048576,wsize=1048576,"
    "namlen=255,hard,proto=tcp,nconnect=8,timeo=600,retrans=2,sec=sys,clientaddr=192.0.2.21,local_lock=none,"
    "addr=192.0.2.200\n"
)

COLLECTED_AT_S = 1795230000  # 2026-11-21T03:00:00Z
CHECKPOINTS = "/shared/checkpoints"


def render(machine: Machine) -> Records:
    return _network(machine) | _sysctls(machine) | _clock(machine) | _software(machine) | _checkpoints(machine)


def _entry(address: str) -> dict[str, Any]:
    interface = ipaddress.ip_interface(address)
    return {"family": f"inet{'6' if interface.version == 6 else ''}", "address": str(interface.ip),
            "netmask": str(interface.netmask)}  # fmt: skip


def _network(machine: Machine) -> Records:
    """Rail i has 10.i.0.0/31; the management interface has addresses from a documentation block."""
    addresses: dict[str, list[dict[str, Any]]] = {
        "lo": [_entry("127.0.0.1/8")], machine.management: [_entry(management_address(machine))],
    }  # fmt: skip
    for nic in (nic for _, nic in verbs(machine) if nic.here):
        found = address(machine, nic)
        addresses[nic.netdev(machine.roce)] = [_entry(found)] if found else []
    head = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
    own = ipaddress.IPv4Interface(management_address(machine)).network
    gateway, network, mask = (_hex(one) for one in (own.broadcast_address - 1, own.network_address, own.netmask))
    default = f"{machine.default_route}\t00000000\t{gateway}\t0003\t0\t0\t100\t00000000\t0\t0\t0\n"
    local = f"{machine.management}\t{network}\t00000000\t0001\t0\t0\t100\t{mask}\t0\t0\t0\n"
    return {
        "psutil:net_if_addrs": {"status": "ok", "value": addresses},
        "file:/proc/net/route": ok(head + default + local),
    }


def _hex(address: ipaddress.IPv4Address) -> str:
    """Write an address as /proc/net/route does, its last byte first."""
    return address.packed[::-1].hex().upper()


def _sysctls(machine: Machine) -> Records:
    names = ["all", machine.management, *(nic.netdev(machine.roce) for _, nic in verbs(machine) if nic.here)]
    values = {"arp_ignore": machine.arp[0], "arp_announce": machine.arp[1], "rp_filter": 2}
    return {
        **{f"file:/proc/sys/net/ipv4/conf/{name}/{key}": ok(f"{value}\n")
           for name in names for key, value in values.items()},
        "file:/proc/sys/kernel/numa_balancing": ok(f"{machine.numa_balancing}\n"),
        **_cpufreq(machine),
    }  # fmt: skip


def _cpufreq(machine: Machine) -> Records:
    base = "/sys/devices/system/cpu/cpufreq"
    if not machine.governor:
        return {f"dir:{base}": MISSING}
    return {
        f"dir:{base}": listing(dict.fromkeys(("policy0", "policy1"), DIRECTORY)),
        f"file:{base}/policy0/scaling_governor": ok(f"{machine.governor}\n"),
    }


def _clock(machine: Machine) -> Records:
    side = "fast" if machine.clock_offset_s >= 0 else "slow"
    tracking = (
        "Reference ID    : C0000203 (192.0.2.3)\nStratum         : 3\nRef time (UTC)  : Sat Nov 21 02:58:41 2026\n"
        f"System time     : {abs(machine.clock_offset_s):.9f} seconds {side} "
        "of NTP time\nLast offset     : +0.000011219 seconds\nRMS offset      : 0.000023127 seconds\n"
        "Frequency       : 12.164 ppm slow\nResidual freq   : +0.001 ppm\nSkew            : 0.024 ppm\n"
        "Root delay      : 0.001124312 seconds\nRoot dispersion : 0.000402113 seconds\n"
        "Update interval : 64.4 seconds\nLeap status     : Normal\n"
    )
    return {"cmd:chronyc -n tracking": ran(tracking)}


def _software(machine: Machine) -> Records:
    folder = machine.platform.libraries
    driver = machine.userland_driver or machine.driver
    lines = []
    for stem, size in (("libcuda", 64_000_000), ("libnvidia-ml", 2_100_000), ("libnvidia-ptxjitcompiler", 28_000_000)):
        actual = 0 if stem == machine.empty_library else size
        lines += [f"{actual} {folder}/{stem}.so.{driver} ", f"{len(stem) + 14} {folder}/{stem}.so.1 {stem}.so.{driver}"]
    nccl = "2.26.2"
    lines += [f"17 {folder}/libnccl.so.2 libnccl.so.{nccl}", f"253000000 {folder}/libnccl.so.{nccl} "]
    wheel = "/usr/local/lib/python3.10/dist-packages/nvidia_nccl_cu12-{}.dist-info/INSTALLER"
    records: Records = {LIBRARIES: ran("\n".join(lines) + "\n", 1, "find: '/usr/lib64': No such file or directory\n")}
    records |= {probe.key: MISSING for probe in PROBES if probe.key.endswith(".dist-info/INSTALLER")}
    records[SHARP] = ran("", 1, "find: '/usr/lib64': No such file or directory\n")
    if machine.bundled_nccl:
        records[f"file:{wheel.format(machine.bundled_nccl)}"] = ok("pip\n")
    return records


def _checkpoints(machine: Machine) -> Records:
    at = COLLECTED_AT_S - machine.checkpoint_age_min * 60
    listed = f"{at - 1800}.0000000000 d \n{at - 1800}.2500000000 d step-11000\n{at}.5000000000 d step-12000\n"
    return {checkpoints(CHECKPOINTS).key: ran(listed)}
