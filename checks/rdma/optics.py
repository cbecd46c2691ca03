"""Checks of optical modules, FEC and bit error ratios."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from preflight.checks.applicability import efa_only, no_compute_port
from preflight.checks.rdma.per_port import judged_ports, no_judged_port, port_reporters, some
from preflight.evidence.document import EvidenceError, with_subject
from preflight.expectations import Site
from preflight.facts.node import NodeFacts
from preflight.facts.rdma_ports import ROOT, Port, is_virtual_function
from preflight.model import Finding, check, counted, passed, skipped, some_of, unknown, verb
from preflight.parsers.network import ethtool_module

MLXLINK = "https://docs.nvidia.com/networking/display/mftv4310/mlxlink+Utility"

#: Lowest rate in Gb/s of ports whose lanes use PAM4 (at least 50 Gb/s each), which requires FEC: IEEE 802.3cd, bs, ck.
PAM4_GBPS = 200

_Reporter = Callable[..., Finding]


def _unread(errors: Sequence[tuple[Port, EvidenceError]]) -> Iterator[Finding]:
    """Report why a tool gave no output, once for all ports with the same reason."""
    alike: dict[tuple[str, str], list[tuple[Port, EvidenceError]]] = {}
    for port, error in errors:
        words = error.key.removeprefix("cmd:").split()[:2]
        tool = " ".join(words) if error.key.startswith("cmd:") else "ethtool"
        alike.setdefault((tool, error.why), []).append((port, error))
    for (tool, why), found in alike.items():
        names = [port.name for port, _ in found]
        root = "run with --sudo, or as root" if re.search("permi|root", why, re.IGNORECASE) else ""
        alone = names[0] if len(names) == 1 else ""
        yield unknown(f"{some(names)}: {with_subject(f'`{tool}`', why)}", subject=alone,
                      evidence=[error.key for _, error in found[:3]], fix=root)  # fmt: skip


def no_cable(node: NodeFacts, site: Site) -> Finding | None:
    """Report a node on which no judged port has a cable."""
    ports = judged_ports(node, site)
    if absent := efa_only(ports, "the cloud provider is responsible for their cables"):
        return absent
    if _cabled(node, site):
        return None
    message = f"{some([port.name for port in ports])}: virtual functions; check their cables on the host"
    return skipped(message, evidence=[f"file:{ROOT}/{ports[0].device}/hca_type"])


def _cabled(node: NodeFacts, site: Site) -> list[Port]:
    """Return the judged ports that have their own cable."""
    return [port for port in judged_ports(node, site) if not is_virtual_function(node.evidence, port.device)]


def _netdev(port: Port) -> str:
    if port.netdev is None:
        raise EvidenceError(f"dir:/sys/class/infiniband/{port.device}/device/net", "no single interface belongs to it")
    return port.netdev


def _mlxlink(node: NodeFacts, port: Port) -> ethtool_module.LinkQuality:
    return node.parsed(f"cmd:mlxlink -d {port.device} -m -c", ethtool_module.parse_mlxlink)


@check(
    "optics.module",
    title="No module or cable raises an alarm",
    fault="A module or cable raises an alarm",
    impact="drifts",
    owner="network",
    explains=(
        ("optics.ber", "part"),
        ("counters.link-quality", "part"),
        ("counters.flaps", "part"),
        ("kernel.events", "part", "*", "the link of *"),
        ("optics.switch-end", "cable"),
        ("optics.fec-margin", "cable"),
    ),
    source=f"SFF-8636 and CMIS (alarms and thresholds of the module itself); ethtool(8); {MLXLINK}",
    fix="If the module is hot, check the fans and the neighbouring modules; if it receives too little light, clean the "
    "connectors, or replace the fibre; otherwise reseat the module. `ethtool -m IF` shows the value and its threshold.",
    answers=("AN-6",),
    gating=False,
    reads=("cmd:mlxlink *",),
    unless=(no_compute_port, no_judged_port, no_cable),
)
def module(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Read the alarms and temperature of each active compute port's module.

    ## Why it matters
    A module that is too hot, or receives too little light, causes errors. At first, FEC corrects them; then packets are
    retransmitted, and finally the link fails in the middle of a run.

    ## Verdicts
    An alarm with a current value beyond the module's own threshold fails. A warning, or an alarm with a value that is
    within its threshold or not shown, warns: the flags stay set until they are read. On InfiniBand, the temperature
    is compared with the module's limits, as mlxlink prints them.

    ## False alarms
    Flags that were latched when the cable was plugged in; run the check again. Passive copper has none.
    """
    ports = _cabled(node, site)
    warn, fail = port_reporters(node, site)
    good, errors, hottest = list[str](), list[tuple[Port, EvidenceError]](), list[float]()
    keys: list[str] = []
    for port in ports:
        try:
            if port.roce:
                key = f"cmd:ethtool -m {_netdev(port)}"
                found = node.parsed(key, ethtool_module.parse_module)
                temperature = found.temperature_c if found.measures else None
                complaint = judge_module(port.name, found, key, warn, fail)
            else:
                key = f"cmd:mlxlink -d {port.device} -m -c"
                link = _mlxlink(node, port)
                temperature, complaint = link.temperature_c, _too_hot(port, link, key, fail)
        except EvidenceError as error:
            errors.append((port, error))
            continue
        if complaint:
            yield complaint
        else:
            good.append(port.name)
            keys.append(key)
            hottest += [temperature] if temperature is not None else []
    yield from _unread(errors)
    if good:
        which = f"all {len(ports)}" if len(good) == len(ports) else f"{len(good)} of {len(ports)}"
        modules = "the only module or cable raises" if len(ports) == 1 else f"{which} modules and cables raise"
        yield passed(f"{modules} no alarm",
                     found=f"at most {max(hottest):.0f} degrees C" if hottest else None, evidence=keys[:3])  # fmt: skip


