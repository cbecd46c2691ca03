"""Parsers of job descriptions: command lines, scripts, configuration files.

A module for each format returns ``settings.JobSettings``. Nothing is executed.
"""
