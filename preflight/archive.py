"""Evidence on disk: one file per node in a directory, ``run.json`` for the logs of a run."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterable, Sequence
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import quote

from preflight.evidence import DocumentError, Evidence, dump, no_answer, read
from preflight.facts.run import RUN

RUN_FILE = "run.json"


class ArchiveError(Exception):
    """Evidence cannot be loaded at all; the text names the path and the cure."""


def file_name(node: str) -> str:
    """Return the file name of a node's document; whatever the node is called, it stays in its directory."""
    if node == RUN:
        return RUN_FILE
    name = quote(node, safe="-_.+@:") + ".json"
    if name.startswith(".") or name == RUN_FILE:
        name = f"%{ord(node[0]):02X}{name[1:]}"
    return name


def save(directory: Path, evidences: Iterable[Evidence]) -> None:
    """Write each document to ``DIRECTORY/NODE.json``; raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    for evidence in evidences:
        write(directory / file_name(evidence.node), dump(evidence))


def write(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old content or the new, never half of it; raises OSError."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def load(paths: Sequence[Path]) -> tuple[list[Evidence], Evidence | None]:
    """Read documents from files and directories: the nodes in the order of their names, and the run's logs.

    A file that is not evidence, or only half of it, becomes a node without an answer; a path that
    cannot be opened, or a node that is described twice, raises ArchiveError.
    """
    nodes: dict[str, tuple[Evidence, Path]] = {}
    run: Evidence | None = None
    for path in _files(paths):
        try:
            evidence = read(path)
        except OSError as error:
            raise ArchiveError(f"{path}: cannot be read: {error.strerror}") from None
        except DocumentError as error:
            if _is_report(path):
                continue
            evidence = no_answer(path.stem, "read", str(error), _written_at([path]))
        if evidence.node == RUN:
            run = evidence if run is None else _merged(run, evidence)
            continue
        if evidence.node in nodes:
            other = nodes[evidence.node][1]
            raise ArchiveError(f"{other} and {path} both describe node {evidence.node}; judge them one by one")
        nodes[evidence.node] = (evidence, path)
    return [nodes[name][0] for name in sorted(nodes)], run


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(path.glob("*.json"))
            if not inside:
                raise ArchiveError(f"{path}: holds no *.json file; `preflight check --save {path}` writes them")
            found += inside
        elif path.exists():
            found.append(path)
        else:
            raise ArchiveError(f"{path}: there is no such file or directory")
    return found


def _is_report(path: Path) -> bool:
    """Tell a report that lies beside the evidence from evidence that is damaged."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(document, dict) and str(document.get("schema", "")).startswith("preflight.report/")


def _merged(one: Evidence, other: Evidence) -> Evidence:
    return Evidence(RUN, one.collected_at, {**one.records, **other.records}, origin=one.origin)


def logs(paths: Sequence[Path], limit: int) -> Evidence | None:
    """Make the evidence of a run from log files; None without any. Raises ArchiveError.

    At most ``limit`` bytes of each are kept; what is longer is marked as cut.
    """
    records: dict[str, object] = {}
    for path in paths:
        try:
            with path.open("rb") as stream:
                raw = stream.read(limit + 1)
        except OSError as error:
            raise ArchiveError(f"{path}: cannot be read: {error.strerror}") from None
        text = raw[:limit].decode("utf-8", "backslashreplace")
        key = f"log:{path.name}"
        while key in records:
            key += "'"
        records[key] = (
            {"status": "ok", "out": text}
            if len(raw) <= limit
            else {"status": "cut", "out": text, "why": f"longer than {limit} bytes"}
        )
    return Evidence(RUN, _written_at(paths), records) if records else None


def _written_at(paths: Sequence[Path]) -> str:
    """Return when the newest of some files was written, UTC."""
    newest = max(path.stat().st_mtime for path in paths)
    return datetime.fromtimestamp(newest, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
