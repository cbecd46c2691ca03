"""Hooks that let a job start or hold it back: Slurm, init containers, CI.

``main`` serves a cached verdict before anything else is imported; ``node_hook`` judges. ``policy`` is the only
table of actions, and ``slurm`` the only package that changes state in Slurm.
"""
