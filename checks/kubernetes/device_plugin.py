"""Checks of the RDMA resources of a pod: requested, allocated, present."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from preflight.checks.applicability import RDMA_CLASS, lacks_rdma, no_rdma, outside_pod
from preflight.evidence.document import EvidenceError
from preflight.expectations import Site
from preflight.facts.container import resources
from preflight.facts.gpudirect import nic_functions
from preflight.facts.nccl_environment import PROCESS
from preflight.facts.node import NodeFacts
from preflight.facts.pod import POD, Pod, is_gpu, is_rdma, pod, variable_of
from preflight.facts.rdma_ports import DEVICE_NODES
from preflight.model import Finding, check, counted, failed, passed, skipped, unknown, warned

_REQUEST = (
    "Request it in this container's resources.limits, such as rdma/hca_shared_devices_a: 1 or nvidia.com/mlnxnics: 8; "
    "`kubectl describe node` lists what the node's plug-in offers."
)

_NOT_MOVED = (
    "With exclusive RDMA namespaces, chain the rdma CNI in the network's definition. Otherwise see rdma.registered."
)


def no_sign_of_rdma(node: NodeFacts, site: Site) -> Finding | None:
    """Skip a pod without any sign of RDMA, if the API returned no object."""
    if resources(node.environment) or site.resources.value or not lacks_rdma(node, site):
        return None
    try:
        pod(node.evidence)
    except EvidenceError:
        return no_rdma(node, site)
    return None


@check(
    "container.device-plugin",
    title="The pod was allocated an RDMA resource by a device plug-in",
    fault="No device plug-in allocated an RDMA resource to the pod",
    impact="slows-job",
    explains=(("rdma.device-nodes", "node"),),
    source="Kubernetes: Device Plugins; k8s-rdma-shared-dev-plugin; sriov-network-device-plugin (PCIDEVICE_*)",
    fix=_REQUEST,
    action="fix-job",
    answers=("NT-CTR-2",),
    unless=(outside_pod, no_sign_of_rdma),
)
def device_plugin(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare the pod's requested resources with the site's and with /dev.

    ## Why it matters
    A pod that requested only GPUs starts and trains over TCP. If only the main container requests RDMA, init
    containers do not have it.

    ## Verdicts
    The pod's own object is read from the Kubernetes API, with its service account; if that fails, the variables
    PCIDEVICE_* of the SR-IOV plug-in are used. A resource in the cluster file's ports.resources that the pod did not
    request fails; so does a pod without any RDMA resource on a node that should have HCAs, and an allocated function
    without an RDMA device. RDMA devices without a resource warn: the pod is privileged or uses a host path. Otherwise
    the result is unknown. Outside a pod, the check is skipped.

    ## False alarms
    A resource whose name does not show that it is RDMA; list it in ports.resources.
    """
    functions = resources(node.environment)
    try:
        found = pod(node.evidence)
    except EvidenceError as error:
        yield from _without_api(node, site, functions, error)
        return
    devices = found.devices
    wanted: tuple[str, ...] = site.resources.value or ()
    if missing := [name for name in wanted if name not in devices]:
        yield failed(f"no container of the pod requests {', '.join(missing)}", found=_shown(devices),
                     expected=f"{', '.join(wanted)} ({site.resources.source})", evidence=[POD])  # fmt: skip
        return
    rdma = list(wanted) or [name for name in devices if is_rdma(name) or _is_nic(node, functions, name)]
    if not rdma:
        yield _none(node, site, found)
        return
    given = {name: functions[variable_of(name)] for name in rdma if variable_of(name) in functions}
    broken = list(_broken(node, given))
    yield from broken
    allocated = ", ".join(f"{name} ({', '.join(devices[name])})" for name in rdma)
    if not node.evidence.exists(DEVICE_NODES):
        requesters = ", ".join(devices[rdma[0]])
        yield failed(f"{rdma[0]} is requested by {requesters}, but this container has no /dev/infiniband",
                     found=allocated,
                     expected="/dev/infiniband in each container that needs it",
                     evidence=[POD, DEVICE_NODES])  # fmt: skip
    elif not broken:
        yield passed(f"the pod was allocated {counted(len(rdma), 'RDMA resource')}", found=allocated,
                     evidence=[POD, DEVICE_NODES])  # fmt: skip


