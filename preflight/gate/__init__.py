"""Hooks that let jobs in or hold them back: scheduler, init container, CI.

``main`` serves a cached verdict before anything else is imported; ``node_hook`` judges. ``policy`` is the one table
of actions, ``slurm`` the only part that changes anything outside.
"""
