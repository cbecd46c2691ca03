"""Checks of declared file systems, and of file systems that are full or read-only."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence

from preflight.checks.applicability import no_mount_declared, own_file_systems
from preflight.checks.in_logs import IN_LOGS
from preflight.evidence.document import EvidenceError, Record, with_subject
from preflight.expectations import Site
from preflight.expectations.values import DeclaredMount as Declared
from preflight.facts.host import size_text
from preflight.facts.inventory import DISK_SPACE
from preflight.facts.kernel_log import DMESG
from preflight.facts.node import NodeFacts
from preflight.model import Finding, check, failed, passed, unknown, warned
from preflight.parsers.host.mounts import MOUNTS, MountEntry, Space, parse, parse_space
from preflight.probes.declared import space

_GIB = 2**30

#: Minimum free space for a log or a lock file, in bytes.
_NO_ROOM = 2**20

#: df errors that come from missing permissions, not from a fault of the mount.
_REFUSED = re.compile(r"Permission denied|Operation not permitted")


@check(
    "host.mounts",
    explains=IN_LOGS,
    title="The declared file systems are mounted, writable and have free space",
    fault="A declared file system is not mounted, not writable or has no free space",
    impact="blocks-job",
    source='the cluster file: [class.NAME.host.mounts."/PLACE"]; proc_pid_mountinfo(5), df(1)',
    fix="Run `findmnt PLACE`, `dmesg | grep -i read-only`, `df -h PLACE` and `df -i PLACE`; mount the file system or "
    "free space, or correct the cluster file.",
    unless=(no_mount_declared,),
    action="fix-site",
)
def declared_mounts(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Compare each declared mount with the node: path, type, mode, free space.

    ## Why it matters
    If a mount is missing, jobs write to the directory below it: they fill the root disk, or save checkpoints that no
    other node sees. If a mount is full or read-only, the job fails when it saves.

    ## Verdicts
    Each difference fails. Read-only mounts and file systems are found in the mount table, and the reason is looked up
    in the kernel log; the check writes nothing. Space and inodes are those available to ordinary users. A
    separate `df` process runs for each mount; a mount whose `df` hangs, or that could not be read, is unknown. If it
    hangs, the node is excluded from jobs. A mount that waits for an automounter is unknown unless it was triggered.
    Containers are skipped.

    ## False alarms
    A mount that only some nodes of a class have; give those nodes their own class.
    """
    table = node.parsed(MOUNTS, parse)
    for place, wanted in site.members.host.mounts.items():
        source = f'{site.path.rpartition("/")[2]} class.{site.class_name}.host.mounts."{place}"'
        findings = list(_of_place(node, place, wanted, table, source))
        yield from findings or [
            passed(f"{place} is mounted as declared in the cluster file", subject=place, evidence=[MOUNTS])
        ]


def _of_place(
    node: NodeFacts, place: str, wanted: Declared, table: Sequence[MountEntry], source: str
) -> Iterator[Finding]:
    key = space(place).key
    here = [mount for mount in table if mount.place == place.rstrip("/") or mount.place == place]
    mount = here[-1] if here else None
    room, trouble = _room(node, key, place, source, f" ({mount.source})" if mount else "")
    if mount is not None and mount.kind == "autofs":
        mount = None
        if room is None and trouble is None:
            yield unknown(f"{place} waits for the automounter and was not checked", subject=place, found="autofs",
                          expected=f"mounted ({source})", evidence=[MOUNTS],
                          fix=f"mount it (`ls {shlex.quote(place)}`), then check again")  # fmt: skip
            return
    if trouble is not None and (mount is not None or here or trouble.status.value == "unknown"):
        yield trouble
        return
    if mount is None and room is None:
        under = max(
            (above for above in table if _below(place, above.place)), key=lambda above: len(above.place), default=None
        )
        on = f"no mount; the directory is on {under.place} ({under.kind})" if under else "no mount"
        yield failed(f"{place} is not mounted", subject=place, found=on, expected=f"mounted ({source})",
                     evidence=[MOUNTS])  # fmt: skip
        return
    kind = mount.kind if mount else room.kind if room else ""
    if wanted.type is not None and kind != wanted.type:
        yield failed(f"{place} is of type {kind}, not {wanted.type}", subject=place, found=kind,
                     expected=f"{wanted.type} ({source}.type)", evidence=[MOUNTS])  # fmt: skip
    if wanted.read_write is not None:
        yield from _writable(node, place, wanted.read_write, mount, source)
    if wanted.min_free_pct is not None or wanted.min_free_gib is not None or wanted.min_free_inodes is not None:
        if room is None:
            yield unknown(f"the free space of {place} was not collected from this node", subject=place,
                          expected=f"what {source} declares", evidence=[MOUNTS])  # fmt: skip
        else:
            yield from _enough(place, wanted, room, source, key)


