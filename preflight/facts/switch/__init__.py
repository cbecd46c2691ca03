"""Typed facts of Ethernet and InfiniBand switches, from their evidence.

Modules in this package convert the results of ``parsers.switch`` to values of one switch, without judging them. The
package is between ``parsers`` and ``checks``, like the rest of ``facts``.
"""
