"""Typed facts of Ethernet and InfiniBand switches, from their evidence.

A module here makes values of one switch from the results of ``parsers.switch``; it judges nothing. The package sits
between ``parsers`` and ``checks``, as the rest of ``facts``.
"""
