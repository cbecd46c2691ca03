"""The history file: SQLite with a write-ahead log, safe against crashes."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from types import TracebackType
from typing import Any

from preflight._startup.lightclass import dataclass
from preflight.errors import PreflightError
from preflight.evidence import json_limits
from preflight.incidents.changes import judged_of_all, recorded
from preflight.schemas.conform import find_error

#: Version of the tables; files of a later version are refused. Version 1 allowed one run of a command per second.
VERSION = 2

#: Days for which runs are stored, and maximum size of the file in MiB: the oldest runs are deleted first.
KEEP_DAYS, KEEP_MIB = 400, 512

#: Maximum days by which the clock may be ahead of the median of the last runs (and number of runs): a clock further
#: ahead may be wrong, so no run is deleted.
_AHEAD_DAYS, _LAST_RUNS = 100, 5

#: Seconds to wait for another writer, which needs only milliseconds. No report waits longer for its history.
BUSY_S = 5.0

_LONGEST = 2000

#: Commands that collect evidence; others judge saved evidence.
_LIVE = ("check",)

#: Maximum number of recorded incidents per run, the most severe first.
_MOST_INCIDENTS = 500


class HistoryError(PreflightError):
    """The history cannot be used; the text names the file and the fix."""


class HistoryLocked(HistoryError):
    """Another process holds the history locked."""


@dataclass(frozen=True)
class RecordedRun:
    """One run in the history file."""

    id: int
    at: str
    command: str
    version: str
    exit_status: int
    checks: frozenset[str]
    record: Mapping[str, Any]

    @property
    def judged_of_all(self) -> Mapping[str, frozenset[str]]:
        """The checks that were judged on logs, sweeps and switches, by ``@run`` etc.

        Empty for runs of older versions.
        """
        judged = self.record.get("judged_of_all")
        if not isinstance(judged, dict):
            return {}
        return {
            name: frozenset(check for check in checks if isinstance(check, str))
            for name, checks in judged.items() if isinstance(checks, list)
        }  # fmt: skip


class HistoryStore:
    """A history file; methods raise HistoryError if it cannot be used."""

    def __init__(
        self, path: Path, *, keep_days: int = KEEP_DAYS, keep_mib: int = KEEP_MIB, busy_s: float = BUSY_S
    ) -> None:
        """Open or create the file; wait ``busy_s`` seconds for another process's lock."""
        self.path, self._keep_days, self._keep_mib = path, keep_days, keep_mib
        self._claim()
        with self._translate_errors():
            self._db = sqlite3.connect(path, timeout=busy_s, isolation_level=None)
        try:
            with self._translate_errors():
                self._db.execute("PRAGMA foreign_keys = ON")
                self._db.execute("PRAGMA journal_mode = WAL")
                self._db.execute("PRAGMA synchronous = NORMAL")
                self._make()
        except BaseException:
            self._db.close()
            raise

    def __enter__(self) -> HistoryStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._db.close()

    def _claim(self) -> None:
        """Create the file if missing; reject one that others own or may write to."""
        try:
            handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise HistoryError(f"{self.path}: the history cannot be opened: {error.strerror}") from None
        try:
            found = os.fstat(handle)
        finally:
            os.close(handle)
        if not stat.S_ISREG(found.st_mode):
            raise HistoryError(f"{self.path}: the history is not a regular file")
        if found.st_uid != os.geteuid():
            raise HistoryError(f"{self.path}: the history belongs to user {found.st_uid}; use your own file")
        if found.st_mode & 0o022:
            raise HistoryError(f"{self.path}: the history is writable by others: chmod 600 {self.path}")

    def _make(self) -> None:
        (version,) = self._db.execute("PRAGMA user_version").fetchone()
        if version > VERSION:
            raise HistoryError(
                f"{self.path}: the history was written by a newer preflight (version {version}): use that version"
            )
        if version == VERSION:
            return
        tables = files("preflight.history").joinpath("schema.sql").read_text("utf-8").split(";")
        self._db.execute("PRAGMA foreign_keys = OFF")  # without this, replacing the table would delete the runs' rows
        with self._writing():
            version = self._db.execute("PRAGMA user_version").fetchone()[0]  # another process may have done it already
            if version == 0:
                for statement in tables:
                    self._db.execute(statement)
            elif version == 1:
                self._db.execute(tables[0].replace("TABLE run", "TABLE new_run"))
                self._db.execute("INSERT INTO new_run SELECT * FROM run")
                self._db.execute("DROP TABLE run")
                self._db.execute("ALTER TABLE new_run RENAME TO run")
                self._db.execute(tables[1])
            self._db.execute(f"PRAGMA user_version = {max(version, VERSION)}")
        self._db.execute("PRAGMA foreign_keys = ON")

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            if "locked" in str(error):
                raise HistoryLocked(f"{self.path}: another process holds the history locked: {error}") from None
            raise HistoryError(f"{self.path}: the history cannot be used: {error}") from None

    @contextmanager
    def _writing(self) -> Iterator[None]:
        """Run the statements of a block as one transaction: all of them or none."""
        with self._translate_errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._db.execute("ROLLBACK")
                raise
            self._db.execute("COMMIT")

    # Writing

    def add(
        self,
        at: str,
        report: Mapping[str, Any],
        samples: Iterable[tuple[str, str, str, float]],
        figures: Iterable[tuple[str, str, float, str]] = (),
    ) -> None:
        """Record a run: its report, ``samples`` of metrics, and ``figures`` of benchmarks.

        Judging the same evidence again replaces its run; each ``check`` is a new run.
        """
        run = report["run"]
        checks = sorted({check for node in report["nodes"] for check in node["checks"]})
        with self._writing():
            if run["command"] not in _LIVE:
                self._db.executemany("DELETE FROM run WHERE id = ?", self._same_evidence(at, report))
            made = self._db.execute(
                "INSERT INTO run (at, command, version, cluster_file, exit_status, checks, record)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (at, run["command"], run["version"], run["cluster_file"], report["exit_status"], json.dumps(checks),
                 json.dumps({**report.get("record", {}), "incidents": recorded(report)[:_MOST_INCIDENTS],
                             "judged_of_all": judged_of_all(report)})),
            ).lastrowid  # fmt: skip
            self._db.executemany(
                "INSERT OR IGNORE INTO node VALUES (?, ?, ?)",
                (_text((made, node["name"], not node.get("no_answer"))) for node in report["nodes"]),
            )
            self._db.executemany(
                "INSERT INTO finding VALUES (?, ?, ?, ?, ?, ?)",
                (
                    _text((made, node, finding["check"], finding["subject"][:_LONGEST], finding["status"],
                           finding["message"][:_LONGEST]))
                    for finding in report["findings"] if finding["status"] not in ("pass", "skip")
                    for node in finding["nodes"]
                ),
            )  # fmt: skip
            self._db.executemany("INSERT INTO sample VALUES (?, ?, ?, ?, ?)", (_text((made, *one)) for one in samples))
            self._db.executemany("INSERT INTO figure VALUES (?, ?, ?, ?, ?)", (_text((made, *one)) for one in figures))
        self._forget(at)

    def _same_evidence(self, at: str, report: Mapping[str, Any]) -> list[tuple[int]]:
        """Return the runs in which the same command judged the same evidence."""
        names = {node["name"]: not node.get("no_answer") for node in report["nodes"]}
        runs = self._db.execute("SELECT id FROM run WHERE at = ? AND command = ?", (at, report["run"]["command"]))
        equal = []
        for run in runs.fetchall():
            recorded = self._db.execute("SELECT name, answered FROM node WHERE run = ?", run).fetchall()
            if dict(recorded) == dict(_text(item) for item in names.items()):
                equal.append(run)
        return equal

    def add_job(self, id: str, ended: str, seconds: float, nodes: int | None, name: str, outcome: str) -> None:
        """Record the duration of a job; the same job replaces its earlier record."""
        with self._writing():
            self._db.execute(
                "INSERT OR REPLACE INTO job VALUES (?, ?, ?, ?, ?, ?)", (id, ended, seconds, nodes, name, outcome)
            )

    def _forget(self, at: str) -> None:
        """Delete runs that are too old, and the oldest ones while the file is too large."""
        with self._writing():
            last = [row[0] for row in self._db.execute("SELECT at FROM run ORDER BY id DESC LIMIT ?", (_LAST_RUNS,))]
            middle = sorted(last)[len(last) // 2] if last else at
            self._db.execute(
                "DELETE FROM run WHERE at < datetime(min(datetime(?), datetime(?, ?)), ?)",
                (at, middle, f"+{_AHEAD_DAYS} days", f"-{self._keep_days} days"),
            )
        for _ in range(64):
            with self._translate_errors():
                pragmas = ("page_count", "freelist_count", "page_size")
                pages, free, size = (self._db.execute(f"PRAGMA {name}").fetchone()[0] for name in pragmas)
            if (pages - free) * size <= self._keep_mib << 20:
                return
            with self._writing():
                oldest = [row[0] for row in self._db.execute("SELECT id FROM run ORDER BY at LIMIT 8")][:-1]
                if not oldest:
                    return
                self._db.executemany("DELETE FROM run WHERE id = ?", ((id,) for id in oldest))

    # Reading

    def runs(self, before: str | None = None, since: str = "") -> list[RecordedRun]:
        """Return the runs at or after ``since`` and before ``before``, newest first."""
        rows = self._select(
            "run", "SELECT id, at, command, version, exit_status, checks, record FROM run"
            " WHERE (? IS NULL OR at < ?) AND at >= ? ORDER BY at DESC, id DESC",
            (int, str, str, str, int, str, str), (before, before, since),
        )  # fmt: skip
        return [self._run(*row) for row in rows]

    def _run(self, id: int, at: Any, command: Any, version: Any, status: Any, checks: Any, record: Any) -> RecordedRun:
        """Return a recorded run; SQLite columns may contain any type."""
        try:
            ids, run_record = json_limits.text(checks), json_limits.text(record)
        except (ValueError, TypeError):
            raise self._damaged("run") from None
        if find_error({"checks": ids, "record": run_record}, "history-1"):
            raise self._damaged("run")
        return RecordedRun(id, at, command, version, status, frozenset(ids), run_record)

    def _select(self, table: str, query: str, kinds: tuple[Any, ...], given: Sequence[Any] = ()) -> list[Any]:
        """Return rows with validated columns; SQLite columns may contain any type."""
        with self._translate_errors():
            rows = self._db.execute(query, given).fetchall()
        for row in rows:
            if not all(map(isinstance, row, kinds)):
                raise self._damaged(table)
        return rows

    def _damaged(self, table: str) -> HistoryError:
        return HistoryError(
            f"{self.path}: the history is damaged: table {table} has data that preflight did not "
            "write; move the file away and start a new one"
        )

    def answered(self, runs: Sequence[int]) -> Mapping[int, frozenset[str]]:
        """Return the nodes that answered in each run."""
        found: dict[int, set[str]] = {run: set() for run in runs}
        for run, name in self._select("node", "SELECT run, name FROM node WHERE answered", (int, str)):
            if run in found:
                found[run].add(name)
        return {run: frozenset(names) for run, names in found.items()}

    def failures(self) -> Iterator[tuple[int, str, str, str]]:
        """Yield run, node, check and subject of all findings: failed, warned or unknown."""
        query = "SELECT run, node, check_id, subject FROM finding"
        yield from self._select("finding", query, (int, str, str, str))

    def messages(self, check: str) -> Iterator[tuple[int, str, str, str, str]]:
        """Yield run, node, subject, status and message of a check's recorded findings."""
        query = "SELECT run, node, subject, status, message FROM finding WHERE check_id = ?"
        yield from self._select("finding", query, (int, str, str, str, str), (check,))

    def course(self, since: str) -> Mapping[str, Mapping[tuple[str, str], list[tuple[str, float]]]]:
        """Return node -> (metric, subject) -> (time, value) since a time, oldest first."""
        found: dict[str, dict[tuple[str, str], list[tuple[str, float]]]] = {}
        rows = self._select(
            "sample", "SELECT node, metric, subject, at, value FROM sample JOIN run ON run.id = run"
            " WHERE at >= ? ORDER BY at", (str, str, str, str, float), (since,),
        )  # fmt: skip
        for node, metric, subject, at, value in rows:
            found.setdefault(node, {}).setdefault((metric, subject), []).append((at, value))
        return found

    def figures(self, what: str = "%") -> list[tuple[str, str, str, float, str]]:
        """Return time, benchmark, subject, value and unit of results, the newest first."""
        return self._select(
            "figure", "SELECT at, what, subject, value, unit FROM figure JOIN run ON run.id = run WHERE what LIKE ?"
            " ORDER BY at DESC", (str, str, str, float, str), (what,),
        )  # fmt: skip

    def jobs(self) -> list[tuple[str, str, float, int | None, str, str]]:
        """Return id, end, seconds, nodes (or None), name and outcome; newest job first."""
        return self._select(
            "job", "SELECT id, ended, seconds, nodes, name, outcome FROM job ORDER BY ended DESC",
            (str, str, float, int | None, str, str),
        )  # fmt: skip

    def findings_of(self, node: str) -> list[tuple[str, str, str, str, str]]:
        """Return a node's open findings, newest first.

        An open finding failed, warned or is unknown. Each row has time, check, subject, status and message.
        """
        return self._select(
            "finding", "SELECT at, check_id, subject, finding.status, message FROM finding JOIN run ON run.id = run"
            " WHERE node = ? ORDER BY at DESC", (str, str, str, str, str), (node,),
        )  # fmt: skip


def _text(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Escape unpaired surrogates, which SQLite cannot store as text."""
    return tuple(one.encode("utf-8", "backslashreplace").decode() if isinstance(one, str) else one for one in row)
