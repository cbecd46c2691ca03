"""Run complete commands on damaged input for minutes: ``python -m tests.robustness.fuzz_commands``.

Each input is a mutated file: text of a tool, plain or packed, evidence, a folder of it, a bundle, a report, a history,
a cluster file, a published verdict, a trace, a job's script. It is given to every command that reads its kind, in a
separate process. The second part repeats single lines, joined and separate, and compares the time for a text with the
time for one of four times its length.

These are printed with their input: tracebacks, undocumented statuses, runs of more than 10 s, processes of more than
500 MB, and texts whose time grows faster than their length or would exceed 10 s for a megabyte. The exit status is 1 if
there are any.
"""

from __future__ import annotations

import argparse
import gc
import gzip
import hashlib
import io
import json
import os
import random
import re
import resource
import shutil
import signal
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.support import mutate, parser_registry, paths

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

OUTSIDE = paths.DATA / "outside"
#: Collections of texts: one file each, or tables of TOML with a ``text``.
COLLECTIONS = (paths.DATA / "fresh", paths.DATA / "nic", paths.DATA / "tools", paths.DATA / "nccl-tests")

#: Limits of one run: seconds, bytes.
MOST_S, MOST_BYTES = 10, 500 << 20
#: Documented exit statuses.
STATUSES = {0, 1, 2, 3}
#: Text in the output of a run that ended with an unexpected exception.
CRASHED = re.compile(rb"Traceback \(most recent call last\)|Error: unexpected \w+")

#: Characters of the compared texts: time may grow by ``MOST_GROWTH`` from one to the next. Shorter times are noise.
SIZES, MOST_GROWTH, NOISE_S = (60_000, 240_000), 9.0, 0.4

#: Kind of file -> the commands that read it; ``{}`` is the file, ``{out}`` for a new folder.
COMMANDS: dict[str, tuple[tuple[str, ...], ...]] = {
    "text": (("read", "{}"), ("read", "--json", "{}"), ("judge", "--log", "{}", "{evidence}"),
             ("redact", "{}", "-o", "{out}/r"), ("read", "--format", "md", "{}"),
             ("check", "--only", "nccl.*", "--log", "{}"), ("judge", "{evidence}", "--switch-files", "{}")),
    "evidence": (("judge", "{}"), ("redact", "{}", "-o", "{out}/r"), ("diff", "{evidence}", "{}"), ("learn", "{}"),
                 ("bundle", "{}", "-o", "{out}/b.tar.gz"), ("checklist", "{}"), ("read", "{}"),
                 ("show", "--from", "{}")),
    "packed": (("read", "{}"), ("judge", "--log", "{}", "{evidence}"), ("redact", "{}", "-o", "{out}/r")),
    "bundle": (("judge", "{}"), ("diff", "{evidence}", "{}"), ("checklist", "{}"), ("learn", "{}")),
    "folder": (("judge", "{}"), ("judge", "{}", "--html", "{out}/r.html"), ("redact", "{}", "-o", "{out}/r"),
               ("bundle", "{}", "-o", "{out}/b.tar.gz")),
    "verdict": (("gate", "slurm-controller", "--verdicts", "{}"),),
    "report": (("diff", "{report}", "{}"), ("diff", "{}", "{report}"), ("redact", "{}", "-o", "{out}/r"),
               ("bundle", "{}", "-o", "{out}/b.tar.gz"), ("checklist", "{}"), ("show", "1", "--from", "{}"),
               ("show", "--bad", "--from", "{}")),
    "cluster": (("lint", "{}"), ("lint", "{}", "{evidence}"), ("judge", "{evidence}", "--cluster", "{}")),
    "history": (("history", "runs", "{}"), ("history", "node", "{}", "gpu001"), ("history", "jobs", "{}"),
                ("history", "figures", "{}"), ("judge", "{evidence}", "--history", "{}")),
    "trace": (("trace", "{}"), ("trace", "--json", "{}"), ("read", "{}"), ("judge", "--log", "{}", "{evidence}")),
    "job": (("plan", "{}"), ("plan", "--json", "{}", "--on", "8 x HGX H100, rail-optimised, 1:1")),
}  # fmt: skip


@dataclass
class FuzzRun:
    """Results of one process."""

    status: int
    seconds: float  # of processor time
    took_s: float
    peak_bytes: int
    output: bytes

    @property
    def fault(self) -> str:
        """The fault of the run; empty if none."""
        if CRASHED.search(self.output):
            return "traceback"
        if self.status not in STATUSES:
            return f"status {self.status}"
        if self.seconds > MOST_S:  # a busy machine adds minutes of wall time; the alarm ends a process that hangs
            return "slow"
        return "memory" if self.peak_bytes > MOST_BYTES else ""