def _below(place: str, other: str) -> bool:
    return place.startswith(f"{other.rstrip('/')}/")


def _room(node: NodeFacts, key: str, place: str, source: str, of: str) -> tuple[Space | None, Finding | None]:
    """Return the df row of a mount, or a finding about it, or neither.

    ``of`` is the source of the mount, in brackets. A job that uses a mount whose df hangs would hang as well.
    """
    if key not in node.evidence:
        return None, None
    record = node.evidence.record(key)
    expected = f"a mount that answers ({source})"
    if record.hangs:
        return None, unknown(
            f"{place}{of} does not answer: {with_subject('df', record.describe())}", subject=place, found=record.status,
            expected=expected, evidence=[key], action="fix-site", impact="blocks-job",
            fix="Check the server and the path to it; jobs that use it hang in the kernel.",
        )  # fmt: skip
    if not record.ok:
        return None, unknown(f"{place}: {with_subject('df', record.describe())}", subject=place, found=record.status,
                             expected=expected, evidence=[key])  # fmt: skip
    if record.rc not in (0, None):
        return None, _refused(record, place, of, expected, key)
    try:
        rows = [row for row in parse_space(record.out) if row.place == (place.rstrip("/") or "/")]
    except ValueError as error:
        return None, unknown(f"{place}: the output of df cannot be parsed: {error}", subject=place, expected=expected,
                             evidence=[key])  # fmt: skip
    return (rows[0], None) if rows else (None, None)


def _refused(record: Record, place: str, of: str, expected: str, key: str) -> Finding | None:
    lines = record.err.strip().splitlines()
    words = lines[0][:200] if lines else f"exit status {record.rc}"
    if words.endswith("No such file or directory"):
        return failed(f"{place} is not mounted: the directory does not exist", subject=place, found="no such directory",
                      expected=expected, evidence=[key])  # fmt: skip
    if not lines or _REFUSED.search(words) or "option" in words:
        return unknown(
            f"{place}{of} could not be examined: {words}", subject=place, found=words, expected=expected, evidence=[key]
        )
    return failed(
        f"{place}{of} does not answer: {words}", subject=place, found=words, expected=expected, evidence=[key]
    )


def _writable(node: NodeFacts, place: str, wanted: bool, mount: MountEntry | None, source: str) -> Iterator[Finding]:
    right = "read-write" if wanted else "read-only"
    expected = f"{right} ({source}.read_write)"
    if mount is None:
        yield unknown(f"it is not known whether {place} is writable: it is not in the mount table", subject=place,
                      expected=expected, evidence=[MOUNTS])  # fmt: skip
        return
    lines = _of_kernel(node, mount)
    if mount.read_only == wanted:
        mode = "read-write" if wanted is False else "read-only"
        why = f"; the kernel log shows: {lines[-1]}" if lines and wanted else ""
        yield failed(f"{place} is mounted {mode}{why}", subject=place, found=f"{mode} ({mount.source})",
                     expected=expected, evidence=[MOUNTS, *([DMESG] if why else [])])  # fmt: skip
    elif lines and wanted:
        yield warned(f"{place} is mounted read-write, but the kernel log has an error of its file system: {lines[-1]}",
                     subject=place, found=lines[-1], expected=expected, evidence=[MOUNTS, DMESG],
                     fix="Read `dmesg`; drain the node, unmount the file system, and check it (`fsck`, "
                     "`xfs_repair`).")  # fmt: skip


def _of_kernel(node: NodeFacts, mount: MountEntry) -> list[str]:
    """Return the kernel's lines about the failure of a file system."""
    device = mount.source.rpartition("/")[2]
    if not device:
        return []
    try:
        lines = [line.text.strip() for line in node.kernel_log.lines]
    except EvidenceError:
        return []
    of_device = re.compile(rf"\((?:device )?{re.escape(device)}(?: state \w+)?\): ")
    stopped = re.compile(r"read-?only|shut(?:ting)? down", re.IGNORECASE)
    return [line[:200] for line in lines if of_device.search(line) and stopped.search(line)]


def _enough(place: str, wanted: Declared, room: Space, source: str, key: str) -> Iterator[Finding]:
    if wanted.min_free_pct is not None or wanted.min_free_gib is not None:
        if not room.size_bytes or room.free_bytes is None:
            yield unknown(f"{place} does not report its free space", subject=place,
                          expected=f"what {source} declares", evidence=[key])  # fmt: skip
        else:
            pct, gib = 100 * room.free_bytes / room.size_bytes, room.free_bytes / _GIB
            for name, has, least, unit in (
                ("min_free_pct", pct, wanted.min_free_pct, "%"),
                ("min_free_gib", gib, wanted.min_free_gib, " GiB"),
            ):
                if least is not None and has < least:
                    free = size_text(room.free_bytes)
                    share = f"{has:.3g}%" if unit == "%" else free
                    yield failed(f"{place} has {share} free, less than {least:g}{unit}", subject=place,
                                 found=f"{free} of {size_text(room.size_bytes)}" if unit == " GiB"
                                 else f"{share} ({free})",
                                 expected=f"at least {least:g}{unit} ({source}.{name})", evidence=[key])  # fmt: skip
    least_inodes = wanted.min_free_inodes
    if least_inodes is not None and room.inodes != 0:
        if room.free_inodes is None:
            yield unknown(f"{place} does not report its free inodes", subject=place,
                          expected=f"at least {least_inodes} ({source}.min_free_inodes)", evidence=[key])  # fmt: skip
        elif room.free_inodes < least_inodes:
            yield failed(f"{place} has {room.free_inodes} inodes free, fewer than {least_inodes}", subject=place,
                         found=room.free_inodes, expected=f"at least {least_inodes} ({source}.min_free_inodes)",
                         evidence=[key])  # fmt: skip


