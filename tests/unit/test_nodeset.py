"""Folded names: lists unfolded without ClusterShell's library give the same result as the library."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest
from ClusterShell.NodeSet import RESOLVER_NOGROUP, NodeSet, NodeSetException
from hypothesis import example, given, settings
from hypothesis import strategies as st

from preflight import nodeset

NUMBER = st.sampled_from(["0", "1", "2", "7", "9", "10", "12", "00", "01", "08", "010", "001", "099", "100", "1000"])
RANGE = st.one_of(NUMBER, st.tuples(NUMBER, NUMBER).map("-".join))
HEAD = st.sampled_from(["gpu", "gpu-", "mlx5_", "rack01-n", "r1n02x", "n.a", "a1", "", "1", "-", "gpu0", "a--"])
TAIL = st.sampled_from(["", "", "", "-ib", ".example.org", "x", "-ib0", "_", "-", "[1-2]"])
ITEM = st.tuples(
    HEAD, st.one_of(NUMBER, st.lists(RANGE, min_size=1, max_size=4).map(lambda ranges: f"[{','.join(ranges)}]")), TAIL
).map("".join)
LIST = st.tuples(st.lists(ITEM, min_size=1, max_size=3), st.sampled_from([",", ",", " ", "!", ",,"]))


def by_library(text: str) -> tuple[str, ...]:
    return tuple(NodeSet(text, resolver=RESOLVER_NOGROUP))


@settings(deadline=None, max_examples=200)
@given(LIST.map(lambda drawn: drawn[1].join(drawn[0])))
@example("gpu[001-064]")
@example("mlx5_[0,3-6,9-11]")
@example("gpu[099-101],gpu003")
@example("gpu[001-064],")
def test_unfolding_without_the_library_agrees_with_the_library(text: str) -> None:
    if not (plain := nodeset._plain(text)):
        return
    try:
        assert plain == by_library(text)
    except NodeSetException as error:
        raise AssertionError(f"{text!r} is wrong to the library: {error}") from None


@pytest.mark.parametrize(
    "text",
    ["gpu[001-064]", "gpu[001-064,070]", "gpu001", "mlx5_[0,3-6,9-11]", "gpu[1-4],gpu[9-12]", "n[1-3].example.org"],
)
def test_plain_lists_need_no_library(text: str) -> None:
    code = (
        "import sys; from preflight import nodeset as n; print(*n.unfold(sys.argv[1]), 'ClusterShell' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, text], capture_output=True, text=True, timeout=30)
    assert done.stdout.split() == [*by_library(text), "False"]


@pytest.mark.parametrize("text", ["gpu[4-1]", "gpu[1-", "gpu[]", "gpu[1-4]]", "gpu[1,01", "gpu[1-2]x[3"])
def test_errors_come_from_the_library(text: str) -> None:
    assert nodeset._plain(text) == ()
    with pytest.raises(ValueError, match=r"\S"):
        nodeset.unfold(text)


def test_more_names_than_are_taken_are_refused_before_they_are_made() -> None:
    with pytest.raises(ValueError, match="at most 100000"):
        nodeset.unfold("gpu[0-999999999]")


@pytest.mark.parametrize(
    ("names", "folded"),
    [
        (["n1", "n2", "x"], "n[1-2],x"), (["n1-ib", "n2-ib", "n3"], "n3,n1-ib,n2-ib"), ([], ""),
        (["r1.n1.cl", "r1.n2.cl"], "r1.n1.cl,r1.n2.cl"), (["a1-ib0", "a2-ib0", "a1-ib1"], "a1-ib[0-1],a2-ib0"),
    ],
)  # fmt: skip
def test_lists_for_slurm_have_nothing_behind_a_bracket(names: list[str], folded: str) -> None:
    """``scontrol show hostnames 'n[1-2]-ib'`` of Slurm 22.05.8 prints "Invalid hostlist"."""
    assert nodeset.fold_for_slurm(names) == folded


# --- folding -----------------------------------------------------------------------------------------------

NAME = st.tuples(HEAD, NUMBER, st.sampled_from(["", "", "-ib", "x", ".example.org", "-n1", "-n2", "-n03"])).map("".join)


@settings(deadline=None, max_examples=300)
@given(st.lists(NAME.filter(nodeset.is_name), min_size=1, max_size=20), st.sampled_from([1, 3]))
@example(["n9", "n10", "n011", "n8"], 1)
@example(["r1n1", "r1n2", "r2n1", "r2n2"], 3)
def test_library_unfolds_what_was_folded(names: list[str], brackets: int) -> None:
    folded = nodeset.fold(names, brackets)
    try:
        assert set(by_library(folded)) == set(names)
    except NodeSetException:  # a name that begins with an operator of the library
        assert any(name[0] in "-" for name in names), folded


@pytest.mark.parametrize(
    ("names", "brackets", "folded"),
    [
        (["gpu003", "gpu001", "gpu002", "gpu007"], 1, "gpu[001-003,007]"),
        (["n9", "n10", "n11", "n12"], 1, "n[9-12]"),
        (["n09", "n10", "n9"], 1, "n[9,09-10]"),
        ([f"r{rack}-n{node:02d}" for rack in (1, 2, 3) for node in range(1, 17)], 3, "r[1-3]-n[01-16]"),
        (["r1n1", "r1n2", "r2n1"], 1, "r1n[1-2],r2n1"),
        (["r1n1", "r1n2", "r2n1"], 3, "r1n[1-2],r2n1"),
        (["b", "a", "a"], 1, "a,b"),
        (["i-0a1b2c", "i-0a1b3c"], 1, "i-0a1b[2-3]c"),
        (["gpu1", "not a name"], 1, "gpu1,not a name"),
    ],
)
def test_folded_names(names: list[str], brackets: int, folded: str) -> None:
    assert nodeset.fold(names, brackets) == folded


@pytest.mark.parametrize("name", ["ip-10-{0}-{1}-{2}", "i-{0:04x}{1:04x}{2:04x}", "r{0}n{1}" + "g1" * 100 + "x{2}"])
def test_folding_is_linear(name: str) -> None:
    """ClusterShell 1.10 takes 3 s of CPU for 1,000 names of four numbers, and 260 s for 10,000."""
    names = [name.format(at * 7919 % 251, at // 64 % 251, at % 64) for at in range(20_000)]
    began = time.process_time()
    nodeset.fold(names, 3)
    assert time.process_time() - began < 4
