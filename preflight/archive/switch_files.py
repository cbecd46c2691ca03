"""Evidence of switches from files: databases of SONiC, and pasted output.

No switch is contacted: network teams can provide files instead of credentials. A folder contains either the files of
one switch, or one folder, archive or file per switch.
"""

from __future__ import annotations

import gzip
import re
import tarfile
import zlib
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path, PurePosixPath
from typing import IO, Any

from preflight._startup.lightclass import dataclass, replace
from preflight.archive.directory import ArchiveError
from preflight.evidence import safe_read
from preflight.evidence.document import SWITCH, Evidence
from preflight.parsers.switch import eos_answers, redis_dump, session, sonic_commands, sonic_tables

#: Maximum unpacked bytes of a switch's file, and maximum members of an archive.
_MOST_BYTES, _MOST_MEMBERS = 96 << 20, 20_000

_ARCHIVES = (".tar.gz", ".tgz", ".tar")

#: File name of a dump, with the database and the number of the reading. A switch stores its configuration in
#: /etc/sonic/config_db.json.
_DUMP = re.compile(r"(?:.*[._-])?(APPL|CONFIG|STATE|COUNTERS)_DB(?:_([12]))?\.json(?:\.gz)?", re.I)
#: File name of an EOS answer, with the command and the number of the reading. The file of a session may have any name.
_ANSWER = re.compile(r"(show[ _][a-z_ ]{1,60}?)(?:[ _]([12]))?\.json", re.I)
_SESSIONS = (".txt", ".log")
#: A host name that is used unchanged.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")

#: Errors of an archive that is cut or damaged.
_CUT = (OSError, EOFError, tarfile.TarError, zlib.error)

#: File name of the time at which the counters in a techsupport archive were read.
_DATE = re.compile(r"date\.counter_([12])(?:\.gz)?")


@dataclass(frozen=True)
class _File:
    """A file of a switch: its name without folders, and its text or why it has none."""

    name: str
    text: str
    why: str = ""


def switch_documents(paths: Sequence[Path]) -> list[Evidence]:
    """Read the documents of switches from files; raises ArchiveError.

    A file that cannot be unpacked or parsed becomes records with an error.
    """
    documents: dict[str, Evidence] = {}
    for path in paths:
        try:
            made = list(_switches(path))
        except (OSError, tarfile.TarError, EOFError) as error:
            raise ArchiveError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
        if not made:
            raise ArchiveError(
                f"{path} contains no dump of a SONiC database, such as CONFIG_DB.json or a techsupport archive, and "
                f"no session of SONiC, EOS, NX-OS, Junos or Linux, and no answer of EOS, such as show_interfaces.json"
                f"{_begins(path)}"
            )
        for evidence in made:
            if evidence.node in documents:
                raise ArchiveError(
                    f"{path}: {evidence.node} has files in two places; use one folder and one host name per switch"
                )
            documents[evidence.node] = evidence
    return [documents[name] for name in sorted(documents)]


def _switches(path: Path) -> Iterator[Evidence]:
    if not path.exists():
        raise ArchiveError(f"{path}: no such file or directory")
    if path.is_dir():
        inside = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
        dumps = [entry for entry in (*inside, *_dump_folder(path)) if entry.is_file() and _is_part(entry.name)]
        if dumps:
            yield _evidence(path.name, [_plain(entry) for entry in dumps], _written_at(dumps))
            return
        answers = [entry for entry in inside if entry.is_file() and _question(entry.name)]
        if evidence := _shown(path.name, [_plain(entry) for entry in answers], answers):
            yield evidence
            return
        for entry in inside:
            if entry.is_dir() or entry.name.lower().endswith((*_ARCHIVES, *_SESSIONS)) or _is_part(entry.name):
                yield from _switches(entry)
    elif path.name.lower().endswith(_ARCHIVES):
        name = next(path.name[: -len(end)] for end in _ARCHIVES if path.name.lower().endswith(end))
        files, why = _members(path)
        if why and not files:
            raise ArchiveError(f"{path} cannot be read: {why}")
        if files:
            lost = _lost(files, f"{path.name} is cut or damaged: {why}") if why else ()
            yield _evidence(name, [*files, *lost], _written_at([path]))
    elif _is_part(path.name):
        yield _evidence(path.name.partition(".")[0], [_plain(path)], _written_at([path]))
    elif evidence := _shown(path.stem, [_plain(path)], [path]):
        yield evidence
    elif (file := _plain(path)).text.lstrip().startswith("{") and (database := _database(file)):
        yield _evidence(path.name.partition(".")[0], [replace(file, name=f"{database}.json")], _written_at([path]))


def _begins(path: Path) -> str:
    """Return how a rejected file begins, for the message; empty for a folder."""
    if path.is_dir() or path.name.lower().endswith(_ARCHIVES):
        return ""
    return f"; it begins with {' '.join(_plain(path).text[:400].split())[:80]!r}"


def _database(file: _File) -> str | None:
    """Return which SONiC database a file contains, by its keys; None if unknown."""
    try:
        return sonic_tables.database(redis_dump.parse(file.text))
    except ValueError:
        return None


