"""A full ``nvidia-smi -q`` as changed by pages, comments and cuts: each GPU keeps its own values.

``data/nvidia_smi_q_r570.txt`` is made by hand from the format of R570; the second GPU here waits for a reset. Texts
that people really pasted are in test_pasted_texts.py.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest

from preflight.recognition import read_text
from tests.support import paths

ONE = (paths.DATA / "nvidia_smi_q_r570.txt").read_text(encoding="utf-8")
SECOND = ONE[ONE.index("GPU 00000000:19") :].replace("00000000:19:00.0", "00000000:3B:00.0")
TWO_GPUS = ONE + "\n" + re.sub(r"(Pending +): No", r"\1: Yes", SECOND)


def squeezed(text: str) -> Iterator[str]:
    """Yield the lines without indentation and alignment, as shown by a page."""
    return (" ".join(line.split()) for line in text.splitlines() if line.strip())


WAYS: dict[str, Callable[[str], str]] = {
    "page": lambda text: "\n".join(squeezed(text)),
    "cells of a table": lambda text: "\n".join(f"{line} | |" for line in squeezed(text)),
    "numbered list": lambda text: "\n".join(f"  {at}. {line}" for at, line in enumerate(squeezed(text), 1)),
    "bullets": lambda text: "\n".join(f"- {line}" for line in squeezed(text)),
    "indented": lambda text: "".join(f"    {line}" for line in text.splitlines(keepends=True)),
    "half indented": lambda text: re.sub(r"(?m)^ +", lambda spaces: " " * (len(spaces[0]) // 2), text),
    "doubled": lambda text: text.replace("\n", "\n\n"),
    "one line": lambda text: " ".join(squeezed(text)),
    "no space before colons": lambda text: re.sub(r" +: ", ": ", text),
}


def gpus(text: str) -> list[dict[str, Any]]:
    parts = read_text(text, "pasted")
    assert [part.kind for part in parts] == ["nvidia-smi -q"]
    found: list[dict[str, Any]] = parts[0].taken.facts["gpus"]
    return found


@cache
def two_gpus() -> list[dict[str, Any]]:
    return gpus(TWO_GPUS)


def test_values_of_two_gpus() -> None:
    first, second = two_gpus()
    assert (first["mig"], first["ecc"], first["power_draw_w"], first["memory_total_mib"]) == (
        "Disabled", "Enabled", 112.4, 81559,
    )  # fmt: skip
    assert first["ecc_errors"]["volatile"]["dram_correctable"] == 3
    assert first["ecc_errors"]["aggregate"]["sram_threshold_exceeded"] is False
    assert first["fabric"]["state"] == "Completed"
    assert (first["remapped_rows"]["pending"], second["remapped_rows"]["pending"]) == (False, True)


@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_lost(way: str) -> None:
    assert gpus(WAYS[way](TWO_GPUS)) == two_gpus()


@pytest.mark.parametrize("way", ["page", "as it is"])
def test_sections_of_a_newer_driver(way: str) -> None:
    text = TWO_GPUS.replace("    Platform Info\n", "    Foo Stats\n        Foo Moved : 12 um\n    Foo Detail\n")
    assert gpus(WAYS.get(way, str)(text)) == two_gpus()


INSTANCE = """\
    MIG Device
        Index                             : 0
        GPU Instance ID                   : 1
        Compute Instance ID               : 0
        Device Attributes
            Shared
                Multiprocessor count      : 60
                Copy Engine count         : 3
                Encoder count             : 0
                Decoder count             : 3
                OFA count                 : 0
                JPG count                 : 0
        ECC Errors
            Volatile
                SRAM Uncorrectable        : 7
        FB Memory Usage
            Total                         : 40192 MiB
            Used                          : 19 MiB
            Free                          : 40172 MiB
"""


@pytest.mark.parametrize("way", ["page", "bullets", "as it is"])
def test_values_of_an_instance_are_not_those_of_its_gpu(way: str) -> None:
    text = TWO_GPUS.replace("    Accounting Mode  ", f"{INSTANCE}{INSTANCE}    Accounting Mode  ")
    assert gpus(WAYS.get(way, str)(text)) == two_gpus()


@pytest.mark.parametrize("way", ["page", "as it is"])
def test_a_piece_gives_no_other_values(way: str) -> None:
    """In excerpts from the middle of a section and in a few lines, values have the same place or none."""
    lines = WAYS.get(way, str)(ONE).splitlines()
    for begin in range(1, 240, 17):
        for end in (begin + 16, len(lines)):
            for part in read_text("\n".join(lines[begin:end]) + "\n", "pasted"):
                assert [finding for finding in part.findings if finding["status"] in ("fail", "warn")] == []
                for gpu in part.taken.facts["gpus"]:
                    assert dict(differing(gpu, two_gpus()[0])) == {}, (begin, end)


def differing(values: dict[str, Any], stood: dict[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and isinstance(stood[name], dict):
            yield from differing(value, stood[name], f"{path}{name}.")
        elif value not in (None, [], stood[name]):
            yield f"{path}{name}", value


def test_the_threshold_of_sram_errors_is_judged() -> None:
    text = TWO_GPUS.replace("SRAM Threshold Exceeded       : No", "SRAM Threshold Exceeded       : Yes", 1)
    (part,) = read_text(text, "pasted")
    assert any("0000:19:00.0: the driver's SRAM error threshold" in finding["message"] for finding in part.findings)
