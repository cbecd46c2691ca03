"""Ways in which people, launchers, pages and terminals change a text but not its facts.

``python -m tests.support.transformed`` reads every text from outside in every form and prints the share of preserved
facts, one line for each form; with names of forms as arguments, it reads only those and prints each text that differs.
``tests/golden/test_transformed_texts.py`` tests a sample.
"""

from __future__ import annotations

import html
import json
import re
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

from preflight.recognition import open_sources, read
from preflight.recognition.detector import TextPart
from tests.support import paths

FOLDER = paths.DATA / "outside"
#: Maximum length of a text that a person pastes; longer ones are files.
LARGEST = 60_000

#: Texts put before each line.
MARKS = {
    "mpirun": "[1,0]<stdout>:", "mpirun's other stream": "[1,3]<stderr>:", "srun -l": "3: ", "srun -l of 16": "03: ",
    "pdsh": "node001: ", "pdsh of addresses": "10.1.2.3: ", "Ray": "(RayWorker pid=123, ip=10.0.0.1) ",
    "Ray's own": "(pid=gcs) ", "Ray in colour": "\x1b[36m(RayWorker pid=123)\x1b[0m ", "torchrun": "[rank3]: ",
    "kubectl": "[pod/nccl-worker-0/main] ", "stern": "nccl-worker-0 main ", "docker compose": "worker-1  | ",
    "journald": "Nov 21 10:00:00 host proc[12]: ", "syslog": "2025-11-21T10:00:00.123456+00:00 host proc[12]: ",
    "time": "2025-11-21T10:00:00.123Z ", "time of a log": "2025-11-21 10:00:00,123 ", "time in brackets": "[10:00:00] ",
    "GitLab": "2025-11-21T10:00:00.123456Z 01O ", "loguru": "2025-11-21 10:00:00.123 | INFO     | mod:fn:12 - ",
    "loop over ssh": "node001 ", "torchx": "worker/0 ", "mail": "> ", "answered mail": "> > ", "comment": "// ",
    "Markdown": "    ", "list": "      ", "tab": "\t", "hydra": "[0] ", "frame": "| ",
    "SageMaker": "[1,mpirank:0,algo-1]<stdout>:",
}  # fmt: skip


def _each(change: Callable[[str], str]) -> Callable[[str], str]:
    return lambda text: "".join(f"{change(line)}\n" for line in text.removesuffix("\n").split("\n"))


def _framed(text: str) -> str:
    inside = _each(lambda line: f"│ {line.expandtabs():<100} │")(text)
    return f"┌{'─' * 102}┐\n{inside}└{'─' * 102}┘\n"


def _script(text: str) -> str:
    prompt = "\x1b[?2004h\x1b]0;root@n1: ~\x07\x1b[01;32mroot@n1\x1b[00m:\x1b[01;34m~\x1b[00m# "
    output = text.replace("\n", "\r\n")
    return f"Script started on 2025-11-20 10:00:00+00:00\n{prompt}./run.sh\r\n\x1b[?2004l\r{output}\r\n{prompt}exit\r\n"


def _numbered(form: str) -> Callable[[str], str]:
    return lambda text: "".join(
        form.format(number, line) + "\n" for number, line in enumerate(text.removesuffix("\n").split("\n"), 1)
    )


