"""Aliases: nothing that identifies the site remains, and other text stays."""

from __future__ import annotations

import gzip
import ipaddress
import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.redact import Redactor
from preflight.redact.address_aliases import Keyed
from tests.support import paths
from tests.support.fixture import FIXTURES
from tests.support.redact_command import KEY, run

LOG = """\
gpu001:4242:4250 [0] NCCL INFO Bootstrap : Using eth0:10.12.3.17<0>
gpu002:4242:4250 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE [RO]; OOB eth0:fe80::966d:aeff:fea1:b2c3%eth0<0>
#  Rank  0 Group  0 Pid   4242 on  gpu001 device  0 [0x18] NVIDIA H100 80GB HBM3
Nov 21 03:00:00 gpu003 kernel: NVRM: Xid (PCI:0000:18:00): 79, pid=4242
jdoe@login1.hpc.uni-x.edu loaded /home/jdoe/secret-llm/fit.py, /home/jdoe/.local/lib/python3.10/site-packages/torch
MLNX_OFED_LINUX-24.10-0.7.0.0: driver version 12.4.1.0
SLURM_JOB_NODELIST=gpu[001-004,007] SLURM_JOB_NAME=moonshot SLURM_JOB_USER=jdoe HF_TOKEN=abc
moonshot of jdoe hangs on GPU001, gpu[001-002], \x1b[31mgpu003\x1b[0m, x_gpu001.log and "\\ngpu002\\t"
std::vector<c10::detail> 0x55d0c8e4b2a0 94:6d:ae:a1:b2:c3 946d:ae03:00a1:b2c3 0x946dae0300a1b2c3 12:34:56
"""


def redacted(text: str, **options: Any) -> str:
    redactor = Redactor(KEY, **options)
    redactor.learn(text)
    return redactor.text(text)


def test_a_log() -> None:
    text = redacted(LOG)
    for original in ("gpu00", "jdoe", "moonshot", "secret-llm", "uni-x", "10.12.3.17", "a1:b2:c3", "fea1:b2c3", "=abc"):
        assert original.lower() not in text.lower(), original
    lines = text.splitlines()
    assert lines[0].startswith("node-a001:4242:4250 [0] NCCL INFO Bootstrap : Using eth0:10.")
    assert lines[0].endswith(".17<0>"), "the number of a host in its rail is kept"
    assert "python3.10/site-packages/torch" in lines[4]
    assert lines[5] == "MLNX_OFED_LINUX-24.10-0.7.0.0: driver version 12.4.1.0"
    assert "SLURM_JOB_NODELIST=node-a[001-004,007]" in lines[6]
    assert re.search(r"node-a001, node-a\[001-002\], \x1b\[31mnode-a003\x1b\[0m, x_node-a001.log", lines[7])
    mac, guid = lines[8].split()[2], lines[8].split()[3]
    assert mac.startswith("94:6d:ae:"), "the maker is kept"
    assert guid.replace(":", "")[-6:] == mac.replace(":", "")[-6:], "a GUID made of a MAC address stays one"
    assert lines[8].startswith("std::vector<c10::detail> 0x55d0c8e4b2a0 94:6d:ae")
    assert lines[8].endswith("12:34:56")


@pytest.mark.parametrize(
    "text",
    [
        "GPU0\tGPU1\tNIC0\tmlx5_0\tNV18\tPIX\t0-55,112-167",
        "/sys/devices/system/node/node1/cpulist 0000:1b:00.0 00000000:1B:00.0",
        "nvidia.com/gpu k8s.v1.cni.cncf.io/network-status nvcr.io/nvidia/pytorch:24.05-py3",
        "libnccl.so.2.21.5 570.124.06 28.43.2026 96.00.74.00.01 3.2.1",
        "127.0.0.1 ::1 0.0.0.0 255.255.255.0 ffff:ffff:ffff:ffff:: 224.0.0.1 169.254.169.254 fe80::",
        "root@localhost /{}/x".format("root"),  # root identifies no one, nor does its folder
        "1234567890123456 16 digits; mask ffffffff,ffffffff; 2026-11-21T03:00:00Z",
    ],
)
def test_text_without_identities_stays(text: str) -> None:
    redactor = Redactor(KEY, hosts=("node1", "h100"))
    redactor.learn(text)
    assert redactor.text(text) == text


# --- nothing remains -------------------------------------------------------------------------------

