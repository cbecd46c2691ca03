"""What the hardware allows: bus bandwidth of collectives, levels of a fat tree, batches that keep a GPU busy.

Pure arithmetic over the part catalogue and what the cluster file says; every constant names its source. Bandwidths
are GB/s of 10^9 bytes, per direction.
"""
