"""Probes as data: what is collected, read-only, each with its reason."""
