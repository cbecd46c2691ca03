"""The PCI bus as shown by sysfs."""

from __future__ import annotations

from tests.support.machines.machine import Gpu, Machine, Nic
from tests.support.machines.records import Records, link, listing, ok


def _path(bus: int, below: int, function: int = 0) -> str:
    """Place a device below a PCIe switch with the first bus of its group as upstream port."""
    root = below - 4
    return (
        f"../../../devices/pci0000:{root:02x}/0000:{root:02x}:01.0/0000:{root + 1:02x}:00.0/"
        f"0000:{root + 2:02x}:{0 if bus == below else 1:02x}.0/0000:{bus:02x}:00.{function}"
    )


def _handed_in(machine: Machine, address: str) -> str:
    """Place a passed-through device on a separate root bus without a visible bridge."""
    return f"../../../devices/{machine.platform.vmbus}/pci{address.rpartition(':')[0]}/{address}"


def distance(one: Gpu | Nic, other: Gpu | Nic) -> str:
    """Return the code of ``nvidia-smi topo -m`` for two devices with known bridges."""
    shared = 0
    while shared < min(len(one.above), len(other.above)) and one.above[shared] == other.above[shared]:
        shared += 1
    if shared:
        return "PIX" if max(len(one.above), len(other.above)) - shared <= 1 else "PXB"
    if one.above[0].rpartition(":")[0] == other.above[0].rpartition(":")[0]:
        return "PHB"
    return "NODE" if one.numa == other.numa else "SYS"


def _below(above: tuple[str, ...], address: str) -> str:
    """Place a device below the bridges that its description names."""
    return f"../../../devices/pci{above[0].rpartition(':')[0]}/{'/'.join(above)}/{address}"


def nic_path(machine: Machine, nic: Nic) -> str:
    if machine.platform.vmbus:
        return _handed_in(machine, nic.address)
    if nic.above:
        return _below(nic.above, nic.address)
    if nic.gpu is None:
        return f"../../../devices/pci0000:{nic.bus - 1:02x}/0000:{nic.bus - 1:02x}:01.0/{nic.address}"
    return _path(nic.bus, nic.bus)


def render(machine: Machine) -> Records:
    functions: list[tuple[str, str, str, str, str, int]] = []  # address, target, class, id, driver, numa
    for index, gpu in enumerate(machine.gpus):
        near = next((nic for nic in machine.nics if nic.gpu == index), None)
        target = _below(gpu.above, gpu.address) if gpu.above else _path(gpu.bus, near.bus if near else gpu.bus)
        if machine.platform.vmbus:
            target = _handed_in(machine, gpu.address)
        if gpu.on_bus:
            driver = "nvidia" if machine.driver_loaded else ""
            functions.append((gpu.address, target, "30200", f"10DE:{machine.gpu_id}", driver, gpu.numa))
    for nic in machine.nics:
        kind = "20000" if nic.ethernet(machine.roce) or nic.efa else "20700"
        functions.append((nic.address, nic_path(machine, nic), kind, nic.model.pci_id, nic.model.driver, nic.numa))
    for bus in machine.nvswitches:
        address = f"{bus >> 8:04x}:{bus & 0xFF:02x}:00.0"
        target = f"../../../devices/pci0000:00/0000:00:02.0/{address}"
        if machine.platform.vmbus:
            target = _handed_in(machine, address)
        ids = f"10DE:{machine.platform.nvswitch_id}"
        functions.append((address, target, "68000", ids, "nvidia-nvswitch", machine.platform.nvswitch_numa))
    for one in machine.platform.functions:
        target = f"../../../devices/pci{one.address.rsplit(':', 1)[0]}/{one.address}"
        functions.append((one.address, target, one.kind, one.ids, one.driver, one.numa))
    records: Records = {
        "dir:/sys/bus/pci/devices": listing({address: link(target) for address, target, *_ in functions})
    }
    for address, _, kind, ids, driver, numa in functions:
        base = f"file:/sys/bus/pci/devices/{address}"
        uevent = (f"DRIVER={driver}\n" if driver else "") + f"PCI_CLASS={kind}\nPCI_ID={ids}\nPCI_SLOT_NAME={address}\n"
        records[f"{base}/uevent"] = ok(uevent)
        records[f"{base}/numa_node"] = ok(f"{numa}\n")
        records[f"{base}/local_cpulist"] = ok(f"{machine.local_cpus(numa)}\n")
    return records
