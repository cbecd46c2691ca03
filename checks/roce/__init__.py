"""Checks of RoCE: the chain of a port, and settings across nodes."""
