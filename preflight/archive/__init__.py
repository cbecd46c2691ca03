"""Saved evidence: one file per node."""
