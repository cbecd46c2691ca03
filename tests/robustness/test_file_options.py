"""Every option and argument for a file, given something else: it ends soon, with one line that names the file."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from preflight.cli.app import main
from preflight.gate import policy
from tests.support import commands
from tests.support.fixture import whole_node
from tests.support.paths import ROOT

#: Seconds after which a command counts as hanging; long lines may take longer on a busy machine.
LIMIT_S = 30
LONG = 1_000_000

#: The command lines to which each option is added, and the placeholder of an argument.
HERE = ["--only", "host.*", "--deadline", "5"]
BASES: dict[tuple[str, ...], list[str]] = {
    ("check",): HERE,
    ("bench",): ["--gpus", "1", "--print"],
    ("pair",): ["127.0.0.1", "127.0.0.2", "--deadline", "1"],
    ("gate",): ["ci", "--state-dir", "state"],
    ("collect",): ["--judge", "--deadline", "5"],
    ("judge",): ["n.json", "--only", "host.*"],
    ("diff",): ["n.json", "n.json"],
    ("history", "job"): ["h.db", "7", "--seconds", "3", "--name", "x"],
    ("history", "node"): ["h.db", "gpu001"],
    ("lint",): ["c.toml"],
    ("learn",): ["n.json", "-o", "new.toml"],
    ("redact",): ["n.json", "-o", "new.json"],
    ("bundle",): ["n.json", "-o", "new.tar.gz"],
    ("checklist",): ["n.json"],
    ("show",): ["--from", "n.json"],
    ("trace",): ["n.json"],
    ("plan",): ["train.py --num-layers 2 --hidden-size 8"],
}

#: Options that another option needs.
WITH = {
    ("check", "--ssh-config"): ["--hosts", "127.0.0.1", "--connect-timeout", "1"],
    ("bench", "--ssh-config"): ["--hosts", "127.0.0.1,127.0.0.2"],
    ("bench", "--baseline"): ["--hosts", "127.0.0.1,127.0.0.2"],
    ("bench", "--topology"): ["--hosts", "127.0.0.1,127.0.0.2"],
    ("check", "--exclude-file"): ["--hosts", "127.0.0.1", "--connect-timeout", "1"],
    ("learn", "--ssh-config"): ["--hosts", "127.0.0.1", "--connect-timeout", "1"],
    ("learn", "--save"): ["--hosts", "127.0.0.1", "--connect-timeout", "1"],
    ("gate", "--ssh-config"): ["--hosts", "127.0.0.1"],
}
#: Options that replace the paths: nodes are queried, or named in the file.
ALONE = {
    ("learn", "--from"),
    ("learn", "--hostfile"),
    ("learn", "--rerun"),
    ("learn", "--ssh-config"),
    ("learn", "--save"),
}

#: Options that write; ``--history`` does both, and a missing file is created for ``history``.
WRITES = {"-o", "--json", "--html", "--junit", "--textfile", "--save", "--exclude-file", "--map", "--report-dir",
          "--termination-log", "--state-dir"}  # fmt: skip


def takers() -> Iterator[tuple[tuple[str, ...], str, int]]:
    """Yield command, option ("" for an argument), and the position of the argument."""
    for words in commands.leaves():
        command: click.Command | None = main
        for word in words:
            assert isinstance(command, click.Group)
            command = command.get_command(click.Context(command), word)
        assert command is not None
        place = 0
        for one in command.params:
            if isinstance(one, click.Argument):
                if isinstance(one.type, click.Path) or "FILE" in (one.metavar or ""):
                    yield words, "", place
                place += 1
            elif isinstance(one.type, click.Path) or (one.opts[0] == "--json" and one.metavar):
                yield words, one.opts[0], 0


def line(words: tuple[str, ...], option: str, place: int, value: str) -> list[str]:
    """Return a command line that passes ``value``."""
    given = list(BASES.get(words, []))
    if not option:
        return [*words, *given[:place], value, *given[place + 1 :]]
    if words == ("gate",) and option in ("--verdicts", "--ssh-config"):
        given[0] = "slurm-controller"
    if (words[0], option) in ALONE:
        given = given[1:]
    if option in given:
        given[given.index(option) + 1] = value
        return [*words, *given]
    return [*words, *given, *WITH.get((words[0], option), []), option, value]


TAKERS = list(takers())
READERS = [one for one in TAKERS if one[1] not in WRITES]
WRITERS = [one for one in TAKERS if one[1] in WRITES]


def test_all_that_take_a_file_are_here() -> None:
    """A new option is tested without being listed; this checks that the search finds all of them."""
    assert len(READERS) >= 25
    assert len(WRITERS) >= 30
    assert {words[0] for words, *_ in TAKERS} == {
        "check", "pair", "bench", "gate", "collect", "judge", "diff", "history", "lint", "learn", "read", "redact",
        "bundle", "demo", "checklist", "show", "trace", "plan", "slurm",
    }  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with one valid file of each kind, and something that is not a file."""
    made = tmp_path_factory.mktemp("files")
    (made / "n.json").write_text(json.dumps(whole_node("hgx-h100-roce")))
    (made / "c.toml").write_text("[class.a]\ngpus = 8\nhcas = 8\n")
    assert CliRunner().invoke(main, ["demo", "--history", str(made / "h.db")]).exit_code == 1
    (made / "bad-dir").mkdir()
    (made / "bad-empty").touch()
    (made / "bad-binary").write_bytes(random.Random(1).randbytes(4096))
    (made / "bad-long").write_bytes(b"x" * LONG)
    os.mkfifo(made / "bad-fifo")
    (made / "bad-loop").symlink_to("bad-loop")
    (made / "bad-unreadable").write_text("[class.a]\ngpus = 8\n")
    (made / "bad-unreadable").chmod(0)
    return made


