"""The hooks from which jobs are let in or held back: scheduler, init container, CI.

``main`` serves a cached verdict before anything else is imported; ``node_hook`` judges. ``policy`` is the one table
of what follows from a verdict, ``slurm`` the only part that ever changes anything outside.
"""
