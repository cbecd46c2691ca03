"""Launching of measurements: bandwidth and collective tests.

A module here plans a measurement, starts it over ``collect`` and ``transport``, and returns evidence; parsers of its
output belong to ``parsers``, verdicts to ``checks``. The package sits between ``collect`` and ``commands``.
"""
