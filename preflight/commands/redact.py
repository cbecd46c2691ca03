"""``preflight redact``: aliases instead of names and addresses in files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from preflight.archive.directory import STDOUT
from preflight.commands import options
from preflight.run.request import require_writable
from preflight.terminal import UsageError, progress

if TYPE_CHECKING:
    from preflight.redact import Redactor
    from preflight.redact.files import InputFile


@click.command(cls=options.ShortHelp)
@click.argument("paths", nargs=-1, required=True, type=options.file_path, metavar="FILE|DIR...")
@click.option("-o", "--output", required=True, type=options.file_path, metavar="OUT", help="New file or directory.")
@options.naming
@click.option(
    "--map", "map_file", type=options.file_path, metavar="FILE", help="Write the table of aliases; keep it secret."
)
def redact(
    paths: tuple[Path, ...], output: Path, also: tuple[str, ...], hosts: str | None, map_file: Path | None
) -> int:
    """Replace names and addresses in evidence, reports and logs.

    Verdicts stay the same. Review the result before you send it.

    \b
    Example: preflight redact evidence/ report.json job.log -o to-send/
    Exit:    0 written, 1 something left out, 3 hosts may be left, 2 usage
    \f

    Hosts, addresses, GUIDs, LIDs, serial numbers, users and jobs get an alias, the same in all files of one run.
    Secrets become [redacted].
    """
    from preflight.redact import files
    from preflight.reports.sanitize import one_line

    if output == STDOUT and not (len(paths) == 1 and paths[0].is_file()):
        raise UsageError("-o -: standard output takes one file; name a new directory for several")
    found, left = _inputs(paths, output)
    printable(map_file)
    require_writable(map_file)
    if map_file and map_file.exists():
        raise UsageError(f"{map_file} exists already")
    redactor = made_redactor(also, hosts)
    with progress(f"reading {len(found)} files"):
        unread = files.learn(redactor, found)
    single = len(paths) == 1 and paths[0].is_file()
    taken: set[str] = set()
    written = 0
    nameless = []  # files without a recognised host
    with progress(f"writing {len(found)} files"):
        for item in found:
            if any(line.startswith(f"{item.path}: ") for line in unread):
                continue
            target = output if single else output / files.place(redactor, item, taken)
            before = redactor.hosts_replaced
            try:
                files.write(redactor, item, target)
                written += 1
                if redactor.hosts_replaced == before:
                    nameless.append(str(item.place))
            except (OSError, files.RedactionError) as error:
                unread.append(f"{item.path}: {error}")
    if map_file:
        try:
            files.write_map(redactor, map_file)
        except OSError as error:
            raise UsageError(f"{map_file} cannot be written: {error.strerror}") from None
    print_summary(
        redactor, f"{output}: {written} file{'' if written == 1 else 's'}", [*left, *unread], output == STDOUT
    )
    unsure = False
    if nameless and not (hosts or also):
        unsure = len(nameless) == written
        shown = ", ".join(nameless[:5]) + (f" and {len(nameless) - 5} more" if len(nameless) > 5 else "")
        click.echo(
            one_line(f"no host name was recognised in {shown}: any host names in it remain (--hosts NODESET)"),
            err=unsure or output == STDOUT,
        )
    return 1 if left or unread else 3 if unsure or redactor.names.hosts_in_place else 0


def _inputs(paths: tuple[Path, ...], output: Path) -> tuple[list[InputFile], list[str]]:
    """Return the input files, and lines about the files left out; raises UsageError."""
    from preflight.redact import files

    for path in paths:
        if not path.exists():
            raise UsageError(f"{path}: no such file or directory")
        if path.is_dir() and output.resolve().is_relative_to(path.resolve()):
            raise UsageError(f"{output} is inside the input {path}")
    if output != STDOUT and output.exists() and not (output.is_dir() and not any(output.iterdir())):
        raise UsageError(f"{output} already exists: name a new file or directory")
    if not output.parent.is_dir():
        raise UsageError(f"{output}: no such directory: {output.parent}")
    found, left = files.items(paths)
    if not found:
        raise UsageError(f"{', '.join(map(str, paths))}: no file to redact")
    return found, left


def made_redactor(also: tuple[str, ...], hosts: str | None) -> Redactor:
    """Return a redactor that knows the command line's names; raises UsageError."""
    from preflight.nodeset import unfold
    from preflight.redact import Redactor

    try:
        names = unfold(hosts, groups=True) if hosts else ()
    except ValueError as error:
        raise UsageError(f"--hosts: {error}") from None
    return Redactor(also=also, hosts=names)


def printable(map_file: Path | None) -> None:
    """Refuse to print the table of aliases; raises UsageError."""
    if map_file == STDOUT:
        raise UsageError("--map -: the table of aliases is not printed; name a file, which only you can read")


def print_summary(redactor: Redactor, what: str, left: list[str], aside: bool = False) -> None:
    """Print what was replaced, what never is, and the files left out."""
    from preflight.reports.sanitize import one_line

    counts = ", ".join(f"{number} × {kind}" for kind, number in redactor.counts_by_kind().items())
    click.echo(f"{one_line(what)}; replaced: {counts or 'nothing'}", err=aside)
    if common := sorted(redactor.names.only_in_place):
        shown = ", ".join(common[:20]) + (" …" if len(common) > 20 else "")
        click.echo(one_line(f"also used as words by tools, so replaced only if marked as names: {shown}"), err=aside)
    click.echo(
        "not replaced: times, job and process ids, versions, pictures, paths outside users' folders,\n"
        "and names that are not marked as such (--also WORD)",
        err=aside,
    )
    list_left(left)


def list_left(left: list[str]) -> None:
    """Print the files left out, with reasons."""
    from preflight.reports.sanitize import one_line

    for line in left[:50]:
        click.echo(f"left out: {one_line(line)}", err=True)
    if len(left) > 50:
        click.echo(f"left out: {len(left) - 50} more", err=True)
