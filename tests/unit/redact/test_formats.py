"""File formats in which `preflight redact` knows names; JSON keeps its form."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from preflight.cli.app import main
from preflight.redact import Redactor
from tests.support.in_process import run


def test_a_file_without_a_host_is_no_success(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("18:00.0 3D controller: NVIDIA Corporation\nmybox hangs\n")
    result = CliRunner().invoke(main, ["redact", str(tmp_path / "a.txt"), "-o", str(tmp_path / "b.txt")])
    assert result.exit_code == 3
    assert "no host name was recognised in a.txt" in result.output
    output = run("redact", str(tmp_path / "a.txt"), "-o", str(tmp_path / "c.txt"), "--hosts", "mybox")
    assert "1 × host" in output
    assert "mybox" not in (tmp_path / "c.txt").read_text()


@pytest.mark.parametrize(
    "text",
    [
        "gpu001: Link detected: yes\ngpu002: Link detected: no\n",
        "gpu101: up\ngpu102: up\ngpu103: up\n",
        "node-01: driver 550.54.15\nnode-02: driver 535.161.08\n",
        "trainbox7.acme.internal: ok\ntrainbox8.acme.internal: ok\ntrainbox9.acme.internal: ok\n",
        "wolf-3: GPU 0: NVIDIA H100\nwolf-3: GPU 1: NVIDIA H100\nwolf-4: x\nwolf-11: x\n",
    ],
)
def test_heads_of_lines_of_pdsh_name_hosts(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(text)
    run("redact", str(tmp_path / "a.log"), "-o", str(tmp_path / "b.log"))
    left = (tmp_path / "b.log").read_text()
    for name in re.findall(r"(?m)^([\w.-]+): ", text):
        assert name not in left


@pytest.mark.parametrize("host", ["gpu3", "nv4", "rank2"])
def test_a_host_that_is_called_like_a_device_leaves_the_devices(host: str, tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(f"{host}:1:1 [0] NCCL INFO x\nGPU3 NV4 rank2 {host}\n")
    run("redact", str(tmp_path / "a.log"), "-o", str(tmp_path / "b.log"), expect=(3,))
    assert re.fullmatch(rf"node-a\d:1:1 \[0\] NCCL INFO x\nGPU3 NV4 rank2 {host}\n", (tmp_path / "b.log").read_text())


def test_names_with_addresses_in_them(tmp_path: Path) -> None:
    names = ("ip-10-0-1-007", "ip-10-0-1-7", "ip-10-0-1-7-ib0", "x-10-0-1-7", "ip-10-0-1-8")
    (tmp_path / "a.log").write_text("".join(f"{name}:1:1 [0] NCCL INFO x\n" for name in names))
    run("redact", str(tmp_path / "a.log"), "-o", str(tmp_path / "b.log"))
    aliases = re.findall(r"(?m)^(.*?):", (tmp_path / "b.log").read_text())
    assert len(set(aliases)) == len(names)
    assert not set(aliases) & set(names)


def test_a_rank_s_host_at_the_end_of_a_line(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("FAIL  job.log: TCP sockets carry the traffic of zebra006 (rank\n8), but\n")
    run("redact", str(tmp_path / "a.txt"), "-o", str(tmp_path / "b.txt"))
    assert "zebra" not in (tmp_path / "b.txt").read_text()


def test_a_node_that_is_called_like_a_word_is_stated(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"schema": "preflight.evidence/1", "node": "fabric", "records": {"a": "x"}}')
    result = CliRunner().invoke(main, ["redact", str(tmp_path / "a.json"), "-o", str(tmp_path / "b.json")])
    assert result.exit_code == 3
    assert "replaced only if marked as names: fabric" in result.output
    assert '"node": "fabric"' not in (tmp_path / "b.json").read_text()


# --- JSON keeps its form ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '[ {"ifname":"eth0", "prio-pfc": [ 3 ],\n  "b" : 1.50, "a":[1,2, 3] } ]\n',
        '{"z": "10.20.30.40", "a": "\\u00e9\\/x", "n": 1e5, "m": -0.0, "big": 123456789012345678901234567890}',
        '{"a": "\u00e9 10.20.30.40", "b": "\\ud800"}\r\n',
        '{"k": "a", "k": "10.20.30.40"}',
        '{"api_token": "hunter22", "env": [{"name": "X_PASSWORD", "value": "hunter22"}]}',
    ],
)
def test_json_keeps_its_form(text: str, tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(text.encode())
    run("redact", str(tmp_path / "a.json"), "-o", str(tmp_path / "b.json"), expect=(0, 3))
    left = (tmp_path / "b.json").read_bytes().decode()
    pattern = re.escape(text)
    for gone in ("10\\.20\\.30\\.40", "hunter22"):
        pattern = pattern.replace(gone, r'[^"]+')
    assert re.fullmatch(pattern, left)
    assert "10.20.30.40" not in left
    assert "hunter22" not in left


def test_bytes_that_are_no_text_stay(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_bytes(b"caf\xe9 gpu001:1:1 [0] NCCL INFO x\r\n\xff\n")
    run("redact", str(tmp_path / "a.log"), "-o", str(tmp_path / "b.log"))
    assert (tmp_path / "b.log").read_bytes() == b"caf\xe9 node-a001:1:1 [0] NCCL INFO x\r\n\xff\n"


@pytest.mark.parametrize(("configuration", "names"), [
    ({"BGP_NEIGHBOR|10.9.0.2": {"type": "hash", "value": {"name": "quince", "asn": "65100", "holdtime": "10"}}},
     ["quince"]),
    ({"BGP_NEIGHBOR": {"10.9.0.2": {"name": "quince", "asn": "65100"}}}, ["quince"]),
    ({"DEVICE_NEIGHBOR": {"Ethernet0": {"name": "medlar", "port": "etp1"}},
      "DEVICE_NEIGHBOR_METADATA": {"medlar": {"type": "SpineRouter"}, "damson": {"hwsku": "x"}}}, ["medlar", "damson"]),
])  # fmt: skip
def test_neighbours_in_a_configuration_of_sonic(configuration: dict[str, Any], names: list[str]) -> None:
    redactor = Redactor()
    redactor.learn_value(configuration)
    text = json.dumps(redactor.value(configuration))
    assert not [name for name in (*names, "10.9.0.2") if name in text]
