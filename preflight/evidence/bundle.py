"""Archives of evidence in the format ``preflight.bundle/1``.

An archive is untrusted. It is read as a stream, within the limits below, without unpacking it to disk. Its content
cannot select a local path, and must match its manifest.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import tempfile
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO, Any

from preflight.errors import PreflightError
from preflight.evidence import json_limits
from preflight.evidence.document import DocumentError, Evidence, decode, no_answer
from preflight.schemas.conform import find_error

SCHEMA = "preflight.bundle/1"
MANIFEST = "MANIFEST.json"
EVIDENCE, EXPECTED = "evidence/", "expected/"

#: Maximum total size in bytes of the cluster file in a bundle and the files that it names.
_MOST_EXPECTED = 512 << 20

#: Maximum number of files in a bundle, maximum bytes of one file, and maximum bytes of all. A sweep of a large fabric
#: has 32 MB; ten thousand nodes have 3 GB.
MOST_FILES, MOST_BYTES_OF_ONE, MOST_BYTES = 100_000, 256_000_000, 8_000_000_000

#: Maximum expansion of a bundle that unpacks to more than FREE bytes. Evidence expands 10 to 30 times, zeros over 200.
MOST_RATIO, FREE = 100, 64_000_000

#: Maximum size in bytes of a header with a long file name.
_MOST_HEADER = 16_384


class BundleError(PreflightError):
    """Raised for an unreadable bundle.

    The text names the bundle, the limit or fault, and the fix.
    """


def write(stream: io.BufferedIOBase, about: dict[str, Any], files: Iterable[tuple[str, Iterable[bytes]]]) -> None:
    """Write a bundle: a manifest, which includes ``about``, and then the files.

    The same files always produce the same bytes. Files arrive in pieces, and are stored on disk until the manifest is
    complete.
    """
    with tempfile.TemporaryFile(prefix="preflight-") as held:
        listed = [_held(held, name, content) for name, content in files]
        manifest = (json.dumps({"schema": SCHEMA, **about, "files": listed}, indent=1, sort_keys=True) + "\n").encode()
        held.seek(0)
        with (
            gzip.GzipFile(filename="", fileobj=stream, mode="wb", mtime=0) as compressed,
            tarfile.open(fileobj=compressed, mode="w|", format=tarfile.PAX_FORMAT) as archive,
        ):
            archive.addfile(_info(MANIFEST, len(manifest)), io.BytesIO(manifest))
            for one in listed:
                archive.addfile(_info(one["name"], one["bytes"]), held)


def _held(held: IO[bytes], name: str, content: Iterable[bytes]) -> dict[str, Any]:
    """Store a file temporarily, and return its entry in the manifest."""
    digest, begin = hashlib.sha256(), held.tell()
    for piece in content:
        digest.update(piece)
        held.write(piece)
    return {"name": name, "bytes": held.tell() - begin, "sha256": digest.hexdigest()}


def _info(name: str, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mode = size, 0o644
    return info


def documents(path: Path) -> Iterator[Evidence]:
    """Yield the evidence documents in a bundle; raises BundleError.

    A file in the evidence folder that is not evidence becomes a node without an answer.
    """
    for name, content in _files(path):
        if name.startswith(EVIDENCE) and name.endswith(".json"):
            try:
                yield decode(content, f"{path}:{name}")
            except DocumentError as error:
                yield no_answer(PurePosixPath(name).stem, "read", str(error), "")


def expected(path: Path) -> dict[str, bytes]:
    """Return the cluster file in a bundle and the files that it names, by name.

    They are stored before the evidence. Raises BundleError.
    """
    held: dict[str, bytes] = {}
    for name, content in _files(path):
        if name.startswith(EVIDENCE):
            break
        if name.startswith(EXPECTED):
            held[name.removeprefix(EXPECTED)] = content
            if sum(map(len, held.values())) > _MOST_EXPECTED:
                raise BundleError(f"{path}: {EXPECTED} in it has more than {_MOST_EXPECTED} bytes")
    return held


def _files(path: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the names and contents of a bundle's files, in order.

    Raises BundleError, also for a file that does not match the manifest.
    """
    try:
        with path.open("rb") as raw, gzip.GzipFile(fileobj=raw) as unpacked:
            stream = _Limited(unpacked, raw, path)
            with tarfile.open(fileobj=stream, mode="r|", tarinfo=_Info) as archive:
                yield from _checked(path, archive)
    except OSError as error:  # gzip.BadGzipFile among them
        raise BundleError(f"{path} cannot be read: {error.strerror or error}") from None
    except (EOFError, zlib.error, tarfile.TarError, UnicodeError, ValueError, OverflowError) as error:
        raise BundleError(f"{path} is not a bundle, or damaged ({error}); request it again") from None