@dataclass
class CommandTally:
    """Faults by kind and input."""

    runs: int = 0
    slowest_s: float = 0.0
    slowest: str = ""  # its command, and the size of its input
    peak_bytes: int = 0
    by_command: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)

    def add(self, words: Sequence[str], run: FuzzRun, source: Path, folder: Path) -> None:
        """Count a run; the input of a new fault is saved."""
        self.runs += 1
        self.by_command[words[0]] += 1
        self.peak_bytes = max(self.peak_bytes, run.peak_bytes)
        if run.seconds > self.slowest_s and source.is_file():
            self.slowest_s, self.slowest = run.seconds, f"{' '.join(words)}, {_unpacked_bytes(source) / 1e6:.1f} MB"
            shutil.copyfile(source, folder / f"slowest{source.suffix}")
        if not run.fault:
            return
        last = run.output.strip().rpartition(b"\n")[2].decode(errors="replace")[:160]
        what = f"{run.fault}: {' '.join(words)}: {last if run.fault != 'slow' else ''}"
        self.faults[what] += 1
        if self.faults[what] == 1:
            copy = folder / f"fault-{len(self.faults)}{source.suffix}"
            (shutil.copytree if source.is_dir() else shutil.copyfile)(source, copy)
            print(f"FAULT {what} ({run.seconds:.1f} s, {run.peak_bytes >> 20} MB): {copy}", flush=True)


def _unpacked_bytes(source: Path) -> int:
    """Return the size of a file's content."""
    data = source.read_bytes()
    return len(gzip.decompress(data)) if source.suffix == ".gz" and source.name != "input.tar.gz" else len(data)


def started(arguments: Sequence[str]) -> FuzzRun:
    """Run a command in a fork of this process, in which everything is already imported.

    The peak is the memory beyond that of this process, with which the child starts.
    """
    held = psutil.Process().memory_info().rss
    with tempfile.TemporaryFile() as output:
        began = time.monotonic()
        child = os.fork()
        if not child:
            _become(arguments, output.fileno())
        _, status, used = os.wait4(child, 0)
        output.seek(0)
        code = os.waitstatus_to_exitcode(status)
        peak = max(0, (used.ru_maxrss << 10) - held)
        return FuzzRun(code, used.ru_utime + used.ru_stime, time.monotonic() - began, peak, output.read())


def _become(arguments: Sequence[str], output: int) -> None:
    """Become the command; never returns."""
    gc.freeze()  # otherwise a garbage collection would visit, and so copy, the data of the parent's tests
    signal.alarm(60 * MOST_S)  # ends a command that hangs; a busy machine slows others down ten times
    resource.setrlimit(resource.RLIMIT_CPU, (6 * MOST_S, 6 * MOST_S + 1))
    null = os.open(os.devnull, os.O_RDONLY)
    for target, source in ((0, null), (1, output), (2, output)):
        os.dup2(source, target)
    resource.setrlimit(resource.RLIMIT_DATA, (4 * MOST_BYTES, 4 * MOST_BYTES))
    sys.argv = ["preflight", *arguments]
    code: object = 70
    try:
        from preflight.cli.main import main

        main()
    except SystemExit as end:
        code = end.code
    except BaseException:
        import traceback

        traceback.print_exc()
    if isinstance(code, str):
        print(code, file=sys.stderr)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code if isinstance(code, int) else 1 if code else 0)


def collected(folders: Sequence[Path], to: Path) -> Iterator[Path]:
    """Yield the texts of folders as files; those in TOML are written to ``to`` first."""
    to.mkdir()
    for path in sorted(path for folder in folders for path in folder.rglob("*") if path.is_file()):
        if path.suffix != ".toml":
            yield from [path] if path.suffix != ".md" else ()
            continue
        for name, entry in tomllib.loads(path.read_text(encoding="utf-8")).items():
            if isinstance(entry, dict) and isinstance(entry.get("text"), str):
                text = to / f"{path.parent.name}-{path.stem}-{name.replace('/', '-')}.txt"
                text.write_text(entry["text"], encoding="utf-8")
                yield text


