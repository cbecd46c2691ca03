"""The matrix of ``nvidia-smi topo -m`` in a node's answer."""

from __future__ import annotations

import pytest

from preflight.parsers.nvidia import topo_matrix

HEADER = "\tGPU0\tGPU1\tCPU Affinity\tNUMA Affinity\n"
ROWS = "GPU0\t X \tPHB\t0-15\tN/A\nGPU1\tPHB\t X \t0-15\tN/A\n"


def test_a_row_without_a_column_is_refused() -> None:
    """It used to end in a KeyError, which the judge reports as an internal error."""
    assert topo_matrix.parse(HEADER + ROWS).gpus == ("GPU0", "GPU1")
    with pytest.raises(ValueError, match="no column for the row of GPU2"):
        topo_matrix.parse(HEADER + "GPU2\tNV18\tNV18\t0-15\tN/A\n")
