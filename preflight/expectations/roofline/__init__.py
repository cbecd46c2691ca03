"""Roofline of the hardware: collectives, levels of a fat tree, smallest batches."""