def seeds(folder: Path, more: Sequence[Path] = ()) -> dict[str, list[Path]]:
    """Create the files to damage: texts of tools, and preflight's output for its demo.

    ``more`` are folders of further texts.
    """
    made = folder / "seeds"
    made.mkdir()
    for words in (("demo", "--save", f"{made}/evidence", "--json", f"{made}/report.json", "--history",
                   f"{made}/history.db"),
                  ("demo", "--html", f"{made}/report.html"),
                  ("learn", f"{made}/evidence", "-o", f"{made}/cluster.toml")):  # fmt: skip
        run = started(words)
        if run.status not in STATUSES:
            raise RuntimeError(f"preflight {' '.join(words)}: status {run.status}: {run.output.decode()[-500:]}")
    evidence = sorted(path for path in (made / "evidence").glob("*.json") if path.name != "run.json")
    tables = [path for path in OUTSIDE.rglob("*") if path.is_file() and path.suffix not in (".toml", ".md")]
    tables += collected((*COLLECTIONS, *more), made / "texts")
    verdict = {
        "schema": "preflight.verdict/1",
        "node": "gpu001",
        "status": "pass",
        "at": int(time.time()),
        "seconds": 1.5,
    }
    (made / "gpu001.json").write_text(json.dumps(verdict))
    return {
        "text": [*sorted(tables), made / "report.html"],
        "packed": sorted(tables),
        "evidence": evidence,
        "bundle": evidence,
        "folder": evidence,
        "verdict": [made / "gpu001.json"],
        "report": [made / "report.json"],
        "cluster": [path for path in (made / "cluster.toml",) if path.exists()]
        + sorted((OUTSIDE.parents[2] / "fixtures" / "nodes").glob("*.toml")),
        "history": [made / "history.db"],
        "trace": sorted(path for path in (OUTSIDE / "torch").iterdir() if path.is_file()),
        "job": list(_jobs(made)),
    }


def _jobs(folder: Path) -> Iterator[Path]:
    """Write what describes a job: a script, and configurations of launchers and models."""
    for name, text in (
        ("train.sh", parser_registry.JOB_SCRIPT), ("job.toml", parser_registry.TORCHTITAN),
        ("job.yaml", parser_registry.NEMO_JOB), ("ds_config.json", json.dumps(parser_registry.DEEPSPEED)),
        ("config.json", json.dumps(parser_registry.MODEL_CONFIG)),
    ):  # fmt: skip
        (folder / name).write_text(text, encoding="utf-8")
        yield folder / name


def damaged(chosen: random.Random, source: Path) -> bytes:
    """Return the content of a file after some mutations."""
    text = source.read_bytes().decode("utf-8", "surrogateescape")
    mutations = [
        (chosen.randrange(14), chosen.randrange(2**31), chosen.randrange(2**31), chosen.choice(mutate.SPLINTERS))
        for _ in range(chosen.randint(1, 6))
    ]
    return mutate.mutated(text, mutations).encode("utf-8", "surrogatepass")


def prepared(kind: str, chosen: random.Random, seed: Path, folder: Path) -> Path:
    """Write a damaged input of a kind."""
    source = folder / f"input{seed.suffix}"
    if kind == "packed":
        source = folder / "input.gz"
        text = damaged(chosen, seed) if chosen.random() < 0.5 else _repetitive(chosen, seed)
        source.write_bytes(gzip.compress(text, 6))
    elif kind == "bundle":
        source = folder / "input.tar.gz"
        bodies = {"evidence/a.json": damaged(chosen, seed), "evidence/b.json": seed.read_bytes()}
        members = [
            {"name": path, "bytes": len(body), "sha256": hashlib.sha256(body).hexdigest()}
            for path, body in bodies.items()
        ]
        manifest = {"schema": "preflight.bundle/1", "version": "0", "redacted": False, "nodes": 2, "files": members}
        with tarfile.open(source, "w:gz") as archive:
            for path, body in {"manifest.json": json.dumps(manifest).encode(), **bodies}.items():
                info = tarfile.TarInfo(path)
                info.size = len(body)
                archive.addfile(info, io.BytesIO(body))
    elif kind in ("folder", "verdict"):
        source = folder / "input"
        shutil.rmtree(source, ignore_errors=True)
        source.mkdir()
        source.chmod(0o755)
        for name in (seed.name,) if kind == "verdict" else ("a.json", "b.json", "run.json", "job.log"):
            (source / name).write_bytes(damaged(chosen, seed))
    else:
        source.write_bytes(damaged(chosen, seed))
    return source


