"""What is wrong with an output, as far as it shows by itself.

These are checks like all others, but their evidence is what was read: the record ``read:KIND``. A rule
speaks only of what is wrong on any machine: a pasted output does not tell which ports a job uses, so
that a spare port that is down is none of its business.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from preflight.cluster import Site
from preflight.evidence import EvidenceError
from preflight.facts import NodeFacts
from preflight.facts.xid import Event, Events
from preflight.facts.xid_judged import BAD, judged
from preflight.facts.xid_policy import POLICY, Act
from preflight.model import Check, Finding, check, failed, passed, warned

#: Kinds that show ports.
_PORTS = ("ibstat", "ibstatus", "ibv_devinfo", "rdma link")

#: PFC on more priorities than this does not fit the buffers of a NIC (formats of mlnx_qos; ConnectX headroom).
_LOSSLESS_MOST = 2


def _read(node: NodeFacts, *kinds: str) -> Iterator[tuple[str, Any]]:
    """Yield record key and facts of the kinds that were read; raises EvidenceError if there is none."""
    keys = [key for kind in kinds if (key := f"read:{kind}") in node.evidence.records]
    if not keys:
        raise EvidenceError(f"read:{kinds[0]}", "was not in the text")
    for key in keys:
        yield key, node.evidence.record(key).value


def _up(port: Mapping[str, Any]) -> bool:
    return str(port["state"] or "").upper().endswith("ACTIVE")


@check(
    "rdma.port-state",
    title="An RDMA port that has a link is active",
    source="port states of the InfiniBand architecture specification, 14.2.5.6",
    fix="Initializing: see that a subnet manager runs (`sminfo`); all down: cables, switch ports, `ip link`.",
)
def port_state(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for ports with a link that no subnet manager has brought up, and for outputs without any active port.

    Without an active port NCCL falls back to TCP and says so only in its log.

    A single port that is down may be a spare one; which ports a job uses is not in the text.
    """
    for key, facts in _read(node, *_PORTS):
        ports = [port for port in facts["ports"] if port["state"]]
        waiting = [port for port in ports if re.fullmatch(r"(?i)INIT(?:IALIZING)?", port["state"]) and _has_link(port)]
        if waiting:
            names = ", ".join(f"{port['device']} port {port['port']}" for port in waiting)
            yield failed(
                f"{names}: the cable has a link, and no subnet manager has brought the port up",
                found="Initializing", expected="Active", evidence=[key],
            )  # fmt: skip
        elif ports and not any(map(_up, ports)) and node.evidence.record(key).ok:  # else others may have stood there
            states = ", ".join(sorted({f"{port['state']}/{port['physical_state']}" for port in ports}))
            yield failed(f"none of {len(ports)} RDMA ports is active ({states})", found="0", evidence=[key])
        elif any(map(_up, ports)):
            yield passed(f"{sum(map(_up, ports))} of {len(ports)} RDMA ports are active", evidence=[key])


def _has_link(port: Mapping[str, Any]) -> bool:
    return re.fullmatch(r"(?i)link_?up", str(port["physical_state"] or "linkup")) is not None


