"""Judges of NIC settings and firmware, routes, pings and fabric sweeps."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence

from preflight.model import Finding, clause, each_of, failed, none_of, passed, unknown, verb, warned
from preflight.parsers.infiniband.ibcheckerrors import ErrorCheck
from preflight.parsers.infiniband.ibdiagnet import FabricDiagnosis
from preflight.parsers.infiniband.ibnetdiscover import Net
from preflight.parsers.infiniband.sminfo_saquery import STATES, Manager
from preflight.parsers.network.ethtool_settings import InterfaceSettings
from preflight.parsers.network.ip_route import Routing
from preflight.parsers.network.ping_text import PingRun
from preflight.parsers.rdma.firmware_image import FirmwareImage
from preflight.parsers.rdma.nic_configuration import NicConfiguration
from preflight.parsers.rdma.resources import RdmaDevice
from preflight.recognition.judges import Judge, Judges, PastedValue
from preflight.recognition.judges.lists import limited, unsure

#: FEC encodings that are sufficient for links of 50 Gb/s per lane and faster.
_CORRECTING = ("RS", "LLRS")

#: Offloads without which the CPU handles every packet of a socket itself.
_OFFLOADS = ("rx-checksumming", "tx-checksumming", "scatter-gather", "tcp-segmentation-offload",
             "generic-segmentation-offload", "generic-receive-offload", "receive-hashing")  # fmt: skip


def _fec(part: PastedValue) -> Iterator[Finding]:
    settings: InterfaceSettings = part.value
    active = settings.fields.get("Active FEC encoding") or settings.fields.get("Active FEC encodings")
    if settings.what != "fec parameters" or active is None:
        return
    name = settings.interface
    if active.split()[:1] and active.split()[0].upper() in _CORRECTING:
        yield passed(f"{name}: FEC {active} is active", evidence=part.evidence)
    else:
        yield unknown(
            f"{name}: FEC {active or 'none'} is active; links of 50 Gb/s per lane and faster need RS; "
            "the text does not show the speed",
            subject=name,
            found=active,
            expected="RS",
            evidence=part.evidence,
            fix="`ethtool IF` shows the speed; `ethtool --set-fec IF encoding rs`, at both ends.",
        )


def _offloads(part: PastedValue) -> Iterator[Finding]:
    settings: InterfaceSettings = part.value
    if settings.what != "features":
        return
    shown = {name: value for name in _OFFLOADS if (value := settings.fields.get(name))}
    off = [name for name, value in shown.items() if value.startswith("off")]
    if off:
        yield unknown(
            f"{settings.interface}: {', '.join(off)} {verb(len(off), 'is')} off, but on by default, so the CPU "
            "does this work "
            "for every packet of a socket; RDMA is not affected",
            subject=settings.interface,
            found=", ".join(off),
            expected="on",
            evidence=part.evidence,
            fix=f"`ethtool -K {settings.interface} FEATURE on`.",
        )
    elif shown and part.complete:
        yield passed(
            f"{settings.interface}: {clause(len(shown), 'CPU offload', 'is')} on",
            evidence=part.evidence,
        )


def _channels(part: PastedValue) -> Iterator[Finding]:
    settings: InterfaceSettings = part.value
    now = settings.sections.get("Current hardware settings", {}).get("Combined", "")
    most = settings.sections.get("Pre-set maximums", {}).get("Combined", "")
    if settings.what == "channel parameters" and now == "1" and most.isdecimal() and int(most) > 1:
        yield unknown(
            f"{settings.interface} uses only one of {most} channels, so a single CPU handles all socket packets",
            subject=settings.interface,
            found="1",
            expected=f"up to {most}",
            evidence=part.evidence,
            fix=f"Use one channel for each of several CPUs: `ethtool -L {settings.interface} combined {most}`.",
        )


@limited
def _link_types(part: PastedValue) -> Iterator[Finding]:
    """Compare the link types of all ports: a mix is rarely intended."""
    devices: Sequence[NicConfiguration] = part.value
    types: dict[str, str] = {
        f"{item.device or item.type} {name.rpartition('_')[2]}": value.partition("(")[0]
        for item in devices for name, value in item.settings.items() if name.startswith("LINK_TYPE_P")
    }  # fmt: skip
    if len(set(types.values())) > 1:
        listed = ", ".join(f"{place} {value}" for place, value in types.items())
        yield unknown(
            f"the ports have different link types (LINK_TYPE): {listed}",
            found=listed[:300],
            expected="one link type for the compute ports",
            evidence=part.evidence,
            fix="`mlxconfig -d DEVICE set LINK_TYPE_P1=1` (InfiniBand; 2: Ethernet), then reboot.",
        )
    elif types and part.complete:
        yield passed(
            f"{clause(len(types), 'port', 'has')} the link type {next(iter(types.values()))}",
            evidence=part.evidence,
        )


@limited
def _pending(part: PastedValue) -> Iterator[Finding]:
    """Report settings that change at the next boot."""
    devices: Sequence[NicConfiguration] = part.value
    for item in devices:
        changed = [f"{name} {now} to {item.settings[name]}" for name, now in item.current.items()
                   if item.settings.get(name, now) != now]  # fmt: skip
        if changed:
            yield unknown(f"{item.device or 'the NIC'}: settings change at the next boot: {', '.join(changed[:6])}",
                          subject=item.device, found=", ".join(changed[:6]), expected="none pending",
                          evidence=part.evidence, fix="`mlxfwreset -d DEVICE reset`, or reboot, while no job"
                          " runs.")  # fmt: skip


def _firmware(part: PastedValue) -> Iterator[Finding]:
    image: FirmwareImage = part.value
    name = image.device or "the NIC"
    status = image.fields.get("Status", "")
    old = [f"{what} {now}, available {new}" for what, (now, new) in image.versions.items()
           if new not in ("N/A", "--", now)]  # fmt: skip
    if image.running and image.burnt and image.running != image.burnt:
        yield unknown(f"{name} runs firmware {image.running}, but {image.burnt} is burned: a reset is pending",
                      subject=name,
                      found=image.running, expected=image.burnt, evidence=part.evidence,
                      fix="`mlxfwreset -d DEVICE reset`, or reboot, while no job runs.")  # fmt: skip
    if old or "required" in status.lower() or "fail" in status.lower():
        yield unknown(f"{name}: {'; '.join(old) or status}", subject=name, found="; ".join(old) or status,
                      expected="up to date", evidence=part.evidence)  # fmt: skip


def _manager(part: PastedValue) -> Iterator[Finding]:
    manager: Manager | None = part.value
    if manager is None:
        yield warned(
            "no subnet manager answered the query",
            found="no answer",
            expected="one master",
            evidence=part.evidence,
            fix="Check that the port is up (`ibstat`), and that opensm or UFM runs.",
        )
    elif manager.is_master:
        yield passed(f"the subnet manager is master: {manager.words}", evidence=part.evidence)
    else:
        state = STATES.get(manager.state, str(manager.state))
        yield unknown(f"the subnet manager that answered is {state}, not master: {manager.words}", found=state,
                      expected="master", evidence=part.evidence)  # fmt: skip


@limited
def _speeds(part: PastedValue) -> Iterator[Finding]:
    """Compare a topology's links with their peers: switch links, and host links."""
    net: Net = part.value
    groups: dict[str, list[tuple[float, str, str]]] = defaultdict(list)
    for link in net.links:
        kinds = {net.devices[guid].kind for guid, _ in link.ends if guid in net.devices}
        if link.gbps is not None and not any(net.devices[guid].aggregates for guid, _ in link.ends):
            groups["hosts" if "hca" in kinds else "switches"].append((link.gbps, link.speed, net.words(link)))
    slow = False
    for links in groups.values():
        usual = Counter(rate for rate, _, _ in links).most_common(1)[0][0]
        for rate, speed, words in links:
            if rate < usual or not speed.startswith(("4x", "2x", "8x", "12x")):
                slow = True
                yield warned(
                    f"{words} runs at {speed} ({rate:g} Gb/s), but most such links run at {usual:g} Gb/s",
                    subject=words,
                    found=speed,
                    expected=f"{usual:g} Gb/s",
                    evidence=part.evidence,
                )
    if groups and not slow and part.complete:
        yield passed(f"no link of {sum(map(len, groups.values()))} is slower than its peers", evidence=part.evidence)