_WORD = st.from_regex(r"\A[b-df-hj-np-tv-z]{4}[a-z]{2,5}\Z")
_HOSTS = st.builds(lambda stem, number: f"{stem}{number:03d}", _WORD, st.integers(0, 999))
_OCTET = st.integers(0, 255)
_PRIVATE = st.builds(lambda b, c, d: f"10.{b}.{c}.{d}", st.integers(1, 255), _OCTET, st.integers(1, 254))
_PUBLIC = st.builds(lambda a, b, c, d: f"{a}.{b}.{c}.{d}", st.integers(11, 99), _OCTET, _OCTET, st.integers(1, 254))
_MACS = st.integers(0x940000000001, 0x94FFFFFFFFFE).map(lambda number: ":".join(re.findall("..", f"{number:012x}")))
_GUIDS = st.integers(0xB8599F0300000001, 0xB8599F0300FFFFFE).map(lambda number: f"0x{number:016x}")
_GLOBAL = st.integers(0x20010DB8 << 96, (0x20010DB9 << 96) - 1).map(lambda n: str(ipaddress.IPv6Address(n | 1 << 60)))
_UUIDS = st.uuids().map(str)
_AROUND = st.sampled_from(
    [
        "{}",
        " {} ",
        "({})",
        '"{}"',
        "a={},",
        "\t{}\n",
        "<b>{}</b>",
        "\x1b[1m{}\x1b[0m",
        "\\n{}\\t",
        "&lt;{}&gt;",
        "{}:4791",
    ]
)


@settings(max_examples=60, deadline=None)
@given(
    hosts=st.lists(_HOSTS, min_size=1, max_size=4, unique=True),
    user=_WORD, job=_WORD, serial=st.from_regex(r"\AMT[0-9]{4}[A-Z]{2}[0-9]{5}\Z"),
    numbers=st.lists(st.one_of(_PRIVATE, _PUBLIC, _MACS, _GUIDS, _GLOBAL, _UUIDS), max_size=6, unique=True),
    around=st.lists(_AROUND, min_size=8, max_size=8),
)  # fmt: skip
def test_no_identifier_survives(
    hosts: list[str], user: str, job: str, serial: str, numbers: list[str], around: list[str]
) -> None:
    words = [*hosts, user, job, serial]
    document: dict[str, Any] = {
        "schema": "preflight.evidence/1", "node": hosts[0], "collected_at": "2026-11-21T03:00:00Z",
        "collector": {"user": user},
        "records": {
            "cmd:ethtool -m eth0": {"status": "ok", "out": f"\tVendor SN      : {serial}\n"},
            "env:process": {"status": "ok", "value": {
                "SLURM_JOB_NAME": job, "SLURM_JOB_NODELIST": ",".join(hosts), "NCCL_TOPO_FILE": f"/home/{user}/t.xml"}},
            f"log:{job}.txt": {"status": "ok", "out": "\n".join(
                shape.format(word) for shape in around for word in (*words, *numbers))},
        },
    }  # fmt: skip
    redactor = Redactor()
    redactor.learn_value(document)
    left = json.dumps(redactor.value(document), ensure_ascii=False).lower()
    common = {name.lower() for name in redactor.names.only_in_place}
    for word in (*words, *numbers):
        if word.lower() not in common:
            assert not re.search(rf"(?<![0-9a-z]){re.escape(word.lower())}(?![0-9a-z])", left), word


@given(st.lists(st.integers(0, (1 << 32) - 1), min_size=2, max_size=20), st.binary(min_size=1, max_size=32))
def test_subnets_stay_subnets_and_addresses_stay_different(numbers: list[int], key: bytes) -> None:
    keyed = Keyed(key)
    addresses = [ipaddress.IPv4Address(number) for number in numbers]
    aliases = [keyed.ipv4(address) for address in addresses]
    assert len(set(aliases)) == len(set(addresses))
    for one, its in zip(addresses, aliases, strict=True):
        assert (one.is_private, one.is_multicast, one.is_loopback) == (
            its.is_private,
            its.is_multicast,
            its.is_loopback,
        ) or (
            int(one) >> 24 in (100, 169, 172, 192, 198, 203)  # blocks of documentation and benchmarks are not preserved
        )
        for other, others in zip(addresses, aliases, strict=True):
            shared = 32 - (int(one) ^ int(other)).bit_length()
            if shared >= 8:
                assert 32 - (int(its) ^ int(others)).bit_length() >= min(shared, 32)


@given(st.sets(st.integers(1, 0xBFFF), max_size=50))
def test_lids_stay_different_and_unicast(lids: set[int]) -> None:
    keyed = Keyed(KEY)
    aliases = {keyed.lid(lid) for lid in lids}
    assert len(aliases) == len(lids)
    assert all(0 < alias < 0xC000 for alias in aliases)
    assert (keyed.lid(0), keyed.lid(0xFFFF)) == (0, 0xFFFF)


