"""Comparison of nodes: voters, expected values and differences."""
