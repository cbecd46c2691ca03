"""Typed facts of traces: steps, collectives and idle time of each rank.

Modules in this package combine the traces of several ranks read by ``parsers.torch``, without judging them. The package
is between ``parsers`` and ``checks``, like the rest of ``facts``.
"""
