"""Parsers of the output of switch operating systems: text in, typed values out.

A module here reads one format and imports neither evidence nor facts. The package sits between ``textprep`` and
``facts.switch``, as the rest of ``parsers``.
"""
