"""Formats of ``nvidia-smi``."""