def test_two_runs_share_no_alias_of_an_address() -> None:
    assert len({Redactor().text("10.20.30.40") for _ in range(8)}) > 1


@given(st.one_of(st.text(), st.lists(st.sampled_from(
    ["gpu001", "[", "]", "001-9999", ":", "::", "fe80", ".", "/home/", "\\", "\x1b[", "0x", "a", "-", "@", "\n", "é"]
)).map("".join)))  # fmt: skip
def test_any_text_can_be_redacted(text: str) -> None:
    redactor = Redactor(KEY, hosts=("gpu001",))
    redactor.learn(text)
    assert "gpu001" not in re.split(r"[^0-9A-Za-z]+", redactor.text(text))


def test_an_address_after_a_colour_and_again() -> None:
    assert "94:00:00:00:00:01" not in redacted("\x1b[1m94:00:00:00:00:01\x1b[0m\n94:00:00:00:00:01\n")


@pytest.mark.parametrize("name", ["ibnetdiscover", "iblinkinfo", "ibqueryerrors"])
def test_a_sweep(name: str) -> None:
    """Recorded from the tools of infiniband-diags on ibsim: GUIDs with and without leading zeros, node names."""
    text = (paths.DATA / "outside" / f"{name}_ibsim.txt").read_text()
    left = redacted(text)
    guids = {
        found for found in re.findall(r"(?<![0-9a-z])(?:0x)?([0-9a-f]{13,16})(?![0-9a-z])", text) if found.strip("0")
    }
    assert guids
    assert not guids & set(re.findall("[0-9a-f]{13,16}", left))
    assert not re.search(r"\b(?:gpu|leaf|spine)\d+", left)
    assert len(left.splitlines()) == len(text.splitlines())


# --- the command -----------------------------------------------------------------------------------


def test_a_directory(tmp_path: Path) -> None:
    source, out, key = tmp_path / "in", tmp_path / "out", tmp_path / "map.txt"
    (source / "logs").mkdir(parents=True)
    (source / "hgx-h100.json").write_text((FIXTURES / "nodes" / "hgx-h100.json").read_text())
    (source / "logs" / "hgx-h100.log.gz").write_bytes(gzip.compress(b"hgx-h100 says hello to acme\n"))
    (source / "core").write_bytes(b"\x7fELF\0\0")
    (source / "link").symlink_to("/etc/passwd")
    output = run(str(source), "-o", str(out), "--also", "acme", "--map", str(key), expect=1)
    assert "1 × host" in output
    assert "core: is not text" in output
    assert "link is a link" in output
    names = sorted(str(path.relative_to(out)) for path in out.rglob("*") if path.is_file())
    assert len(names) == 2
    assert not any("hgx" in name for name in names)
    (log,) = (out / "logs").iterdir()
    assert re.fullmatch(r"(\S+) says hello to name-a\n", log.read_text())
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert "\thgx-h100\n" in key.read_text()
    assert run(str(out / names[0] if names[0].endswith("json") else out / names[1]), "-o", str(tmp_path / "again"))


def test_what_it_refuses(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text("x")
    assert "already exists" in run(str(tmp_path / "a.log"), "-o", str(tmp_path / "a.log"), expect=2)
    assert "no such file" in run(str(tmp_path / "b.log"), "-o", str(tmp_path / "c"), expect=2)
    assert "is inside the input" in run(str(tmp_path), "-o", str(tmp_path / "c"), expect=2)


def test_owner_of_an_incident_is_no_person_and_its_fingerprint_reveals_no_node() -> None:
    incident = {"fingerprint": "0123456789ab", "owner": "network", "nodes": ["gpu001"], "title": "mlx5_5:1 is DOWN"}
    waiver = {"check": "host.shm", "owner": "jdoe", "reason": "small jobs only"}
    report = {"schema": "preflight.report/1", "incidents": [incident], "coverage": {"waivers": [waiver]}}

    def redact() -> dict[str, Any]:
        redactor = Redactor(KEY)
        redactor.learn_value(report)
        shown: dict[str, Any] = redactor.value(report)
        return shown

    shown = redact()["incidents"][0]
    assert shown["owner"] == "network"
    assert re.fullmatch(r"[0-9a-f]{12}", shown["fingerprint"])
    assert shown["fingerprint"] != incident["fingerprint"]
    assert "jdoe" not in json.dumps(redact())
    assert redact() == redact()  # two reports redacted with one key can be compared
