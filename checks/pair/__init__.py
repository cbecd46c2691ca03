"""Checks of tests between two nodes."""
