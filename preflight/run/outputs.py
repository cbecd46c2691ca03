"""Outputs of a run: the report on standard output, and files."""

from __future__ import annotations

import os
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from preflight.terminal import height, page, print_text, screen, write_or_report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from typing import Any

    from preflight.collect.request import Collected
    from preflight.run.request import Outputs, RunRequest


def write_outputs(request: RunRequest, report: Mapping[str, Any], collected: Collected) -> int:
    """Print the report and write the files; return the exit status.

    A file that cannot be written is reported, and turns a pass into *unknown*; it does not hide the verdict.
    """
    complete = [request.saved, collected.saved, _print(report, request.outputs)]
    complete += [write_or_report(write, target) for target, write in _files(request.outputs, report, collected)]
    if request.outputs.exclude_file:
        _note_undecided(report)
    status = int(report["exit_status"])
    return status if all(complete) else status or 3


def _files(
    outputs: Outputs, report: Mapping[str, Any], collected: Collected
) -> Iterator[tuple[object, Callable[[], None]]]:
    """Yield each target, and the function that writes it."""
    if save := outputs.save:  # only --save reads the evidence again
        from preflight.archive import directory

        for evidence in collected.evidences:  # one at a time: they may be larger than the memory
            yield save, partial(directory.save, save, [evidence])
        if collected.run:
            yield save, partial(directory.save, save, [collected.run])
    if html_file := outputs.html_file:
        from preflight.reports.html_page import render as render_page

        page = render_page(report)
        yield html_file, lambda: write_file(html_file, page)
    if (json_file := outputs.json_file) and json_file != "-":
        from preflight.evidence.report_file import written

        yield json_file, lambda: write_file(Path(json_file), written(report))
    if junit_file := outputs.junit_file:
        from preflight.reports.junit import render as render_junit

        suites = render_junit(report)
        yield junit_file, lambda: write_file(junit_file, suites)
    if textfile := outputs.textfile:
        from preflight.reports.prometheus import render as render_metrics

        metrics = render_metrics(report)
        yield textfile, lambda: write_file(textfile, metrics)
    if exclude_file := outputs.exclude_file:
        from preflight.reports.keep_off import bad_nodes, remarks

        nodes = bad_nodes(report)
        for remark in remarks(report):
            print_text(f"{remark}\n", sys.stderr)
        yield exclude_file, lambda: write_file(exclude_file, f"{nodes}\n")


def _note_undecided(report: Mapping[str, Any]) -> None:
    """Report the checks for which no node is excluded."""
    if checks := dict.fromkeys(finding["check"] for finding in report["findings"] if finding.get("undecided")):
        note = f"{', '.join(checks)}: nodes differ, and which side is right is unknown; no node is excluded for it"
        print_text(f"note: {note}\n", sys.stderr)


def _print(report: Mapping[str, Any], outputs: Outputs) -> bool:
    """Print the report; return whether standard output accepted it.

    If it did not, the files are still written, and the exit status is still returned.
    """
    try:
        if outputs.replaces_text:
            return True
        if outputs.json_file == "-" or outputs.layout == "json":
            from preflight.evidence.report_file import written

            for piece in written(report):
                print_text(piece)
        else:
            _print_text(report, outputs)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # remaining output is discarded
        if not isinstance(error, BrokenPipeError):  # a reader that closed the pipe wants no more output
            print_text(f"error: standard output could not be written: {error.strerror}\n", sys.stderr)
            return False
    return True


def _print_text(report: Mapping[str, Any], outputs: Outputs) -> None:
    if outputs.layout in ("line", "md"):
        from preflight.reports import incident_text

        print_text(incident_text.document(report, outputs.layout))
        return
    if outputs.quiet:
        from preflight.reports.sanitize import one_line
        from preflight.reports.verdict_line import headline

        print_text(f"{one_line(headline(report))}\n")
        return
    terminal, width = screen()
    forced = bool(os.environ.get("FORCE_COLOR")) and not os.environ.get("NO_COLOR")
    colour = terminal or forced if outputs.colour == "auto" else outputs.colour == "always"
    if outputs.colour == "always":
        os.environ.pop("NO_COLOR", None)  # rich reads it; an option has priority
    from preflight.reports.summary_text import render

    lines = height()
    room = None if lines is None else lines - 1 - bool(outputs.html_file)  # the shell's prompt, and the page's name
    summary = render(report, colour=colour, width=width, more=_show(outputs), height=room)
    if outputs.verbose:
        from preflight.reports.text_report import render as render_all

        page(f"{render_all(report, colour=colour, width=width, verbose=True)}\n{summary}")
    else:
        print_text(summary)
    if outputs.html_file:
        print_text(f"page: {outputs.html_file}\n")


def _show(outputs: Outputs) -> str:
    """Return the command that shows the first incident; empty if nothing was saved."""
    from shlex import quote

    source = outputs.json_file if outputs.json_file not in (None, "-") else outputs.save
    return f"preflight show 1 --from {quote(str(source))}" if source else ""


def write_file(path: Path, text: str | Iterable[str]) -> None:
    """Write a file atomically; raises OSError."""
    from preflight.archive.directory import write

    write(path, text)
