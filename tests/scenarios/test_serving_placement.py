"""`serving.placement` on a saved RoCE fleet whose leaves LLDP reports."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from preflight.cli.app import main
from tests.support import layout_clusters

CLUSTER = """
[class.prefill]
nodes = {prefill}
serving.role = "prefill"
tree.oversubscription = 2
[class.decode]
nodes = {decode}
serving.role = "decode"
tree.oversubscription = 2
"""


@pytest.mark.parametrize(
    ("prefill", "decode", "status"),
    [(["gpu001", "gpu003"], ["gpu002", "gpu004"], "pass"), (["gpu001", "gpu002"], ["gpu003", "gpu004"], "warn")],
)
def test_leaves_by_lldp(tmp_path: Path, prefill: list[str], decode: list[str], status: str) -> None:
    """Nodes 1 and 2 are below one group of leaves, 3 and 4 below another."""
    folder = layout_clusters.roce(tmp_path / "fleet", 4, layout_clusters.rail_leaves(2))
    cluster = tmp_path / "cluster.toml"
    cluster.write_text(CLUSTER.format(prefill=json.dumps(prefill), decode=json.dumps(decode)))
    words = ["judge", str(folder), "--cluster", str(cluster), "--only", "serving.placement", "--json"]
    report = json.loads(CliRunner().invoke(main, words, catch_exceptions=False).stdout)
    assert {finding["status"] for finding in report["findings"]} == {status}
