"""Checks of an InfiniBand fabric, based on a sweep."""
