"""Comparison of node values with what the cluster file declares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from preflight._startup.lightclass import dataclass
from preflight.checks.comparison.values import AND, PerDevice
from preflight.expectations import Site
from preflight.expectations.schema import Alternatives

if TYPE_CHECKING:
    from preflight.checks.comparison.electorate import Trait

#: The node check that compares these declarations.
CHECK = "node.expected"


@dataclass(frozen=True)
class Miss:
    """A value that differs from the declared one."""

    mine: str
    wanted: str
    source: str  # file and key
    device: str = ""
    right: tuple[str, ...] = ()  # accepted texts


def misses(trait: Trait, value: str | float, site: Site) -> list[Miss]:
    """Return the values of a node that differ from the declaration of its class.

    Devices without a value are left out.
    """
    if not trait.expects:
        return []
    declared = site.declared(trait.expects)
    if not isinstance(value, str):
        return [
            Miss(f"{value:.5g} {trait.unit}".strip(), f"{one.value:.5g} {trait.unit}".strip(), one.source)
            for one in declared.values()
            if abs(value - one.value) > trait.tolerance * max(abs(value), abs(one.value))
        ]
    shown = of_devices(trait, value) if has_devices(trait) else {"": value}
    found = []
    for device, mine in shown.items():
        one = declared.get(device.split(":")[0])
        if one is None:
            continue
        right = accepted(trait, one.value)
        if not set(values_of(trait, mine)) <= set(right):
            found.append(Miss(mine, " or ".join(right), one.source, device, right))
    return found


def accepted(trait: Trait, value: Any) -> tuple[str, ...]:
    """Return the accepted values of a declaration, formatted as nodes report them."""
    return tuple(value) if isinstance(value, Alternatives) else (written(trait, value),)


def compared(trait: Trait, value: str, site: Site) -> str:
    """Return the text by which a value is compared.

    Values among the declared alternatives compare as equal.
    """
    right = site.alternatives(trait.expects) if trait.expects else ()
    return " or ".join(right) if right and set(values_of(trait, value)) <= set(right) else value


def values_of(trait: Trait, value: str) -> list[str]:
    """Split a node's value into the values of its devices."""
    return value.split(AND) if isinstance(trait.read, PerDevice) else [value]


def silent(trait: Trait, value: str | float, site: Site) -> dict[str, str]:
    """Return the devices with a declared value that the node does not show.

    Maps each device to the file and key of the declaration.
    """
    if not has_devices(trait) or not isinstance(value, str):
        return {}
    shown = {device.split(":")[0] for device in of_devices(trait, value)}
    return {device: one.source for device, one in site.declared(trait.expects).items() if device not in shown}


def has_devices(trait: Trait) -> bool:
    """Return whether the values of a trait list devices.

    The class key that declares such a value has a star for the device name.
    """
    return bool(trait.items) and "*" in trait.expects


def of_devices(trait: Trait, value: str) -> dict[str, str]:
    """Return the reading of each device; the first word of an item is its name."""
    parts = (item.partition(" ") for item in value.split(trait.items))
    return {device: reading for device, _, reading in parts}


def written(trait: Trait, value: Any) -> str:
    """Format a declared value as nodes report it."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, tuple):
        return " ".join(sorted(value))
    return trait.form(value)
