"""Descriptions of training jobs: command lines, scripts, configuration files.

Each module reads one format and returns ``settings.JobSettings``; nothing is executed.
"""