def _repetitive(chosen: random.Random, seed: Path) -> bytes:
    """Return a few lines of a text many times: megabytes that compress to kilobytes."""
    lines = seed.read_bytes().splitlines(keepends=True)[:200] or [b"\n"]
    unit = b"".join(chosen.sample(lines, min(len(lines), chosen.randint(1, 4)))) or b"\n"
    return unit * max(1, chosen.choice((1 << 20, 8 << 20, 24 << 20)) // len(unit))


def fill(words: Sequence[str], source: Path, folder: Path) -> tuple[str, ...]:
    """Put paths into a command."""
    out = folder / "out"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    paths = {"{}": source, "{evidence}": folder / "seeds/evidence", "{report}": folder / "seeds/report.json"}
    return tuple(str(paths.get(word, word)).replace("{out}", str(out)) for word in words)


def mutations(
    minutes: float, chosen: random.Random, files: dict[str, list[Path]], folder: Path, tally: CommandTally
) -> None:
    """Run commands on damaged files until the time is over."""
    until = time.monotonic() + 60 * minutes
    pairs = [(kind, words) for kind, commands in COMMANDS.items() for words in commands if files[kind]]
    while time.monotonic() < until:
        kind, words = chosen.choice(pairs)
        seed = chosen.choice(files[kind])
        source = prepared(kind, chosen, seed, folder)
        tally.add(words, started(fill(words, source, folder)), source, folder)


def shapes(files: Sequence[Path]) -> list[str]:
    """Return one line of each shape: lines that differ only in digits have the same shape."""
    found: dict[str, str] = {}
    for path in files:
        for line in path.read_bytes().decode("utf-8", "replace").splitlines():
            if 4 <= len(line.strip()) <= 400:
                found.setdefault(re.sub(r"[0-9a-f]+", "0", line), line)
    return list(found.values())


def repeated(unit: str, size: int) -> str:
    """Return a text of this many characters, made of one repeated unit."""
    return (unit * (size // len(unit) + 1))[:size]


def units(line: str) -> Iterator[tuple[str, str]]:
    """Yield the units to repeat for a line: itself, joined, parts of it, and with blanks or blank lines in between."""
    yield "lines", f"{line}\n"
    yield "glued", line
    yield "glued with a blank", f"{line} "
    yield "beginning", line[: max(len(line) // 2, 1)]
    yield "end", line[len(line) // 2 :]
    yield "doubled", f"{line}\n\n"


def growth(minutes: float, chosen: random.Random, files: Sequence[Path], folder: Path, tally: CommandTally) -> None:
    """Compare the times for texts of one repeated line until the time is over."""
    lines = [
        *shapes(files),
        "\n",
        " ",
        "\t",
        "a",
        "[",
        "{",
        "<",
        '"',
        "\\n",
        "-",
        "|",
        ":",
        "0 ",
        "\r",
        "\x1b[0m",
        "&#",
    ]
    chosen.shuffle(lines)
    until = time.monotonic() + 60 * minutes
    for line in lines:
        for name, unit in units(line):
            if time.monotonic() > until:
                return
            for words in (("read", "{}"), chosen.choice(COMMANDS["text"][2:])):
                times = [_timed(words, repeated(unit, size), folder, tally) for size in SIZES]
                grows = times[1] > NOISE_S and times[1] > MOST_GROWTH * max(times[0], NOISE_S / MOST_GROWTH)
                cost = (times[1] - times[0]) / (SIZES[1] - SIZES[0])  # without the start, which a busy machine delays
                if grows or cost > MOST_S / 1e6:  # 1 MB of it would exceed the limit of a run
                    what = f"{'growth' if grows else 'cost'}: {' '.join(words)}: {name} {unit.strip()[:60]!r}"
                    tally.faults[what] += 1
                    print(f"FAULT {what}: {' '.join(f'{one:.2f}' for one in times)} s", flush=True)


def _timed(words: Sequence[str], text: str, folder: Path, tally: CommandTally) -> float:
    source = folder / "input.txt"
    source.write_text(text, encoding="utf-8", errors="surrogateescape", newline="")
    run = started(fill(words, source, folder))
    tally.add(words, run, source, folder)
    return run.seconds


def main() -> int:
    """Run both parts and print the results."""
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    options.add_argument("--minutes", type=float, default=60, help="half of them for mutations, half for growth")
    options.add_argument("--seed", type=int, default=random.randrange(10**6))
    options.add_argument("--keep", type=Path, help="an empty folder for the inputs of faults")
    options.add_argument("--texts", type=Path, action="append", default=[], help="a folder of further texts")
    given = options.parse_args()
    chosen, tally = random.Random(given.seed), CommandTally()
    folder = given.keep or Path(tempfile.mkdtemp(prefix="preflight-fuzz-"))
    folder.mkdir(exist_ok=True)
    print(f"seed {given.seed}, inputs of faults in {folder}", flush=True)
    os.environ["HOME"] = os.environ["XDG_STATE_HOME"] = str(folder)
    os.environ["SLURM_JOB_NODELIST"] = "gpu001"
    import preflight.cli.app
    import preflight.judge
    import preflight.recognition  # noqa: F401

    files = seeds(folder, given.texts)
    mutations(given.minutes / 2, chosen, files, folder, tally)
    growth(given.minutes / 2, chosen, files["text"], folder, tally)
    print(f"{tally.runs} runs: {', '.join(f'{name} {count}' for name, count in sorted(tally.by_command.items()))}")
    print(f"slowest {tally.slowest_s:.1f} s ({tally.slowest}), largest {tally.peak_bytes >> 20} MB")
    print(f"{len(tally.faults)} kinds of fault")
    return 1 if tally.faults else 0


if __name__ == "__main__":
    sys.exit(main())
