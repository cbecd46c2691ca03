"""Parsers of the output of switch operating systems.

Each module reads one format, and imports neither evidence nor facts. As in the rest of ``parsers``, text goes in and
typed values come out.
"""
