"""Sentences of manuals that quote a message."""

from __future__ import annotations

import pytest

from preflight.textprep.prose import is_explanation


@pytest.mark.parametrize(
    "text",
    [
        '  "NCCL error: unhandled system error" mostly means that a peer ended: read the first error.',
        "- `unhandled cuda error` usually indicates a fault of the GPU",
        'If you see "NCCL error: remote process exited", look for the rank that ended first.',
    ],
)
def test_an_explained_message_is_no_failure(text: str) -> None:
    assert is_explanation(text)


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: NCCL error in: ProcessGroupNCCL.cpp:1269, unhandled system error",
        'we get "NCCL error: unhandled system error" on four nodes',
        "what():  NCCL error: remote process exited or there was a network error",
    ],
)
def test_a_reported_message_stays_one(text: str) -> None:
    assert not is_explanation(text)
