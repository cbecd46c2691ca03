"""Complete commands, each run in a process that need not import preflight again.

The script below starts once for a list of commands and forks for each; output, exit status and memory of a command are
returned as JSON. The memory is the command's own: a process started directly by a large one, such as pytest, would have
the peak of its parent (Linux passes it on at vfork and exec).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import click

from preflight.cli.app import COMMANDS, main

_SCRIPT = """
import gc, importlib, json, os, resource, signal, sys, tempfile, time
runs, limit = json.load(open(sys.argv[1])), int(sys.argv[2])
for name in sys.argv[3:]:
    importlib.import_module(name)
gc.freeze()
sys.stdout.flush()
for words in runs:
    out = tempfile.TemporaryFile()
    began = time.monotonic()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(out.fileno(), 1)
        os.dup2(out.fileno(), 2)
        sys.argv = ["preflight", *words]
        signal.alarm(limit)
        from preflight.cli.main import main
        main()
    _, status, used = os.wait4(child, 0)
    out.seek(0)
    print(json.dumps({"words": words, "status": os.waitstatus_to_exitcode(status), "mib": used.ru_maxrss // 1024,
                      "seconds": time.monotonic() - began, "cpu_s": used.ru_utime + used.ru_stime,
                      "output": out.read().decode("utf-8", "replace")}), flush=True)
"""


@dataclass(frozen=True)
class Ran:
    """The result of a command."""

    words: Sequence[str]
    status: int
    mib: int  # its peak of resident memory
    seconds: float
    cpu_s: float
    output: str  # both streams


#: The modules of all commands.
_MODULES = sorted({f"preflight.commands.{place.partition(':')[0]}" for place in COMMANDS.values()})


def run(
    runs: Iterable[Sequence[str]], folder: Path, env: Mapping[str, str], limit_s: int = 120, *, loaded: bool = False
) -> Iterator[Ran]:
    """Run commands one after another in a folder.

    With ``loaded``, the modules of all commands are imported before the first one, which halves the time of a command
    that does little; its memory then includes them.
    """
    wanted = folder / ".runs.json"
    wanted.write_text(json.dumps([list(words) for words in runs]), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(wanted), str(limit_s), *(_MODULES if loaded else ())],
        cwd=folder, env={"PATH": os.environ["PATH"], **env}, capture_output=True, text=True, timeout=900, check=False,
    )  # fmt: skip
    wanted.unlink()
    assert done.returncode == 0, done.stderr[-2000:]
    for line in done.stdout.splitlines():
        yield Ran(**json.loads(line))


def leaves(group: click.Group = main, above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield every command by its words: ``("history", "runs")``."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from leaves(command, (*above, name))
        else:
            yield (*above, name)
