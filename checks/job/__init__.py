"""Checks of a job's logs, benchmarks and traces."""
