"""Names of parts, and messages without figures that vary between runs."""

from __future__ import annotations

import pytest

from preflight.incidents.parts import Parts, is_device, signature

NODE = {
    "name": "n1",
    "topology": {
        "numa": [
            {
                "node": 0,
                "switches": [
                    {
                        "name": "0000:15:00.0",
                        "gpus": [{"name": "GPU6", "address": "0000:d1:00.0"}],
                        "nics": [
                            {"name": "mlx5_5", "address": "0000:5e:00.0", "netdev": "enp94s0", "leaf": "leaf-07"},
                            {"name": "mlx5_6:2", "address": "0000:9a:00.0", "netdev": "enp154s0"},
                        ],
                    }
                ],
            }
        ]
    },
}
PARTS = Parts.of(NODE)


@pytest.mark.parametrize(
    ("subject", "other"),
    [
        ("GPU6", "0000:d1:00.0"),
        ("mlx5_5:1", "mlx5_5"),
        ("mlx5_5:1", "enp94s0"),
        ("0000:5e:00.0", "mlx5_5:1"),
        ("GPU6-mlx5_4", "GPU6"),
        ("GPU6-mlx5_5", "mlx5_5:1"),
        ("NCCL_IB_HCA", "NCCL_IB_HCA"),
    ],
)
def test_names_of_one_part(subject: str, other: str) -> None:
    assert PARTS.same(subject, other)
    assert PARTS.same(other, subject)


@pytest.mark.parametrize(
    ("subject", "other"),
    [
        ("mlx5_5:1", "mlx5_5:2"),  # two ports of a device have two cables
        ("mlx5_5:1", "mlx5_50:1"),
        ("GPU6", "GPU7"),
        ("GPU6", ""),
        ("", ""),
        ("0000:d1:00.0", "0000:d1:00.1"),
    ],
)
def test_names_of_two_parts(subject: str, other: str) -> None:
    assert not PARTS.same(subject, other)


def test_leaf_of_a_port_and_a_gpu_that_is_gone() -> None:
    assert PARTS.leaf("mlx5_5:1") == "leaf-07"
    assert PARTS.leaf("mlx5_9:1") == ""
    assert PARTS.lacks("0000:61:00.0")
    assert not PARTS.lacks("0000:d1:00.0")
    assert not PARTS.lacks("GPU3")
    assert not Parts.of({"name": "n2"}).lacks("0000:61:00.0")  # nothing was read, so nothing is known to be missing


@pytest.mark.parametrize(
    "subject", ["mlx5_5", "mlx5_5:1", "mlx5_bond_3:1", "rdmap79s0", "GPU3", "0000:61:00.0", "enp24s0", "nvme1n1", "ib0"]
)
def test_devices(subject: str) -> None:
    assert is_device(subject)


@pytest.mark.parametrize("subject", ["", "NCCL_IB_HCA", "kernel release", "BIOS version", "torch 2.8.0", "/data"])
def test_settings(subject: str) -> None:
    assert not is_device(subject)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (("mlx5_4:1: MTU 1500, expected 9000", "mlx5_4:1"), ("mlx5_9:1: MTU 2000, expected 9000", "mlx5_9:1")),
        (("limited to 8 MiB", ""), ("limited to 16 KiB", "")),
        (("0.2 s behind", ""), ("0.25 s behind", "")),
        (("42 errors in 5 min, 60/s", ""), ("7 errors in 1 h, 2/s", "")),
    ],
)
def test_figures_are_no_part_of_a_signature(first: tuple[str, str], second: tuple[str, str]) -> None:
    assert signature(*first) == signature(*second)


def test_words_are_part_of_a_signature() -> None:
    assert signature("PFC is on for no priority", "") != signature("PFC is on for priority 3", "")
    assert signature("Ethernet, expected InfiniBand", "") != signature("InfiniBand, expected Ethernet", "")
    assert signature("NCCL_A=1 is set", "NCCL_A") != signature("NCCL_B=1 is set", "NCCL_B")
