"""Additional files of a bundle: the cluster file, logs and other texts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from preflight.archive.directory import is_report
from preflight.evidence import bundle, safe_read
from preflight.expectations.cluster_file import ClusterFileError, load
from preflight.redact import Redactor, files
from preflight.run import saved_cluster

FILES = "files/"

#: Maximum size of all extra files, in bytes: `judge` refuses to unpack more.
MAX_FILES_BYTES = 32_000_000


class Added:
    """The cluster file and other files; ``left`` lists omitted files with reasons."""

    def __init__(self, cluster: Path | None, paths: Sequence[Path], output: Path, redacted: bool) -> None:
        """Find the files in the folders among ``paths``; raises OSError.

        ``output`` is the bundle itself, which is never added.
        """
        self.cluster = dict(saved_cluster.files(cluster)) if cluster else {}
        self.left: list[str] = []
        self.items: list[files.InputFile] = []
        room, folders = MAX_FILES_BYTES, [path for path in paths if path.is_dir()]
        for folder in folders:
            items, left = files.items([folder])
            self.left += left
            for item in items:
                place = Path(folder.name) / item.place if len(folders) > 1 else item.place
                if item.path.resolve() == output.resolve() or item.place.parts[0] == saved_cluster.FOLDER:
                    continue
                if why := _unfit(item, room, redacted):
                    self.left.append(f"{item.path}: {why}")
                elif not _is_evidence(item):
                    room -= item.path.stat().st_size
                    self.items.append(files.InputFile(item.path, place))

    def learn(self, redactor: Redactor) -> None:
        """Learn the names in all files; files that are not text are left out."""
        for raw in self.cluster.values():
            redactor.learn(raw.decode("utf-8", "surrogateescape"))
        unread = files.learn(redactor, self.items)
        self.left += unread
        self.items = [item for item in self.items if not any(line.startswith(f"{item.path}: ") for line in unread)]

    def contents(self, redactor: Redactor | None) -> Iterator[tuple[str, Iterable[bytes]]]:
        """Yield the files of the bundle, with consistent aliases if redacted."""
        for name, raw in self._cluster(redactor).items():
            yield f"{bundle.EXPECTED}{name}", [raw]
        taken: set[str] = set()
        for item in self.items:
            if redactor:
                yield f"{FILES}{files.place(redactor, item, taken)}", files.redacted(redactor, item)
            else:
                yield f"{FILES}{item.place}", safe_read.pieces(item.path, MAX_FILES_BYTES)

    def _cluster(self, redactor: Redactor | None) -> dict[str, bytes]:
        """Return the cluster file and the files it names, redacted if required.

        Empty if the redacted cluster file cannot be loaded.
        """
        if not redactor or not self.cluster:
            return self.cluster
        made = {
            redactor.text(name): redactor.text(raw.decode("utf-8", "surrogateescape")).encode(
                "utf-8", "surrogateescape"
            )
            for name, raw in self.cluster.items()
        }
        try:
            with TemporaryDirectory(prefix="preflight-") as folder:
                for name, raw in made.items():
                    (Path(folder) / name).parent.mkdir(parents=True, exist_ok=True)
                    (Path(folder) / name).write_bytes(raw)
                load(Path(folder) / saved_cluster.NAME)
        except ClusterFileError as error:
            why = str(error).removeprefix(f"{folder}/")
            self.left.append(
                f"the cluster file cannot be parsed with aliases ({why}); pass it to `judge` with --cluster"
            )
            return {}
        return made


def _is_evidence(item: files.InputFile) -> bool:
    return len(item.place.parts) == 1 and item.path.suffix == ".json"


def _unfit(item: files.InputFile, room: int, redacted: bool) -> str:
    """Return why a file is left out; empty if it is included."""
    if _is_evidence(item):
        return (
            "is a report, not evidence; pass its path to include it instead of a new report"
            if is_report(item.path)
            else ""
        )
    if (size := item.path.stat().st_size) > room:
        most = f"the limit for extra files is {MAX_FILES_BYTES} in total"
        return f"has {size} bytes, and {most}; `preflight redact` accepts it"
    if redacted and item.path.suffix == ".gz":
        return "is compressed; unpack it first"
    return ""
