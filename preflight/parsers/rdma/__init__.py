"""Output of tools for RDMA devices: ports, GIDs, counters."""
