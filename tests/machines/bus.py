"""The PCI bus, as sysfs shows it."""

from __future__ import annotations

from tests.machines.machine import Machine, Nic
from tests.machines.records import Records, link, listing, ok


def _path(bus: int, below: int, function: int = 0) -> str:
    """Place a device below a PCIe switch whose upstream port is the first bus of its group."""
    root = below - 4
    return (
        f"../../../devices/pci0000:{root:02x}/0000:{root:02x}:01.0/0000:{root + 1:02x}:00.0/"
        f"0000:{root + 2:02x}:{0 if bus == below else 1:02x}.0/0000:{bus:02x}:00.{function}"
    )


def nic_path(machine: Machine, nic: Nic) -> str:
    if nic.gpu is None:
        return f"../../../devices/pci0000:{nic.bus - 1:02x}/0000:{nic.bus - 1:02x}:01.0/{nic.address}"
    return _path(nic.bus, nic.bus)


def render(machine: Machine) -> Records:
    functions: list[tuple[str, str, str, str, str, int]] = []  # address, target, class, id, driver, numa
    for index, gpu in enumerate(machine.gpus):
        near = next((nic for nic in machine.nics if nic.gpu == index), None)
        target = _path(gpu.bus, near.bus if near else gpu.bus)
        if gpu.on_bus:
            address = f"0000:{gpu.bus:02x}:00.0"
            driver = "nvidia" if machine.driver_loaded else ""
            functions.append((address, target, "30200", f"10DE:{machine.gpu_id}", driver, gpu.numa))
    for nic in machine.nics:
        kind = "20000" if machine.roce else "20700"
        functions.append((nic.address, nic_path(machine, nic), kind, "15B3:1021", "mlx5_core", nic.numa))
    for bus in machine.nvswitches:
        address = f"0000:{bus:02x}:00.0"
        target = f"../../../devices/pci0000:00/0000:00:02.0/{address}"
        functions.append((address, target, "68000", "10DE:22A3", "nvidia-nvswitch", 0))
    functions.append(("0000:00:00.0", "../../../devices/pci0000:00/0000:00:00.0", "60000", "8086:09A2", "", 0))
    records: Records = {
        "dir:/sys/bus/pci/devices": listing({address: link(target) for address, target, *_ in functions})
    }
    for address, _, kind, ids, driver, numa in functions:
        base = f"file:/sys/bus/pci/devices/{address}"
        uevent = (f"DRIVER={driver}\n" if driver else "") + f"PCI_CLASS={kind}\nPCI_ID={ids}\nPCI_SLOT_NAME={address}\n"
        records[f"{base}/uevent"] = ok(uevent)
        records[f"{base}/numa_node"] = ok(f"{numa}\n")
        records[f"{base}/local_cpulist"] = ok(f"{machine.cpus[numa]}\n")
    return records
