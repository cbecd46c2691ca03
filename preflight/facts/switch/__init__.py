"""Typed facts of Ethernet switches, from their evidence.

An adapter for each platform turns records into :class:`model.SwitchFacts`, which names no vendor's key. The package is
between ``parsers`` and ``checks``, like the rest of ``facts``; nothing here judges.
"""
