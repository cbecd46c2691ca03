"""Hostile texts on the node: redaction takes time linear in the text."""

from __future__ import annotations

import time

import pytest

from preflight.collector.redact import redact


@pytest.mark.parametrize(
    "unit",
    [
        "wandb ", "wandb login ", "machine a login b ", "password\n", "snmp community ", "sshpass -p ", "docker ",
        "curl -u", "a/", "aA1/", "_Z", "name: a\n", "key=", "&sig=", "\x1b[1m", "/services/", "eyJaaaaaa", "$6$",
        "password ",
        "-u ", "session=", "<key>", "sig", "AKIA", "hooks.",
        "a", "token", "tokenA3", "token=", "token ", "--token ", 'token="', "token='\\", '\\"', "://", "://a:", "://a:b@",
        "-----BEGIN ", "-----BEGIN PRIVATE KEY-----", "PRIVATE KEY", "eyJ", "eyJaaaaa.", "eyJaaaaa.aaaaa", "sk-",
        "-sk-a", "hf_", "xY3", "x ", "api ", "Bearer ", "secret:\t", "secret:Bearer\t", "=", '"', "aA0_", "\0", "\n",
    ],
)  # fmt: skip
def test_hostile_text_takes_linear_time(unit: str) -> None:
    text = (unit * (150_000 // len(unit) + 1))[:150_000]
    began = time.process_time()
    redact("token" + text)
    assert time.process_time() - began < 2
