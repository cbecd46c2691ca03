"""Folded names: what is unfolded without ClusterShell's library is what the library makes of it."""

from __future__ import annotations

import subprocess
import sys

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
    """Seen: ``scontrol show hostnames 'n[1-2]-ib'`` of Slurm 22.05.8 prints "Invalid hostlist"."""
    assert nodeset.fold_for_slurm(names) == folded
