"""Checks of an InfiniBand fabric, from a sweep."""
