"""What is wrong with an output of GPUs and the kernel's log about them, as far as it shows by itself.

These are checks like all others, but their evidence is what was read: the record ``read:KIND``. A rule
speaks only of what is wrong on any machine, such as a GPU that differs from its equals.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from preflight.checks.gpu.xid_judgement import BAD, judged
from preflight.checks.gpu.xid_policy import Act
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.facts.xid import Events, XidEvent
from preflight.model import Check, Finding, check, failed, passed, unknown, warned
from preflight.recognition.evidence_adapter import read_facts


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
    for key, facts in read_facts(node, "nvidia-smi topo -m"):
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

    The same links inactive on every GPU are fused or unused by design. Where no equal GPU shows that, an inactive
    link beside active ones is unknown; so is a machine on which no link is active.
    """
    for key, facts in read_facts(node, "nvidia-smi nvlink -s"):
        shown = max(map(len, facts["links"].values()), default=0)  # a GPU with fewer lines is cut
        links = {gpu: rates for gpu, rates in facts["links"].items() if rates and len(rates) == shown}
        active = {gpu: sum(rate is not None for rate in rates) for gpu, rates in links.items()}
        equals = len(active) > 1 and len(set(facts["names"].values())) == 1
        most = max(active.values(), default=0)
        short = {gpu: number for gpu, number in active.items() if number < most} if equals else {}
        if equals and most and node.evidence.record(key).ok:  # a line that there is none, in place of its links
            for gpu in (gpu for gpu, rates in facts["links"].items() if not rates):
                yield warned(f"{gpu} shows no NVLink, its equals {most}: no bridge, or all are inactive",
                             subject=gpu, found=0, expected=most, evidence=[key])  # fmt: skip
        for gpu, number in short.items():
            yield failed(
                f"{gpu} has {number} active NVLinks, its equals {most}", subject=gpu, found=number, expected=most,
                evidence=[key],
            )  # fmt: skip
        down = {gpu: tuple(at for at, rate in enumerate(rates) if rate is None) for gpu, rates in links.items()}
        if active and not most:
            yield unknown(f"none of {shown} NVLinks is active (GPUs: {len(active)}), and nothing shows if any should",
                          found=0, fix=_LOOK, evidence=[key])  # fmt: skip
        elif equals and not short and len(set(down.values())) == 1 and all(facts["links"].values()):
            yield passed(f"{len(active)} GPUs have {most} active NVLinks each", found=most, evidence=[key])
        elif not short:
            yield from _inactive({gpu: at for gpu, at in down.items() if 0 < len(at) < shown}, shown, key)


_LOOK = "Compare with an equal GPU: `nvidia-smi nvlink -s` of all GPUs, or `preflight check` on the node."


def _inactive(down: Mapping[str, Sequence[int]], shown: int, key: str) -> Iterator[Finding]:
    """Yield what is not known of GPUs of which some links are inactive."""
    for gpu, links in down.items():
        which = ", ".join(map(str, links))
        yield unknown(
            f"{gpu}: {len(links)} of {shown} NVLinks inactive ({which}), and no equal GPU shows whether by design",
            subject=gpu, found=f"inactive: {which}", expected=f"{shown} active, or fewer by design", fix=_LOOK,
            evidence=[key],
        )  # fmt: skip


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
    for key, facts in read_facts(node, "nvidia-smi -q", "nvidia-smi -q -x"):
        bad = 0
        sections = _sections_by_product(facts["gpus"])
        for gpu in facts["gpus"]:
            for finding in (*_of_gpu(gpu, key), *_unread(gpu, sections, key)):
                bad += 1
                yield finding
        shown = [what for name, what in _SECTIONS.items() if any(gpu[name] is not None for gpu in facts["gpus"])]
        if shown and not bad:
            yield passed(f"{len(facts['gpus'])} GPUs report nothing that is wrong: {', '.join(shown)}", evidence=[key])


#: Sections of a GPU that are judged.
_SECTIONS = {
    "ecc_errors": "ECC errors", "remapped_rows": "remapped rows", "retired_pages_pending": "retired pages",
    "clocks_event_reasons": "clocks event reasons", "fabric": "fabric", "recovery_action": "recovery action",
}  # fmt: skip