def _none(node: NodeFacts, site: Site, found: Pod) -> Finding:
    """Return the finding for a pod that requested no known RDMA resource."""
    others = [name for name in found.devices if not is_gpu(name)]
    details: dict[str, Any] = {"found": _shown(found.devices), "evidence": [POD, RDMA_CLASS]}
    key = site.resources.key
    if found.claims or others:
        named = (
            f"the claim{'s' * (len(found.claims) > 1)} {', '.join(found.claims)}" if found.claims else ", ".join(others)
        )
        fix = (
            f'declare it in the cluster file: {key} = ["{others[0]}"]' if others else "run `kubectl get resourceclaims`"
        )
        return unknown(
            f"it is not declared whether {named} {'is' if len(found.claims or others) == 1 else 'are'} for RDMA",
            **{**details, "fix": fix},
        )
    if lacks_rdma(node, site):
        return skipped("the pod requests no RDMA resource, and there is no RDMA device", evidence=details["evidence"])
    promised = bool(site.hcas.value or site.members.ports.compute)
    if promised and node.evidence.exists(DEVICE_NODES):
        how = "a container is privileged" if found.privileged else "probably through a host path"
        return warned(f"the pod has RDMA devices although it requests none ({how}): two pods may get the same ones",
                      expected="an RDMA resource", **details)  # fmt: skip
    if promised:
        return failed("no container of the pod requests an RDMA resource", expected="an RDMA resource", **details)
    details["fix"] = f'declare it in the cluster file: {key} = ["rdma/hca_shared_devices_a"]'
    return unknown("the pod requests no RDMA resource, and it is not declared whether it should have one", **details)


def _without_api(
    node: NodeFacts, site: Site, functions: Mapping[str, Collection[str]], error: EvidenceError
) -> Iterator[Finding]:
    """Yield the findings that the variables of the SR-IOV plug-in allow.

    The plug-in for shared devices sets no variables.
    """
    wanted: tuple[str, ...] = site.resources.value or ()
    unconfirmed = [name for name in wanted if variable_of(name) not in functions]
    nics = _nics(node)
    rdma = {variable_of(name) for name in wanted} & set(functions) or {
        name for name, addresses in functions.items() if nics & set(addresses)
    }
    broken = list(_broken(node, {name: functions[name] for name in rdma}))
    yield from broken
    if not rdma or unconfirmed:
        names = ", ".join(unconfirmed) or "an RDMA resource"
        yield unknown(f"it is unknown whether the pod was allocated {names}: {error}",
                      found=", ".join(sorted(functions)) or "no PCIDEVICE_* variable",
                      fix=_access_fix(error.why), evidence=[POD, PROCESS])  # fmt: skip
    elif not broken:
        count = sum(len(functions[name]) for name in rdma)
        yield passed(f"this container was allocated {counted(count, 'RDMA NIC function')}",
                     found=", ".join(sorted(rdma)), evidence=[PROCESS, RDMA_CLASS])  # fmt: skip


def _broken(node: NodeFacts, given: Mapping[str, Collection[str]]) -> Iterator[Finding]:
    """Yield each allocated function that is not an RDMA device in this container."""
    nics = _nics(node) if given else set()
    for name, addresses in given.items():
        for address in sorted(set(addresses) - nics):
            yield failed(f"{address}, allocated as {name}, has no RDMA device in this container", subject=address,
                         found=", ".join(sorted(nics)) or "no RDMA device", expected=address,
                         evidence=[PROCESS, RDMA_CLASS], fix=_NOT_MOVED)  # fmt: skip


def _nics(node: NodeFacts) -> set[str]:
    """Return the PCI addresses of this container's RDMA devices."""
    return {device.address for device in nic_functions(node.evidence, node.pci, node.rdma_devices).values()}


def _is_nic(node: NodeFacts, functions: Mapping[str, Collection[str]], name: str) -> bool:
    return variable_of(name) in functions and bool(_nics(node) & set(functions[variable_of(name)]))


def _shown(devices: Mapping[str, Collection[str]]) -> str:
    return ", ".join(devices) or "no resource of a device plug-in"


def _access_fix(why: str) -> str:
    """Return the fix for missing access to the API."""
    if "HTTP 403" in why:
        return "allow the pod's service account to `get` its pod: deploy/kubernetes/base has the role"
    if "HTTP 401" in why:
        return "restart the pod: its service account's token is no longer valid"
    if "HTTP 404" in why:
        return "set POD_NAME and POD_NAMESPACE through the downward API"
    if "no service account" in why:
        return "set automountServiceAccountToken: true, with the role of deploy/kubernetes/base"
    if "API server" not in why:
        return "collect again with this version of preflight"
    return "allow the pod to reach the API server (network policy, proxy), or run `kubectl get pod POD -o yaml`"
