"""Writer of the picture in README: ``python -m tests.support.picture``.

It shows a node of the demo as drawn in the HTML report.
"""

from __future__ import annotations

import re

from preflight.checks import registry
from preflight.evidence.document import read
from preflight.expectations.cluster_file import load
from preflight.judge import judge
from preflight.reports.topology_svg import draw
from tests.support import paths

PICTURE = paths.ROOT / "docs" / "demo-node.svg"
DEMO = paths.ROOT / "preflight" / "demo"
STYLE = paths.ROOT / "reports" / "templates" / "report.css"
#: GPU6 has lost its NVLinks, and mlx5_10 runs at half its rate.
NODE = "gpu005"


def picture() -> str:
    """Return the picture with the style of the report."""
    report = judge([read(DEMO / f"{NODE}.json")], registry().checks, load(DEMO / "cluster.toml"))
    drawn = str(draw(report["nodes"][0]["topology"]))
    css = STYLE.read_text("utf-8")
    colours = re.search(r"^:root \{.*?^\}\n", css, re.M | re.S)
    assert colours is not None
    rules = "".join(line + "\n" for line in css.splitlines() if line.startswith(".topo "))
    style = f"<style>{colours[0]}{rules}svg {{ color: var(--ink); font-family: sans-serif; }}</style>"
    ground = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return drawn.replace("<title>", f"{style}{ground}<title>", 1) + "\n"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
