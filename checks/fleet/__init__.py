"""Checks of values that nodes of one class share."""