def _sections_by_product(gpus: Sequence[Mapping[str, Any]]) -> dict[str | None, set[str]]:
    """Return the judged sections that any GPU of a product shows."""
    sections: dict[str | None, set[str]] = {}
    for gpu in gpus:
        sections.setdefault(gpu["product"], set()).update(name for name in _SECTIONS if gpu[name] is not None)
    return sections


def _unread(gpu: Mapping[str, Any], sections: Mapping[str | None, set[str]], key: str) -> Iterator[Finding]:
    """Yield what a GPU did not answer, and the sections that its equals show.

    Its equals are the GPUs of its product and those without a name; without a name of its own, all.
    """
    name = gpu["bus_id"] or "a GPU without an address in the text"
    at: dict[str, Any] = {"subject": gpu["bus_id"] or "", "evidence": [key]}
    errors = ", ".join(gpu["no_answer"])
    if {"gpu is lost", "gpu requires reset"} & set(gpu["no_answer"]):
        yield failed(f"{name}: in place of values stands: {errors}", found=errors, **at)
    elif errors:
        yield unknown(f"{name}: in place of values stands: {errors}", found=errors, fix=_QUERY_AGAIN, **at)
    products = sections if gpu["product"] is None else (None, gpu["product"])
    shown = set().union(*(sections.get(product, set()) for product in products))
    lacking = [what for section, what in _SECTIONS.items() if gpu[section] is None and section in shown]
    if lacking:
        yield unknown(f"{name}: the text lacks its {', '.join(lacking)}, which its equals show", fix=_COMPLETE, **at)


_QUERY_AGAIN = "Run `nvidia-smi -q -i` for this GPU again, and look for its XIDs in the kernel's log (`dmesg`)."
_COMPLETE = "Give the complete output of `nvidia-smi -q`."

_UNCORRECTABLE = re.compile("uncorrect|double_bit_total")
_HARDWARE = ("hw_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")


def _of_gpu(gpu: Mapping[str, Any], key: str) -> Iterator[Finding]:
    name = gpu["bus_id"] or "a GPU whose address is not in the text"
    at: dict[str, Any] = {"subject": gpu["bus_id"] or "", "evidence": [key]}
    volatile = (gpu["ecc_errors"] or {}).get("volatile", {})
    wrong = {kind: count for kind, count in volatile.items() if _UNCORRECTABLE.search(kind) and count}
    if wrong:
        errors = ", ".join(f"{kind} {count}" for kind, count in wrong.items())
        yield failed(f"{name}: uncorrectable memory errors since the driver was loaded: {errors}", found=errors, **at)
    if (gpu["ecc_errors"] or {}).get("aggregate", {}).get("sram_threshold_exceeded"):
        yield failed(f"{name}: the driver's threshold of SRAM errors is exceeded", found="SRAM threshold", **at)
    remapped = gpu["remapped_rows"] or {}
    if remapped.get("failure"):
        yield failed(f"{name}: a row of its memory could not be remapped", found="failure", **at)
    if remapped.get("pending"):
        yield failed(f"{name}: a remapped row waits for a reset of the GPU", found="pending", **at)
    if gpu["retired_pages_pending"]:
        yield failed(f"{name}: a bad page of its memory waits to be retired", found="pending", **at)
    hot = [reason for reason in gpu["clocks_event_reasons"] or () if reason in _HARDWARE]
    if hot:
        yield failed(f"{name} is throttled by hardware: {', '.join(hot)}", found=", ".join(hot), **at)
    state = (gpu["fabric"] or {}).get("state")
    if state in ("In Progress", "Not Started"):
        yield failed(f"{name}: NVLink fabric is {state}: CUDA will not start", found=state, expected="Completed", **at)
    health = (gpu["fabric"] or {}).get("health") or {}
    if health.get("summary") == "Unhealthy":
        units = ", ".join(f"{kind} {value}" for kind, value in health.items())
        yield failed(f"{name}: its NVLink fabric is unhealthy: {units}", found="Unhealthy", expected="Healthy", **at)
    if gpu["recovery_action"] not in (None, "None"):
        yield failed(f"{name}: the driver asks for: {gpu['recovery_action']}", found=gpu["recovery_action"], **at)
    width, most = gpu["pcie"]["width_current"], gpu["pcie"]["width_max"]
    if width and most and width < most:
        yield warned(f"{name} trained {width} of {most} PCIe lanes", found=f"x{width}", expected=f"x{most}", **at)


