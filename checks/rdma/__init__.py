"""Checks of RDMA devices, their ports, counters and cables."""