@check(
    "host.file-systems",
    title="No disk file system is full, or read-only after an error",
    fault="A disk file system is full, or read-only after an error",
    impact="blocks-job",
    source="proc_pid_mountinfo(5), df(1); Documentation/admin-guide/ext4 (errors=remount-ro)",
    fix="If full, run `du -x --max-depth=1 PLACE`. If read-only, read `dmesg`, then check the file system or "
    "replace the disk. Declare the mounts that jobs need: class.NAME.host.mounts.",
    gating=False,
    unless=(own_file_systems,),
    action="fix-site",
    explains=[("fleet.host", "node", "*read-only*", "mounts*"), *IN_LOGS],
)
def file_systems(node: NodeFacts, site: Site) -> Iterator[Finding]:
    """Look for file systems without space or inodes, or read-only after an error.

    ## Why it matters
    On a disk that is full or that the kernel made read-only, logs, lock files and checkpoints fail, and a job reports
    a misleading error.

    ## Verdicts
    A file system with less than 1 MiB or no inode free for ordinary users warns, and so does one that was mounted
    writable and is now read-only, as happens after an error. One that was mounted read-only on purpose (an image, a
    boot disk) is listed without a warning. `host.mounts` judges declared mounts. The check never gates a job, because
    it is not declared whether a job needs the disk.

    ## False alarms
    A disk that is full on purpose, such as an image.
    """
    declared = set(site.members.host.mounts)
    mounts = {mount.place: mount for mount in node.parsed(MOUNTS, parse)}
    wrong = 0
    for place, mount in mounts.items():
        if mount.turned_read_only and place not in declared:
            wrong += 1
            yield warned(f"{place} ({mount.kind} on {mount.source}) went read-only", subject=place,
                         found="read-only", expected="read-write, as it was mounted", evidence=[MOUNTS],
                         fix="Read `dmesg`, drain the node, then check the file system or replace the disk.",
                         action="monitor" if mount.source.startswith("/dev/") else "",
                         impact="" if place.startswith("/boot") else "blocks-job")  # fmt: skip
    for row in _rows(node):
        at = mounts.get(row.place)
        if row.place in declared or (at is not None and at.read_only) or not row.size_bytes:
            continue
        if row.free_bytes is not None and row.free_bytes < _NO_ROOM:
            wrong += 1
            yield warned(f"{row.place} ({row.kind}, {size_text(row.size_bytes)}) is full", subject=row.place,
                         found=f"{row.free_bytes} bytes free", expected="space for users", evidence=[DISK_SPACE],
                         fix=f"Find what fills the disk: `du -x --max-depth=1 {shlex.quote(row.place)}`.")  # fmt: skip
        elif row.inodes and row.free_inodes == 0:
            wrong += 1
            yield warned(f"{row.place} ({row.kind}) has no free inode", subject=row.place,
                         found=f"0 of {row.inodes} inodes", expected="inodes for users", evidence=[DISK_SPACE],
                         fix="Find where the files are: "
                         f"`du -x --inodes --max-depth=1 {shlex.quote(row.place)}`.")  # fmt: skip
    if not wrong:
        intended = sorted(
            place for place, mount in mounts.items() if mount.source.startswith("/dev/") and mount.read_only
        )
        beside = f"; mounted read-only: {', '.join(intended[:6])}" if intended else ""
        yield passed(f"no disk file system is full, or read-only after an error{beside}",
                     evidence=[MOUNTS, DISK_SPACE])  # fmt: skip


def _rows(node: NodeFacts) -> tuple[Space, ...]:
    """Return df's table, even if it could not read every disk."""
    record = node.evidence.complete_record(DISK_SPACE)
    if record.rc == 1 and not record.out.strip() and "no file systems processed" in record.err:
        return ()
    text = node.evidence.text(DISK_SPACE, allow_rc=(0, 1) if record.out.strip() else (0,))
    try:
        return parse_space(text)
    except ValueError as error:
        raise EvidenceError(DISK_SPACE, f"cannot be parsed: {error}") from None
