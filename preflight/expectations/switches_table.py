"""Expectations for the Ethernet switches: the cluster file's table ``[switches]``."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from preflight._startup.lightclass import dataclass, field
from preflight.expectations import schema
from preflight.expectations.node_class import NodeClass


@dataclass(frozen=True)
class SwitchesTable:
    """The table ``[switches]``; without it, its values are unknown."""

    hosts: tuple[str, ...] | None = schema.key(
        schema.nodes, "switches that `check --switches` reads over SSH; no other switch is contacted"
    )
    eos: tuple[str, ...] | None = schema.key(
        schema.nodes, "switches with Arista EOS, which `check --switches` reads with show commands"
    )
    nxos: tuple[str, ...] | None = schema.key(
        schema.nodes, "switches with Cisco NX-OS, which `check --switches` reads with show commands over SSH"
    )
    junos: tuple[str, ...] | None = schema.key(
        schema.nodes, "switches with Juniper Junos, which `check --switches` reads with show commands over SSH"
    )
    linux: tuple[str, ...] | None = schema.key(
        schema.nodes,
        "switches with Linux, such as Cumulus Linux, which `check --switches` reads with commands over SSH",
    )
    eos_via: str | None = schema.key(schema.one_of("ssh", "eapi"), "how EOS switches are reached; default: ssh")
    eapi_ca: str | None = schema.key(schema.text, "file of the CA certificates for eAPI; default: the system's")
    eapi_port: int | None = schema.key(schema.integer(1, 65535), "port of eAPI; default: 443")
    roce_priority: int | None = schema.key(
        schema.integer(0, 7), "the lossless priority of RoCE; default: qos.pfc_priority of the classes"
    )
    roce_dscp: int | None = schema.key(schema.integer(0, 63), "DSCP of RoCE packets; default: qos.dscp of the classes")
    cable_m: float | None = schema.key(
        schema.number(0.1, 100_000), "length of the longest cable in metres, if a switch does not show it"
    )
    dcqcn: bool | None = schema.key(schema.boolean, "whether hosts slow down on ECN marks; false: PFC alone, by design")
    watchdog: bool | None = schema.key(schema.boolean, "whether the PFC watchdog must be on")
    flows: int | None = schema.key(
        schema.integer(1, 10_000_000), "flows (queue pairs) that cross the uplinks of one leaf at the same time"
    )
    oversubscription: float | None = schema.key(
        schema.number(0.1, 100), "ratio of the link rates below and above a leaf, by design; 1 is non-blocking"
    )

    @property
    def names(self) -> frozenset[str]:
        """The names of all switches that are listed."""
        return frozenset(name for names in (self.hosts or (), *self.by_platform.values()) for name in names)

    @property
    def by_platform(self) -> dict[str, tuple[str, ...]]:
        """The switches that are read by commands."""
        return {platform: getattr(self, platform) or () for platform in ("eos", "nxos", "junos", "linux")}


@dataclass(frozen=True)
class EthernetSite:
    """The expectations for the Ethernet switches, and their sources."""

    path: str = ""
    settings: SwitchesTable = field(default_factory=SwitchesTable)
    class_priority: int | None = None  # qos.pfc_priority, if all classes share it
    class_dscp: int | None = None  # qos.dscp, if all classes share it

    def source(self, key: str) -> str:
        """Return the name of a key of the table for a finding."""
        return f"{Path(self.path).name or 'cluster.toml'} switches.{key}"

    @property
    def priority(self) -> int | None:
        """The lossless priority of RoCE; None if not declared."""
        declared = self.settings.roce_priority
        return declared if declared is not None else self.class_priority

    @property
    def dscp(self) -> int | None:
        """The DSCP of RoCE packets; None if not declared."""
        declared = self.settings.roce_dscp
        return declared if declared is not None else self.class_dscp


def read_switches(reader: schema.TableReader, body: Any, path: str, classes: Mapping[str, NodeClass]) -> EthernetSite:
    """Read the table; adds errors."""
    settings = reader.dataclass(SwitchesTable, body, ("switches",))

    def shared(name: str) -> int | None:
        values = {getattr(members.qos, name) for members in classes.values()} - {None}
        return values.pop() if len(values) == 1 else None

    return EthernetSite(path, settings, shared("pfc_priority"), shared("dscp"))