WAYS: dict[str, Callable[[str], str | bytes]] = {
    "CRLF": lambda text: text.replace("\n", "\r\n"),
    "CR CR LF": lambda text: text.replace("\n", "\r\r\n"),
    "no last line end": lambda text: text.rstrip("\n"),
    "blanks behind lines": _each(lambda line: f"{line}  "),
    "padded": _each(lambda line: line.ljust(120)),
    "tabs as blanks": lambda text: text.expandtabs(8),
    "a BOM": lambda text: f"\ufeff{text}",
    "UTF-16": lambda text: b"\xff\xfe" + text.encode("utf-16-le", "surrogatepass"),
    "UTF-16, most significant first": lambda text: b"\xfe\xff" + text.encode("utf-16-be", "surrogatepass"),
    "UTF-16 without its mark": lambda text: text.encode("utf-16-le", "surrogatepass"),
    "Latin-1": lambda text: "Grüße\n".encode("latin-1") + text.encode("utf-8", "surrogateescape"),
    "no-break spaces": lambda text: text.replace(" ", "\xa0"),
    "unseen characters": lambda text: re.sub(r"(?<=\S) ", "\u200b ", text),
    "soft hyphens": _each(lambda line: f"{line}\u00ad"),
    "entities": html.escape,
    "a page's breaks": _each(lambda line: f"{html.escape(line)}<br />"),
    "a page's breaks, in one line": lambda text: "<br>".join(html.escape(line) for line in text.split("\n")),
    "a page": lambda text: f"<p>Output:</p><pre><code>{html.escape(text)}</code></pre>\n",
    "a page in colours": _each(lambda line: f'<span class="line"><span class="cl">{html.escape(line)}</span></span>'),
    "coloured lines": _each(lambda line: f"\x1b[32m{line}\x1b[0m"),
    "coloured words": lambda text: re.sub(r"(\S+)", "\x1b[1;32m\\1\x1b[0m", text),
    "coloured words, with colons": lambda text: re.sub(r"(\S+)", "\x1b[38:2::255:0:0m\\1\x1b[m", text),
    "grep's colours": lambda text: re.sub(r"(\d+)", "\x1b[01;31m\x1b[K\\1\x1b[m\x1b[K", text),
    "colours as a viewer shows them": lambda text: re.sub(r"(\S+)", "^[[1;32m\\1^[[0m", text),
    "colours as a logger shows them": lambda text: re.sub(r"(\S+)", r"\\x1b[1;32m\1\\x1b[0m", text),
    "links": lambda text: re.sub(r"(\S+)", "\x1b]8;;https://x.y/z\x07\\1\x1b]8;;\x07", text),
    "moves instead of blanks": lambda text: re.sub(r" {5,}", lambda gap: f"\x1b[{len(gap[0])}C", text.expandtabs()),
    "script": _script,
    "fence": lambda text: f"Output:\n```console\n{text}```\n",
    "glued fence": lambda text: "```" + text.rstrip("\n") + "```\n",
    "ticks": _each(lambda line: f"`{line}`" if line.strip() else line),
    "details": lambda text: f"<details>\n<summary>out</summary>\n\n```\n{text}```\n\n</details>\n",
    "fence in a mail": lambda text: _each(lambda line: f"> {line}")(f"```\n{text}```\n"),
    "prose": lambda text: f"Hi all,\n\nwe see this on 2 of our nodes:\n\n{text}\n\nAny idea? Thanks!\n",
    "prompt": lambda text: f"[jdoe@n1 ~]$ cat out.txt\n{text.removesuffix(chr(10))}\n[jdoe@n1 ~]$ \n",
    "dshbak": lambda text: f"----------------\nnode[001-008,010]\n----------------\n{text}",
    "Ansible": lambda text: f"node001 | CHANGED | rc=0 >>\n{text}\n",
    "Ansible's list": lambda text: json.dumps({"msg": text.removesuffix("\n").split("\n")}, indent=4) + "\n",
    "Ansible's string": lambda text: json.dumps({"host": "n1", "rc": 0, "stdout": text}, indent=2) + "\n",
    "a string of Python": lambda text: f"{text!r}\n",
    "records of Docker": _each(lambda line: json.dumps({"log": f"{line}\n", "stream": "stdout", "time": "2025"})),
    "records with names": _each(lambda line: f'time="2025-11-21T10:00:00Z" level=info msg={json.dumps(line)}'),
    "taken away by a patch": _each(lambda line: f"-{line}"),
    "a patch": lambda text: f"--- /dev/null\n+++ b/out.txt\n@@ -0,0 +1,9 @@\n{_each(lambda line: f'+{line}')(text)}",
    "diff": lambda text: f"1,9d0\n{_each(lambda line: f'< {line}')(text)}",
    "numbers": _numbered("{:4}  {}"),
    "numbers with a colon": _numbered("{}:{}"),
    "numbers with a bar": _numbered("{:4} │ {}"),
    "framed": _framed,
}  # fmt: skip

