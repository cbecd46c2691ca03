"""Cluster files with very many errors."""

from __future__ import annotations

import time

import pytest

from preflight.expectations.cluster_file import ClusterFileError, decode


def test_a_file_of_many_errors_is_rejected_quickly() -> None:
    """Sixty classes with the same error took 13 s; a long key would have taken the parser seven gigabytes."""
    wrong = "".join(f'[class.c{n}]\nnodes = [\n "n{n}",\n]\ngpus = 8\nhcaz = 8\n\n' for n in range(200))
    began = time.process_time()
    with pytest.raises(ClusterFileError) as caught:
        decode(wrong.encode(), "x.toml")
    assert time.process_time() - began < 10
    lines = str(caught.value).splitlines()
    assert lines[0].startswith("x.toml:6: class.c0.hcaz: unknown key")
    assert lines[99].startswith("x.toml:699: class.c99.hcaz: unknown key")
    assert lines[100] == "x.toml: and 100 more errors; fix these first"
    with pytest.raises(ClusterFileError, match="is nested too deeply"):
        decode((".".join(["a"] * 50_000) + " = 1").encode(), "x.toml")