#: Check -> words of ibdiagnet's messages about the same fault.
_COMPLAINTS = (
    ("fabric.link-errors", ("counter", "ber", "symbol", "error", "threshold", "overflow")),
    ("fabric.link-speed", ("speed", "width", "link")),
    ("fabric.subnet-manager", ("subnet manager", " sm ", "smp", "master")),
)
_REST = "fabric.sweep"


def _check_of(text: str) -> str:
    words = f" {text.lower()} "
    if "speed" in words or "width" in words:
        return "fabric.link-speed"
    return next((check for check, listed in _COMPLAINTS if any(word in words for word in listed)), _REST)


def _complaints(check: str) -> Judge:
    def judge_part(part: PastedValue) -> Iterator[Finding]:
        diagnosis: FabricDiagnosis = part.value
        for report, complaints in ((failed, diagnosis.errors), (warned, diagnosis.warnings)):
            for complaint in complaints:
                if _check_of(complaint.text) == check:
                    yield report(
                        f"ibdiagnet: {complaint.text[:300]} (line {complaint.line})",
                        found=complaint.text[:200],
                        expected="no complaint",
                        evidence=part.evidence,
                    )
        for what, _, _ in diagnosis.missing_messages:
            for stage, counts in diagnosis.stages.items():
                count = counts[("warnings", "errors").index(what)]
                if count and _check_of(stage) == check:
                    report = failed if what == "errors" else warned
                    yield report(
                        f"ibdiagnet: {stage}: {count} {what if count > 1 else what[:-1]}, not all of them in the text",
                        found=count,
                        expected=0,
                        evidence=part.evidence,
                        fix="Read the messages of this stage above the summary, or in ibdiagnet2.log.",
                    )
        if check == _REST and not diagnosis.errors and not diagnosis.warnings and part.complete:
            yield passed(f"ibdiagnet reports no fault in {diagnosis.notes} lines", evidence=part.evidence)

    return limited(judge_part)


