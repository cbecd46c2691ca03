"""The cluster file saved with evidence.

``--save DIR`` copies it to ``DIR/expected/cluster.toml``, with the files it names, so that a run can be judged again.
Evidence is untrusted, so only the copy is read: no path in a document is followed, no link and no file outside the
folder is read, and no node group is resolved, which would run commands of the site.

A bundle also contains the copy; only that and the files it names are unpacked, to a private folder.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any

from preflight.evidence import safe_read

if TYPE_CHECKING:
    from preflight.archive.lazy import Folder

FOLDER, NAME = "expected", "cluster.toml"


def save(directory: Path, cluster: Path | None) -> None:
    """Copy a cluster file and the files it names to the evidence.

    Without a cluster file, an older copy is removed. Files outside the cluster file's folder are left out. Raises
    OSError.
    """
    folder = directory / FOLDER
    if cluster is None or not cluster.is_file():
        if _is_plain(folder):
            (folder / NAME).unlink(missing_ok=True)
        return
    if folder.is_symlink():
        raise NotADirectoryError(errno.ENOTDIR, f"{folder} is a link")
    folder.mkdir(exist_ok=True)
    for name, raw in files(cluster):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        _write(folder / name, raw)


def files(cluster: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the files that a cluster file names in its folder, then the file itself.

    Each has its name and content; the cluster file is called NAME. Raises OSError.
    """
    raw = safe_read.content(cluster, safe_read.BY_HAND)
    for name in dict.fromkeys(_named(raw)):
        if _is_inside(name) and (cluster.parent / name).is_file():
            yield name, safe_read.content(cluster.parent / name, safe_read.DOCUMENT)
    yield NAME, raw


def _write(path: Path, raw: bytes) -> None:
    from preflight.archive.directory import replacing  # start-up: only needed with --save

    with replacing(path) as stream:
        stream.write(raw)


def found(paths: Sequence[Path]) -> tuple[Path | None, str]:
    """Return the copy saved with evidence, or why it cannot be used.

    The reason is empty if none was saved. For a single document, the copy in its folder is used. Raises BundleError.
    """
    folders = dict.fromkeys(_folder(path) for path in paths)
    copies = [copy for path in folders if _is_plain(path / FOLDER) and (copy := path / FOLDER / NAME).exists()]
    if not copies:
        return None, ""
    from preflight.expectations.cluster_file import decoded_or_none  # start-up: `check` reads no copy
    from preflight.nodeset import excerpt

    first, *more = copies
    try:
        raw = [_own(copy.parent, NAME) for copy in copies]
        if any(other != raw[0] for other in raw[1:]):
            return None, f"{first} and {more[0]} differ"
        if group := next(group_names(decoded_or_none(raw[0])), ""):
            return (
                None,
                f"{first} names the group {excerpt(group)}, but groups are resolved only for names that you type",
            )
        for name in _named(raw[0]):
            if not _is_inside(name):
                return None, f"{first} names a file outside of its folder"
            if (first.parent / name).exists():
                _own(first.parent, name, safe_read.DOCUMENT)
    except OSError as error:
        return None, f"{first} cannot be used: {error.strerror}"
    return first, ""


#: Folders unpacked from bundles in this process; each exists as long as it is referenced here.
_UNPACKED: dict[Path, tuple[Path, Folder]] = {}


def _folder(path: Path) -> Path:
    """Return the folder with the copy; a bundle's copy is unpacked first."""
    if path.suffix == ".json" and path.is_file():
        return path.parent
    from preflight.archive.lazy import Folder, is_bundle
    from preflight.evidence import bundle as packed

    if not is_bundle(path):
        return path
    inside = packed.expected(path)
    if NAME not in inside:
        return path
    folder = Folder()
    for name in (NAME, *filter(_is_inside, _named(inside[NAME]))):
        if name in inside:
            (folder.path / FOLDER / name).parent.mkdir(parents=True, exist_ok=True)
            (folder.path / FOLDER / name).write_bytes(inside[name])
    _UNPACKED[folder.path / FOLDER / NAME] = path, folder
    return folder.path


def shown(cluster: str) -> str:
    """Return the display name of a cluster file; for one in a bundle, the bundle's."""
    bundle = _UNPACKED.get(Path(cluster))
    return f"{bundle[0]}:{FOLDER}/{NAME}" if bundle else cluster


def _own(folder: Path, name: str, most: int = safe_read.BY_HAND) -> bytes:
    """Return the content of a file of the folder; raises OSError, also for a link."""
    if (folder / name).resolve() != folder.resolve() / name:
        raise safe_read.UnreadableFile(errno.EINVAL, f"{name} is a link")
    return safe_read.content(folder / name, most)


def _is_plain(folder: Path) -> bool:
    return folder.is_dir() and not folder.is_symlink()


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and path.name not in ("", NAME)


def group_names(data: Any, key: str = "") -> Iterator[str]:
    """Yield each list of nodes that names a group, which a site's command resolves."""
    if isinstance(data, dict):
        for name, value in data.items():
            yield from group_names(value, name)
    elif isinstance(data, list):
        for value in data:
            yield from group_names(value, key)
    elif key == "nodes" and "@" in str(data):
        yield str(data)


def _named(raw: bytes) -> Iterator[str]:
    """Yield the files that a cluster file names: its fabric reference and good runs."""
    from preflight.expectations.cluster_file import decoded_or_none

    data: Any = decoded_or_none(raw)
    tables = data.get("class") if isinstance(data, dict) else None
    classes = tables.values() if isinstance(tables, dict) else ()
    for table, key in ((data.get("fabric") if isinstance(data, dict) else None, "reference"),
                       *((members, "baseline") for members in classes)):  # fmt: skip
        if isinstance(table, dict) and isinstance(name := table.get(key), str):
            yield name
