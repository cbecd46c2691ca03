"""Checks of NCCL's settings on a node."""
