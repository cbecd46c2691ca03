"""File system records: content of files, directory entries, free space."""

import os
import stat

from .records import Record, name, refusal, text

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Dict

_TYPES = (
    ("file", stat.S_ISREG),
    ("dir", stat.S_ISDIR),
    ("link", stat.S_ISLNK),
    ("char", stat.S_ISCHR),
    ("block", stat.S_ISBLK),
    ("fifo", stat.S_ISFIFO),
    ("socket", stat.S_ISSOCK),
)


def kind(mode: int) -> str:
    """Return the file type of a mode, such as ``file``, ``dir`` or ``link``."""
    return next(word for word, test in _TYPES if test(mode))


def read_file(path: str, cap: int) -> Record:
    """Read at most ``cap`` bytes of a regular file, never of a device."""
    try:
        found = kind(os.stat(path).st_mode)
        if found != "file":
            return {"status": "error", "why": "is a {}, not a regular file".format(found)}
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        try:
            content = bytearray()
            while len(content) <= cap:
                piece = os.read(fd, cap + 1 - len(content))
                if not piece:
                    return {"status": "ok", "out": text(bytes(content))}
                content += piece
        finally:
            os.close(fd)
    except OSError as error:
        return refusal(error)
    why = "longer than {0} bytes; the first {0} were saved".format(cap)
    return {"status": "cut", "out": text(bytes(content[:cap])), "bytes": cap, "why": why}


def read_files(path: str, cap: int) -> Record:
    """Read all regular files in a directory, such as the counters in sysfs.

    ``cap`` limits the bytes of each file; reading stops when all together exceed it.
    """
    value: Dict[str, str] = {}
    failed, size = [], 0
    try:
        found = sorted(os.listdir(path))
    except OSError as error:
        return refusal(error)
    for entry in found:
        record = read_file(os.path.join(path, entry), cap)
        if record["status"] == "ok":
            value[name(entry)] = record["out"].rstrip("\n")
            size += len(entry) + len(value[name(entry)])
        else:
            failed.append("{}: {}".format(name(entry), record["why"]))
        if size > cap:
            why = "{} files, {} were saved".format(len(found), len(value))
            return {"status": "cut", "value": value, "bytes": cap, "why": why}
    return {"status": "ok", "value": value, "err": "".join(line + "\n" for line in failed)}


def read_dir(path: str, cap: int) -> Record:
    """List a directory without opening entries; ``cap`` bounds the names' bytes."""
    entries: Dict[str, Dict[str, Any]] = {}
    record: Record = {"status": "ok", "entries": entries}
    size = 0
    try:
        found = sorted(os.listdir(path))
    except OSError as error:
        return refusal(error)
    for entry in found:
        size += len(entry)
        if size > cap:
            record.update(status="cut", why="{} entries, {} were saved".format(len(found), len(entries)))
            break
        try:
            entries[name(entry)] = _look(os.path.join(path, entry))
        except FileNotFoundError:  # gone since the directory was read
            continue
        except OSError as error:
            record.update(refusal(error, name(entry)))
    return record


def _look(path: str) -> "Dict[str, Any]":
    status = os.lstat(path)
    entry = {
        "type": kind(status.st_mode),
        "mode": format(stat.S_IMODE(status.st_mode), "04o"),
        "uid": status.st_uid,
        "gid": status.st_gid,
        "access": ("r" if os.access(path, os.R_OK) else "") + ("w" if os.access(path, os.W_OK) else ""),
    }
    if entry["type"] == "link":
        entry["target"] = name(os.readlink(path))
    return entry


def free_space(path: str) -> Record:
    """Return the size, free bytes for users, and type of a path's file system."""
    try:
        found = os.statvfs(path)
    except OSError as error:
        return refusal(error)
    value = {"total_bytes": found.f_blocks * found.f_frsize, "free_bytes": found.f_bavail * found.f_frsize}
    kind = _file_system(os.path.realpath(path))
    return {"status": "ok", "value": dict(value, type=kind) if kind else value}


def _file_system(path: str) -> str:
    """Return the file system type of ``path``; empty if unknown."""
    best, kind = "", ""
    for line in read_file("/proc/self/mounts", 4000000).get("out", "").splitlines():
        fields = line.split(" ")
        if len(fields) > 2:
            point = fields[1].replace("\\040", " ")
            if (path + "/").startswith(point.rstrip("/") + "/") and len(point) >= len(best):
                best, kind = point, fields[2]
    return kind