@check(
    "xid.gpu",
    title="The log holds no XID that takes a GPU out",
    source="https://docs.nvidia.com/deploy/xid-errors/; judgement: table in checks/gpu/xid_policy.py",
    fix="Do what the catalogue says for the first of them; those that follow are often its echoes.",
)
def xids(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Judge XIDs by the policy table, the earliest first.

    An uncorrectable error, a GPU off the bus or a dead GSP takes the job with it, and the next one as well.

    XIDs of an application's own errors (13, 31, 43) and of cleaning up (45) fail no node.
    The units of NVLink 5 (144 to 150) are judged by the word Fatal, 154 by what stands after "to", 74 by whether it
    came again.
    """
    for key, facts in read_facts(node, "kernel log"):
        reported: set[tuple[str, int]] = set()
        found, cut = Events(tuple(_incidents(facts["xids"])), ()), False
        for event in found.gpus:
            if 144 <= event.code <= 150 and _UNIT_STUMP.fullmatch(event.text):
                cut = True
                continue
            policy, seen = judged(event, found), (event.address, event.code)
            if policy.act not in (*BAD, Act.WARN) or event.code == 45 or seen in reported:
                continue
            reported.add(seen)
            yield (failed if policy.act in BAD else warned)(
                f"{event.address or 'a GPU'}: Xid {event.code}: {policy.meaning} (line {event.line})",
                subject=event.address, found=f"Xid {event.code}", fix=policy.fix, evidence=[key], action=policy.action,
            )  # fmt: skip
        lost = [event for event in facts["events"] if event["event"] in _NO_GPU]
        fatal = [event for event in facts["sxids"] if event["fatal"]]
        codes = Counter(event.code for event in found.gpus)
        if codes and not (reported or cut or lost or fatal):
            notes = ", ".join(
                f"{code} x{number}" if number > 1 else f"{code}" for code, number in sorted(codes.items())
            )
            yield passed(
                f"no XID that asks for action; of applications and notes: {notes}", found=notes, evidence=[key]
            )
        for event in lost if not reported else ():
            yield failed(f"line {event['line']}: {event['text'][:160]}", found=event["event"], evidence=[key])
        for event in fatal:
            name = event["bus_id"] or event["switch"]
            message = f"NVSwitch {name}: fatal SXid {event['sxid']} (line {event['line']})"
            yield failed(message, subject=event["bus_id"] or "", found=f"SXid {event['sxid']}", evidence=[key])


#: Events that take a GPU out.
_NO_GPU = ("gpu-fallen-off-bus", "gpu-init-failed", "driver-mismatch")

#: The line of an NVLink unit that was cut off before it says whether it was fatal.
_UNIT_STUMP = re.compile(r"(?!.*\bFatal$)[A-Z]\w{1,24}(?: \w{0,7})?")


def _incidents(xids: Sequence[Mapping[str, Any]]) -> Iterator[XidEvent]:
    """Yield what was read as events, what repeats within one minute of the log's clock once; the line is its number."""
    seen = set()
    for xid in xids:
        time = xid["time"] or ""
        minute = str(int(float(time)) // 60) if re.fullmatch(r"\d{1,12}\.\d{1,9}", time) else time[:16]
        if (key := (xid["bus_id"], xid["xid"], minute)) not in seen or not minute:
            yield XidEvent(0.0, xid["bus_id"] or "", xid["xid"], xid["text"], str(xid["line"]))
        seen.add(key)


RULES: tuple[Check, ...] = (joined, nvlinks, gpu_health, xids)
