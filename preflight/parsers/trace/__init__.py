"""Parsers of traces of training jobs: one file in, typed events out.

A module here reads one format and imports neither evidence nor facts. The package sits between ``textprep`` and
``facts.trace``, as the rest of ``parsers``.
"""