#: Facts that a launcher's prefix may extend: the writer of a line, and the line itself.
_OF_A_MARK = {"file", "text", "rank", "host", "hosts", "time", "warnings", "watchdog", "affinity"}
_OF_A_PLACE = {"line", "file"}
#: Minimum number of lines from which a common prefix can be recognised.
_LEAST_MARKED = 4


def _marked(mark: str) -> Callable[[str], str | bytes]:
    return _each(lambda line: mark + line)


EVERY = {**WAYS, **{name: _marked(mark) for name, mark in MARKS.items()}}


def of_few_lines(text: str) -> bool:
    """Return whether a text has too few lines to recognize a mark, a number or a record on each."""
    return sum(bool(line.strip()) for line in text.split("\n")) < _LEAST_MARKED


@cache
def corpus() -> dict[str, str]:
    """Return the texts from outside by name."""
    found = {}
    for path in sorted(FOLDER.rglob("*")):
        if path.suffix in (".txt", ".log", ".xml", ".json") and path.stat().st_size < LARGEST:
            found[str(path.relative_to(FOLDER))] = path.read_bytes().decode("utf-8", "surrogateescape")
    return found


def parts(content: str | bytes) -> list[TextPart]:
    """Read a text like `preflight read`."""
    with tempfile.TemporaryDirectory(prefix="preflight-test-") as folder:
        path = Path(folder) / "pasted.txt"
        path.write_bytes(content if isinstance(content, bytes) else content.encode("utf-8", "surrogateescape"))
        return read(next(open_sources((str(path),))))


@cache
def original(name: str) -> list[TextPart]:
    """Return the parts of the text without a transformation."""
    return parts(corpus()[name])


def bad(found: list[TextPart]) -> set[tuple[str, str]]:
    """Return the findings that report a problem."""
    return {
        (finding["check"], finding["status"])
        for part in found
        for finding in part.findings
        if finding["status"] in ("fail", "warn")
    }


def leaves(found: list[TextPart], without: set[str]) -> dict[tuple[str, ...], Any]:
    """Return every single fact by its place."""
    return {
        (str(number), part.kind, *place): value
        for number, part in enumerate(found)
        for place, value in _leaves(part.taken.facts, without)
    }


def _leaves(facts: Any, without: set[str]) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = facts.items() if isinstance(facts, dict) else enumerate(facts) if isinstance(facts, (list, tuple)) else None
    if inner is None:
        yield (), facts
        return
    for name, value in inner:
        if name not in without:
            yield from (((str(name), *place), leaf) for place, leaf in _leaves(value, without))


def difference(way: str, name: str) -> tuple[int, int, list[str]]:
    """Return the number of facts of a text, the number preserved by a form, and wrong or new ones."""
    without = _OF_A_MARK | _OF_A_PLACE if way in MARKS or way.startswith(("numbers", "records")) else _OF_A_PLACE
    text = corpus()[name]
    found = parts(EVERY[way](text))
    before, after = leaves(original(name), without), leaves(found, without)
    preserved = sum(place in after and after[place] == value for place, value in before.items())
    wrong = [f"{'/'.join(place)}: {before.get(place)!r} became {value!r}"
             for place, value in after.items() if place not in before or before[place] != value]  # fmt: skip
    wrong += [f"new: {check} {status}" for check, status in sorted(bad(found) - bad(original(name)))]
    return len(before), preserved, wrong


def main(ways: list[str]) -> None:
    """Print the share of preserved facts of all texts for each form."""
    for way in ways or EVERY:
        results = {
            name: difference(way, name)
            for name, text in corpus().items()
            if not ((way in MARKS or "number" in way or "record" in way) and of_few_lines(text))
        }
        total, preserved = sum(one[0] for one in results.values()), sum(one[1] for one in results.values())
        wrong = sum(len(one[2]) for one in results.values())
        share = 100 * preserved / total
        print(f"{way:32} {share:6.2f}% of {total} facts in {len(results)} texts; {wrong} wrong or new")
        for name, (before, left, differs) in results.items():
            if ways and (left < before or differs):
                print(f"    {name}: {left} of {before}", *differs[:3], sep="\n        ")


if __name__ == "__main__":
    main(sys.argv[1:])
