"""Probes as data: each item to collect, with the reason; all are read-only."""
