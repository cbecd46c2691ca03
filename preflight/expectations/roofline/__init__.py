"""Roofline of the hardware: collectives, fat-tree levels, smallest batches."""