@limited
def _routes(part: PastedValue) -> Iterator[Finding]:
    """Look for interfaces that share a connected network."""
    routing: Routing = part.value
    shared: dict[tuple[str, str], list[str]] = defaultdict(list)
    for route in routing.routes:
        if route.connected and route.device and route.device not in shared[route.table, route.to]:
            shared[route.table, route.to].append(route.device)
    several = {place: devices for place, devices in shared.items() if len(devices) > 1}
    for (_, network), devices in several.items():
        yield unknown(
            f"{', '.join(devices[:8])} share the network {network}: without source routing (`ip rule`) "
            "all outgoing traffic uses the first",
            subject=devices[1],
            found=f"{len(devices)} interfaces",
            expected="a network for each rail, or a rule for each address",
            evidence=part.evidence,
        )
    networks = [place for place, devices in shared.items() if devices]
    if networks and not several and part.complete:
        yield passed(f"{each_of(len(networks), 'connected network')} has one interface", evidence=part.evidence)


@limited
def _dead_routes(part: PastedValue) -> Iterator[Finding]:
    routing: Routing = part.value
    for route in routing.routes:
        if marks := [flag for flag in route.flags if flag in ("linkdown", "dead")]:
            yield unsure(f"{route.device or route.to} is {marks[0]}: the route to {route.to} is unusable",
                         subject=route.device, found=marks[0], expected="a link", evidence=part.evidence)  # fmt: skip
        elif route.kind in ("unreachable", "blackhole", "prohibit"):
            yield unknown(f"packets to {route.to} are rejected: the route has type {route.kind}", found=route.kind,
                          evidence=part.evidence)  # fmt: skip


