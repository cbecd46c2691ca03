"""A DGX H100 on RoCE seen from one of its Kubernetes pods: hidden parts, and networks from Multus.

The pod has all eight GPUs and the eight rails as secondary networks; RDMA devices are shared, so those of storage are
listed too, without an interface. Its image has no lspci, systemctl or chronyc and may not read the kernel's log. The
annotation follows the Kubernetes Network Custom Resource Definition De-facto Standard, the pod's state in the API the
Kubernetes API reference.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from preflight.facts.container import ANNOTATIONS, STATUS
from preflight.facts.kernel_log import DMESG
from preflight.facts.pod import POD
from preflight.parsers.host.services import FABRIC_MANAGER, SERVICES
from tests.support.machines.machine import Machine, Nic, hgx_h100
from tests.support.machines.platform import Platform
from tests.support.machines.records import ok, ran

NAME = "hgx-h100-pod"

PLATFORM = Platform(
    origin="wiring after the DGX H100 user guide, seen from a pod with Multus networks (de-facto standard 1.3)"
)

#: Programs missing in the pod's image.
NO_TOOL = {"status": "missing", "why": "there is no such tool"}

HIDDEN: dict[str, Any] = {
    "cmd:lspci -Dnvv": NO_TOOL,
    "cmd:lldpcli -f json0 show neighbors details": NO_TOOL,
    "cmd:chronyc -n tracking": NO_TOOL,
    "cmd:timedatectl show": NO_TOOL,
    SERVICES: NO_TOOL,
    FABRIC_MANAGER: NO_TOOL,
    DMESG: ran("", 1, "dmesg: read kernel buffer failed: Operation not permitted\n"),
}

#: The RDMA resource of the shared device plug-in.
RESOURCE = "rdma/hca_shared_devices_a"

NETWORKS = tuple(f"rdma/rail-{rail}" for rail in range(8))

CLUSTER = f"""# Training pods on a site of DGX H100 nodes with RoCE; made by hand.
[cluster]
name = "pod-example"

[class.pod]
nodes = "{NAME}"
gpus = 8
hcas = 8

[class.pod.ports]
compute = "mlx5_[0,3-6,9-11]"
storage = "mlx5_[1-2,7-8]"
link_layer = "Ethernet"
rate_gbps = 400
mtu = 4096
netdev_mtu = 9000
load_balancing = "spray"
networks = {json.dumps(NETWORKS)}
resources = ["{RESOURCE}"]

[class.pod.qos]
lossless = true
pfc_priority = 3
ecn = true

[class.pod.checkpoint]
path = "/shared/checkpoints"
interval_min = 30
"""


def pod(name: str = NAME) -> Machine:
    """Describe a healthy pod."""
    host = hgx_h100(name, roce=True)
    rails = [nic.device for nic in host.nics if nic.gpu is not None]
    nics = tuple(
        replace(nic, interface=f"net{rails.index(nic.device) + 1}") if nic.device in rails else replace(nic, here=False)
        for nic in host.nics
    )
    return given(replace(
        host, nics=nics, platform=PLATFORM, where="container", management="eth0", default_route="eth0",
        env={"KUBERNETES_SERVICE_HOST": "192.0.2.129", "NVIDIA_VISIBLE_DEVICES": "all"},
        records={**HIDDEN, POD: requesting({"nvidia.com/gpu": "8", RESOURCE: "1"})},
    ), NETWORKS)  # fmt: skip


def requesting(resources: Mapping[str, str], restarts: int = 0, ended: str = "") -> dict[str, Any]:
    """Return the API record of a pod with one container that requests these resources."""
    main = {"name": "main", "init": False, "privileged": False, "claims": [], "restarts": restarts, "ended": ended}
    return {"status": "ok", "value": {
        "namespace": "training", "name": "trainer-0", "node": "gpu001", "host_network": False, "annotations": {},
        "containers": [{**main, "limits": dict(resources), "requests": dict(resources)}],
    }}  # fmt: skip


def given(machine: Machine, networks: Sequence[str]) -> Machine:
    """Write the pod's annotation: the cluster's own network, and these."""
    rails = [nic for nic in machine.nics if nic.gpu is not None]
    status: list[dict[str, Any]] = [
        {"name": "cilium", "interface": "eth0", "ips": ["192.0.2.1"], "default": True, "dns": {}}
    ]
    status += [_network(name, nic, rail) for rail, (name, nic) in enumerate(zip(networks, rails, strict=False))]
    text = f"{STATUS[0]}={json.dumps(json.dumps(status))}\n"
    return replace(machine, records={**machine.records, ANNOTATIONS[0]: ok(text)})


def _network(name: str, nic: Nic, rail: int) -> dict[str, Any]:
    return {
        "name": name, "interface": nic.interface, "ips": [f"10.{rail}.0.1"], "dns": {},
        "device-info": {
            "type": "pci", "version": "1.1.0", "pci": {"pci-address": nic.address, "rdma-device": nic.device},
        },
    }  # fmt: skip


NODES = {NAME: (pod, CLUSTER)}
