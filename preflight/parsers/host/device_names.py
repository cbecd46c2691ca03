"""Linux names of disks and network interfaces."""

from __future__ import annotations

import re

#: Devices that contain no data of the node: optical drives (also a BMC's virtual ones), floppies, loops, RAM disks.
_NO_DISK = re.compile(r"(?:sr|fd|loop|ram|zram|scd)\d")
#: A device; a partition has its disk as a group.
_PARTITION = re.compile(r"((?:nvme\d+(?:c\d+)?n|mmcblk|md|nbd)\d+)p\d+|((?:sd|vd|hd|xvd)[a-z]{1,4})\d+|(.*)")
#: Interfaces that never have a cable, or are on USB.
_VIRTUAL = re.compile(
    r"(?:veth|docker|podman|nerdctl|cni|kube-|nodelocaldns|cali|cilium|virbr|vnet|tap|tun|br-|lxc|lxd|flannel|vxlan|geneve"
    r"|dummy|ifb|ip6tnl|sit\d|gre|erspan|azv|eni[0-9a-f]{8}|lo$|usb|enx)"
)

#: Predictable name of an interface on the second port or function of a card.
_SECOND_PORT = re.compile(r"(?:en|ib|ibp|wl)\w{1,12}?(?:f[1-9]\d?(?:np\d{1,2}|d\d)?|(?<!f0)np[1-9])")


def disk_of(device: str) -> str:
    """Return the disk of a partition; any other device is returned unchanged."""
    match = _PARTITION.fullmatch(device)
    return next(part for part in match.groups() if part is not None) if match else device


def holds_data(device: str) -> bool:
    """Return whether a block device may contain data of the node."""
    return _NO_DISK.match(device) is None


def is_virtual(interface: str) -> bool:
    """Return whether an interface is virtual or on USB, judging by its name."""
    return _VIRTUAL.match(interface) is not None


def is_second_port(interface: str) -> bool:
    """Return whether a name is that of an interface beyond its card's first port."""
    return _SECOND_PORT.fullmatch(interface) is not None
