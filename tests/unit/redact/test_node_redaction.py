"""Secrets stay on the node, and all data that a judge needs leaves it unchanged."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.collector.redact import MARK, environment, redact, redact_value

LONG = "xY3" * 12
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N"
PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\n-----END RSA PRIVATE KEY-----"


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        # by name
        (f'TOKEN":{MARK}', f'TOKEN":{MARK}'),
        ("HF_TOKEN=abc def", f"HF_TOKEN={MARK} def"),
        ("token = abc", f"token = {MARK}"),
        ("password: hunter2\nnext", f"password: {MARK}\nnext"),
        ("--api-key abc --x 1", f"--api-key {MARK} --x 1"),
        ("--password=a=b x", f"--password={MARK} x"),
        ("--token\0abc\0--rank\0003", f"--token\0{MARK}\0--rank\0003"),
        ("A=1\0AWS_SECRET_ACCESS_KEY=abc\0B=2", f"A=1\0AWS_SECRET_ACCESS_KEY={MARK}\0B=2"),
        ('{"token": "a b\\"c", "n": 1}', f'{{"token": "{MARK}", "n": 1}}'),
        ('{"apiKey":"abc","n":1}', f'{{"apiKey":"{MARK}","n":1}}'),
        ('"{\\"secret\\": \\"abc\\"}"', f'"{{\\"secret\\": \\"{MARK}\\"}}"'),
        ("['--token', 'abc', 'x']", f"['--token', '{MARK}', 'x']"),
        ("Authorization: Bearer abc.def", f"Authorization: {MARK}"),
        ("curl -H 'Authorization: token abc' http://x", f"curl -H 'Authorization: {MARK}' http://x"),
        ("using Bearer abc.def", f"using Bearer {MARK}"),
        ("access_token: Bearer abc x", f"access_token: {MARK} x"),
        ("DB_PASSWD='a b' c", f"DB_PASSWD='{MARK}' c"),
        ("credentials=abc", f"credentials={MARK}"),
        ("API key: abc", f"API key: {MARK}"),
        ("x?token=abc&y=1", f"x?token={MARK}&y=1"),
        # by shape
        ("id AKIAABCDEFGHIJKLMNOP.", f"id {MARK}."),
        ("ASIAABCDEFGHIJKLMNOP", MARK),
        ("ghp_abcdefghijklmnopqrstuvwxyz0123456789", MARK),
        ("github_pat_11ABCDEFG0_abcdefghijklmnop", MARK),
        ("glpat-abcdefghij0123456789", MARK),
        ("xoxb-1234567890-abcdef", MARK),
        ("hf_abcdefghijklmnopqrst", MARK),
        ("sk-proj-abcdefghij0123456789", MARK),
        ("nvapi-abcdefghijklmnop_-1234", MARK),
        (f"a {JWT} b", f"a {MARK} b"),
        (f"a\n{PEM}\nb", f"a\n{MARK}\nb"),
        (f"a\n{PEM[:40]}", f"a\n{MARK}"),
        ("https://me:pa@ss@host/x?y", f"https://me:{MARK}@host/x?y"),
        (f"x={LONG}==;", f"x={MARK};"),
    ],
)
def test_secrets_are_replaced(text: str, clean: str) -> None:
    assert redact(text) == clean
    assert redact(clean) == clean


@pytest.mark.parametrize(
    "text",
    [
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-5f3a7c1e-9b2d-4e6f-8a0c-1d2e3f4a5b6c)",
        "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \tNV18\tPIX\t0-55,112-167\t0\n",
        "0, 00000000:18:00.0, NVIDIA H100 80GB HBM3, GPU-5f3a7c1e-9b2d-4e6f-8a0c-1d2e3f4a5b6c, 570.86.15",
        "CA 'mlx5_0'\n\tCA type: MT4129\n\tNode GUID: 0x946dae0300a1b2c3\n\tPort 1:\n\t\tRate: 400\n\t\tSM lid: 1",
        "GID[0]: fe80:0000:0000:0000:946d:ae03:00a1:b2c3, IB/RoCE v1\nboard_id: MT_0000000838\n",
        "fe80::966d:aeff:fea1:b2c3%eth0/64 2001:db8::1",
        "BOOT_IMAGE=/vmlinuz-5.15.0-1053-nvidia root=UUID=3b9c2e4e-aaaa-4444-bbbb-0123456789ab ro iommu=pt",
        "gpu01:7:9 [0] NCCL INFO comm 0x55d0c8e4b2a0 rank 0 nRanks 16 busId 18000 commId 0x9f8e7d6c5b4a3928 - Init",
        "gpu01:7:9 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB eth0:10.0.0.1<0>",
        "NCCL_IB_HCA==mlx5_0:1,mlx5_1:1 NCCL_DEBUG_FILE=/var/log/nccl.%h.%p NCCL_TOPO_FILE=/opt/topo.xml",
        "SLURM_JOB_NODELIST=gpu[001-064,070] SLURM_TASKS_PER_NODE=8(x64) SLURM_JOB_CPUS_PER_NODE=224(x64)",
        "LD_LIBRARY_PATH=/opt/spack/linux-rhel8-zen4/gcc-12.3.0/nccl-2.21.5-0c7q7x5d8lm2b4n6v8k0j2h4g6f8d0s2/lib",
        "/nix/store/0c7q7x5d8lm2b4n6v8k0j2h4g6f8d0s2-glibc-2.38/lib/libc.so.6",
        "sha256:E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852b855",
        "_ZN3c1014ProcessGroupNCCL8WorkNCCL15checkTimeoutESt8optionalINSt6chrono8durationIlSt5ratioILl1E",
        "tokens per second: 1234 max_tokens=4096 tokenizer: /models/llama TOKENIZERS_PARALLELISM=false",
        "PFC configuration:\n\tpriority    0   1   2   3\n\tenabled     0   0   0   1\n\ttc: 0 ratelimit: unlimited",
        'PRETTY_NAME="Ubuntu 22.04.4 LTS"\nHOME_URL="https://www.ubuntu.com/"',
        "Access key violations 0; no secret here, the token was passed on",
        "disk-a1b2c3d4e5f6g7h8i9j0k1 task-force-with-many-words-1 http://[fe80::1]:8080/a:b@c",
        "Max locked memory         unlimited            unlimited            bytes     \n",
        "",
    ],
)
def test_what_is_needed_is_not_touched(text: str) -> None:
    assert redact(text) == text


def test_no_part_of_a_secret_is_left_in_a_document() -> None:
    value = {"a": [{"api_token": "short", "n": 1}, f"x {LONG}"], "secret": ["abc", 5, None], "ok": True}
    clean = {"a": [{"api_token": MARK, "n": 1}, f"x {MARK}"], "secret": [MARK, 5, None], "ok": True}
    assert redact_value(value) == clean


def test_only_allowed_variables_leave() -> None:
    variables = {
        "NCCL_DEBUG": "INFO", "NCCL_X_TOKEN": "t", "NCCL_FILE": LONG, "RANK": "1", "RANKS": "2", "PATH": "/bin",
        "NCCL_HTTP": "http://u:p@h", "NCCL_EMPTY_TOKEN": "",
    }  # fmt: skip
    assert environment(["NCCL_*", "RANK"], variables) == {
        "NCCL_DEBUG": "INFO", "NCCL_X_TOKEN": MARK, "NCCL_FILE": MARK, "RANK": "1",
        "NCCL_HTTP": f"http://u:{MARK}@h", "NCCL_EMPTY_TOKEN": "",
    }  # fmt: skip
    assert environment([], variables) == {}


PIECES = [
    "token", "=", ":", " ", '"', "'", "\\", "\0", "\n", "--", "-", "a", "B3", "secret", "://", "@", "/", "Bearer ",
    "Authorization", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "eyJabcdef", ".", "hf_", LONG, MARK,
    "sk-", "AKIA", ",", "}", "é", "_", "Z", "\udcff",
]  # fmt: skip


@given(st.one_of(st.text(), st.lists(st.sampled_from(PIECES)).map("".join)))
def test_any_text_is_redacted_once_and_for_all(text: str) -> None:
    once = redact(text)
    assert redact(once) == once
    assert LONG not in once.replace(f"_Z{LONG}", "")


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.text(), lambda inner: st.lists(inner)))
def test_any_value_keeps_its_shape(value: object) -> None:
    assert type(redact_value(value)) is type(value)
    json.dumps(redact_value(value))
