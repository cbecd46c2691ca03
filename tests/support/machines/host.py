"""The host: limits, CPUs, memory, environment."""

from __future__ import annotations

from tests.support.machines.machine import Machine
from tests.support.machines.records import MISSING, Records, ok, ran


def render(machine: Machine) -> Records:
    soft = f"{machine.memlock:<20} {machine.memlock:<20}"
    return {
        "env:process": {"status": "ok", "value": dict(machine.env)},
        "cmd:find /dev -maxdepth 1 -name nvidia*": ran(_gpu_nodes(machine)),
        "cmd:find /dev -maxdepth 1 -name nvidia* -readable -writable": ran(_gpu_nodes(machine)),
        "file:/etc/nccl.conf": ok(machine.nccl_conf) if machine.nccl_conf else MISSING,
        "file:~/.nccl.conf": MISSING,
        "file:/proc/self/status": ok(
            "Name:\tpython3\nCapEff:\t0000000000000000\n"
            f"Cpus_allowed_list:\t{machine.allowed_cpus}\nMems_allowed_list:\t{machine.memory_nodes}\n"
        ),
        "file:/proc/self/limits": ok(
            "Limit                     Soft Limit           Hard Limit           Units     \n"
            f"Max open files            {machine.open_files:<20} 1048576              files     \n"
            f"Max locked memory         {soft} bytes     \n"
        ),
        **{
            f"file:/sys/devices/system/node/node{number}/cpulist": ok(f"{cpus}\n")
            for number, cpus in enumerate(machine.cpus)
        },
        "statvfs:/dev/shm": {
            "status": "ok",
            "value": {
                "total_bytes": int(machine.shm_gib * 2**30), "free_bytes": int(machine.shm_gib * 2**30),
                "type": "tmpfs",
            },
        },
        "file:/proc/sys/net/ipv4/ip_local_port_range": ok(machine.ports),
        "file:/proc/cmdline": ok(" ".join(filter(None, (machine.platform.boot_options, machine.boot_options))) + "\n"),
        "file:/proc/sys/kernel/osrelease": ok(f"{machine.platform.kernel}\n"),
    }  # fmt: skip


def _gpu_nodes(machine: Machine) -> str:
    if not machine.driver_loaded:
        return ""
    numbered = [f"nvidia{number}" for number, gpu in enumerate(machine.gpus) if gpu.on_bus]
    return "".join(f"/dev/{name}\n" for name in (*numbered, "nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"))
