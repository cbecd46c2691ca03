"""The page of a plan: groups, links and parts as drawings, hostile names as text."""

from __future__ import annotations

import re
from pathlib import Path

from click.testing import CliRunner

from preflight.cli.app import main
from tests.scenarios.test_layouts import LLAMA_70B, script


def page(tmp_path: Path, *more: str, name: str = "train.sh") -> str:
    job = tmp_path / name
    job.write_text(script(LLAMA_70B, tp=8, pp=4, mbs=1, gbs=512))
    CliRunner().invoke(main, ["plan", str(job), "--gpus", "1024", "--html", str(tmp_path / "plan.html"), *more])
    return (tmp_path / "plan.html").read_text()


def test_a_page_has_each_group_and_link(tmp_path: Path) -> None:
    text = page(tmp_path, "--on", "128 x HGX H100, rail-optimised, units of 16 nodes, 1:1", "--search")
    assert re.findall(r"<figcaption><strong>(\w+)", text) == ["tensor", "pipeline", "data"]
    for link in ("NVLink", "NIC", "leaf uplink"):
        assert f"<td>{link}</td>" in text
    assert text.count('class="g-in"') == 8 + 2 + 32  # one group of each axis
    assert "<script" not in text
    assert re.search(r"style-src 'sha256-[\w+/]+=*'", text)


def test_a_group_of_many_nodes_is_cut(tmp_path: Path) -> None:
    text = page(tmp_path, "--on", "1024 x HGX H100, rail-optimised, 1:1", "--gpus", "8192", "--set", "gbs=4096")
    assert "and 192 more nodes" in text  # of the 256 of a data-parallel group


def test_names_are_text(tmp_path: Path) -> None:
    (tmp_path / "hosts").write_text("".join(f"n{number} slots=8\n" for number in range(128)))
    text = page(tmp_path, "--on", "128 x HGX H100, 1:1", "--hostfile", str(tmp_path / "hosts"),
                name="<i>train.sh")  # fmt: skip
    assert ">n0</text>" in text
    assert "&lt;i&gt;train.sh" in text
    assert "<i>" not in text
