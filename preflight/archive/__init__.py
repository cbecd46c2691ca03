"""Saved evidence: one file a node."""
