"""The seats from which jobs are let in or held back: scheduler, init container, CI.

``entry`` answers from a cached verdict before anything else is imported; ``run`` judges. ``policy`` is the one
table of what follows from a verdict, ``slurm`` the only part that ever changes anything outside.
"""
