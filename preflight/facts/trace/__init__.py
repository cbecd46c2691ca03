"""Typed facts of traces: steps, collectives and idle time of each rank.

A module here joins the traces of several ranks that ``parsers.trace`` has read; it judges nothing. The package sits
between ``parsers`` and ``checks``, as the rest of ``facts``.
"""
