"""Probes: data to collect, as data; read-only, each with its reason."""
