"""A cluster file from a manifest of the GPU cluster monitor."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from preflight.learn.conversion.draft import Draft, Loss
from preflight.learn.conversion.writer import ConvertedClass
from preflight.nodeset import fold, is_name, unfold
from preflight.parsers.host.gcm_manifest import Manifest, parse

_RATE = re.compile(r"([0-9]{1,4}(?:\.[0-9]{1,3})?) Gb/sec(?: \([0-9]{1,2}X [A-Z0-9]{2,5}\))?")
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]", re.IGNORECASE)

#: Patterns for the kind of a ``pci`` entry, matched with its type, else with its device.
_KINDS = (
    ("gpu", re.compile(r"gpu|nvidia", re.IGNORECASE)),
    ("ib", re.compile(r"ib|infiniband|hca", re.IGNORECASE)),
    ("nvme", re.compile(r"nvme|ssd|disk|block", re.IGNORECASE)),
)
_BY_DEVICE = (
    ("gpu", re.compile(r"nvidia[0-9 ]|/nvidia", re.IGNORECASE)),
    ("ib", re.compile(r"(?:^|/)(?:ib|mlx)[a-z0-9_]*$", re.IGNORECASE)),
    ("nvme", re.compile(r"nvme", re.IGNORECASE)),
)


def convert_gcm(text: str, hosts: Sequence[str]) -> tuple[list[ConvertedClass], list[Loss]]:
    """Return the class of a manifest, and lines not converted; raises ValueError."""
    manifest = parse(text)
    draft = Draft()
    _pci(manifest, draft)
    _ib(manifest, draft)
    _disks(manifest, draft)
    for name in manifest.table("eth"):
        _at(manifest, draft, "eth", name)
        draft.lose("interfaces without RDMA have no key; ports.netdev_mtu is that of the rails")
    for name, value in manifest.values.items():
        if name not in ("pci", "ib", "disks", "eth"):
            _at(manifest, draft, name)
            draft.lose("has no counterpart")
        elif not isinstance(value, dict):
            _at(manifest, draft, name)
            draft.lose("is not a JSON object")
    for path in manifest.repeated:
        draft.at(manifest.line(*path), ".".join(path))
        draft.lose("occurs twice; the last value applies")
    classes = [ConvertedClass(tuple(sorted(set(hosts))), "", draft.entries)] if draft.entries else []
    return classes, sorted(set(draft.losses), key=lambda loss: (loss.line, loss.covered, loss.text, loss.reason))


def _at(manifest: Manifest, draft: Draft, *path: str) -> None:
    value: Any = manifest.values
    for name in path:
        value = value[name]
    shown = json.dumps(value) if not isinstance(value, (dict, list)) else "{…}" if isinstance(value, dict) else "[…]"
    draft.at(manifest.line(*path), f"{'.'.join(path)} = {shown[:80]}")


def _pci(manifest: Manifest, draft: Draft) -> None:
    kinds: dict[str, int] = {}
    for address, device in manifest.table("pci").items():
        _at(manifest, draft, "pci", address)
        if not _ADDRESS.fullmatch(address) or not isinstance(device, dict):
            draft.lose("is not a device by its PCI address")
            continue
        kind = _kind(device)
        kinds[kind] = kinds.get(kind, 0) + 1
        if kind == "gpu":
            draft.lose("PCI addresses of GPUs have no key: gpus is their number, and gpu.count names missing ones",
                       covered=True)  # fmt: skip
        elif kind == "ib":
            _rail(manifest, draft, address, device)
        elif kind != "nvme":
            draft.lose("devices other than GPUs, RDMA devices and NVMe have no key")
        _link(manifest, draft, address, device, kind)
        for name in device.keys() - {"type", "dev", "zone", "slot", "link_speed", "link_width"}:
            if name != "topology_critical" or device[name] is True:
                _at(manifest, draft, "pci", address, name)
                draft.lose("has no counterpart")
    for kind, path in (("gpu", ("gpus",)), ("ib", ("hcas",)), ("nvme", ("host", "nvme"))):
        if kinds.get(kind) and not (kind == "ib" and _interfaces(manifest)):
            _at(manifest, draft, "pci")
            draft.put(path, kinds[kind])


def _kind(device: Mapping[str, Any]) -> str:
    for text, kinds in ((device.get("type"), _KINDS), (device.get("dev"), _BY_DEVICE)):
        if isinstance(text, str):
            for kind, pattern in kinds:
                if (pattern.fullmatch if kinds is _KINDS else pattern.search)(text):
                    return kind
    return ""


def _rail(manifest: Manifest, draft: Draft, address: str, device: Mapping[str, Any]) -> None:
    """Declare the PCI address of an RDMA device named in the manifest."""
    interfaces = _interfaces(manifest)
    netdev = device.get("dev")
    name = interfaces.get(netdev.rsplit("/", 1)[-1]) if isinstance(netdev, str) else None
    if name is None:
        draft.lose("no entry of ib.interfaces names its RDMA device, so its address cannot be declared")
    else:
        draft.put(("rails", name, "pci"), address.lower())


def _interfaces(manifest: Manifest) -> dict[str, str]:
    """Return the RDMA device of each interface that names a valid one."""
    table = manifest.table("ib").get("interfaces")
    if not isinstance(table, dict):
        return {}
    devices = {name: body.get("mlx") for name, body in table.items() if isinstance(body, dict)}
    return {
        name: device for name, device in devices.items()
        if isinstance(device, str) and re.fullmatch(r"[A-Za-z][A-Za-z0-9_.-]{0,63}", device) and is_name(device)
    }  # fmt: skip


def _link(manifest: Manifest, draft: Draft, address: str, device: Mapping[str, Any], kind: str) -> None:
    check = {"gpu": "gpu.pcie-link", "ib": "pcie.nic-link"}.get(kind)
    for name in ("link_speed", "link_width"):
        if name in device and kind:
            _at(manifest, draft, "pci", address, name)
            if check:
                draft.lose(f"needs no key: {check} compares the link with the capabilities of both ends", covered=True)
            else:
                draft.lose("the PCIe links of drives have no key")


def _ib(manifest: Manifest, draft: Draft) -> None:
    table = manifest.table("ib")
    if not table:
        return
    _at(manifest, draft, "ib")
    draft.put(("ports", "link_layer"), "InfiniBand", "gcm requires it of each interface")
    if "link_rate" in table:
        _at(manifest, draft, "ib", "link_rate")
        match = _RATE.fullmatch(table["link_rate"]) if isinstance(table["link_rate"], str) else None
        if match:
            draft.put(("ports", "rate_gbps"), float(match[1]))
        else:
            draft.lose("is not a rate in Gb/sec")
    if "firmware_version" in table:
        _at(manifest, draft, "ib", "firmware_version")
        _firmware(draft, table["firmware_version"])
    devices = _interfaces(manifest)
    given = table.get("interfaces", {})
    if not isinstance(given, dict):
        _at(manifest, draft, "ib", "interfaces")
        draft.lose("is not a JSON object")
    for name in given if isinstance(given, dict) else ():
        if name not in devices:  # a name of an interface
            _at(manifest, draft, "ib", "interfaces", name)
            draft.lose("names no RDMA device (mlx)")
    if devices:
        _at(manifest, draft, "ib", "interfaces")
        names = sorted(set(devices.values()))
        folded = fold(names)
        draft.put(("ports", "compute"), folded if set(unfold(folded)) == set(names) else names)
        draft.put(("hcas",), len(names))
    for name in table.keys() - {"link_rate", "firmware_version", "interfaces"}:
        _at(manifest, draft, "ib", name)
        draft.lose("has no counterpart")


def _firmware(draft: Draft, versions: Any) -> None:
    draft.lose(f"firmware.nics needs versions by board (PSID), which the manifest lacks: {versions}")


def _disks(manifest: Manifest, draft: Draft) -> None:
    disks = manifest.table("disks")
    drives = [name for name, body in disks.items()
              if isinstance(body, dict) and "nvme" in str(body.get("blockdev", "")).lower()]  # fmt: skip
    for name in disks:
        if name not in drives:
            _at(manifest, draft, "disks", name)
            draft.lose("drives other than NVMe have no key")
        elif "size" in disks[name]:
            _at(manifest, draft, "disks", name, "size")
            draft.lose("the size of a drive has no key")
    if drives:
        _at(manifest, draft, "disks")
        draft.put(("host", "nvme"), len(drives))
