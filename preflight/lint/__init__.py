"""What a cluster file says, and what it would do: tried on evidence that was saved before."""

from __future__ import annotations

from preflight.lint.explain import UnknownKey, explain
from preflight.lint.preview import preview
from preflight.lint.summary import summary

__all__ = ["UnknownKey", "explain", "preview", "summary"]
