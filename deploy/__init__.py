"""Recipes for the systems around preflight, as package data: ``recipe`` returns one."""

from __future__ import annotations

from importlib import resources


def recipe(name: str) -> str:
    """Return a recipe by its path in this folder, such as ``slurm/prolog``."""
    return resources.files(__name__).joinpath(*name.split("/")).read_text(encoding="utf-8")
