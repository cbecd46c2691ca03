"""AWS p5.48xlarge: eight H100 and 32 EFA devices, four beside each GPU on its PCIe switch.

PCI addresses, ids, the form of GUIDs and the link of a device follow public outputs of lstopo and ibv_devinfo on such
machines; sysfs follows the kernel's drivers/infiniband/hw/efa. The hypervisor shows the switches.
"""

from __future__ import annotations

from tests.support.machines.machine import Gpu, Machine, Nic
from tests.support.machines.platform import InstalledFunction, NicModel, Platform

NAME = "aws-p5"

#: EFA of the second generation: 100 Gb/s each.
EFA_2 = NicModel("1D0F:EFA1", "", 0xEFA1, "0.0.0.0", "", "16.0 GT/s PCIe", lanes=8, driver="efa")

PLATFORM = Platform(
    origin="shape of AWS's p5.48xlarge after public outputs of lstopo and ibv_devinfo",
    kernel="6.8.0-1021-aws",
    boot_options="BOOT_IMAGE=/boot/vmlinuz-6.8.0-1021-aws root=PARTUUID=5d0f8a11 ro console=tty1 console=ttyS0"
    " nvme_core.io_timeout=4294967295 panic=-1",
    functions=(
        InstalledFunction("0000:00:00.0", "60000", "8086:1237"),
        InstalledFunction("0000:3d:00.0", "20000", "1D0F:EC20", "ena"),
    ),
    modules=("ena", "nvme"),
)

CLUSTER = f"""# A site of AWS p5.48xlarge; made by hand.
[cluster]
name = "aws-example"

[class.p5]
nodes = "{NAME}"
gpus = 8
hcas = 32

[class.p5.ports]
rate_gbps = 100

[class.p5.checkpoint]
path = "/shared/checkpoints"
interval_min = 30
"""

#: Bus of the root port of each switch; its four EFA devices begin eleven buses above, its GPU follows them.
ROOTS = tuple(0x44 + 0x11 * number for number in range(8))


def aws_p5(name: str = NAME) -> Machine:
    """Describe a healthy node: DMA-BUF and no peer-memory module, no IOMMU of its own."""
    gpus, nics = list[Gpu](), list[Nic]()
    for number, root in enumerate(ROOTS):
        numa = number // 4
        nics += [
            Nic(
                f"rdmap{bus}s0", bus, numa=numa, gpu=number, rate="100 Gb/sec (4X EDR)", model=EFA_2, lanes=8,
                layer="Unspecified", here=False, above=_switch(root, place), max_read_request=512, gbps=75.0,
            )
            for place, bus in enumerate(range(root + 11, root + 15), start=1)
        ]  # fmt: skip
        gpus.append(Gpu(root + 15, numa, above=_switch(root, 0)))
    return Machine(
        name, tuple(gpus), tuple(nics), cpus=("0-47,96-143", "48-95,144-191"), allowed_cpus="0-191", where="vm",
        iommu="", governor="", without_modules=("ipmi_si",), peer_modules=(), shm_gib=1000, management="enp61s0",
        default_route="enp61s0", platform=PLATFORM,
        settings={"/sys/module/efa/version": "2.13.0g"},
    )  # fmt: skip


def _switch(root: int, port: int) -> tuple[str, ...]:
    """Return root port, upstream port and a downstream port of a PCIe switch."""
    return f"0000:{root:02x}:00.0", f"0000:{root + 1:02x}:00.0", f"0000:{root + 2:02x}:{port:02x}.0"


NODES = {NAME: (aws_p5, CLUSTER)}