def _checked(path: Path, archive: tarfile.TarFile) -> Iterator[tuple[str, bytes]]:
    expected: dict[str, dict[str, Any]] | None = None
    seen: set[str] = set()
    for info in archive:
        name = info.name
        if len(seen) >= MOST_FILES:
            raise BundleError(f"{path} has more than {MOST_FILES} files")
        parts = PurePosixPath(name).parts
        if not info.isreg() or info.issparse():
            raise BundleError(f"{path}: {name[:200]!r} in it is not a regular file; a bundle contains nothing else")
        if name.startswith("/") or ".." in parts or "\\" in name or "\0" in name:
            raise BundleError(
                f"{path}: {name[:200]!r} in it points outside the archive; `preflight bundle` did not write it"
            )
        if name in seen:
            raise BundleError(f"{path}: {name[:200]!r} occurs in it twice")
        seen.add(name)
        if info.size > MOST_BYTES_OF_ONE:
            raise BundleError(f"{path}: {name[:200]!r} in it has {info.size} bytes; the limit is {MOST_BYTES_OF_ONE}")
        member = archive.extractfile(info)
        content = member.read(info.size) if member else b""
        if expected is None:
            expected = _manifest(path, name, content)
            continue
        listed = expected.get(name)
        if listed is None:
            raise BundleError(f"{path}: {name[:200]!r} in it is not listed in its manifest")
        if not len(content) == info.size == listed["bytes"] or listed["sha256"] != hashlib.sha256(content).hexdigest():
            raise BundleError(f"{path}: {name[:200]!r} in it does not match its manifest; request it again")
        yield name, content
    if expected is None:
        raise BundleError(f"{path} has no files; `preflight bundle` did not write it")
    if missing := sorted(set(expected) - seen):
        raise BundleError(f"{path} is incomplete: {missing[0][:200]!r} is missing; request it again")


def _manifest(path: Path, name: str, content: bytes) -> dict[str, dict[str, Any]]:
    """Return the manifest's entries by file name; raises BundleError."""
    if name != MANIFEST:
        raise BundleError(
            f"{path} is an archive, but not from `preflight bundle` ({SCHEMA}); unpack it and name the directory"
        )
    try:
        document = json_limits.decoded(content, once=True)
        wrong = find_error(document, "bundle-1")
    except ValueError as error:
        wrong = str(error)
    if wrong:
        raise BundleError(f"{path}: its {MANIFEST} is damaged, or of another version: {wrong}; request it again")
    return {one["name"]: one for one in document["files"]}


_LONG = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip


class _Info(tarfile.TarInfo):
    """The header of an archive member; an overlong header is rejected."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str | None, errors: str) -> _Info:
        """Read one header."""
        info = super().frombuf(buf, encoding, errors)  # type: ignore[arg-type]
        if info.type in _LONG and info.size > _MOST_HEADER:
            raise tarfile.ReadError(f"a header of {info.size} bytes")
        return info


class _Limited(io.RawIOBase):
    """The unpacked stream of a bundle; raises BundleError beyond the limits."""

    def __init__(self, unpacked: gzip.GzipFile, raw: io.BufferedReader, path: Path) -> None:
        self._unpacked, self._raw, self._path = unpacked, raw, path
        self._read = 0

    def read(self, size: int = -1) -> bytes:
        """Return the next unpacked bytes, not necessarily ``size`` of them."""
        block = self._unpacked.read(1 << 16 if size < 0 else min(size, 1 << 20))
        self._read += len(block)
        if self._read > MOST_BYTES:
            raise BundleError(f"{self._path}: unpacks to more than {MOST_BYTES} bytes, the limit of a bundle")
        if self._read > FREE and self._read > MOST_RATIO * self._raw.tell():
            raise BundleError(f"{self._path}: unpacks to more than {MOST_RATIO} times its size, the limit of a bundle")
        return block
