"""Tests on a machine with a GPU."""
