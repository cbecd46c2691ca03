"""Comparison of switches of one tier."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from preflight.checks.switch.common import judged_ports
from preflight.checks.switch.links import no_cable
from preflight.expectations.switches_table import EthernetSite
from preflight.facts.switch.ethernet import Ethernet
from preflight.facts.switch.model import SwitchFacts
from preflight.model import Finding, check, clause, passed, unknown, warned

#: Minimum number of switches in a tier to call one of them odd.
_FEW = 3

#: Maximum number of characters of a value in a finding.
_LONGEST = 120


@check(
    "ethernet.peers-equal",
    title="Switches of one tier have the same settings",
    fault="A switch has different settings from the rest of its tier",
    impact="drifts",
    owner="network",
    source="a Clos of equal leaves and equal spines; SONiC WRED_PROFILE, BUFFER_PROFILE, DSCP_TO_TC_MAP, PFC_WD, PORT",
    fix="Compare the switch with its peers (`show running-config`, `config_db.json`), and correct its settings.",
    action="fix-site",
    separate=True,
    answers=("AN-4",),
    scope="fleet",
    switches=True,
    reads=(
        "redis:CONFIG_DB WRED_PROFILE",
        "redis:CONFIG_DB BUFFER_PROFILE",
        "redis:CONFIG_DB DSCP_TO_TC_MAP",
        "redis:CONFIG_DB PFC_WD",
        "eos:show qos interfaces",
    ),
    unless=(no_cable,),
)
def peers_equal(net: Ethernet, site: EthernetSite) -> Iterator[Finding]:
    """Compare ECN, buffers, maps, watchdog and MTU of the switches of each tier.

    ## Why it matters
    A setting that differs on one switch may be valid on its own, so no other check reports it. But paths through this
    switch behave differently, and the speed of a job depends on its placement.

    ## Verdicts
    Switches of one model are compared in two tiers: those with hosts, and those without. In a tier of three or more, a
    switch that differs from more than half of them warns. Fewer switches, or settings without a majority, are not
    judged; if no tier has a majority, the result is unknown. Settings that were not read are not compared.

    ## False alarms
    A leaf of storage or login nodes, with different settings on purpose.
    """
    leaves = {cable.near.device for cable in net.cables if not cable.other.is_switch}
    tiers: dict[tuple[bool, str, str], list[SwitchFacts]] = {}
    for switch in net.switches:
        tiers.setdefault((switch.name in leaves, switch.platform, switch.model), []).append(switch)
    compared = odd = 0
    for (is_leaf, _, _), switches in tiers.items():
        tier = [(switch, _settings(net, switch, site)) for switch in switches]
        usual = _usual([settings for _, settings in tier])
        compared += len(switches) if usual else 0
        for switch, settings in tier:
            other = [name for name, value in settings.items() if name in usual and value != usual[name]]
            if other:
                odd += 1
                yield warned(
                    f"{switch.name} differs from most {'leaves' if is_leaf else 'switches above the leaves'}: "
                    f"{', '.join(other)}", subject=switch.name,
                    found=f"{other[0]}: {_beyond(settings[other[0]], usual[other[0]])}",
                    expected=_beyond(usual[other[0]], settings[other[0]]),
                    evidence=[switch.key(_part(name)) for name in other],
                )  # fmt: skip
    if compared > odd:
        yield passed(f"{clause(compared - odd, 'switch', 'has')} the same settings as most of the tier",
                     evidence=[net.switches[0].key("ecn"), net.switches[0].key("profiles")])  # fmt: skip
    elif not compared:
        yield unknown(f"no tier has {_FEW} switches of one model with known settings",
                      evidence=[net.switches[0].key("ecn")], fix="pass the evidence of all switches")  # fmt: skip


#: Setting -> the part of the facts that shows it.
_PARTS = {"ECN thresholds": "ecn", "buffers": "profiles", "DSCP maps": "dscp", "PFC watchdog": "watchdog",
          "MTU": "ports"}  # fmt: skip


def _beyond(value: str, other: str) -> str:
    """Return the items of a value that another value lacks, or else all items."""
    items, others = value.split(", "), other.split(", ")
    value = ", ".join([item for item in items if item not in others] or items)
    return value if len(value) <= _LONGEST else f"{value[: _LONGEST - 2]} …"


def _part(setting: str) -> str:
    return _PARTS[setting.partition(" at ")[0]]


def _usual(settings: list[Mapping[str, str]]) -> dict[str, str]:
    """Return the value of each setting that more than half of a tier's switches have."""
    usual = {}
    for name in dict.fromkeys(name for switch in settings for name in switch):
        values = Counter(switch[name] for switch in settings if name in switch)
        if sum(values.values()) >= _FEW:
            value, number = values.most_common(1)[0]
            if number * 2 > sum(values.values()):
                usual[name] = value
    return usual


def _settings(net: Ethernet, switch: SwitchFacts, site: EthernetSite) -> dict[str, str]:
    """Describe the settings of the lossless ports in use, without unread ones."""
    ports = [(port, priority) for port, priority in judged_ports(net, switch, site) if port.up is not False]
    marked = {switch.ecn.get((port.name, switch.queue(port.name, priority))) for port, priority in ports}
    buffers: dict[str, set[str]] = {}
    for port, priority in ports:
        group = switch.groups.get((port.name, switch.group(port.name, priority, site.dscp)))
        if group is not None and port.speed_gbps and port.cable_m:  # longer cables need larger buffers
            shown = f"xoff {group.xoff}, size {group.size}, threshold {group.dynamic_th or group.static_th or 0}"
            buffers.setdefault(f"buffers at {port.speed_gbps:g} Gb/s and {port.cable_m:g} m", set()).add(shown)
    maps = {
        ", ".join(
            f"{key} {start} to {end} {value}"
            for key, end, table in (("DSCP", "TC", of.tc_of_dscp), ("TC", "queue", of.queue_of_tc or {}))
            for start, value in table.items()
        )
        for port, _ in ports
        if (of := switch.maps.get(port.name)) is not None and of.tc_of_dscp
    }
    dogs = {dog for port, _ in ports if (dog := switch.watchdogs.get(port.name))}
    settings = {
        "ECN thresholds": {
            f"{mark.kmin} to {mark.kmax} bytes (at most {mark.pmax}%)" for mark in marked if mark and mark.on
        },
        **buffers,
        "DSCP maps": maps,
        "PFC watchdog": {f"{dog.action} {dog.detect_ms}/{dog.restore_ms} ms" for dog in dogs},
        "MTU": {f"{port.mtu} bytes" for port, _ in ports if port.mtu},
    }
    return {
        name: ", ".join(sorted(values))
        for name, values in settings.items()
        if values and _part(name) not in switch.gaps
    }
