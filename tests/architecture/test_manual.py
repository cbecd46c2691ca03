"""The man page and the shell completions installed below ``share``."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from preflight.cli.app import COMMANDS, main
from tests.support import manual
from tests.support.in_process import run
from tests.support.paths import ROOT

#: Set-up code for each shell to complete ``preflight {}`` and print the proposals.
SHELLS = {
    "bash": 'source "$1"; COMP_WORDS=(preflight $2); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); '
            'complete -p preflight >&2; _preflight_completion preflight; printf "%s\\n" "${COMPREPLY[@]}"',
    "zsh": 'compdef() { : }; compadd() { print -l -- ${(P)@[-1]} }; _describe() { print -l -- ${(P)3} }; '
           'words=(preflight ${=2}); CURRENT=$#words; source "$1"; _preflight_completion',
    "fish": 'source $argv[1]; complete -C "preflight $argv[2]"',
}  # fmt: skip


def test_the_page_is_that_of_this_version_and_has_every_command() -> None:
    text = manual.PAGE.read_text(encoding="utf-8")
    for name in COMMANDS:
        assert f".SS preflight {name}\n" in text
    command = [
        sys.executable,
        "-c",
        "from tests.support import manual; print(manual.page(), end='')",
    ]  # click's commands cache state
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout
    assert text == made, "write it anew: python -m tests.support.manual"


def test_the_page_is_troff_and_nothing_in_it_is_taken_for_a_macro() -> None:
    text = manual.PAGE.read_text(encoding="utf-8")
    macros = set(re.findall(r"^\.\w+", text, re.M))
    assert macros <= {".TH", ".SH", ".SS", ".TP", ".PP", ".B", ".I", ".RI", ".IR", ".nf", ".fi"}
    assert manual._escaped(".so /etc/passwd") == "\\&.so /etc/passwd"
    assert manual._escaped("'\\n -x") == "\\&'\\en \\-x"
    if groff := shutil.which("groff"):
        done = subprocess.run([groff, "-man", "-ww", "-Tutf8", str(manual.PAGE)], capture_output=True, timeout=30)
        assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("shell", manual.COMPLETIONS)
def test_a_shell_completes_commands_and_options(shell: str, tmp_path: Path) -> None:
    if not shutil.which(shell):
        pytest.skip(f"{shell} is not installed")
    tool = tmp_path / "preflight"
    tool.write_text(f"#!{sys.executable}\nfrom preflight.cli.main import main\nmain()\n")
    tool.chmod(0o755)
    file = ROOT / "deploy" / "completions" / manual.COMPLETIONS[shell]
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    plain = {"bash": ["--norc", "--noprofile"], "zsh": ["-f"], "fish": ["--no-config"]}[shell]
    name = () if shell == "fish" else ("completion",)
    for words, expected in (("che", {"check", "checklist"}), ("gate slurm-p", {"slurm-prolog"}),
                            ("judge --clu", {"--cluster"})):  # fmt: skip
        argv = [shell, *plain, "-c", SHELLS[shell], *name, str(file), words]
        done = subprocess.run(argv, env=env, cwd=ROOT, capture_output=True, text=True, timeout=60)
        found = {re.split(r"[:\t]", line)[0] for line in done.stdout.splitlines() if line}
        assert found == expected, (words, done.stdout, done.stderr)


def test_click_still_writes_what_is_committed() -> None:
    """The content is compared, not the wording: each release of click words its scripts differently."""
    for shell, file in manual.COMPLETIONS.items():
        text = (ROOT / "deploy" / "completions" / file).read_text(encoding="utf-8")
        assert f"_PREFLIGHT_COMPLETE={shell}_complete" in text
        assert f"_PREFLIGHT_COMPLETE={shell}_complete" in manual.completion(shell)


def commands(group: click.Group = main, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command with its words."""
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        yield (*words, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*words, name))


@pytest.mark.parametrize("words", [words for words, _ in commands()], ids=" ".join)
def test_help_has_one_line_for_each_option(words: tuple[str, ...]) -> None:
    command = dict(commands())[words]
    text = run(*words, "--help")
    assert max(map(len, text.splitlines())) <= 80
    shown = re.findall(r"^  -.*", text, re.MULTILINE)
    context = click.Context(command, help_option_names=["-h", "--help"])
    options = [parameter for parameter in command.get_params(context) if isinstance(parameter, click.Option)]
    assert len(shown) == len(options)
    assert all(option.help for option in options)


def test_the_list_of_commands_is_not_cut() -> None:
    assert "..." not in run("--help").replace("[ARGS]...", "")


def test_long_text_is_in_the_man_page_only() -> None:
    sentence = "Nothing is installed on the nodes"
    assert sentence not in run("check", "--help")
    assert sentence in " ".join(manual.PAGE.read_text(encoding="utf-8").split())
