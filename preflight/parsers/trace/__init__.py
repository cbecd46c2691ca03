"""Parsers of training job traces: one file in, typed events out.

Each module reads one format and imports neither evidence nor facts. The package is between ``textprep`` and
``facts.trace``, like the rest of ``parsers``.
"""