def judge_module(name: str, found: ethtool_module.Module, key: str, warn: _Reporter, fail: _Reporter) -> Finding | None:
    """Report the alarms that a module raises; None if there are none."""
    if not found.flags:
        return None
    real = [flag for flag in found.flags if flag.level == "alarm" and flag.now]
    shown = real or list(found.flags)
    more = f" and {counted(len(found.flags) - 1, 'more flag')}" if len(found.flags) > 1 else ""
    latched = ""
    if all(flag.now is False for flag in found.flags):
        latched = " (latched: the value is not beyond its threshold)"
    elif not any(flag.now for flag in found.flags):
        latched = " (its thresholds are not shown)"
    heat = "" if found.temperature_c is None else f"; {found.temperature_c:.0f} degrees C"
    return (fail if real else warn)(
        f"the module of {name} raises {shown[0]}{more}{latched}",
        subject=name,
        found=f"{', '.join(str(flag) for flag in shown[:4])}: on{heat}; {found.name}",
        expected="no alarm",
        evidence=[key],
        quote="\n".join(f"{flag}: On" for flag in found.flags[:8]),
    )


def _too_hot(port: Port, link: ethtool_module.LinkQuality, key: str, fail: _Reporter) -> Finding | None:
    if link.temperature_c is None or link.limits_c is None or link.temperature_c <= link.limits_c[1]:
        return None
    return fail(
        f"the module of {port.name} is at {link.temperature_c:.0f} degrees C, above its limit of "
        f"{link.limits_c[1]:.0f}",
        subject=port.name,
        found=f"{link.temperature_c:.0f} degrees C",
        expected=f"at most {link.limits_c[1]:.0f} degrees C (the module's own limit)",
        evidence=[key],
    )


