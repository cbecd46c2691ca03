"""Cost of a parallel layout on a cluster, computed before the job runs.

``job`` describes the job, ``hardware`` the cluster. ``arithmetic`` counts parameters and operations, ``memory``
the bytes on a GPU, ``traffic`` the bytes on each link; ``rank_map`` and ``placement`` locate each rank, ``step``
computes the time of a step, ``search`` finds layouts that fit. Everything is computed; nothing is collected, launched
or rendered.
"""