def _question(name: str) -> str | None:
    """Return the EOS command whose output the file with this name has, or None."""
    match = _ANSWER.fullmatch(name)
    return eos_answers.question(match[1].replace("_", " ")) if match else None


def _shown(name: str, files: Sequence[_File], paths: Sequence[Path]) -> Evidence | None:
    """Return the document of a switch by its sessions; None if no file has an answer.

    Raises ArchiveError if all answers are invalid.
    """
    answers: list[tuple[str, dict[str, Any]]] = []
    platform = session.EOS
    for file in files:
        if command := _question(file.name):
            why = {"status": "error", "why": file.why}
            answers.append((command, why if file.why else eos_answers.record(command, file.text)))
        elif pasted := session.recorded(file.text):
            platform, shown, answers = pasted
            name = shown.name
    records = platform.records(answers)
    if not records:
        return None
    if not any(record["status"] == "ok" for record in records.values()):
        raise ArchiveError(f"{paths[0]}: {next(iter(records.values()))['why']}")
    named = records.get("eos:show hostname", {}).get("value", {}).get("hostname", "")
    return Evidence(named if isinstance(named, str) and _NAME.fullmatch(named) else name, _written_at(paths), records,
                    {"via": "file", "notes": []}, kind=SWITCH, platform=platform.name)  # fmt: skip


def _dump_folder(path: Path) -> list[Path]:
    folder = path / "dump"
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _is_part(name: str) -> bool:
    return bool(_DUMP.fullmatch(name) or _DATE.fullmatch(name))


def _plain(path: Path) -> _File:
    safe_read.require_regular_file(path)
    with path.open("rb") as stream:
        return _file(path.name, stream)


def _members(path: Path) -> tuple[list[_File], str]:
    """Return the dumps in an archive, and why it ends early.

    Nothing is written to disk.
    """
    files: list[_File] = []
    try:
        with tarfile.open(path, "r|*") as archive:
            for number, member in enumerate(archive):
                if number >= _MOST_MEMBERS:
                    raise ArchiveError(f"{path} has more than {_MOST_MEMBERS} members")
                name = PurePosixPath(member.name).name
                if member.isreg() and _is_part(name) and (stream := archive.extractfile(member)):
                    files.append(_file(name, stream))
    except _CUT as error:
        return files, str(error)
    return files, ""


def _lost(files: Sequence[_File], why: str) -> Iterator[_File]:
    """Yield the databases that may be in the lost part of an archive."""
    read = {match[1].upper() for file in files if (match := _DUMP.fullmatch(file.name))}
    for database in ("APPL", "CONFIG", "STATE", "COUNTERS"):
        if database not in read:
            yield _File(f"{database}_DB.json", "", why)


def _file(name: str, stream: IO[bytes]) -> _File:
    unpacked = gzip.GzipFile(fileobj=stream) if name.lower().endswith(".gz") else stream
    try:
        content = unpacked.read(_MOST_BYTES + 1)
    except _CUT as error:
        return _File(name, "", f"{name} cannot be unpacked: {error}")
    if len(content) > _MOST_BYTES:
        return _File(name, "", f"{name} has more than {_MOST_BYTES >> 20} MiB")
    return _File(name, content.decode("utf-8", "replace"))


def _evidence(name: str, files: Sequence[_File], at: str) -> Evidence:
    """Return the document of one SONiC switch from its files."""
    readings: dict[str, list[tuple[str, _File]]] = {}
    dates: dict[str, str] = {}
    for file in files:
        if match := _DUMP.fullmatch(file.name):
            readings.setdefault(f"{match[1].upper()}_DB", []).append((match[2] or "", file))
        elif match := _DATE.fullmatch(file.name):
            dates[match[1]] = file.text
    times = sonic_commands.reading_times(dates)
    records: dict[str, dict[str, Any]] = {}
    for database, dumps in readings.items():
        numbered = [dump for dump in sorted(dumps, key=lambda dump: dump[0]) if dump[0]] or dumps
        for number, file in numbered[:2]:
            for key, record in _records(database, file).items():
                if number in times:
                    record["at_s"] = times[number]
                if key in records:
                    records[key]["again"] = record
                else:
                    records[key] = record
    about = records.get("redis:CONFIG_DB DEVICE_METADATA", {}).get("value", {}).get("localhost", {})
    named = about.get("hostname", "")
    return Evidence(named if _NAME.fullmatch(named) else name, at, records, {"via": "file", "notes": []}, kind=SWITCH,
                    platform="sonic")  # fmt: skip


def _records(database: str, file: _File) -> dict[str, dict[str, Any]]:
    why = file.why
    hashes: redis_dump.Hashes = {}
    if not why:
        try:
            hashes = redis_dump.parse(file.text)
        except ValueError as error:
            why = f"{file.name} cannot be read: {error}"
    values = dict(sonic_tables.records(database, hashes))
    return {
        key: {"status": "error", "why": why} if why else {"status": "ok", "value": value}
        for key, value in values.items()
    }


def _written_at(paths: Sequence[Path]) -> str:
    newest = max(path.stat().st_mtime for path in paths)
    return datetime.fromtimestamp(newest, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
