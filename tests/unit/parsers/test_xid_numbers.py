"""Xid and SXid numbers are read in full or not at all, from a node's log and from pasted text."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.facts import xid
from preflight.parsers.host.kernel_log import parse as parse_kernel_log
from preflight.recognition import read_text

#: Time formats of lines in tools.
PREFIXES = (
    "<4>[  100.123456] ",
    "[  100.123456] ",
    "4,1234,100123456,-;",
    "2026-02-18T12:54:01,123456+00:00 ",
    "[Wed Feb 18 12:54:01 2026] ",
    "Feb 18 12:54:01 gpu001 kernel: ",
    "Feb 18 12:54:01 gpu001 kernel: [  100.123456] ",
    "kern  :warn  : [  100.123456] ",
)
ADDRESSES = ("PCI:0000:1b:00", "0000:1b:00", "PCI:00000000:1B:00.0", "PCI:0000:1b:00 GPU-I:05")
#: Text that may follow a number without ending it; the driver's comma does.
NO_END = ("", " ", "x", "abc", "x,", " 9,", ".5,", "-1,", "_0,", "…", "..", "\u0663,", "\n9, pid=7", "\n", "e3,", ":,")
codes = st.integers(1, 99_999)


def of_node(text: str) -> list[int]:
    """Return the Xids of a node's log, as far as it can be read."""
    try:
        lines = parse_kernel_log(text)
    except ValueError:
        return []
    found = xid.events(lines)
    return [event.code for event in found.gpus] + [event.code for event in found.switches]


def of_paste(text: str) -> list[int]:
    parts = [part for part in read_text(text, "pasted") if part.kind == "kernel log"]
    return [one[name] for part in parts for name in ("xid", "sxid") for one in part.taken.facts[f"{name}s"]]


def gpu_line(code: int, address: str, behind: str) -> str:
    return f"NVRM: Xid ({address}): {code}{behind}"


def switch_line(code: int, address: str, behind: str) -> str:
    return f"nvidia-nvswitch3: SXid ({address.partition(' ')[0]}): {code}{behind}"


@pytest.mark.parametrize("read", [of_node, of_paste])
@pytest.mark.parametrize("line", [gpu_line, switch_line])
class TestNumber:
    @settings(max_examples=150, deadline=None)
    @given(codes, st.sampled_from(PREFIXES), st.sampled_from(ADDRESSES))
    def test_a_complete_number_is_read_as_it_stands(self, read, line, code, prefix, address) -> None:  # type: ignore[no-untyped-def]
        if read is of_node and prefix.startswith("kern "):
            return  # dmesg --decode: no probe prints it
        text = prefix + line(code, address, ", Fatal, pid=7, name=python\n")
        assert read(text) == [code]

    @settings(max_examples=150, deadline=None)
    @given(codes, st.sampled_from(PREFIXES), st.sampled_from(ADDRESSES), st.sampled_from(NO_END))
    def test_a_number_without_its_end_is_no_number(self, read, line, code, prefix, address, behind) -> None:  # type: ignore[no-untyped-def]
        found = read(prefix + line(code, address, behind))
        wrapped = [int(f"{code}9")] if read is of_paste and behind.startswith("\n9") else []
        assert found in ([], wrapped)  # a screen also breaks lines within numbers

    def test_a_line_cut_anywhere_gives_the_number_or_none(self, read, line) -> None:  # type: ignore[no-untyped-def]
        entry = PREFIXES[1] + line(17903, ADDRESSES[0], ", Fatal, pid=7")
        for end in range(len(entry) + 1):
            for rest in ("", "\n", "\n[  101.000000] usb 1-1: new device\n"):
                assert read(entry[:end] + rest) in ([], [17903]), entry[:end]


def unread(text: str) -> Iterator[str]:
    for part in read_text(text, "pasted"):
        yield from (f"{cut.line}: {cut.what}" for cut in part.taken.cut)


def test_what_cannot_be_read_is_reported() -> None:
    text = "[  100.123456] NVRM: Xid (PCI:0000:1b:00): 79, pid=7\n[  101.123456] NVRM: Xid (PCI:0000:1c:00): 7"
    assert list(unread(text)) == ["2: the number of an Xid is incomplete"]
    found = xid.events(parse_kernel_log(text))
    assert [event.code for event in found.gpus] == [79]
    assert found.unread == ("NVRM: Xid (PCI:0000:1c:00): 7",)


@pytest.mark.parametrize("left", ["", "PCI:", "PCI:0000:3b:", "PCI:0000:3b:00"])
def test_an_address_that_is_cut_is_reported(left: str) -> None:
    text = f"[  100.123456] NVRM: Xid ({left}\nof a GPU"
    assert list(unread(text)) == ["1: the address of an Xid is incomplete"]


def test_the_complete_part_of_a_torn_line_is_read() -> None:
    torn = "[  1.5] NVRM: Xid (PCI:0000:1b:00): 7[  1.6] NVRM: Xid (PCI:0000:1c:00): 79, pid=7, fallen off the bus.\n"
    found = xid.events(parse_kernel_log(torn))
    assert [(event.address, event.code) for event in found.gpus] == [("0000:1c:00.0", 79)]
    assert len(found.unread) == 1
    assert of_paste(torn) == [79]


def test_numbers_within_the_text_are_complete_as_well() -> None:
    event = xid.XidEvent(0, "", 45, "pid=12345678901, name=x, Ch 00000001 caused by previous Xid 790000", "")
    assert (event.pid, event.cause) == (None, None)
    event = xid.XidEvent(0, "", 45, "pid='4711', name=x, Ch 00000001 caused by previous Xid 1790", "")
    assert (event.pid, event.cause) == (4711, 1790)


def test_a_code_of_four_digits_is_judged_as_unknown_code_in_pasted_text_too() -> None:
    (part,) = read_text("[  100.123456] NVRM: Xid (PCI:0000:1b:00): 1790, pid=7, name=x, what\n", "pasted")
    assert [(one["status"], "Xid 1790" in one["message"]) for one in part.findings] == [("warn", True)]
