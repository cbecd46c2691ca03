"""Rendering of the report: text, HTML, JSON, JUnit XML, Prometheus metrics."""
