"""Cost of a parallel layout on a cluster, computed before the job runs.

``job`` describes the job, ``hardware`` the cluster. ``arithmetic`` counts parameters and operations, ``memory`` bytes
of a GPU, ``rank_map`` and ``placement`` where each rank runs, ``traffic`` bytes on each link, ``step`` the time of a
step, ``search`` the layouts that fit. Everything is computed; nothing is collected, launched or rendered.
"""
