"""Output of tools about RDMA devices: ports, GIDs, counters."""
