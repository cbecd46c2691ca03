"""``preflight lint``: a cluster file is validated, tried on saved evidence, and explained."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from preflight.archive.directory import save
from preflight.cli.app import main
from preflight.evidence.document import no_answer
from tests.unit.judge.test_waivers import DOWN, PORT, node

FILE = """\
[class.h100]
nodes = "n[1-3]"
gpus = 4
[class.h100.ports]
rate_gbps = 200
[class.other]
nodes = "m[1-9]"
nccl = { NCCL_ALGO = "Ring" }
"""


def lint(tmp_path: Path, text: str, *words: object, status: int = 0) -> str:
    file = tmp_path / "cluster.toml"
    file.write_text(text)
    done = CliRunner().invoke(main, ["lint", str(file), *map(str, words)], catch_exceptions=False)
    assert done.exit_code == status, done.output
    return done.output


def test_valid(tmp_path: Path) -> None:
    output = lint(tmp_path, FILE + PORT.replace("2026", "2999"))
    assert "cluster.toml: valid" in output
    assert "class h100: 3 nodes, n[1-3]" in output
    assert "rdma.port-state on all nodes: waived by jane until 2999-12-31: cable on order" in output


def test_preview(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    silent = no_answer("n3", "connect", "refused", "2026-11-21T00:00:00Z")
    save(saved, [node("n1"), node("n2", DOWN), silent, node("x9")])
    output = lint(tmp_path, FILE + PORT.replace("2026", "2999") + 'nodes = "m1"\n', saved)
    assert "of 4 nodes would fail:" in output
    assert "  gpu.count  n[1-2]  GPUs on the PCI bus: found 8, expected 4" in output
    assert "  rdma.port-state  n2  mlx5_3:1 is DOWN" in output
    assert "class other contains none of these nodes" in output
    assert "in no class, so no expectations apply: x9" in output
    assert "no answer  n3" in output
    assert "the waiver for rdma.port-state has no effect here" in output


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("ports.rate_gbps", "class.h100.ports.rate_gbps = 200: {file}:5"),
        ("class.h100.ports.rate_gbps", "class.h100.ports.rate_gbps = 200: {file}:5"),
        ("class.other.ports.rate_gbps", "class.other.ports.rate_gbps: not declared (the part is not known"),
        ("nccl.NCCL_ALGO", 'class.other.nccl.NCCL_ALGO = "Ring": {file}:8'),
        ("nodes", "class.h100.nodes = n1, n2, n3: {file}:2"),
    ],
)
def test_explain(tmp_path: Path, key: str, expected: str) -> None:
    assert expected.format(file=tmp_path / "cluster.toml") in lint(tmp_path, FILE, "--explain", key)


def test_explain_by_the_part_of_the_evidence(tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    save(saved, [node("n1")])
    output = lint(tmp_path, FILE, saved, "--explain", "class.other.gpus")
    assert "class.other.gpus = 8: HGX H100" in output or "class.other.gpus = 8: DGX H100" in output


@pytest.mark.parametrize(
    ("key", "expected"),
    [
        ("ports.mtus", "did you mean mtu?"),
        ("ports", "is a table; name one of its keys"),
        ("nccl.algo", "nccl takes names such as"),
        ("gpus.many", "gpus is a key, not a table"),
        ("class.nobody.gpus", "the file has no class nobody; it has h100, other"),
    ],
)
def test_no_such_key(tmp_path: Path, key: str, expected: str) -> None:
    assert expected in lint(tmp_path, FILE, "--explain", key, status=2)


def test_an_expired_waiver_is_an_error_here(tmp_path: Path) -> None:
    output = lint(tmp_path, PORT.replace("2026", "2020"), status=2)
    assert "cluster.toml:5: waiver[1].until: expired on 2020-12-31" in output


def test_what_only_fails_without_the_file(tmp_path: Path) -> None:
    save(tmp_path / "saved", [node("n2", DOWN)])
    output = lint(tmp_path, '[checks]\noff = ["*"]\n', tmp_path / "saved")
    assert "  only without this file: would fail: n2" in output


def test_what_only_the_file_fails(tmp_path: Path) -> None:
    save(tmp_path / "saved", [node("n1")])
    output = lint(tmp_path, FILE, tmp_path / "saved")
    assert "1 of 1 node would fail:\n  gpu.count  n1" in output
    assert "only with this file: n1" in output
