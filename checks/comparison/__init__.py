"""Comparison of nodes: who is compared, with what expectation, and who differs."""
