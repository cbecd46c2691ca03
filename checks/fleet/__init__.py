"""Checks of values that must match across nodes of one class."""
