"""Parsers of the output of switch operating systems: text in, typed values out.

Each module reads one format and imports neither evidence nor facts. The package is between ``textprep`` and
``facts.switch``, like the rest of ``parsers``.
"""
