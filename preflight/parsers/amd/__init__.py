"""Parsers of tools for AMD GPUs."""
