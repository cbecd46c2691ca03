"""Checks of the host: limits, kernel, CPUs, storage, installed software."""
