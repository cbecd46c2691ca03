"""Cost of a parallel layout on a cluster, computed before the job runs.

``job`` describes the job, and ``hardware`` the cluster. ``arithmetic`` counts parameters and operations, ``memory``
counts the bytes on a GPU, and ``traffic`` the bytes that each axis moves. ``rank_map`` and ``placement`` locate each
rank, ``step`` computes the time of a step, and ``search`` finds layouts that fit. The package only computes: it does
not collect, launch or render anything.
"""