@check(
    "optics.fec",
    title="All fast links use the same FEC",
    fault="A fast link lacks FEC, or uses a different FEC",
    impact="drifts",
    owner="network",
    source="IEEE 802.3cd, 802.3bs, 802.3ck (RS-FEC of PAM4 lanes); ethtool(8)",
    fix="`ethtool --set-fec IF encoding auto`, and set the same on the switch port. A cable that "
    "needs a different FEC from its neighbours is of a different type.",
    action="fix-site",
    answers=("AN-6",),
    gating=False,
    reads=("cmd:mlxlink *",),
    unless=(no_compute_port, no_judged_port, no_cable),
)
def fec(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each port's FEC with what its rate requires and its peers use.

    ## Why it matters
    Without FEC, a fast lane loses packets at its normal error rate. A port with a different FEC from its peers has a
    different latency, and suggests a different cable type or a manually configured switch port.

    ## Verdicts
    A port without FEC at 200 Gb/s or more on RoCE warns: its lanes are specified with RS-FEC only. A port that differs
    from most peers of the same rate warns. On InfiniBand, the subnet selects the FEC, so any FEC that the peers share
    passes.

    ## False alarms
    Ports of 25 to 100 Gb/s over short copper, which may run without FEC.
    """
    ports = _cabled(node, site)
    warn, _ = port_reporters(node, site)
    active: dict[Port, tuple[str, str]] = {}
    errors: list[tuple[Port, EvidenceError]] = []
    for port in ports:
        try:
            if port.roce:
                key = f"cmd:ethtool --show-fec {_netdev(port)}"
                active[port] = node.parsed(key, ethtool_module.parse_fec), key
            else:
                key = f"cmd:mlxlink -d {port.device} -m -c"
                active[port] = _mlxlink(node, port).fec or "not reported", key
        except EvidenceError as error:
            errors.append((port, error))
    odd = 0
    for port, (encoding, key) in active.items():
        peers = Counter(peer_encoding for other, (peer_encoding, _) in active.items()
                        if (other.roce, other.rate_gbps) == (port.roce, port.rate_gbps))  # fmt: skip
        usual, number = peers.most_common(1)[0]
        expected = ""
        if port.roce and encoding.lower() in ("off", "none") and (port.rate_gbps or 0) >= PAM4_GBPS:
            expected = f"RS, which the lanes of a {port.rate_gbps:g} Gb/s link need"
        elif encoding != usual and number > peers[encoding]:
            expected = f"{usual}, which {counted(number, 'peer uses', 'peers use')}"
        if expected:
            odd += 1
            yield warn(f"{port.name} runs with FEC {encoding} instead of {expected}", subject=port.name, found=encoding,
                       expected=expected, evidence=[key])  # fmt: skip
    yield from _unread(errors)
    if active and not odd:
        kinds = ", ".join(sorted({encoding for encoding, _ in active.values()}))
        yield passed(f"{some_of(len(active), len(ports), 'compute port')} {verb(len(active), 'uses')} FEC "
                     f"{kinds}", found=kinds,
                     evidence=[key for _, key in active.values()][:3])  # fmt: skip


#: Bit error ratios above which a link is reported: before FEC (Oracle's oci-hpc), after it, and of symbols.
RAW, EFFECTIVE, SYMBOL = 1e-7, 1e-12, 1e-12


@check(
    "optics.ber",
    title="Links have a low bit error ratio",
    fault="A link has a high bit error ratio",
    impact="drifts",
    owner="network",
    explains=(("counters.link-quality", "part"),),
    source=f"{MLXLINK}; raw: Oracle's oci-hpc healthcheck; effective and symbol: NVIDIA's rule of thumb, ibdiagnet",
    fix="Clean and reseat the cable; `mlxlink -d DEVICE -m -c` names the lane; clear with `--pc`, check again "
    "after an hour, and replace the part that still has errors.",
    answers=("AN-6",),
    gating=False,
    unless=(no_compute_port, no_judged_port, no_cable),
)
def bit_error_ratio(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare bit error ratios before and after FEC with those of a good link.

    ## Why it matters
    An error that FEC cannot correct loses a packet, and the message is retransmitted. The ratio before FEC rises
    earlier.

    ## Verdicts
    A ratio above 1e-7 before FEC, above 1e-12 after FEC, or above 1e-12 for symbols warns. The ratios are averages
    since the counters were cleared, or since the link came up, so a long average hides a new fault:
    counters.link-quality judges growth.

    ## False alarms
    A cable that was moved while its link was up, without clearing the counters.
    """
    ports = _cabled(node, site)
    warn, _ = port_reporters(node, site)
    good: list[tuple[str, str]] = []
    errors: list[tuple[Port, EvidenceError]] = []
    worst = 0.0
    for port in ports:
        try:
            link = _mlxlink(node, port)
        except EvidenceError as error:
            errors.append((port, error))
            continue
        key = f"cmd:mlxlink -d {port.device} -m -c"
        if (finding := judge_ratios(port.name, link, key, warn)) is not None:
            yield finding
        else:
            good.append((port.name, key))
            worst = max(worst, link.raw_ber or 0.0)
    yield from _unread(errors)
    if good:
        yield passed(f"{some_of(len(good), len(ports), 'link')} {verb(len(good), 'has')} a low bit error ratio",
                     found=f"at most {worst:.2g} before FEC", evidence=[key for _, key in good][:3])  # fmt: skip


def judge_ratios(name: str, link: ethtool_module.LinkQuality, key: str, report: _Reporter) -> Finding | None:
    """Report a link's bit error ratios that are too high; None if there are none."""
    bad = [(what, ratio, limit) for what, ratio, limit in (
        ("bit error ratio after FEC", link.effective_ber, EFFECTIVE), ("symbol error ratio", link.symbol_ber, SYMBOL),
        ("bit error ratio before FEC", link.raw_ber, RAW)) if ratio is not None and ratio > limit]  # fmt: skip
    if not bad:
        return None
    since = "" if link.minutes is None else f", over {link.minutes / 60:.0f} hours"
    return report(
        f"{name} has a {bad[0][0]} of {bad[0][1]:.2g}{since}",
        subject=name,
        found=", ".join(f"{what} {ratio:.2g}" for what, ratio, _ in bad),
        expected=", ".join(f"{what} at most {limit:g}" for what, _, limit in bad),
        evidence=[key],
    )