def _answers(part: PastedValue) -> Iterator[Finding]:
    run: PingRun = part.value
    result = run.result
    if result is None:
        return
    if mtu := result.local_mtu or result.reported_mtu:
        yield warned(f"{run.peer}: packets of this size do not pass: MTU {mtu}", subject=run.peer, found=f"MTU {mtu}",
                     expected="unfragmented packets of the interface's MTU", evidence=part.evidence)  # fmt: skip
    elif not result.received:
        yield warned(f"{run.peer}: {none_of(result.sent, 'packet')} was answered"
                     f"{f': {result.objection}' if result.objection else ''}", subject=run.peer, found="100% lost",
                     expected="answers", evidence=part.evidence)  # fmt: skip
    elif result.received < result.sent:
        yield warned(f"{run.peer}: {result.sent - result.received} of {result.sent} packets were lost",
                     subject=run.peer, found=f"{result.received} of {result.sent}", expected="all",
                     evidence=part.evidence)  # fmt: skip
    else:
        yield passed(f"{run.peer}: {each_of(result.sent, 'packet')} was answered", evidence=part.evidence)


@limited
def _exceeded(part: PastedValue) -> Iterator[Finding]:
    result: ErrorCheck = part.value
    for item in result.counters:
        place = f"LID {item.lid} port {item.port}" if item.lid is not None else "a port"
        yield warned(
            f"{place}: {item.name} {item.value}, above the threshold {item.threshold} (line "
            f"{item.line}); a single reading does not show the period",
            subject=place,
            found=f"{item.name} {item.value}",
            expected=f"at most {item.threshold}",
            evidence=part.evidence,
        )
    if result.failed and not result.counters:
        yield warned(f"{', '.join(result.failed[:8])}: the check failed", subject=result.failed[0], found="FAILED",
                     expected="OK", evidence=part.evidence)  # fmt: skip
    elif result.bad and not result.counters:
        yield warned(f"{result.bad} of {result.checked} nodes and ports have errors", found=result.bad, expected="0",
                     evidence=part.evidence)  # fmt: skip
    elif result.checked and not result.counters and part.complete:
        yield passed(f"{result.checked} nodes and ports have no errors above a threshold", evidence=part.evidence)


@limited
def _guids(part: PastedValue) -> Iterator[Finding]:
    """Look for RDMA devices without a GUID, or with the GUID of another device."""
    devices: Sequence[RdmaDevice] = part.value
    guids = {item.name: item.fields["node_guid"] for item in devices if "node_guid" in item.fields}
    counts = Counter(guids.values())
    for name, guid in guids.items():
        if not guid.strip("0:"):
            yield unknown(f"{name} has no GUID, so it is an unconfigured virtual function or its firmware hangs",
                          subject=name, found=guid, expected="a GUID", evidence=part.evidence)  # fmt: skip
        elif counts[guid] > 1:
            yield warned(f"{name} shares its GUID {guid} with another device", subject=name, found=guid,
                         expected="a unique GUID", evidence=part.evidence)  # fmt: skip
    if guids and all(guid.strip("0:") and counts[guid] == 1 for guid in guids.values()) and part.complete:
        yield passed(f"{each_of(len(guids), 'RDMA device')} has a GUID", evidence=part.evidence)


JUDGES: Judges = {
    "ethtool settings": (("optics.fec", _fec), ("counters.cpu", _offloads), ("counters.receiver", _channels)),
    "rdma resource": (("container.rdma-address", _guids),),
    "ibcheckerrors": (("fabric.link-errors", _exceeded),),
    "mlxconfig": (("rdma.link-layer", _link_types), ("rdma.firmware", _pending)),
    "flint": (("rdma.firmware", _firmware),),
    "sminfo": (("fabric.subnet-manager", _manager),),
    "ibnetdiscover": (("fabric.link-speed", _speeds),),
    "ibdiagnet": tuple((check, _complaints(check)) for check in (*(name for name, _ in _COMPLAINTS), _REST)),
    "ip route": (("rails.subnets", _routes), ("rdma.port-state", _dead_routes)),
    "ping": (("pair.path-mtu", _answers),),
}