def judged(ran: commands.Ran, value: str, needed: bool) -> list[str]:
    """Return the fault in how a command ended."""
    allowed = {0, 1, 2, 3} if ran.words[0] != "gate" else {rule.exit for hook in policy.HOOKS.values()
                                                           for rule in (*hook.rules.values(), hook.strict)}  # fmt: skip
    wrong = []
    if ran.status not in allowed:
        wrong.append(f"status {ran.status}")
    if "Traceback" in ran.output or "preflight itself failed" in ran.output:
        wrong.append("crash")
    if (needed or ran.status == 2) and value not in ran.output.replace("\n", ""):
        wrong.append("the file is not named")
    return [f"{' '.join(ran.words)}: {', '.join(wrong)}: {ran.output[-300:]}"] if wrong else []


def attack(folder: Path, who: list[tuple[tuple[str, ...], str, int]], kind: str, needed: bool) -> None:
    runs = [line(words, option, place, kind) for words, option, place in who]
    for number, run in enumerate(runs):  # a new file each time
        run[:] = [f"{kind.replace('/', '-')}-{number}-{word}" if word.startswith("new.") else word for word in run]
    wrong = []
    env = {"PYTHONPATH": str(ROOT), "HOME": str(folder), "SLURM_JOB_NODELIST": "n1"}
    for ran in commands.run(runs, folder, env, LIMIT_S, loaded=True):
        wrong += judged(ran, kind, needed)
    assert not wrong, "\n" + "\n".join(wrong)


#: Root reads every file.
UNREADABLE = ["bad-unreadable"] if os.geteuid() else []


@pytest.mark.parametrize("kind", ["bad-missing", "bad-fifo", *UNREADABLE])
def test_a_file_that_cannot_be_read_is_named(kind: str, folder: Path) -> None:
    who = [one for one in READERS if kind != "bad-missing" or "history" not in (one[0][0], one[1][2:])]
    attack(folder, who, kind, needed=True)


@pytest.mark.parametrize("kind", ["bad-dir", "bad-binary", "bad-long"])
def test_a_file_that_holds_something_else_is_named(kind: str, folder: Path) -> None:
    attack(folder, READERS, kind, needed=False)


@pytest.mark.parametrize("kind", ["bad-fifo", "bad-loop", "bad-missing/x", "bad-empty/x", "/dev/full"])
def test_a_file_that_cannot_be_written_is_named(kind: str, folder: Path) -> None:
    attack(folder, WRITERS, kind, needed=False)
