"""Checks of GPUs and NVLink."""
