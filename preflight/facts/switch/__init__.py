"""Typed facts of Ethernet switches, from their evidence.

An adapter for each platform turns records into :class:`model.SwitchFacts`, which contains no vendor's keys. The package
is between ``parsers`` and ``checks``, like the rest of ``facts``; nothing here judges.
"""
