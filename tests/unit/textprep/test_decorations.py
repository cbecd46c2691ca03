"""Text that launchers, terminals and pages put around a text is removed: all of it, and nothing else.

Reversible decorations give back the original text. Others may lose facts of a job's log, but change none.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.parsers import job_log
from preflight.parsers.nccl_log.to_json import document
from preflight.textprep.encodings import opened, unprefixed
from preflight.textprep.line_prefixes import split_by_writer
from preflight.textprep.lines import bare, lines_of
from preflight.textprep.unicode_cleanup import plain_characters
from tests.support.nccl_log_generate import VERSIONS, Job, generate
from tests.support.transformed import MARKS, WAYS

_HOSTS = st.from_regex(r"\A[a-z]{2,5}[0-9]{1,3}\Z")
_MESSAGES = st.sampled_from(
    [
        "Bootstrap : Using eth0:10.1.2.3<0>",
        "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_1:1/RoCE [RO]; OOB eth0:10.1.2.3<0>",
        "Using network IB",
        "Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA",
        "Channel 01/0 : 0[0] -> 1[1] via P2P/CUMEM",
        "comm 0x55d0c7f1a0 rank 3 nranks 16 cudaDev 3 nvmlDev 3 busId 1b000 commId 0x9f3 - Init COMPLETE",
        "Connected all rings",
    ]
)


@st.composite
def log_lines(draw: st.DrawFn) -> list[str]:
    """Lines of NCCL, of one host or of several, each with a process and a device."""
    hosts = draw(st.lists(_HOSTS, min_size=1, max_size=3, unique=True))
    return [
        f"{draw(st.sampled_from(hosts))}:{draw(st.integers(100, 99999))}:{draw(st.integers(100, 99999))} "
        f"[{draw(st.integers(0, 7))}] NCCL INFO {draw(_MESSAGES)}"
        for _ in range(draw(st.integers(12, 24)))
    ]


def undecorated(text: str) -> str:
    """Return a text without decorations, as `preflight read` removes them."""
    text = plain_characters(text)
    if envelopes := opened(text):
        text = envelopes[0].text
    written = [line for _, own in split_by_writer(lines_of(text)) for line in bare(own)]
    return "\n".join(line.text for line in sorted(written, key=lambda line: line.number)).strip("\n")


#: Decorations that are removed only around a tool's output (``textprep.common_prefix``): a word or a number may be
#: text.
_BY_COMMON_PREFIX = {"loop over ssh", "torchx"}


def _before_each(mark: str) -> Callable[[str], str]:
    return lambda text: "".join(f"{mark}{line}\n" for line in text.split("\n"))


#: Decorations that lose nothing of a log.
LOSSLESS: dict[str, Callable[[str], str | bytes]] = {
    **{name: _before_each(mark) for name, mark in MARKS.items() if name not in _BY_COMMON_PREFIX},
    **{
        name: WAYS[name]
        for name in (
            "CRLF", "CR CR LF", "blanks behind lines", "padded", "a BOM", "no-break spaces", "coloured lines",
            "coloured words", "coloured words, with colons", "grep's colours", "colours as a viewer shows them",
            "a page in colours", "taken away by a patch", "a patch", "diff", "numbers with a colon", "framed",
            "records of Docker",
        )
    },
    "clush of several nodes": _before_each("gpu[001-004]: "),
    "a fence": lambda text: f"```\n{text}\n```\n",
}  # fmt: skip


@pytest.mark.parametrize("name", LOSSLESS)
@given(lines=log_lines())
@settings(max_examples=4, deadline=None)
def test_what_loses_nothing_is_undone(name: str, lines: list[str]) -> None:
    text = "\n".join(lines)
    decorated = LOSSLESS[name](text)
    assert isinstance(decorated, str)
    assert undecorated(decorated) == text


#: Facts of a log on which a person acts.
_FACTS = ("nccl_version", "nranks", "nnodes", "hosts", "network", "transports", "gpudirect_rdma", "hcas",
          "socket_interfaces", "env", "nvls", "sharp", "plugin", "cuda_build")  # fmt: skip


def _facts(text: str) -> dict[str, Any]:
    log = job_log.parse(text).nccl
    return {} if log is None else {name: document(log).get(name) for name in _FACTS}


def _holds_no_more(lossy: Any, complete: Any) -> bool:
    """Return whether facts are a subset of others."""
    if lossy in (None, [], {}) or (lossy is False and complete is None):
        return True
    if isinstance(lossy, dict) and isinstance(complete, dict):
        return all(name in complete and _holds_no_more(value, complete[name]) for name, value in lossy.items())
    if isinstance(lossy, list) and isinstance(complete, list):
        return all(item in complete for item in lossy)
    return bool(lossy == complete)


def _wrapped(text: str, width: int) -> str:
    return "\n".join(piece for line in text.split("\n") for piece in _pieces(line, width))


def _pieces(line: str, width: int) -> Iterator[str]:
    yield from (line[at : at + width] for at in range(0, max(len(line), 1), width))


LOSSY: dict[str, Callable[[str, int], str]] = {
    "wrapped": lambda text, number: _wrapped(text, 62 + number % 120),
    "right edge of a screen": lambda text, number: "\n".join(line[: 62 + number % 120] for line in text.split("\n")),
    # Nothing shows that a line ends within a value or before GDRDMA, or begins within a name, so lines are complete.
    "its beginning": lambda text, number: text[: text.rfind("\n", 0, number % len(text) + 1) + 1],
    "its end": lambda text, number: text[text.rfind("\n", 0, number % len(text) + 1) + 1 :],
    "trimmed blanks": lambda text, number: "\n".join(" ".join(line.split()) for line in text.split("\n")),
    "every third line lost": lambda text, number: "\n".join(
        line for at, line in enumerate(text.split("\n")) if (at + number) % 3
    ),
}


@pytest.mark.parametrize("name", LOSSY)
@pytest.mark.parametrize("version", VERSIONS)
@given(number=st.integers(0, 1_000_000), ranks=st.sampled_from([2, 4, 16]))
@settings(max_examples=3, deadline=None, derandomize=True)
def test_what_loses_something_makes_no_other_fact(name: str, version: str, number: int, ranks: int) -> None:
    made = io.BytesIO()
    generate(Job(version, ranks, seed=number % 7), 20_000, made)
    text = "\n".join(made.getvalue().decode().split("\n")[:150])
    complete, lossy = _facts(text), _facts(LOSSY[name](text, number))
    for fact, value in lossy.items():
        assert _holds_no_more(value, complete[fact]), fact


def test_a_setting_that_a_screen_cut_is_left_out_and_listed() -> None:
    head = "gpu001:4321:4400 [0] NCCL INFO "
    lines = [
        f"{head}Bootstrap : Using eth0:10.1.2.3<0>",
        f"{head}NCCL_IB_HCA set by environment to =mlx5_0,mlx5_1,mlx5_2,mlx5_3,mlx5_4,mlx5_5",
        *(
            f"{head}comm 0x55d0c7f1a{at} rank {at} nranks 4 cudaDev 3 nvmlDev 3 busId 1b000 commId 0x9f3"
            for at in range(4)
        ),
    ]
    complete = job_log.parse("\n".join(lines)).nccl
    cut = job_log.parse("\n".join(line[:80] for line in lines)).nccl
    assert complete is not None
    assert cut is not None
    assert [setting.name for setting in complete.environment] == ["NCCL_IB_HCA"]
    assert not cut.environment
    assert any("truncated at the screen width" in note for note in cut.unread)


def test_only_a_few_prefixes_of_a_short_text_are_removed() -> None:
    """Each one is another reading of the text, which may be long."""
    assert len(list(unprefixed("a: " * 3000))) == 3
    assert not list(unprefixed("a: 1\n" * 51))
