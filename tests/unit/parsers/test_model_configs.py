"""Whether the layers of a Hugging Face model are gated, and its key-value heads."""

from __future__ import annotations

import json

import pytest

from preflight.parsers.job_config import reader

_SIZES = {"hidden_size": 4096, "num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000}


def gated(**config: object) -> object:
    return reader.parse(json.dumps({**_SIZES, **config}), "config.json").get("gated")


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"model_type": "llama"}, True),
        ({"model_type": "gemma", "hidden_act": "gelu"}, True),
        ({"model_type": "falcon"}, False),
        ({"architectures": ["Qwen3MoeForCausalLM"]}, True),
        ({"architectures": ["GPTNeoXForCausalLM"], "hidden_act": "gelu"}, False),
        ({"hidden_act": "silu"}, True),
        ({"hidden_act": "gelu"}, False),
        ({"model_type": "unheard_of"}, None),
    ],
)
def test_gate_of_a_model(config: dict[str, object], expected: bool | None) -> None:
    assert gated(**config) is expected


def test_an_unknown_model_requests_it() -> None:
    settings = reader.parse(json.dumps(_SIZES), "config.json")
    assert settings.unread == {"gated"}
    assert "state it with --set gated=yes or --set gated=no" in settings.gaps[0]


def test_one_key_value_head_of_multi_query() -> None:
    text = json.dumps({**_SIZES, "model_type": "falcon", "multi_query": True})
    assert reader.parse(text, "config.json").get("kv_heads") == 1


def test_the_language_part_of_a_multimodal_model() -> None:
    text = "\ufeff" + json.dumps({"model_type": "gemma3", "text_config": {**_SIZES, "model_type": "gemma3_text"}})
    settings = reader.parse(text, "config.json")
    assert (settings.get("layers"), settings.get("gated")) == (32, True)


def test_toml_with_too_many_dots_is_refused() -> None:
    with pytest.raises(ValueError, match=r"job\.toml:1: the line has more than 500 dots"):
        reader.parse(".".join("a" * 1000) + " = 1\n", "job.toml")
