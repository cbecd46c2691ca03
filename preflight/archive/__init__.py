"""Saved evidence: documents of nodes and switches, and logs of a run."""