@check(
    "rdma.active-mtu",
    title="Active Ethernet ports carry RDMA in packets of more than 1024 bytes",
    source="Linux drivers/infiniband/core: the active MTU is the largest of 256..4096 that fits the netdev's MTU",
    fix="Set MTU 9000 (at least 4200) on the interface and on the switch port.",
)
def active_mtu(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for active RoCE ports whose active MTU is 1024: the interface was left at MTU 1500.

    Every message then takes four times the packets, and the NIC's packet rate becomes the limit.

    A management port beside others may be meant that way: only where all ports are so, it is a warning.
    """
    for key, facts in _read(node, "ibv_devinfo"):
        ports = [port for port in facts["ports"] if _up(port) and not _in_software(port)]
        if any(port["link_layer"] != "Ethernet" or not port["active_mtu"] for port in ports):
            continue  # with InfiniBand beside it, Ethernet is for management
        large = [port for port in ports if port["active_mtu"] > 1024]
        if ports and not large and not node.evidence.record(key).ok:
            continue  # what was cut off may have been the fast ones
        if ports and not large:
            yield warned(f"all {len(ports)} active Ethernet ports: active MTU 1024", found="1024", expected="4096",
                         evidence=[key])  # fmt: skip
        elif ports:
            yield passed(f"{len(large)} of {len(ports)} active Ethernet ports have an active MTU above 1024",
                         evidence=[key])  # fmt: skip


#: ``vendor_id`` of Soft-RoCE and Soft-iWARP (rxe_param.h, siw.h).
_SOFTWARE = frozenset({"0xffffff", "0x626d74"})


def _in_software(port: Mapping[str, Any]) -> bool:
    """Tell whether a port's packets are made by the kernel, or are TCP's: their size is the interface's business."""
    return (
        port["vendor_id"] in _SOFTWARE
        or str(port["transport"]).startswith("iWARP")
        or re.match(r"(?:rxe|siw)", port["device"] or "") is not None
    )


@check(
    "topology.nvlink",
    title="All GPUs of a machine with NVLink are joined alike",
    source="`nvidia-smi topo -m`: NV# is the number of bonded links",
    fix="Look at the GPU's links (`nvidia-smi nvlink -s -i N`) and at the log of the fabric manager; reset the GPU.",
)
def joined(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Hold each GPU's NVLinks against those of its peers, where nearly all pairs are joined by the same number.

    One GPU without NVLink makes NCCL build every ring over PCIe: a tenth of the speed for all eight.

    Bridged pairs and cube meshes differ from GPU to GPU by design and are not judged.
    """
    for key, facts in _read(node, "nvidia-smi topo -m"):
        gpus = [gpu for gpu in facts["gpus"] if gpu in facts["complete_rows"]]
        codes = {gpu: [facts["links"][gpu].get(peer, "") for peer in gpus if peer != gpu] for gpu in gpus}
        usual = Counter(code for row in codes.values() for code in row if code.startswith("NV")).most_common(1)
        if len(gpus) < 4 or not usual:
            continue
        code = usual[0][0]
        # A GPU that is well still shows the sick one's code in its row
        well = [gpu for gpu in gpus if sum(found == code for found in codes[gpu]) >= len(gpus) - 2]
        sick = [gpu for gpu in gpus if gpu not in well]
        if not sick and len(well) == len(gpus) and all(set(row) == {code} for row in codes.values()):
            yield passed(f"{len(gpus)} GPUs are joined by {code}", found=code, evidence=[key])
        elif len(sick) == 1 and len(well) >= 3:
            found = ", ".join(sorted(set(codes[sick[0]])))
            yield failed(
                f"{sick[0]} is joined by {found}, its peers by {code}", subject=sick[0], found=found, expected=code,
                evidence=[key],
            )  # fmt: skip


@check(
    "nvlink.links",
    title="Equal GPUs have equally many active NVLinks",
    source="`nvidia-smi nvlink -s`; boards with fused links show the same links inactive on every GPU",
    fix="Look at the fabric manager's log and at XIDs 74 and 144-150; reset the GPU, then the node; else support.",
)
def nvlinks(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for a link that is inactive on one GPU and active on its equals.

    Collectives run at the pace of the GPU with the fewest links.

    Links that are inactive on every GPU alike are fused or unused by design.
    """
    for key, facts in _read(node, "nvidia-smi nvlink -s"):
        shown = max(map(len, facts["links"].values()), default=0)  # a GPU with fewer lines is cut
        active = {gpu: sum(rate is not None for rate in rates) for gpu, rates in facts["links"].items()
                  if rates and len(rates) == shown}  # fmt: skip
        if len(active) < 2 or len(set(facts["names"].values())) > 1:
            continue
        most = max(active.values())
        short = {gpu: number for gpu, number in active.items() if number < most}
        for gpu, number in short.items():
            yield failed(
                f"{gpu} has {number} active NVLinks, its equals {most}", subject=gpu, found=number, expected=most,
                evidence=[key],
            )  # fmt: skip
        if not short and most:
            yield passed(f"{len(active)} GPUs have {most} active NVLinks each", found=most, evidence=[key])


@check(
    "gpu.health",
    title="No GPU reports damage, throttling by hardware, or a recovery that is due",
    source="nvidia-smi documentation: ECC, row remapping, clocks event reasons, fabric, GPU recovery action",
    fix="Drain the node; reset the GPU for what is pending, replace what has failed, cool or power what throttles.",
)
def gpu_health(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Read each GPU's errors, pending repairs, throttle reasons, fabric state and PCIe width.

    A GPU that throttles or repairs its memory slows all others of the job; one with uncorrectable errors ends it.

    The PCIe generation falls when a GPU idles and is not judged; lifetime error counts are history.
    """
    for key, facts in _read(node, "nvidia-smi -q", "nvidia-smi -q -x"):
        bad = 0
        for gpu in facts["gpus"]:
            for finding in _of_gpu(gpu, key):
                bad += 1
                yield finding
        if facts["gpus"] and not bad:
            yield passed(f"{len(facts['gpus'])} GPUs report nothing that is wrong", evidence=[key])


_UNCORRECTABLE = re.compile("uncorrect|double_bit_total")
_HARDWARE = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")


def _of_gpu(gpu: Mapping[str, Any], key: str) -> Iterator[Finding]:
    name = gpu["bus_id"] or "a GPU whose address is not in the text"
    at: dict[str, Any] = {"subject": gpu["bus_id"] or "", "evidence": [key]}
    volatile = (gpu["ecc_errors"] or {}).get("volatile", {})
    wrong = {kind: count for kind, count in volatile.items() if _UNCORRECTABLE.search(kind) and count}
    if wrong:
        told = ", ".join(f"{kind} {count}" for kind, count in wrong.items())
        yield failed(f"{name}: uncorrectable memory errors since the driver was loaded: {told}", found=told, **at)
    if (gpu["ecc_errors"] or {}).get("aggregate", {}).get("sram_threshold_exceeded"):
        yield failed(f"{name}: the driver's threshold of SRAM errors is exceeded", found="SRAM threshold", **at)
    remapped = gpu["remapped_rows"] or {}
    if remapped.get("failure"):
        yield failed(f"{name}: a row of its memory could not be remapped", found="failure", **at)
    if remapped.get("pending"):
        yield failed(f"{name}: a remapped row waits for a reset of the GPU", found="pending", **at)
    if gpu["retired_pages_pending"]:
        yield failed(f"{name}: a bad page of its memory waits to be retired", found="pending", **at)
    hot = [
        r
        for r in gpu["clocks_event_reasons"] or ()
        if r in ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
    ]
    if hot:
        yield failed(f"{name} is throttled by hardware: {', '.join(hot)}", found=", ".join(hot), **at)
    state = (gpu["fabric"] or {}).get("state")
    if state in ("In Progress", "Not Started"):
        yield failed(f"{name}: NVLink fabric is {state}: CUDA will not start", found=state, expected="Completed", **at)
    health = (gpu["fabric"] or {}).get("health") or {}
    if health.get("summary") == "Unhealthy":
        told = ", ".join(f"{kind} {said}" for kind, said in health.items())
        yield failed(f"{name}: its NVLink fabric is unhealthy: {told}", found="Unhealthy", expected="Healthy", **at)
    if gpu["recovery_action"] not in (None, "None"):
        yield failed(f"{name}: the driver asks for: {gpu['recovery_action']}", found=gpu["recovery_action"], **at)
    width, most = gpu["pcie"]["width_current"], gpu["pcie"]["width_max"]
    if width and most and width < most:
        yield warned(f"{name} trained {width} of {most} PCIe lanes", found=f"x{width}", expected=f"x{most}", **at)


@check(
    "xid.gpu",
    title="The log holds no XID that takes a GPU out",
    source="https://docs.nvidia.com/deploy/xid-errors/; judgement: table in preflight/facts/xid_policy.py",
    fix="Do what the catalogue says for the first of them; those that follow are often its echoes.",
)
def xids(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Judge XIDs by the policy table, the earliest first.

    An uncorrectable error, a GPU off the bus or a dead GSP takes the job with it, and the next one as well.

    XIDs of an application's own errors (13, 31, 43) and of cleaning up (45) fail no node.
    The units of NVLink 5 (144 to 150) are judged by the word Fatal, 154 by what stands after "to", 74 by whether it
    came again.
    """
    for key, facts in _read(node, "kernel log"):
        told: set[tuple[str, int]] = set()
        found = Events(tuple(_incidents(facts["xids"])), ())
        for event in found.gpus:
            if 144 <= event.code <= 150 and _UNIT_STUMP.fullmatch(event.text):
                continue
            policy, seen = judged(event, found), (event.address, event.code)
            if policy.act not in (*BAD, Act.WARN) or event.code not in POLICY or event.code == 45 or seen in told:
                continue
            told.add(seen)
            yield (failed if policy.act in BAD else warned)(
                f"{event.address or 'a GPU'}: Xid {event.code}: {policy.meaning} (line {event.line})",
                subject=event.address, found=f"Xid {event.code}", fix=policy.fix, evidence=[key],
            )  # fmt: skip
        for event in facts["events"]:
            if event["event"] in ("gpu-fallen-off-bus", "gpu-init-failed", "driver-mismatch") and not told:
                yield failed(f"line {event['line']}: {event['text'][:160]}", found=event["event"], evidence=[key])
        for event in facts["sxids"]:
            if event["fatal"]:
                name = event["bus_id"] or event["switch"]
                message = f"NVSwitch {name}: fatal SXid {event['sxid']} (line {event['line']})"
                yield failed(message, subject=event["bus_id"] or "", found=f"SXid {event['sxid']}", evidence=[key])


#: The line of an NVLink unit that was cut off before it says whether it was fatal.
_UNIT_STUMP = re.compile(r"(?!.*\bFatal$)[A-Z]\w{1,24}(?: \w{0,7})?")


def _incidents(xids: Sequence[Mapping[str, Any]]) -> Iterator[Event]:
    """Yield what was read as events, what repeats within one minute of the log's clock once; the line is its number."""
    seen = set()
    for xid in xids:
        time = xid["time"] or ""
        minute = str(int(float(time)) // 60) if re.fullmatch(r"\d{1,12}\.\d{1,9}", time) else time[:16]
        if (key := (xid["bus_id"], xid["xid"], minute)) not in seen or not minute:
            yield Event(0.0, xid["bus_id"] or "", xid["xid"], xid["text"], str(xid["line"]))
        seen.add(key)


_NIC = re.compile(r"(?i)(?:ethernet|infiniband|network) controller|02(?:00|07)\b")


@check(
    "pcie.nic-link",
    title="NICs have trained all their PCIe lanes at full speed",
    source="PCIe base specification: LnkCap is what the device can, LnkSta what was trained; lspci says (downgraded)",
    fix="Reseat the card or its riser, look at the slot's own width, and at the BIOS's bifurcation.",
)
def nic_link(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for network controllers whose link is below their capability.

    A 400 Gb/s port behind eight lanes of PCIe 5 gives at most half of it.

    GPUs lower their speed when they idle and are judged by their width alone, elsewhere.
    """
    for key, facts in _read(node, "lspci"):
        nics = [device for device in facts["devices"] if _NIC.match(device["class"] or "")]
        slow = [device for device in nics if device["link"]["downgraded"]]
        for device in slow:
            link = device["link"]
            yield warned(
                f"{device['address']} trained {link['speed']} {link['width']}", subject=device["address"],
                found=f"{link['speed']} {link['width']}", expected=f"{link['max_speed']} {link['max_width']}",
                evidence=[key],
            )  # fmt: skip
        if nics and not slow and all(device["link"]["width"] for device in nics):
            yield passed(f"{len(nics)} NICs have trained all they can", evidence=[key])


@check(
    "roce.pfc",
    title="PFC is on for no more priorities than a NIC has buffers for",
    source="mlnx_qos(8), dcb-pfc(8); RDMA over converged Ethernet runs on one lossless priority, at most two",
    fix="Leave PFC on for the one priority that RDMA uses, on both ends of the cable.",
)
def pfc(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Count the priorities with PFC.

    Headroom is kept for each of them: with more than two the buffers are too small, and packets are lost.

    PFC on none is a lossy network by design, which the text cannot tell from a forgotten setting.
    """
    for key, facts in _read(node, "mlnx_qos", "dcb"):
        on = [priority for priority, enabled in (facts["pfc"] or {}).items() if enabled]
        if len(on) > _LOSSLESS_MOST:
            yield warned(
                f"PFC is on for {len(on)} priorities: {', '.join(on)}", found=len(on), expected="1", evidence=[key]
            )
        elif on:
            yield passed(f"PFC is on for priority {', '.join(on)}", found=", ".join(on), evidence=[key])


@check(
    "optics.alarms",
    title="The module in a port reports no alarm",
    source="ethtool -m: alarm and warning flags of SFF-8636 and CMIS",
    fix="Clean and reseat the module or cable, look at its temperature and power; replace it if it stays.",
)
def module(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Read the alarm flags that the module itself raises.

    A module that is too hot or gets too little light loses symbols first, then the link.

    A single lane without light may be unused, as behind a breakout cable, and is not judged; a module without
    diagnostics shows none.
    """
    for key, facts in _read(node, "ethtool -m"):
        alarms = [name for name in facts["alarms"] if not re.search(r"(?i)rx power low .*\(chan", name)]
        if alarms:
            yield warned(f"the module reports: {', '.join(alarms)}", found=", ".join(alarms), evidence=[key])


RULES: tuple[Check, ...] = (
    port_state, active_mtu, joined, nvlinks, gpu_health, xids, nic_link, pfc, module,
)  # fmt: skip
