"""Reading and validation of the cluster file."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from preflight._startup.lightclass import fields
from preflight.errors import PreflightError
from preflight.evidence import safe_read
from preflight.expectations import Cluster, fabric_table, gate_table, job_table, roofline_table, schema, switches_table
from preflight.expectations import waivers as exceptions
from preflight.expectations.catalogue import part_by_name
from preflight.expectations.node_class import NodeClass, Ports, Qos
from preflight.expectations.toml_errors import explain
from preflight.expectations.toml_line_numbers import Lines, decoded
from preflight.expectations.waivers import Chosen


class ClusterFileError(PreflightError):
    """Raised for an invalid cluster file.

    The text states the file, line, key, fault and fix of each error.
    """


#: A dotted key with more parts than any valid key.
_CHAIN = re.compile(r"""(?<![\w.-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){64}""")

_PLACE = re.compile(r"[\w.+/-]{1,60}", re.ASCII)

#: Maximum number of tables; enough for ten thousand nodes, each with a separate class or waiver.
_MOST_TABLES = 25_000

#: A function that returns the IDs of all checks; it is called only if a cluster file names checks.
Ids = Callable[[], Sequence[str]]


def load(path: Path, ids: Ids | None = None, today: date | None = None) -> Cluster:
    """Read and validate a cluster file; raises ClusterFileError.

    The check names are validated if ``ids`` is given, and expired waivers are errors if ``today`` is given.
    """
    try:
        raw = safe_read.content(path, safe_read.BY_HAND)
    except OSError as error:
        raise ClusterFileError(f"{path} cannot be read: {error.strerror}") from None
    return decode(raw, str(path), ids, today)


def decode(raw: bytes, path: str, ids: Ids | None = None, today: date | None = None) -> Cluster:
    """Validate the bytes of a cluster file; raises ClusterFileError.

    ``path`` names the file in errors. Relative file names in it are resolved against its folder.
    """
    try:
        text = raw.decode("utf-8").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ClusterFileError(f"{path}:{line}: not UTF-8 text (byte {error.start}) - save it as UTF-8") from None
    if (tables := text.count("\n[")) > _MOST_TABLES:
        raise ClusterFileError(f"{path} has {tables} tables, more than {_MOST_TABLES} - list many nodes in each class")
    try:
        if _CHAIN.search(text):
            raise RecursionError  # the parser's memory grows with the square of a key's parts
        data = decoded(text)
    except (ValueError, RecursionError) as error:  # ValueError: TOMLDecodeError, or a number with thousands of digits
        number, key, what, fix = explain(error, text)
        where = f"{path}:{number}:" if number else f"{path}:"
        raise ClusterFileError(f"{where} {key + ': ' if key else ''}{what} - {fix}") from None
    return from_data(data, path, text, ids, today)


def decoded_or_none(raw: bytes) -> Any:
    """Decode a cluster file without validating it; None if it is not TOML."""
    try:
        text = raw.decode("utf-8").replace("\r\n", "\n")
        return None if _CHAIN.search(text) else decoded(text)
    except (ValueError, RecursionError):
        return None


def from_data(
    data: Mapping[str, Any], path: str, text: str = "", ids: Ids | None = None, today: date | None = None
) -> Cluster:
    """Validate a decoded cluster file; raises ClusterFileError.

    ``text`` is the undecoded file, which is needed for line numbers.
    """
    lines: list[Lines] = []

    def line_of(path: schema.KeyPath) -> int | None:
        if not lines:
            lines.append(Lines(text))
        return lines[0].of(path)

    reader = schema.TableReader(line_of)
    reader.known(
        data, (), {"cluster", "class", "racks", "leaves", "fabric", "switches", "gate", "checks", "waiver", "job"}
    )
    about = reader.subtable(data, (), "cluster")
    reader.known(about, ("cluster",), {"name"})
    name = reader.value(about, ("cluster", "name"), schema.text) or ""
    classes: dict[str, NodeClass] = {}
    for class_name in reader.subtable(data, (), "class"):
        body = reader.subtable(data["class"], ("class",), class_name)
        classes[class_name] = reader.dataclass(NodeClass, body, ("class", class_name))
    racks, leaves = (_places(reader, data, table) for table in ("racks", "leaves"))
    expected_fabric = fabric_table.read(reader, reader.subtable(data, (), "fabric"), path)
    ethernet = switches_table.read_switches(reader, reader.subtable(data, (), "switches"), path, classes)
    gate = gate_table.read(reader, reader.subtable(data, (), "gate"))
    job = job_table.read_job(reader, reader.subtable(data, (), "job"))
    chosen = reader.dataclass(Chosen, reader.subtable(data, (), "checks"), ("checks",))
    waivers = exceptions.read_waivers(reader, data, today)
    if not classes and not reader.errors and not (set(data) - {"cluster", "class"}):
        reader.add_error((), "the file describes no class of nodes", "add a table [class.NAME] with gpus = 8")
    _consistent(reader, classes)
    baselines = {name: roofline_table.baseline(reader, name, c.baseline, path) for name, c in classes.items()}
    made = Cluster(
        path, name, classes, expected_fabric, baselines, gate, chosen, waivers, racks, leaves, ethernet, job, text
    )  # fmt: skip
    if ids is not None:
        exceptions.unknown_checks(reader, _named(made), ids)
        gate_table.without_checks(reader, gate, ids)
    if reader.errors:
        raise ClusterFileError("\n".join(reader.report(path)))
    return made


def _places(reader: schema.TableReader, data: Mapping[str, Any], table: str) -> dict[str, str]:
    """Return the rack or leaf of each listed node, by node; adds errors."""
    body, what = reader.subtable(data, (), table), {"racks": "rack", "leaves": "leaf"}[table]
    place_of: dict[str, str] = {}
    for place in body:
        if not _PLACE.fullmatch(place):
            reader.add_error(
                (table, place), f"is not the name of a {what}", 'expects names such as r12: r12 = "gpu[001-004]"'
            )
            continue
        for node in reader.value(body, (table, place), schema.members) or ():
            if place_of.setdefault(node, place) != place:
                reader.add_error(
                    (table, place), f"{node} is also in {what} {place_of[node]}", f"list each node in one {what}"
                )
                break
    return place_of


def _named(cluster: Cluster) -> Iterator[tuple[schema.KeyPath, tuple[str, ...]]]:
    """Yield each key that names checks, and the names."""
    for number, waiver in enumerate(cluster.waivers):
        yield ("waiver", number, "check"), (waiver.check,) if waiver.check else ()
    tables: list[tuple[schema.KeyPath, Chosen]] = [(("checks",), cluster.checks)]
    tables += [(("class", name, "checks"), members.checks) for name, members in cluster.classes.items()]
    for path, chosen in tables:
        yield (*path, "shadow"), chosen.shadow or ()
        yield (*path, "off"), chosen.off or ()
    if cluster.gate is not None:
        yield from cluster.gate.named()


def _consistent(reader: schema.TableReader, classes: Mapping[str, NodeClass]) -> None:
    rest = [name for name, members in classes.items() if members.nodes is None]
    if len(rest) > 1:
        reader.add_error(
            ("class", rest[1]), f"two classes ({', '.join(rest)}) list no nodes",
            'list the nodes of each: nodes = "gpu[001-064]"',
        )  # fmt: skip
    seen: dict[str, str] = {}
    for name, members in classes.items():
        for node in members.nodes or ():
            if node in seen and seen[node] != name:
                reader.add_error(
                    ("class", name, "nodes"),
                    f"{node} is also in class {seen[node]}",
                    "list each node in one class",
                )
                break
            seen[node] = name
        if members.checkpoint.interval_min is not None and members.checkpoint.path is None:
            reader.add_error(
                ("class", name, "checkpoint", "interval_min"), "has an interval but no path",
                'add path = "/shared/checkpoints"',
            )  # fmt: skip
        if (
            members.qos.lossless
            and members.qos.pfc_priority is None
            and not reader.noted(("class", name, "qos", "pfc_priority"))
        ):
            reader.add_error(
                ("class", name, "qos", "lossless"), "a lossless fabric needs its priority",
                "add pfc_priority = 3 (the priority your switches pause)",
            )  # fmt: skip
        _consistent_marking(reader, name, members.qos)
        roofline_table.consistent(reader, name, members, part_by_name(members.part or ""))
        roles = [(f.name, getattr(members.ports, f.name) or ()) for f in fields(Ports)[:3]]
        for position, (role, devices) in enumerate(roles):
            for other, others in roles[:position]:
                if shared := sorted(set(devices) & set(others)):
                    reader.add_error(
                        ("class", name, "ports", role), f"{shared[0]} also has the role {other}",
                        "give each device one role",
                    )  # fmt: skip
        named = members.ports.compute
        if named is not None and members.hcas is not None and len(named) != members.hcas:
            reader.add_error(
                ("class", name, "hcas"), f"hcas is {members.hcas} but ports.compute names {len(named)} devices",
                "make both agree, or omit hcas",
            )  # fmt: skip


def _consistent_marking(reader: schema.TableReader, name: str, qos: Qos) -> None:
    """Add errors for a traffic class, DSCP and CNP DSCP that contradict each other."""
    path, number = ("class", name, "qos"), qos.traffic_class
    if number is not None and number & 3 == 3:
        reader.add_error(
            (*path, "traffic_class"), f"{number} has ECN bits 3, which mark every packet as congested",
            f"write {number - 1}",
        )  # fmt: skip
    if number is not None and qos.dscp is not None and number >> 2 != qos.dscp:
        reader.add_error(
            (*path, "dscp"), f"traffic_class {number} is DSCP {number >> 2}, not {qos.dscp}",
            f"make both agree (traffic_class = {4 * qos.dscp + 2}), or omit one",
        )  # fmt: skip
    if number is not None and qos.trust == "pcp":
        reader.add_error(
            (*path, "traffic_class"), "ports that trust pcp ignore it",
            'omit it, or set trust = "dscp"',
        )  # fmt: skip
    marked = qos.dscp if qos.dscp is not None else number >> 2 if number is not None else None
    if marked is not None and qos.cnp_dscp == marked:
        reader.add_error(
            (*path, "cnp_dscp"), f"{marked} is the DSCP of the traffic that notifications should slow down",
            "use a separate DSCP: cnp_dscp = 48",
        )  # fmt: skip
