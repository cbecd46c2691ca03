"""Explanation of a cluster file, and its effect on saved evidence."""

from __future__ import annotations

from preflight.lint.explain import UnknownKey, explain
from preflight.lint.preview import preview
from preflight.lint.summary import summary

__all__ = ["UnknownKey", "explain", "preview", "summary"]
