"""Excerpts in a report: the lines of the evidence that name the finding's subject, never all of it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from preflight.evidence.document import Evidence, from_document
from preflight.judge.excerpts import Search, excerpts
from preflight.model import failed
from tests.support import paths

NODE = json.loads((paths.ROOT / "fixtures/nodes/hgx-h100.json").read_text(encoding="utf-8"))


def evidence(**records: dict[str, Any]) -> Evidence:
    return from_document({**NODE, "records": {f"cmd:{name}": record for name, record in records.items()}}, "gpu001")


def passage(found: Evidence, subject: str, key: str) -> str:
    (one,) = excerpts(failed("it is wrong", subject=subject, evidence=[key]), "gpu001", found, Search())
    assert (one["node"], one["key"]) == ("gpu001", key)
    return one["text"]


@pytest.mark.parametrize("number", [0, 6])
def test_of_eight_gpus_the_one_that_is_spoken_of(number: int) -> None:
    gpus = NODE["records"]["nvml:gpus"]["value"]["gpus"]
    text = passage(from_document(NODE, "gpu001"), gpus[number]["bus_id"].lower()[4:], "nvml:gpus")
    assert "gpus, one of 8:" in text
    assert "\n  bus_id: " in text
    assert f"  bus_id: {gpus[number]['bus_id']}" in text
    assert not [gpu["bus_id"] for gpu in gpus if gpu["bus_id"] in text and gpu is not gpus[number]]


@pytest.mark.parametrize(
    ("subject", "first"),
    [
        ("mlx5_30", "[…]\nmlx5_30 port 1 state DOWN"), ("mlx5_30 port 1", "[…]\nmlx5_30 port 1"),
        ("MLX5_30", "[…]\nmlx5_30 port 1 state DOWN"),
        ("mlx5_2", "mlx5_0 port 1"), ("mlx5_99", "mlx5_0 port 1"), ("", "mlx5_0 port 1"), ("5_3", "mlx5_0 port 1"),
    ],
)  # fmt: skip
def test_a_long_text_is_quoted_from_where_it_names_the_subject(subject: str, first: str) -> None:
    lines = [f"mlx5_{n} port 1 state {'DOWN' if n == 30 else 'ACTIVE'}" for n in range(40)]
    text = passage(evidence(tool={"status": "ok", "rc": 0, "out": "\n".join(lines)}), subject, "cmd:tool")
    assert text.startswith(first)
    assert len(text.split("\n")) <= 16
    assert text.endswith("[…]") is (first[0] != "[" or len(lines) - 30 > 14)


def test_a_short_text_is_quoted_in_full_and_a_long_line_is_cut() -> None:
    source = evidence(
        short={"status": "ok", "rc": 0, "out": "a\nmlx5_3\n"}, long={"status": "ok", "rc": 0, "out": "x" * 9999}
    )
    assert passage(source, "mlx5_3", "cmd:short") == "a\nmlx5_3"
    assert passage(source, "mlx5_3", "cmd:long") == "x" * 1200 + "\n[…]"


def test_the_findings_own_quote_comes_first_and_what_is_missing_is_no_passage() -> None:
    finding = failed("wrong", subject="a", evidence=["cmd:none", "cmd:tool"], quote="its own words")
    assert [one["text"] for one in excerpts(finding, "n", None, Search())] == ["its own words"]
    found = evidence(tool={"status": "missing", "why": "there is no such tool"})
    (one,) = excerpts(failed("wrong", evidence=["cmd:none", "cmd:tool"]), "n", found, Search())
    assert "no such tool" in one["text"]
