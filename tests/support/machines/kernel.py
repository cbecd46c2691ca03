"""The kernel and PCIe: modules, IOMMU groups, link of each NIC, ``lspci -Dnvv`` as root prints it."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.support.machines import bus
from tests.support.machines.hcas import verbs
from tests.support.machines.machine import Machine
from tests.support.machines.records import DIRECTORY, MISSING, Records, listing, ok, ran

#: In addition to the drivers: modules of an Ubuntu server with DOCA-OFED, shortened.
_MODULES = ("ext4", "md_mod", "nvme", "nvme_core", "sunrpc", "nfs", "ipmi_si", "processor", "kernel", "pcie_aspm")
_RDMA = ("ib_core", "ib_uverbs", "ib_umad", "ib_cm", "rdma_cm", "rdma_ucm", "mlx5_core", "mlx5_ib")
_EFA = ("ib_core", "ib_uverbs", "efa")
_NVIDIA = ("nvidia", "nvidia_uvm", "nvidia_modeset")

_ADDRESS = re.compile(r"[0-9a-f]{4}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")


def render(machine: Machine) -> Records:
    return _modules(machine) | _iommu(machine) | _links(machine) | {"cmd:lspci -Dnvv": ran(_lspci(machine))}


def _modules(machine: Machine) -> Records:
    loaded = [*_MODULES, *machine.platform.modules, *_of_nics(machine)]
    if machine.driver_loaded:
        loaded += [*_NVIDIA, *machine.peer_modules]
    present = sorted(set(loaded) - set(machine.without_modules))
    return {"dir:/sys/module": listing(dict.fromkeys(present, DIRECTORY))}


def _of_nics(machine: Machine) -> tuple[str, ...]:
    if any(nic.efa for nic in machine.nics):
        return _EFA
    return _RDMA if machine.nics else ()


def _iommu(machine: Machine) -> Records:
    gpus = [gpu.address for gpu in machine.gpus if gpu.on_bus and machine.driver_loaded]
    keys = [f"file:/sys/bus/pci/drivers/nvidia/{address}/iommu_group/type" for address in gpus]
    keys += [f"file:/sys/class/infiniband/{nic.device}/device/iommu_group/type" for _, nic in verbs(machine)]
    groups = [str(number) for number in range(len(keys))] if machine.iommu else []
    return {
        "dir:/sys/kernel/iommu_groups": listing(dict.fromkeys(groups, DIRECTORY)),
        **{key: ok(f"{machine.iommu}\n") if machine.iommu else MISSING for key in keys},
    }


def _links(machine: Machine) -> Records:
    records: Records = {}
    for _, nic in verbs(machine):
        base = f"file:/sys/class/infiniband/{nic.device}/device"
        records[f"{base}/current_link_width"] = ok(f"{nic.lanes}\n")
        records[f"{base}/max_link_width"] = ok(f"{nic.model.lanes}\n")
        trained = nic.speed or nic.model.link_speed
        records[f"{base}/current_link_speed"] = ok(f"{trained if nic.lanes else 'Unknown'}\n")
        records[f"{base}/max_link_speed"] = ok(f"{nic.model.link_speed}\n")
    return records


def _lspci(machine: Machine) -> str:
    """Print every function of the bus, and the bridges above them, since sysfs lists only endpoints here."""
    records = bus.render(machine)
    targets = {name: entry["target"] for name, entry in records["dir:/sys/bus/pci/devices"]["entries"].items()}
    above = {part for target in targets.values() for part in target.split("/")[:-1] if _ADDRESS.fullmatch(part)}
    blocks: dict[str, str] = {}
    nics = {nic.address: nic for nic in machine.nics}
    for address in targets:
        uevent = records[f"file:/sys/bus/pci/devices/{address}/uevent"]["out"]
        values = dict(line.split("=", 1) for line in uevent.splitlines())
        kind, ids = values["PCI_CLASS"].rjust(6, "0")[:4], values["PCI_ID"].lower()
        if kind == "0604":
            above.add(address)
            continue
        request = nics[address].max_read_request if address in nics else 512
        relaxed = address not in nics or nics[address].relaxed_ordering
        blocks[address] = "\n".join(_endpoint(address, kind, ids, request, relaxed))
    known = {one.address: one.ids.lower() for one in machine.platform.functions}
    blocks |= {address: "\n".join(_bridge(machine, address, known.get(address, "1000:c030"))) for address in above}
    return "\n\n".join(text for _, text in sorted(blocks.items())) + "\n\n"


def _bridge(machine: Machine, address: str, ids: str) -> Iterator[str]:
    yield f"{address} 0604: {ids} (rev b0) (prog-if 00 [Normal decode])"
    yield "\tControl: I/O+ Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop- ParErr+ Stepping- SERR+ FastB2B- DisINTx+"
    yield "\tCapabilities: [68] Express (v2) Downstream Port (Slot+), MSI 00"
    yield "\t\tDevCtl:\tCorrErr+ NonFatalErr+ FatalErr+ UnsupReq+"
    yield "\t\t\tRlxdOrd+ ExtTag+ PhantFunc- AuxPwr- NoSnoop+"
    yield "\t\t\tMaxPayload 512 bytes, MaxReadReq 128 bytes"
    yield "\tCapabilities: [154 v1] Access Control Services"
    yield "\t\tACSCap:\tSrcValid+ TransBlk+ ReqRedir+ CmpltRedir+ UpstreamFwd+ EgressCtrl+ DirectTrans+"
    controls = ("SrcValid", "TransBlk", "ReqRedir", "CmpltRedir", "UpstreamFwd", "EgressCtrl", "DirectTrans")
    on = machine.acs if not machine.acs_on or address in machine.acs_on else ()
    yield "\t\tACSCtl:\t" + " ".join(f"{name}{'+' if name in on else '-'}" for name in controls)


def _endpoint(address: str, kind: str, ids: str, request: int, relaxed: bool) -> Iterator[str]:
    yield f"{address} {kind}: {ids} (rev a1)"
    yield "\tControl: I/O- Mem+ BusMaster+ SpecCycle- MemWINV- VGASnoop- ParErr+ Stepping- SERR+ FastB2B- DisINTx+"
    yield "\tCapabilities: [60] Express (v2) Endpoint, MSI 00"
    yield "\t\tDevCtl:\tCorrErr+ NonFatalErr+ FatalErr+ UnsupReq+"
    yield f"\t\t\tRlxdOrd{'+' if relaxed else '-'} ExtTag+ PhantFunc- AuxPwr- NoSnoop+ FLReset-"
    yield f"\t\t\tMaxPayload 256 bytes, MaxReadReq {request} bytes"
